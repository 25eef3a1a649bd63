//! What a benchmark found.

use super::{Bandwidth, Work};
use crate::model::{MemoryPlan, ModelInfo};
use crate::stream::Record;
use std::time::Duration;

/// What a benchmark found.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// The model.
    pub info: ModelInfo,
    /// Where its bytes were.
    pub plan: MemoryPlan,
    /// How fast the machine reads memory, measured just before.
    pub bandwidth: Bandwidth,
    /// Time to load the model: until a first token could have been computed.
    pub loading: Duration,
    /// By depth, then in the order asked for.
    pub measurements: Vec<Measurement>,
}

/// Runs of one kind of work.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The work.
    pub work: Work,
    /// Tokens in the context before it.
    pub depth: usize,
    /// Each run. All do the same with other tokens.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Bytes of weights that its passes read from memory: each once for all tokens of a pass. Keys and values are not
    /// among them.
    pub weight_bytes: u64,
    /// Time, and what was read from the drive, if anything was.
    pub record: Record,
}

impl Measurement {
    /// Tokens a second: the median of the runs, of which there is one at least.
    pub fn tokens_per_second(&self) -> f64 {
        let mut seconds: Vec<f64> = self.runs.iter().map(|run| run.record.elapsed.as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let middle = (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0;
        self.work.n_tokens() as f64 / middle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speed_is_that_of_the_median_run_or_between_the_two_in_the_middle() {
        let speed = |ms: &[u64]| {
            let record = |ms| Record { elapsed: Duration::from_millis(ms), ..Record::default() };
            let runs = ms.iter().map(|&ms| Run { weight_bytes: 0, record: record(ms) }).collect();
            Measurement { work: Work::Decode(6), depth: 0, runs }.tokens_per_second()
        };
        assert_eq!(speed(&[1000, 9000, 2000]), 3.0);
        assert_eq!(speed(&[4000, 1000, 9000, 2000]), 2.0);
        assert_eq!(speed(&[500]), 12.0);
    }
}

//! What each token took, and what that says of parts of the run.

use super::report::{Burst, Window};
use crate::experts::StreamingReport;
use std::ops::Range;
use std::time::Duration;

/// What one token took, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Experts requested.
    pub accesses: u64,
    /// Those that the cache or a prefetch had.
    pub hits: u64,
    /// Bytes read, of experts and dense weights.
    pub read_bytes: u64,
    /// Time in which the computation waited.
    pub wait_us: u64,
    /// Time in all.
    pub elapsed: Duration,
}

impl Record {
    /// Everything until now.
    pub fn until_now(report: &StreamingReport, ring: crate::model::RingReport, elapsed: Duration) -> Self {
        let store = report.store;
        Self {
            accesses: store.accesses,
            hits: store.hits + store.staging_hits,
            read_bytes: store.demand_bytes + store.prefetch_bytes + ring.read_bytes,
            wait_us: store.wait_us + ring.wait_us,
            elapsed,
        }
    }

    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            accesses: self.accesses - earlier.accesses,
            hits: self.hits - earlier.hits,
            read_bytes: self.read_bytes - earlier.read_bytes,
            wait_us: self.wait_us - earlier.wait_us,
            elapsed: self.elapsed - earlier.elapsed,
        }
    }

    /// Share of the requests that the cache or a prefetch served, 0 to 1.
    pub fn hit_rate(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.hits as f64 / self.accesses as f64 }
    }
}

/// Looks at the end of each token: `[n_tokens + 1]`, the first before any.
pub(super) struct Records(pub Vec<Record>);

/// Tokens over which a hit rate must be back to count as recovered.
const RECOVERED_OVER: usize = 8;
/// How far below the rate before the burst counts as back: what a rate over a few tokens varies by anyway.
const RECOVERED_WITHIN: f64 = 0.02;

impl Records {
    fn n_tokens(&self) -> usize {
        self.0.len() - 1
    }

    pub fn over(&self, tokens: Range<usize>) -> Record {
        self.0[tokens.end].since(&self.0[tokens.start])
    }

    /// `n` parts of as many tokens each, up to one; fewer where there are fewer tokens.
    pub fn windows(&self, n: usize) -> Vec<Window> {
        let n = n.clamp(1, self.n_tokens().max(1));
        let bound = |i: usize| self.n_tokens() * i / n;
        let window = |i: usize| {
            let tokens = bound(i)..bound(i + 1);
            let record = self.over(tokens.clone());
            Window {
                first_token: tokens.start,
                n_tokens: tokens.len(),
                hit_rate: record.hit_rate(),
                read_bytes: record.read_bytes,
                wait_us: record.wait_us,
                elapsed: record.elapsed,
            }
        };
        (0..n).map(window).collect()
    }

    /// How a burst of structureless choices went, beside as many tokens before and after it.
    pub fn burst(&self, burst: &Range<usize>) -> Burst {
        let n_tokens = self.n_tokens();
        let burst = burst.start.min(n_tokens)..burst.end.min(n_tokens);
        let rate = |tokens: Range<usize>| (!tokens.is_empty()).then(|| self.over(tokens).hit_rate());
        let before = rate(burst.start.saturating_sub(burst.len())..burst.start);
        let recovered = before.and_then(|before| {
            let mut starts = burst.end..(n_tokens + 1).saturating_sub(RECOVERED_OVER);
            let is_back =
                |start: &usize| self.over(*start..start + RECOVERED_OVER).hit_rate() >= before - RECOVERED_WITHIN;
            starts.find(is_back).map(|start| start - burst.end)
        });
        Burst {
            before,
            during: self.over(burst.clone()).hit_rate(),
            after: rate(burst.end..n_tokens.min(burst.end + burst.len())),
            recovered_after: recovered,
            tokens: burst,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens that ask for 10 experts each and find so many.
    fn records(hits: &[u64]) -> Records {
        let mut records = vec![Record::default()];
        for hits in hits {
            let mut record = *records.last().unwrap();
            record.accesses += 10;
            record.hits += hits;
            record.read_bytes += 10 - hits;
            record.elapsed += Duration::from_millis(1);
            records.push(record);
        }
        Records(records)
    }

    #[test]
    fn windows_divide_the_run_into_like_parts() {
        let windows = records(&[0, 0, 5, 5, 10, 10, 10]).windows(3);
        let shape: Vec<_> = windows.iter().map(|w| (w.first_token, w.n_tokens, w.hit_rate, w.read_bytes)).collect();
        assert_eq!(shape, [(0, 2, 0.0, 20), (2, 2, 0.5, 10), (4, 3, 1.0, 0)]);
        assert_eq!(records(&[1, 1]).windows(5).len(), 2);
        assert_eq!(windows[2].elapsed, Duration::from_millis(3));
    }

    #[test]
    fn a_burst_is_told_with_what_was_before_and_how_long_it_took_to_recover() {
        let mut hits = vec![8; 20];
        hits.extend([1; 10]);
        hits.extend([4; 5]);
        hits.extend([8; 15]);
        let burst = records(&hits).burst(&(20..30));
        assert_eq!((burst.before, burst.during), (Some(0.8), 0.1));
        assert!((burst.after.unwrap() - 0.6).abs() < 1e-9);
        // Within two points over eight tokens: none of the slow five may be among them.
        assert_eq!(burst.recovered_after, Some(5));
        let cut = records(&hits[..25]).burst(&(20..30));
        assert_eq!((cut.tokens, cut.after, cut.recovered_after), (20..25, None, None));
        assert_eq!(records(&hits).burst(&(0..3)).before, None);
    }
}

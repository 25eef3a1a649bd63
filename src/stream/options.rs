//! How a benchmark is run.

use crate::model::LoadOptions;
use crate::workload::SyntheticRouting;
use std::path::PathBuf;
use std::time::Duration;

/// How a benchmark is run.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// Memory, cache, policy, prediction, threads, as for a model that generates. Experts are streamed also where all
    /// would fit; there is no text, so no context, and no SMART-ROUTE.
    pub load: LoadOptions,
    /// Tokens; where not given, [`DEFAULT_TOKENS`](Self::DEFAULT_TOKENS), or all of a trace. Never more than a trace has.
    pub n_tokens: Option<usize>,
    /// Which experts the tokens choose.
    pub choices: Choices,
    /// Chance that the prediction of a choice one layer early is right, 0 to 1.
    pub accuracy: f64,
    /// What is done with weights.
    pub work: Work,
    /// Parts of the run whose hit rates are told apart.
    pub n_windows: usize,
}

impl StreamOptions {
    /// Tokens where no number is given.
    pub const DEFAULT_TOKENS: usize = 256;
    /// The prediction's accuracy where none is given: the middle of what routers applied one layer early were measured
    /// to name of the experts chosen, 81 to 89 %.
    pub const DEFAULT_ACCURACY: f64 = 0.85;
}

/// Which experts the tokens choose.
#[derive(Clone, Debug, PartialEq)]
pub enum Choices {
    /// Made up.
    Synthetic(SyntheticRouting),
    /// Those of a trace.
    Trace(PathBuf),
}

/// What is done with weights once they are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Every row is multiplied with a fixed vector, by the kernels of the forward pass.
    Dot,
    /// Bytes are summed up: about the least that reading them costs.
    Checksum,
    /// Nothing, for so long for each expert; dense weights take no time.
    Delay(Duration),
}

//! What is measured.

use crate::model::LoadOptions;
use std::fmt;

/// How a benchmark is run.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Memory, cache, threads, kernels, as for a model that generates. The context is as long as the work needs.
    pub load: LoadOptions,
    /// What is measured, in this order, at each depth.
    pub work: Vec<Work>,
    /// Tokens in the context before the work begins.
    pub depths: Vec<usize>,
    /// Runs of each, after one that is not counted.
    pub n_runs: usize,
    /// Of the random tokens.
    pub seed: u64,
    /// Bytes to measure the machine's bandwidth with; less for a smaller model, or where little memory may be used.
    pub bandwidth_bytes: usize,
}

impl BenchOptions {
    /// Runs where no number is given.
    pub const DEFAULT_RUNS: usize = 5;
    /// Twice the largest caches that servers have, which weights do not stay in.
    pub const DEFAULT_BANDWIDTH_BYTES: usize = 1 << 30;
}

/// Work for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A prompt of so many tokens.
    Prompt(usize),
    /// So many tokens, one after the other.
    Decode(usize),
}

impl Work {
    /// Its tokens.
    pub fn n_tokens(self) -> usize {
        match self {
            Self::Prompt(n) | Self::Decode(n) => n,
        }
    }
}

impl fmt::Display for Work {
    /// The name that llama.cpp gives it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt(n) => write!(f, "pp{n}"),
            Self::Decode(n) => write!(f, "tg{n}"),
        }
    }
}

//! What a benchmark found.

use crate::experts::StreamingReport;
use crate::model::{MemoryPlan, ModelInfo, RingReport};
use crate::store::policy::PolicyKind;
use std::ops::Range;
use std::time::Duration;

/// What a benchmark found.
#[derive(Clone, Debug)]
pub struct StreamReport {
    /// The model whose weights were read.
    pub info: ModelInfo,
    /// Where its bytes were, with the predicted peak.
    pub plan: MemoryPlan,
    /// Which experts stayed.
    pub policy: PolicyKind,
    /// Tokens that went through.
    pub n_tokens: usize,
    /// Time from the first token's start to the last one's end.
    pub elapsed: Duration,
    /// Time until then: the choices, and dense weights that stay in memory.
    pub loading: Duration,
    /// Time of the work on weights.
    pub working: Duration,
    /// What the store and the prediction did.
    pub streaming: StreamingReport,
    /// What the ring of dense weights did; zeros where they stayed in memory.
    pub ring: RingReport,
    /// The run in parts.
    pub windows: Vec<Window>,
    /// The burst, where there was one.
    pub burst: Option<Burst>,
    /// Of all results of the work: the same for the same file, choices and work, whatever the cache and the threads.
    pub digest: u64,
}

/// A part of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Its first token.
    pub first_token: usize,
    /// Its tokens.
    pub n_tokens: usize,
    /// Share of requests that the cache or a prefetch served, 0 to 1.
    pub hit_rate: f64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Time in which the computation waited for reads, in microseconds.
    pub wait_us: u64,
    /// Time in all.
    pub elapsed: Duration,
}

/// Hit rates, 0 to 1, around a burst of structureless choices.
#[derive(Clone, Debug, PartialEq)]
pub struct Burst {
    /// The tokens of the burst.
    pub tokens: Range<usize>,
    /// Over as many tokens before it; `None` where there are none.
    pub before: Option<f64>,
    /// During it.
    pub during: f64,
    /// Over as many tokens after it; `None` where there are none.
    pub after: Option<f64>,
    /// Tokens after it until the rate was back where it was before; `None` if that did not come.
    pub recovered_after: Option<usize>,
}

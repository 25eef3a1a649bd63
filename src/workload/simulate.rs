//! How well cache policies would have done on a trace: its choices, replayed through the policy alone.

use super::trace::{TraceError, TraceInfo, read_trace_with_info};
use crate::store::policy::{HitRates, PolicyKind, Trace, belady, replay};
use std::path::Path;
use std::time::Instant;

/// What a simulation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// What the trace holds.
    pub info: TraceInfo,
    /// One entry for each size asked for, in that order.
    pub caches: Vec<SimulatedCache>,
}

/// Caches of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedCache {
    /// Share of all experts that was asked for, 0 to 1.
    pub share: f64,
    /// Experts that fit.
    pub n_slots: usize,
    /// What who knows the future would have had.
    pub belady: HitRates,
    /// One entry for each policy asked for, in that order.
    pub policies: Vec<SimulatedPolicy>,
}

/// One policy, begun with an empty cache, the prompt first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedPolicy {
    /// The policy.
    pub policy: PolicyKind,
    /// What it had.
    pub rates: HitRates,
    /// Requests that it answered in a second, of prompt and text.
    pub accesses_per_second: f64,
}

/// Replays the trace at `path` through `policies`, for caches of `shares` of all experts (0 to 1, rounded to whole ones).
///
/// # Errors
/// Where the trace cannot be read, or it is cancelled.
pub fn simulate(
    path: &Path,
    policies: &[PolicyKind],
    shares: &[f64],
    cancelled: &dyn Fn() -> bool,
) -> Result<Simulation, TraceError> {
    let (trace, info) = read_trace_with_info(path, cancelled)?;
    let mut caches = Vec::with_capacity(shares.len());
    for &share in shares {
        let n_slots = slots(&trace, share);
        let mut cache = SimulatedCache { share, n_slots, belady: belady(&trace, n_slots), policies: Vec::new() };
        for &policy in policies {
            if cancelled() {
                return Err(TraceError::Cancelled);
            }
            cache.policies.push(run(&trace, policy, n_slots));
        }
        caches.push(cache);
    }
    Ok(Simulation { info, caches })
}

fn run(trace: &Trace, policy: PolicyKind, n_slots: usize) -> SimulatedPolicy {
    let start = Instant::now();
    let rates = replay(trace, policy, n_slots);
    // A clock may stand still for the shortest of traces.
    let seconds = start.elapsed().as_secs_f64().max(1e-9);
    SimulatedPolicy { policy, rates, accesses_per_second: trace.keys.len() as f64 / seconds }
}

/// The number of slots that is a share of all experts.
fn slots(trace: &Trace, share: f64) -> usize {
    ((trace.n_layers * trace.n_experts) as f64 * share.clamp(0.0, 1.0)).round() as usize
}

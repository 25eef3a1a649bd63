//! Traces, as JavaScript sees them. Each is read and simulated on a thread of its own.

use super::error::NodeError;
use super::shapes::Event;
use crate::store::policy::{self, PolicyKind};
use crate::workload::trace::{self, TraceKind};
use crate::workload::{self, SimulatedCache as Cache, SimulatedPolicy as Policy};
use napi_derive::napi;
use std::path::{Path, PathBuf};

/// What a trace file holds.
#[napi(object)]
pub struct TraceInfo {
    /// `router-logits` or `choices`.
    pub kind: String,
    pub n_layers: i64,
    /// Experts of a layer.
    pub n_experts: i64,
    /// Most experts that a token chose in a layer.
    pub n_experts_used: i64,
    /// Tokens of the prompt.
    pub prompt_tokens: i64,
    /// Tokens that follow it.
    pub tokens: i64,
    /// Choices of an expert, for prompt and text.
    pub choices: i64,
    /// Bytes at the end that are no whole token: the recording was cut off.
    pub left_over_bytes: i64,
}

/// What caches would have done with a trace.
#[napi(object)]
pub struct Simulation {
    pub trace: TraceInfo,
    /// One for each share asked for.
    pub caches: Vec<SimulatedCache>,
}

/// Caches of one size.
#[napi(object)]
pub struct SimulatedCache {
    /// The share asked for, 0 to 1.
    pub share: f64,
    /// Experts that the cache holds.
    pub cached_experts: i64,
    /// The best that could be: keeps what is needed soonest, knowing what comes.
    pub belady: HitRates,
    /// One for each policy asked for.
    pub policies: Vec<SimulatedPolicy>,
}

/// How often a chosen expert was in the cache.
#[napi(object)]
pub struct HitRates {
    /// Share of the choices after the prompt, 0 to 1.
    pub hit_rate: f64,
    /// Hits after the prompt.
    pub hits: i64,
    /// Choices after the prompt.
    pub accesses: i64,
    pub prompt_hits: i64,
    pub prompt_accesses: i64,
}

/// What a policy did with a cache that was empty at first.
#[napi(object)]
pub struct SimulatedPolicy {
    pub policy: String,
    /// The policy that streaming uses unless told otherwise.
    pub is_default: bool,
    pub rates: HitRates,
    /// Choices simulated in a second.
    pub accesses_per_second: f64,
}

pub(super) fn inspect(path: &Path, cancelled: &dyn Fn() -> bool) -> Result<Event, NodeError> {
    let info = trace::inspect_trace(path, cancelled)?;
    Ok(Event { trace: Some(info.into()), ..Event::default() })
}

/// Answers with the tokens converted, as `done`.
pub(super) fn convert(path: &Path, out: &Path, cancelled: &dyn Fn() -> bool) -> Result<Event, NodeError> {
    let n_tokens = trace::convert_to_csv(path, out, cancelled)?;
    Ok(Event { done: Some(n_tokens as i64), ..Event::default() })
}

/// What is to be simulated: all policies where none is named.
pub(super) struct Question {
    pub(super) path: PathBuf,
    pub(super) policies: Option<Vec<String>>,
    pub(super) shares: Vec<f64>,
}

pub(super) fn simulate(question: &Question, cancelled: &dyn Fn() -> bool) -> Result<Event, NodeError> {
    let Question { path, policies, shares } = question;
    let policies: Vec<PolicyKind> = match policies {
        Some(names) => names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        None => PolicyKind::ALL.to_vec(),
    };
    let simulation = workload::simulate(path, &policies, shares, cancelled)?;
    Ok(Event { simulation: Some(simulation.into()), ..Event::default() })
}

impl From<trace::TraceInfo> for TraceInfo {
    fn from(info: trace::TraceInfo) -> Self {
        let kind = match info.kind {
            TraceKind::Logits => "router-logits",
            TraceKind::Choices => "choices",
        };
        Self {
            kind: kind.to_owned(),
            n_layers: info.n_layers as i64,
            n_experts: info.n_experts as i64,
            n_experts_used: info.n_used as i64,
            prompt_tokens: info.prompt_tokens as i64,
            tokens: info.tokens as i64,
            choices: info.n_choices as i64,
            left_over_bytes: info.left_over_bytes as i64,
        }
    }
}

impl From<workload::Simulation> for Simulation {
    fn from(found: workload::Simulation) -> Self {
        Self { trace: found.info.into(), caches: found.caches.into_iter().map(SimulatedCache::from).collect() }
    }
}

impl From<Cache> for SimulatedCache {
    fn from(cache: Cache) -> Self {
        Self {
            share: cache.share,
            cached_experts: cache.n_slots as i64,
            belady: cache.belady.into(),
            policies: cache.policies.into_iter().map(SimulatedPolicy::from).collect(),
        }
    }
}

impl From<Policy> for SimulatedPolicy {
    fn from(found: Policy) -> Self {
        Self {
            policy: found.policy.to_string(),
            is_default: found.policy == PolicyKind::default(),
            rates: found.rates.into(),
            accesses_per_second: found.accesses_per_second,
        }
    }
}

impl From<policy::HitRates> for HitRates {
    fn from(rates: policy::HitRates) -> Self {
        Self {
            hit_rate: rates.rate(),
            hits: rates.hits as i64,
            accesses: rates.accesses as i64,
            prompt_hits: rates.prompt_hits as i64,
            prompt_accesses: rates.prompt_accesses as i64,
        }
    }
}

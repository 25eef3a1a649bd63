//! Where a model's bytes go: decided from what the process may use, before anything is loaded.

use super::{Config, LoadOptions, ModelError};
use crate::experts::StreamingOptions;
use crate::gguf::Layout;
use crate::guard::{Memory, MemorySource, process_bytes};
use crate::store::{self, Budget, ExpertTable};

/// Where everything is kept, and how much memory it takes.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPlan {
    /// True where experts are streamed, false where all are in memory.
    pub streaming: bool,
    /// Why.
    pub reason: PlanReason,
    /// Bytes that the whole must fit in.
    pub budget_bytes: Option<u64>,
    /// Bytes of dense tensors.
    pub dense_bytes: u64,
    /// Bytes for experts: all of them, or the cache with its staging and bypass buffers.
    pub expert_bytes: u64,
    /// Experts that fit in the cache at once.
    pub cached_experts: usize,
    /// Experts of all layers.
    pub n_experts: usize,
    /// Positions of the context.
    pub n_ctx: usize,
    /// Bytes of the keys and values of a full context.
    pub kv_bytes: u64,
    /// Bytes of the buffers of a pass.
    pub buffer_bytes: u64,
    /// Bytes that the process held before.
    pub process_bytes: u64,
    /// Slots of the store, where experts are streamed.
    pub(super) slots: Option<store::Plan>,
}

/// What decided between streaming and keeping everything in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanReason {
    /// Everything fits in the memory that was given.
    FitsBudget,
    /// Everything fits in four fifths of what the process may use.
    FitsMemory,
    /// It does not fit, so experts are streamed.
    TooLarge,
    /// A size of the cache was given.
    CacheGiven,
}

impl PlanReason {
    /// The reason in a few words.
    pub fn text(self) -> &'static str {
        match self {
            Self::FitsBudget => "everything fits in the memory given",
            Self::FitsMemory => "everything fits in memory",
            Self::TooLarge => "the model is larger than the memory that may be used",
            Self::CacheGiven => "a size of the cache was given",
        }
    }
}

impl MemoryPlan {
    /// Predicted peak of the process's memory with a full context, in bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.dense_bytes + self.expert_bytes + self.kv_bytes + self.buffer_bytes + self.process_bytes
    }

    /// Share of the experts that fit in memory at once, 0 to 1.
    pub fn cached_share(&self) -> f64 {
        self.cached_experts as f64 / self.n_experts.max(1) as f64
    }
}

/// Share of the process's memory that a model may take; the rest is for the program and the system.
const USABLE_PERCENT: u64 = 80;
/// Share of what is free now that a streamed model takes at most.
const FREE_PERCENT: u64 = 90;
/// What a JavaScript program grows by while it generates.
const SLACK_BYTES: u64 = 16 << 20;
/// Positions that the default context has at least, where the model has them.
const LEAST_CTX: usize = 512;
/// Positions of the default context while experts are streamed: memory serves better as cache.
const STREAMING_CTX: usize = 4096;
/// Tokens of the largest pass.
const BATCH_TOKENS: usize = 512;

/// Decides where the bytes of a model go.
///
/// # Errors
/// Where the memory given is too small for the smallest cache; the message has the size that works.
pub(super) fn plan(
    config: &Config,
    layout: &Layout,
    experts: &ExpertTable,
    vocab_size: usize,
    options: &LoadOptions,
) -> Result<MemoryPlan, ModelError> {
    Planner { config, layout, experts, vocab_size, options, memory: Memory::detect(), process_bytes: process_bytes() }
        .plan()
}

struct Planner<'a> {
    config: &'a Config,
    layout: &'a Layout,
    experts: &'a ExpertTable,
    vocab_size: usize,
    options: &'a LoadOptions,
    memory: Option<Memory>,
    process_bytes: u64,
}

impl Planner<'_> {
    fn plan(&self) -> Result<MemoryPlan, ModelError> {
        let all = self.layout.expert_bytes();
        if let Some(cache_bytes) = self.options.cache_bytes {
            let slots = self.slots(Budget::Cache(cache_bytes));
            return Ok(self.streamed(PlanReason::CacheGiven, self.ctx(STREAMING_CTX), slots, None));
        }
        if let Some(budget) = self.options.memory_bytes {
            let resident = self.resident(PlanReason::FitsBudget, self.ctx(LEAST_CTX), Some(budget));
            if resident.peak_bytes() <= budget {
                let n_ctx = self.ctx(self.affordable_ctx(budget.saturating_sub(self.fixed_bytes() + all)));
                return Ok(self.resident(PlanReason::FitsBudget, n_ctx, Some(budget)));
            }
            return self.streamed_within(budget);
        }
        let Some(memory) = self.memory else {
            return Ok(self.resident(PlanReason::FitsMemory, self.ctx(usize::MAX), None));
        };
        let usable = memory.total_bytes / 100 * USABLE_PERCENT;
        if self.layout.dense_bytes() + all <= usable {
            let n_ctx = self.ctx(self.affordable_ctx(usable.saturating_sub(self.fixed_bytes() + all) / 2));
            return Ok(self.resident(PlanReason::FitsMemory, n_ctx, Some(usable)));
        }
        // What the process holds already is not free any more.
        let free = memory.available_bytes / 100 * FREE_PERCENT + self.process_bytes;
        self.streamed_within(usable.min(free))
    }

    /// Streams with the largest cache that leaves the whole within `budget`.
    fn streamed_within(&self, budget: u64) -> Result<MemoryPlan, ModelError> {
        let n_ctx = self.ctx(STREAMING_CTX);
        let fixed = self.fixed_bytes() + self.kv_bytes(n_ctx);
        let slots = self.slots(Budget::Arena(budget.saturating_sub(fixed)));
        let plan = self.streamed(PlanReason::TooLarge, n_ctx, slots, Some(budget));
        if plan.peak_bytes() > budget {
            let limit = match (self.options.memory_bytes, self.memory.map(|memory| memory.source)) {
                (Some(_), _) => "given",
                (None, Some(MemorySource::Cgroup)) => "what the control group leaves",
                (None, _) => "what the machine leaves",
            };
            let (needed_mib, usable_mib) = (plan.peak_bytes().div_ceil(1 << 20), budget >> 20);
            return Err(ModelError::TooLarge { needed_mib, usable_mib, limit });
        }
        Ok(plan)
    }

    fn resident(&self, reason: PlanReason, n_ctx: usize, budget_bytes: Option<u64>) -> MemoryPlan {
        let n_experts = self.experts.n_present();
        MemoryPlan {
            streaming: false,
            expert_bytes: self.layout.expert_bytes(),
            cached_experts: n_experts,
            slots: None,
            ..self.common(reason, n_ctx, budget_bytes)
        }
    }

    fn streamed(&self, reason: PlanReason, n_ctx: usize, slots: store::Plan, budget_bytes: Option<u64>) -> MemoryPlan {
        MemoryPlan {
            streaming: true,
            expert_bytes: slots.arena_bytes(),
            cached_experts: slots.n_slots,
            slots: Some(slots),
            ..self.common(reason, n_ctx, budget_bytes)
        }
    }

    fn common(&self, reason: PlanReason, n_ctx: usize, budget_bytes: Option<u64>) -> MemoryPlan {
        MemoryPlan {
            streaming: false,
            reason,
            budget_bytes,
            dense_bytes: self.layout.dense_bytes(),
            expert_bytes: 0,
            cached_experts: 0,
            n_experts: self.experts.n_present(),
            n_ctx,
            kv_bytes: self.kv_bytes(n_ctx),
            buffer_bytes: self.buffer_bytes(n_ctx),
            process_bytes: self.process_bytes + SLACK_BYTES,
            slots: None,
        }
    }

    fn slots(&self, budget: Budget) -> store::Plan {
        let StreamingOptions { n_staging, .. } = self.options.streaming;
        let n_used = self.config.routing.n_used;
        store::Plan::new(self.experts, budget, n_used, n_staging.unwrap_or(n_used))
    }

    /// Everything but experts, keys and values.
    fn fixed_bytes(&self) -> u64 {
        self.layout.dense_bytes() + self.buffer_bytes(LEAST_CTX) + self.process_bytes + SLACK_BYTES
    }

    /// The context asked for, or `default`, within what the model was trained for.
    fn ctx(&self, default: usize) -> usize {
        self.options.n_ctx.unwrap_or(default.max(LEAST_CTX)).clamp(1, self.config.context_length)
    }

    fn affordable_ctx(&self, bytes: u64) -> usize {
        usize::try_from(bytes / self.kv_bytes(1).max(1)).unwrap_or(usize::MAX)
    }

    fn kv_bytes(&self, n_ctx: usize) -> u64 {
        let config = self.config;
        (2 * config.n_layers * config.kv_dim() * self.options.cache_type.bytes()) as u64 * n_ctx as u64
    }

    /// Buffers of the largest pass: floats of the residual stream and the heads, of each pair of token and expert, and
    /// the logits; quantized copies come to about a third of what they copy.
    fn buffer_bytes(&self, n_ctx: usize) -> u64 {
        let config = self.config;
        let per_token =
            4 * config.embed_dim + 2 * config.q_dim() + 2 * config.kv_dim() + config.head_dim + config.n_experts;
        let per_pair = 2 * config.expert_dim + config.embed_dim;
        let floats = BATCH_TOKENS.min(n_ctx) * (per_token + config.routing.n_used * per_pair) + 2 * self.vocab_size;
        (floats * 4 + floats) as u64
    }
}

#[cfg(test)]
mod tests;

//! Where a model's bytes go: decided from what the process may use, before anything is loaded.

use super::{Config, DensePlace, LOGIT_TOKENS, LoadOptions, ModelError};
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
    /// True where dense tensors are read anew in every pass, two layers' at a time.
    pub ring: bool,
    /// Bytes of dense tensors in memory.
    pub dense_bytes: u64,
    /// Bytes for experts: all of them, or the cache and its staging buffers.
    pub expert_bytes: u64,
    /// Bytes of what takes up memory only once it is needed, which is seldom: buffers for when all of the cache is in use
    /// at once, logits of every token of a text, a program that grows. Within the budget, and not in the predicted peak.
    pub spare_bytes: u64,
    /// Experts that fit in the cache at once.
    pub cached_experts: usize,
    /// Experts of all layers.
    pub n_experts: usize,
    /// Positions of the context.
    pub n_ctx: usize,
    /// Tokens of a pass at most.
    pub batch_tokens: usize,
    /// Positions that all texts together may hold keys and values of: a full context at least. `None` where no memory was
    /// planned for.
    pub kv_positions: Option<usize>,
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

    /// The most that the process can come to hold, in bytes.
    pub fn most_bytes(&self) -> u64 {
        self.peak_bytes() + self.spare_bytes
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
/// What a JavaScript program grows by while it loads and generates: 1 to 7 MiB were measured over 20 to 500 tokens, with
/// vocabularies of 4000 to 150 000. This much is predicted,
const GROWTH_BYTES: u64 = 3 << 20;
/// and this much more is kept free for it.
const SLACK_BYTES: u64 = 7 << 20;
/// Positions that the default context has at least, where the model has them.
const LEAST_CTX: usize = 512;
/// Positions of the default context while experts are streamed: memory serves better as cache.
const STREAMING_CTX: usize = 4096;
/// Share of a budget that keys and values of the default context take at most while experts are streamed: an eighth.
const STREAMING_KV_PART: u64 = 8;
/// Tokens of the largest pass: large enough that each expert's weights serve many tokens, small enough that a pass ends
/// soon.
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
    ring_bytes: u64,
    options: &LoadOptions,
) -> Result<MemoryPlan, ModelError> {
    let (memory, process_bytes) = (Memory::detect(), process_bytes());
    Planner { config, layout, experts, vocab_size, ring_bytes, options, memory, process_bytes }.plan()
}

struct Planner<'a> {
    config: &'a Config,
    layout: &'a Layout,
    experts: &'a ExpertTable,
    vocab_size: usize,
    /// Bytes of the dense tensors in memory, were they in the ring.
    ring_bytes: u64,
    options: &'a LoadOptions,
    memory: Option<Memory>,
    process_bytes: u64,
}

impl Planner<'_> {
    fn plan(&self) -> Result<MemoryPlan, ModelError> {
        let mut plan = self.choose()?;
        if let Some(budget) = plan.budget_bytes {
            let left = budget.saturating_sub(plan.most_bytes());
            plan.kv_positions = Some(plan.n_ctx.saturating_add(self.affordable_ctx(left)));
        }
        if self.options.dense == DensePlace::Ring && !plan.streaming {
            return Err(ModelError::RingWithoutStreaming);
        }
        Ok(plan)
    }

    fn choose(&self) -> Result<MemoryPlan, ModelError> {
        let dense_bytes = self.layout.dense_bytes();
        let all = self.layout.expert_bytes();
        if let Some(cache_bytes) = self.options.cache_bytes {
            let slots = self.slots(Budget::Cache(cache_bytes));
            let ring = self.options.dense == DensePlace::Ring;
            return Ok(self.streamed(PlanReason::CacheGiven, ring, self.ctx(self.wanted_ctx()), slots, None));
        }
        if let Some(budget) = self.options.memory_bytes {
            let resident = self.resident(PlanReason::FitsBudget, self.ctx(self.least_ctx()), Some(budget));
            if resident.most_bytes() <= budget {
                let left = budget.saturating_sub(self.fixed_bytes(dense_bytes, LEAST_CTX) + all);
                let n_ctx = self.ctx(self.affordable_ctx(left).max(self.least_ctx()));
                return Ok(self.resident(PlanReason::FitsBudget, n_ctx, Some(budget)));
            }
            return self.streamed_within(budget);
        }
        let Some(memory) = self.memory else {
            return Ok(self.resident(PlanReason::FitsMemory, self.ctx(usize::MAX), None));
        };
        let usable = memory.total_bytes / 100 * USABLE_PERCENT;
        if dense_bytes + all <= usable {
            let left = usable.saturating_sub(self.fixed_bytes(dense_bytes, LEAST_CTX) + all);
            let n_ctx = self.ctx(self.affordable_ctx(left / 2).max(self.least_ctx()));
            return Ok(self.resident(PlanReason::FitsMemory, n_ctx, Some(usable)));
        }
        // What the process holds already is not free any more.
        let free = memory.available_bytes / 100 * FREE_PERCENT + self.process_bytes;
        self.streamed_within(usable.min(free))
    }

    /// Streams with the largest cache that leaves the whole within `budget`.
    fn streamed_within(&self, budget: u64) -> Result<MemoryPlan, ModelError> {
        let ways: &[bool] = match self.options.dense {
            DensePlace::Auto => &[false, true],
            DensePlace::Resident => &[false],
            DensePlace::Ring => &[true],
        };
        let mut needed = u64::MAX;
        for &ring in ways {
            let n_ctx = self.ctx(self.streaming_ctx(budget, ring));
            let fixed = self.fixed_bytes(self.dense_bytes(ring), n_ctx) + self.kv_bytes(n_ctx);
            let slots = self.slots(Budget::Arena(budget.saturating_sub(fixed)));
            let plan = self.streamed(PlanReason::TooLarge, ring, n_ctx, slots, Some(budget));
            needed = needed.min(plan.most_bytes());
            if plan.most_bytes() <= budget {
                return Ok(plan);
            }
        }
        let limit = match (self.options.memory_bytes, self.memory.map(|memory| memory.source)) {
            (Some(_), _) => "given",
            (None, Some(MemorySource::Cgroup)) => "what the control group leaves",
            (None, _) => "what the machine leaves",
        };
        let (needed_mib, usable_mib) = (needed.div_ceil(1 << 20), budget >> 20);
        let hint = match self.options.dense {
            DensePlace::Resident => ", keep dense weights in the ring",
            DensePlace::Auto | DensePlace::Ring => "",
        };
        Err(ModelError::TooLarge { needed_mib, usable_mib, limit, hint })
    }

    fn resident(&self, reason: PlanReason, n_ctx: usize, budget_bytes: Option<u64>) -> MemoryPlan {
        MemoryPlan {
            expert_bytes: self.layout.expert_bytes(),
            cached_experts: self.experts.n_present(),
            ..self.common(reason, false, n_ctx, budget_bytes)
        }
    }

    fn streamed(
        &self,
        reason: PlanReason,
        ring: bool,
        n_ctx: usize,
        slots: store::Plan,
        budget_bytes: Option<u64>,
    ) -> MemoryPlan {
        let bypass_bytes = (slots.n_bypass * slots.slot_bytes) as u64;
        MemoryPlan {
            streaming: true,
            expert_bytes: slots.arena_bytes() - bypass_bytes,
            spare_bytes: bypass_bytes + self.spare_bytes(n_ctx),
            cached_experts: slots.n_slots,
            slots: Some(slots),
            ..self.common(reason, ring, n_ctx, budget_bytes)
        }
    }

    fn common(&self, reason: PlanReason, ring: bool, n_ctx: usize, budget_bytes: Option<u64>) -> MemoryPlan {
        MemoryPlan {
            streaming: false,
            reason,
            budget_bytes,
            ring,
            dense_bytes: self.dense_bytes(ring),
            expert_bytes: 0,
            spare_bytes: self.spare_bytes(n_ctx),
            cached_experts: 0,
            n_experts: self.experts.n_present(),
            n_ctx,
            batch_tokens: self.batch_tokens(n_ctx),
            kv_positions: None,
            kv_bytes: self.kv_bytes(n_ctx),
            buffer_bytes: self.buffer_bytes(n_ctx),
            process_bytes: self.process_bytes + GROWTH_BYTES,
            slots: None,
        }
    }

    fn dense_bytes(&self, ring: bool) -> u64 {
        if ring { self.ring_bytes } else { self.layout.dense_bytes() }
    }

    fn slots(&self, budget: Budget) -> store::Plan {
        let StreamingOptions { n_staging, .. } = self.options.streaming;
        let n_used = self.config.routing.n_used;
        store::Plan::new(self.experts, budget, n_used, n_staging.unwrap_or(n_used))
    }

    /// Everything but experts, keys and values.
    fn fixed_bytes(&self, dense_bytes: u64, n_ctx: usize) -> u64 {
        dense_bytes + self.buffer_bytes(n_ctx) + self.process_bytes + GROWTH_BYTES + self.spare_bytes(n_ctx)
    }

    /// What is seldom needed, but for the experts' buffers.
    fn spare_bytes(&self, n_ctx: usize) -> u64 {
        let n_tokens = LOGIT_TOKENS.min(self.batch_tokens(n_ctx)) as u64;
        SLACK_BYTES + n_tokens * (4 * self.vocab_size) as u64
    }

    /// The context asked for, or `default`, within what the model was trained for.
    fn ctx(&self, default: usize) -> usize {
        self.options.n_ctx.unwrap_or(default).clamp(1, self.config.context_length)
    }

    /// Positions of the default context at least.
    fn least_ctx(&self) -> usize {
        LEAST_CTX.min(self.options.longest_text.unwrap_or(LEAST_CTX))
    }

    /// Positions of the default context where there is room for them while experts are streamed.
    fn wanted_ctx(&self) -> usize {
        STREAMING_CTX.min(self.options.longest_text.unwrap_or(STREAMING_CTX))
    }

    /// Positions of the default context while experts are streamed within `budget`: a fraction of it, and what is left
    /// beside the smallest cache.
    fn streaming_ctx(&self, budget: u64, ring: bool) -> usize {
        let fixed = self.fixed_bytes(self.dense_bytes(ring), LEAST_CTX) + self.slots(Budget::Cache(0)).arena_bytes();
        let affordable = self.affordable_ctx((budget / STREAMING_KV_PART).min(budget.saturating_sub(fixed)));
        self.wanted_ctx().min(affordable.max(LEAST_CTX))
    }

    /// Tokens of a pass at most: what is known of the longest prompt saves buffers.
    fn batch_tokens(&self, n_ctx: usize) -> usize {
        self.options.longest_prompt.unwrap_or(BATCH_TOKENS).clamp(1, BATCH_TOKENS).min(n_ctx)
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
        let floats = self.batch_tokens(n_ctx) * (per_token + config.routing.n_used * per_pair) + 2 * self.vocab_size;
        (floats * 4 + floats) as u64
    }
}

#[cfg(test)]
mod tests;

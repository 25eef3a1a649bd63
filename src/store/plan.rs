//! How much memory a store takes, known before it takes any.

use super::ExpertTable;
use super::io::ALIGNMENT;

/// What a number of bytes is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Bytes of the cached experts alone; staging and bypass buffers come on top.
    Cache(u64),
    /// Bytes of the whole arena.
    Arena(u64),
}

/// The slots of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes from one slot to the next: the largest expert, each of its matrices aligned out.
    pub slot_bytes: usize,
    /// Slots of the cache: what the budget gives, but at least the experts that one token uses in a layer, and at most
    /// all experts.
    pub n_slots: usize,
    /// Slots for prefetched experts.
    pub n_staging: usize,
    /// Buffers outside the policy, for when nothing can be evicted: the experts that one token uses, and two.
    pub n_bypass: usize,
}

impl Plan {
    /// Plans slots for `experts` within `budget`, without allocating anything. `n_experts_used` is the number of experts
    /// that one token uses in a layer.
    pub fn new(experts: &ExpertTable, budget: Budget, n_experts_used: usize, n_staging: usize) -> Self {
        Self::for_alignment(experts, budget, n_experts_used, n_staging, ALIGNMENT)
    }

    /// As [`new`](Self::new), for a reader of another alignment than [`FileReader`](super::FileReader)'s.
    pub fn for_alignment(
        experts: &ExpertTable,
        budget: Budget,
        n_experts_used: usize,
        n_staging: usize,
        alignment: usize,
    ) -> Self {
        let slot_bytes = experts.slot_bytes(alignment);
        let n_bypass = n_experts_used + 2;
        let affordable = |bytes: u64| usize::try_from(bytes / slot_bytes as u64).unwrap_or(usize::MAX);
        let wanted = match budget {
            Budget::Cache(bytes) => affordable(bytes),
            Budget::Arena(bytes) => affordable(bytes).saturating_sub(n_staging + n_bypass),
        };
        let n_slots = wanted.min(experts.n_present()).max(n_experts_used).max(1);
        Self { slot_bytes, n_slots, n_staging, n_bypass }
    }

    /// Exactly the bytes that the arena takes: cache, staging and bypass buffers. More than the budget where that is too
    /// small for the smallest cache.
    pub fn arena_bytes(&self) -> u64 {
        self.n_buffers() as u64 * self.slot_bytes as u64
    }

    /// Buffers of all kinds.
    pub fn n_buffers(&self) -> usize {
        self.n_slots + self.n_staging + self.n_bypass
    }
}

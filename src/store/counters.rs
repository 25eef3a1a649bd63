//! What a store counts.

/// Counts since the store was made. `accesses = hits + staging_hits + misses + bypasses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Experts requested.
    pub accesses: u64,
    /// Requests for an expert of the cache, also while an earlier request's read of it is still going on.
    pub hits: u64,
    /// Requests for an expert of the staging slots, late ones included.
    pub staging_hits: u64,
    /// Requests that took a slot of the cache and queued a read.
    pub misses: u64,
    /// Requests that queued a read into a buffer outside the policy, because nothing could be evicted.
    pub bypasses: u64,
    /// Prefetches that queued a read. Hints for what was there already, or had no room, are not counted.
    pub prefetches: u64,
    /// Of `staging_hits`, those that came before the read was done.
    pub late_prefetches: u64,
    /// Prefetched experts that made way for others without ever being requested.
    pub wasted_prefetches: u64,
    /// Prefetches taken back before their reads began.
    pub cancelled_prefetches: u64,
    /// Experts that made way because they were used too seldom to be admitted; part of `evictions`.
    pub admission_rejects: u64,
    /// Experts that made way for others in the cache.
    pub evictions: u64,
    /// Bytes read for requests, alignment included. A read counts for whoever queued it first.
    pub demand_bytes: u64,
    /// Bytes read for prefetches, alignment included.
    pub prefetch_bytes: u64,
    /// Bytes read for the warm start, alignment included.
    pub warm_bytes: u64,
    /// Experts that the warm start brought into memory.
    pub warmed: u64,
    /// Experts whose reads failed.
    pub failed_reads: u64,
    /// Time that the I/O threads spent in reads, in microseconds, summed over the threads.
    pub read_us: u64,
    /// Time that callers were blocked in waits, in microseconds, summed over the callers.
    pub wait_us: u64,
}

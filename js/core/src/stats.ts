import type * as Native from "../../../index.js";

/** Where a model's bytes go. Experts are streamed, or all in memory; `reason` says what decided. */
export type MemoryPlan = Readonly<Native.MemoryPlan & { reason: PlanReason; dense: "resident" | "ring" }>;

/**
 * Everything fits in the `memory` given (`fits-budget`) or in what the system allows (`fits-memory`); it does not
 * (`too-large`); or `cache.size` was given (`cache-size`).
 */
export type PlanReason = "fits-budget" | "fits-memory" | "too-large" | "cache-size";

/** What a model did since it was loaded. */
export interface ModelStats {
  /** What was decided at the load, with the predicted peak of the process's memory. */
  plan: MemoryPlan;
  memory: {
    /** Bytes that this process has in memory now. */
    rssBytes: number;
    /** The most it had. */
    peakRssBytes: number;
    /** The most that was predicted at the load, with a full context: `plan.predictedPeakBytes`. */
    predictedPeakBytes: number;
  };
  /** Tokens that went through the model, of prompts and answers. */
  tokens: number;
  /** Absent where all experts are in memory. */
  store?: StoreStats;
  /** Dense weights that were read anew; absent where they are in memory. */
  ring?: RingStats;
}

/** What reading dense weights anew took. */
export interface RingStats {
  /** Bytes read. */
  bytesRead: number;
  /** `bytesRead` for each token. */
  bytesPerToken: number;
  /** Milliseconds in which the computation waited for them. */
  waitMs: number;
}

/** What streaming did. A request is for one expert of one layer, for all tokens of a pass at once. */
export interface StoreStats {
  /** Requests: `hits + stagingHits + misses + bypasses`. */
  accesses: number;
  /** Requests served by the cache. */
  hits: number;
  /** Requests served by a prefetch, late ones included. */
  stagingHits: number;
  /** Requests that had to be read into the cache. */
  misses: number;
  /** Requests that had to be read into a spare buffer, because the whole cache was in use. */
  bypasses: number;
  /** Share of requests served by the cache or a prefetch, 0 to 1. */
  hitRate: number;
  /** Experts that made way for others. */
  evictions: number;
  /** Of these, experts that were used too seldom to be kept at all. */
  admissionRejects: number;
  /** Bytes read for requests. */
  demandBytes: number;
  /** Bytes read for prefetches. */
  prefetchBytes: number;
  warmStart: {
    /** Experts that it brought into memory. */
    experts: number;
    /** Bytes read for it. */
    bytes: number;
  };
  /** Bytes read from the drive in all: for requests, prefetches and the warm start. */
  bytesRead: number;
  /** `bytesRead` for each of the model's `tokens`. */
  bytesPerToken: number;
  /** Experts that could not be read. */
  failedReads: number;
  /** Milliseconds in which the computation waited for reads. */
  waitMs: number;
  /** Milliseconds spent in reads, summed over the threads that read. */
  readMs: number;
  prefetch: {
    /** Whether experts are prefetched just now: `auto` switches it off while it does not pay. */
    active: boolean;
    /** Prefetches begun. */
    issued: number;
    /** Those that were in memory when they were asked for. */
    useful: number;
    /** Those that were asked for while they were still being read. */
    late: number;
    /** Those that made way without having been asked for. */
    wasted: number;
    /** Those taken back before anything was read. */
    cancelled: number;
    /** Experts predicted, whether or not they had to be read. */
    predicted: number;
    /** Of these, experts that the router then chose. */
    confirmed: number;
    /** Share of the router's choices that was predicted, where something was, 0 to 1. */
    share: number;
  };
  /** What SMART-ROUTE gave away; absent where it is off. */
  substitutions?: {
    /** Choices of an expert for a token. */
    slots: number;
    /** Choices that went to a substitute. */
    substituted: number;
    /** `substituted` of `slots`, 0 to 1. */
    share: number;
    /** Router probability of the experts replaced less that of their substitutes, summed over the choices. */
    droppedMass: number;
    /** Largest difference of router logits that was accepted. */
    largestGap: number;
  };
}

/** Statistics from the engine's counts. */
export function statsOf(counts: Native.ModelCounts): ModelStats {
  const { plan, tokens, store, ring, substitutions } = counts;
  const stats: ModelStats = {
    plan: plan as MemoryPlan,
    // Node gives the peak in KiB.
    memory: {
      rssBytes: process.memoryUsage.rss(),
      peakRssBytes: process.resourceUsage().maxRSS * 1024,
      predictedPeakBytes: plan.predictedPeakBytes,
    },
    tokens,
  };
  if (store !== undefined) stats.store = storeStats(store, tokens);
  if (ring !== undefined) stats.ring = ringStats(ring, tokens);
  if (stats.store !== undefined && substitutions !== undefined) {
    const { slots, substituted } = substitutions;
    stats.store.substitutions = { ...substitutions, share: ratio(substituted, slots) };
  }
  return stats;
}

export function ringStats({ readBytes, waitUs }: Native.RingCounts, tokens: number): RingStats {
  return { bytesRead: readBytes, bytesPerToken: ratio(readBytes, tokens), waitMs: waitUs / 1000 };
}

export function storeStats(store: Native.StoreCounts, tokens: number): StoreStats {
  const { accesses, hits, stagingHits, misses, bypasses, evictions, admissionRejects } = store;
  const { demandBytes, prefetchBytes, warmBytes, failedReads, predicted, confirmed } = store;
  const bytesRead = demandBytes + prefetchBytes + warmBytes;
  return {
    accesses,
    hits,
    stagingHits,
    misses,
    bypasses,
    hitRate: ratio(hits + stagingHits, accesses),
    evictions,
    admissionRejects,
    demandBytes,
    prefetchBytes,
    warmStart: { experts: store.warmed, bytes: warmBytes },
    bytesRead,
    bytesPerToken: ratio(bytesRead, tokens),
    failedReads,
    waitMs: store.waitUs / 1000,
    readMs: store.readUs / 1000,
    prefetch: {
      active: store.prefetching,
      issued: store.prefetches,
      useful: stagingHits - store.latePrefetches,
      late: store.latePrefetches,
      wasted: store.wastedPrefetches,
      cancelled: store.cancelledPrefetches,
      predicted,
      confirmed,
      share: ratio(confirmed, store.chosen),
    },
  };
}

export function ratio(part: number, whole: number): number {
  return whole > 0 ? part / whole : 0;
}

import type * as Native from "../../../index.js";
import { link, type StreamProgress } from "./link.js";
import { type CacheOptions, checkLoadOptions } from "./load-options.js";
import { callback, checkOptions, checkPath, integer, invalid, number, oneOf, path, signal } from "./options.js";
import type { Size } from "./sizes.js";
import { type MemoryPlan, type RingStats, ratio, ringStats, type StoreStats, storeStats } from "./stats.js";

/** How `streamBenchmark` runs. */
export interface StreamBenchmarkOptions {
  /** Tokens. Default: 256, or all of the trace; never more than a trace has. */
  tokens?: number | undefined;
  /** Compute threads. Default: the physical cores that this process may use. */
  threads?: number | undefined;
  /** As for `Model.load`: memory of the whole process. Experts are streamed also where all would fit. */
  memory?: Size | undefined;
  /** As for `Model.load`: where the weights are that every token needs. Default: `auto`. */
  dense?: "auto" | "resident" | "ring" | undefined;
  /** As for `Model.load`. The guesses of `ahead` and `auto` are synthetic, see `accuracy`. */
  cache?: Omit<CacheOptions, "smartRoute"> | undefined;
  /**
   * File with the choices of experts to replay: a trace of `generate`, or a CSV. Default: the choices are synthetic, as the
   * options below say, which go with no trace.
   */
  trace?: string | URL | undefined;
  /** Same seed, same synthetic choices. Default: 0. */
  seed?: number | undefined;
  /** How uneven the popularity of experts is: the one of rank r weighs 1 / r^skew; 0 makes all alike. Default: 1. */
  skew?: number | undefined;
  /** Tokens that an expert stays one of its layer's favourites, on average: the topic drifts. 0: none. Default: 48. */
  drift?: number | undefined;
  /** Tokens in whose span experts are chosen without any structure. Default: none. */
  burst?: { start: number; tokens: number } | undefined;
  /** Chance that the synthetic guess at a choice one layer early is right, 0 to 1. Default: 0.85. */
  accuracy?: number | undefined;
  /**
   * What is done with weights: real dot products of every row (`dot`), a sum of their bytes (`checksum`), or a wait of so
   * many milliseconds for each expert. Default: `dot`.
   */
  compute?: "dot" | "checksum" | { delayMs: number } | undefined;
  /** Parts of the run whose hit rates are told apart. Default: 8. */
  windows?: number | undefined;
  /** Told how many tokens are done, and how many of the latest experts were in memory. If it throws, the benchmark stops with that error. */
  onProgress?: ((progress: StreamProgress) => void) | undefined;
  /** Stops it. */
  signal?: AbortSignal | undefined;
}

/** Where the choices of experts came from. */
export type StreamRouting =
  | {
      kind: "synthetic";
      seed: number;
      skew: number;
      drift: number;
      /** Of the synthetic guesses one layer early. */
      accuracy: number;
    }
  | { kind: "trace"; trace: string; accuracy: number };

/** What a benchmark of streaming found. Synthetic choices say nothing of any text. */
export interface StreamBenchmark {
  routing: StreamRouting;
  model: { architecture: string; nLayers: number; nExperts: number; nExpertsUsed: number };
  compute: "dot" | "checksum" | { delayMs: number };
  threads: number;
  /** Name of the arithmetic path. */
  kernels: string;
  /** The cache policy, with its parameter. */
  policy: string;
  plan: MemoryPlan;
  memory: {
    predictedPeakBytes: number;
    /** The most that this process had in memory. Below the prediction where the cache never filled up. */
    peakRssBytes: number;
  };
  tokens: number;
  tokensPerSecond: number;
  elapsedMs: number;
  /** Milliseconds before the first token: the choices, and dense weights that stay in memory. */
  loadingMs: number;
  /** Milliseconds of the work on weights. */
  computeMs: number;
  /** Milliseconds in which that waited for reads, of experts and dense weights. */
  waitMs: number;
  /** Bytes read for experts and dense weights, after loading. */
  bytesRead: number;
  bytesPerToken: number;
  /** `bytesRead` by the time that passed: what the drive gave. */
  bytesPerSecond: number;
  store: StoreStats;
  /** Dense weights that were read anew; absent where they stayed in memory. */
  ring?: RingStats;
  windows: StreamWindow[];
  /** Absent where there was none. */
  burst?: StreamBurst;
  /** Of all results of the work: the same for the same file, choices and `compute`, whatever the cache and the threads. */
  digest: string;
}

/** A part of the run. */
export interface StreamWindow {
  firstToken: number;
  tokens: number;
  /** Share of requests served by the cache or a prefetch, 0 to 1. */
  hitRate: number;
  bytesPerToken: number;
  tokensPerSecond: number;
  waitMs: number;
}

/** Hit rates, 0 to 1, around a burst of structureless choices. */
export interface StreamBurst {
  firstToken: number;
  tokens: number;
  /** Over as many tokens before it; null where there are none. */
  before: number | null;
  during: number;
  /** Over as many tokens after it; null where there are none. */
  after: number | null;
  /** Tokens after it until 8 tokens had a rate at most two points below that before; null if that did not come. */
  recoveredAfter: number | null;
}

const u32 = 0xffff_ffff;

const benchmarkOptions = {
  tokens: integer(1, 1_000_000),
  // These are checked where a load checks them.
  threads: () => undefined,
  memory: () => undefined,
  dense: () => undefined,
  cache: () => undefined,
  trace: path,
  seed: integer(0, Number.MAX_SAFE_INTEGER),
  skew: number(0, 10),
  drift: number(0, u32),
  burst: () => undefined,
  accuracy: number(0, 1),
  compute: (value: unknown) =>
    typeof value === "object" && value !== null ? undefined : oneOf("dot", "checksum")(value),
  windows: integer(1, 10_000),
  onProgress: callback,
  signal,
};

const burstOptions = { start: integer(0, u32), tokens: integer(1, u32) };
const computeOptions = { delayMs: number(0, 60_000) };
const where = "streamBenchmark";

/**
 * Streams the experts of a model as a text would, without the model's arithmetic: real reads through the real cache, for
 * choices of experts that are synthetic or recorded. Tells what the drive, the cache and the prediction give.
 */
export async function streamBenchmark(file: string | URL, options?: StreamBenchmarkOptions): Promise<StreamBenchmark> {
  const checked = checkOptions(where, options, benchmarkOptions);
  const { threads, memory, dense, cache, onProgress, signal, tokens } = checked;
  if (cache !== undefined && "smartRoute" in cache && cache.smartRoute !== undefined) {
    throw invalid(`${where}: \`cache.smartRoute\` changes what a router chose, and here is none; leave it out`);
  }
  const { native: load } = checkLoadOptions(where, { threads, memory, dense, cache });
  const { seed = 0, skew = 1, drift = 48, accuracy = 0.85, compute = "dot", windows = 8 } = checked;
  const burst = burstOf(checked.burst);
  const native: Native.StreamOptions = { load, seed, skew, driftTokens: drift, accuracy, windows, ...workOf(compute) };
  if (tokens !== undefined) native.tokens = tokens;
  const routing = routingOf(checked, { seed, skew, drift, accuracy });
  if (routing.kind === "trace") native.trace = routing.trace;
  if (burst !== undefined) {
    native.burstStart = burst.start;
    native.burstTokens = burst.tokens;
  }
  const model = checkPath(where, file);
  const event = await link().ask((host, request) => host.stream(request, model, native), { onProgress, signal });
  return report(event.stream as Native.StreamReport, routing, compute);
}

function burstOf(burst: StreamBenchmarkOptions["burst"]): { start: number; tokens: number } | undefined {
  if (burst === undefined) return undefined;
  const { start, tokens } = checkOptions(`${where}: burst`, burst, burstOptions);
  if (start === undefined || tokens === undefined) {
    throw invalid(`${where}: burst: \`start\` and \`tokens\` are needed`);
  }
  return { start, tokens };
}

function workOf(compute: NonNullable<StreamBenchmarkOptions["compute"]>): { compute: string; delayUs?: number } {
  if (typeof compute === "string") return { compute };
  const { delayMs } = checkOptions(`${where}: compute`, compute, computeOptions);
  if (delayMs === undefined) throw invalid(`${where}: compute: \`delayMs\` is missing`);
  return { compute: "delay", delayUs: delayMs * 1000 };
}

function routingOf(
  options: StreamBenchmarkOptions,
  synthetic: { seed: number; skew: number; drift: number; accuracy: number },
): StreamRouting {
  if (options.trace === undefined) return { kind: "synthetic", ...synthetic };
  for (const name of ["seed", "skew", "drift", "burst"] as const) {
    if (options[name] !== undefined) {
      throw invalid(`${where}: \`${name}\` is of synthetic choices, and \`trace\` has recorded ones; give one of them`);
    }
  }
  return { kind: "trace", trace: checkPath(where, options.trace, "a trace"), accuracy: synthetic.accuracy };
}

function report(
  found: Native.StreamReport,
  routing: StreamRouting,
  compute: StreamBenchmark["compute"],
): StreamBenchmark {
  const { architecture, nLayers, nExperts, nExpertsUsed, threads, kernels, policy, tokens, digest } = found;
  const plan = Object.freeze(found.plan) as MemoryPlan;
  const store = storeStats(found.store, tokens);
  const bytesRead = store.bytesRead + found.ring.readBytes;
  const benchmark: StreamBenchmark = {
    routing,
    model: { architecture, nLayers, nExperts, nExpertsUsed },
    compute,
    threads,
    kernels,
    policy,
    plan,
    // Node gives the peak in KiB.
    memory: {
      predictedPeakBytes: plan.predictedPeakBytes,
      peakRssBytes: process.resourceUsage().maxRSS * 1024,
    },
    tokens,
    tokensPerSecond: perSecond(tokens, found.elapsedUs),
    elapsedMs: found.elapsedUs / 1000,
    loadingMs: found.loadingUs / 1000,
    computeMs: found.workingUs / 1000,
    waitMs: (found.store.waitUs + found.ring.waitUs) / 1000,
    bytesRead,
    bytesPerToken: ratio(bytesRead, tokens),
    bytesPerSecond: perSecond(bytesRead, found.elapsedUs),
    store,
    windows: found.windows.map(({ firstToken, tokens, hitRate, readBytes, waitUs, elapsedUs }) => ({
      firstToken,
      tokens,
      hitRate,
      bytesPerToken: ratio(readBytes, tokens),
      tokensPerSecond: perSecond(tokens, elapsedUs),
      waitMs: waitUs / 1000,
    })),
    digest,
  };
  if (plan.dense === "ring") benchmark.ring = ringStats(found.ring, tokens);
  if (found.burst !== undefined) {
    const { firstToken, tokens, before = null, during, after = null, recoveredAfter = null } = found.burst;
    benchmark.burst = { firstToken, tokens, before, during, after, recoveredAfter };
  }
  return benchmark;
}

function perSecond(count: number, us: number): number {
  return ratio(count * 1e6, us);
}

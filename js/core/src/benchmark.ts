import type * as Native from "../../../index.js";
import { link, type Progress } from "./link.js";
import { type CacheOptions, checkLoadOptions } from "./load-options.js";
import type { ModelInfo } from "./model.js";
import { callback, checkOptions, checkPath, integer, integers, oneOf, signal } from "./options.js";
import type { Size } from "./sizes.js";
import { type MemoryPlan, ratio } from "./stats.js";

/** How `benchmark` runs. */
export interface BenchmarkOptions {
  /** Tokens of a prompt, or of several that are measured one after the other. 0 is none. Default: 512. */
  prompt?: number | readonly number[] | undefined;
  /** Tokens that are decoded one after the other, or several such numbers. 0 is none. Default: 128. */
  decode?: number | readonly number[] | undefined;
  /** Tokens in the context before each measurement, or several such numbers. Default: 0. */
  depth?: number | readonly number[] | undefined;
  /** Runs of each measurement, after one that does not count. Default: 5. */
  repetitions?: number | undefined;
  /** Same seed, same random tokens. Default: 0. */
  seed?: number | undefined;
  /** Compute threads. Default: the physical cores that this process may use. */
  threads?: number | undefined;
  /** As for `Model.load`: numbers in the cache of keys and values. Default: `f16`. */
  cacheType?: "f16" | "f32" | undefined;
  /** As for `Model.load`: memory of the whole process; experts that do not fit are streamed. */
  memory?: Size | undefined;
  /** As for `Model.load`: whether the file is mapped where everything fits in memory, or copied. */
  mmap?: boolean | undefined;
  /** As for `Model.load`: where the weights are that every token needs, while experts are streamed. */
  dense?: "auto" | "resident" | "ring" | undefined;
  /** As for `Model.load`. Nothing is remembered for a warm start: a benchmark begins cold. */
  cache?: Omit<CacheOptions, "warmStart"> | undefined;
  /** Told how many tokens are done, those that do not count included. If it throws, the benchmark stops with that error. */
  onProgress?: ((progress: Progress) => void) | undefined;
  /** Stops it. */
  signal?: AbortSignal | undefined;
}

/** How fast a model computes, and how fast this machine reads memory. */
export interface Benchmark {
  model: ModelInfo;
  plan: MemoryPlan;
  memory: {
    predictedPeakBytes: number;
    /** The most that this process had in memory. */
    peakRssBytes: number;
  };
  /** Milliseconds until a first token could have been computed. */
  loadingMs: number;
  /** How fast memory is read, in bytes a second, measured just before the model was loaded. */
  bandwidth: {
    oneThread: number;
    /** By as many threads as compute. */
    allThreads: number;
    /** Bytes that were read over and over. */
    bufferBytes: number;
  };
  /** By depth, prompts before decoding. */
  results: BenchmarkResult[];
}

/** One measurement. */
export interface BenchmarkResult {
  /** llama.cpp's name: `pp512` for a prompt, `tg128` for decoding, `tg128 @ d4096` behind 4096 tokens. */
  name: string;
  kind: "prompt" | "decode";
  tokens: number;
  depth: number;
  /** Of the median run. */
  tokensPerSecond: number;
  /** Of the slowest run. */
  least: number;
  /** Of the fastest run. */
  most: number;
  /** Tokens a second of every run, in order. */
  runs: number[];
  /**
   * Bytes of weights that were read from memory for each token: those that all tokens of a pass share count once. Keys
   * and values are not among them.
   */
  weightBytesPerToken: number;
  /** `weightBytesPerToken` times `tokensPerSecond`. */
  weightBytesPerSecond: number;
  /** `weightBytesPerSecond` of the bandwidth of all threads. */
  bandwidthShare: number;
  /** What was streamed; absent where all weights are in memory. */
  streamed?: {
    /** Share of requests for experts that were served by the cache or a prefetch, 0 to 1. */
    hitRate: number;
    /** Bytes read from the drive for each token. */
    bytesPerToken: number;
    /** Milliseconds that the computation waited for them, for each token. */
    waitMsPerToken: number;
  };
}

const benchmarkOptions = {
  prompt: integers(0, 0x7fff_ffff),
  decode: integers(0, 0x7fff_ffff),
  depth: integers(0, 0x7fff_ffff),
  repetitions: integer(1, 1000),
  seed: integer(0, Number.MAX_SAFE_INTEGER),
  cacheType: oneOf("f16", "f32"),
  // These are checked where a load checks them.
  threads: () => undefined,
  memory: () => undefined,
  mmap: () => undefined,
  dense: () => undefined,
  cache: () => undefined,
  onProgress: callback,
  signal,
};

const where = "benchmark";

/**
 * Measures how fast a model reads prompts and decodes, on random tokens as llama.cpp's `llama-bench` does, and how much of
 * the machine's bandwidth of memory that takes.
 */
export async function benchmark(file: string | URL, options?: BenchmarkOptions): Promise<Benchmark> {
  const checked = checkOptions(where, options, benchmarkOptions);
  const { prompt = 512, decode = 128, depth = 0, repetitions = 5, seed = 0, onProgress, signal } = checked;
  const { threads, cacheType, memory, mmap, dense, cache } = checked;
  const { native: load } = checkLoadOptions(where, { threads, cacheType, memory, mmap, dense, cache });
  // From callers without types: what would be remembered is not the use that random tokens make of experts.
  delete load.warmFolder;
  const native: Native.BenchOptions = {
    load,
    prompts: list(prompt).filter((tokens) => tokens > 0),
    decodes: list(decode).filter((tokens) => tokens > 0),
    depths: list(depth),
    runs: repetitions,
    seed,
  };
  const model = checkPath(where, file);
  const event = await link().ask((host, request) => host.bench(request, model, native), { onProgress, signal });
  return report(event.bench as Native.BenchReport);
}

function list(numbers: number | readonly number[]): number[] {
  return typeof numbers === "number" ? [numbers] : [...numbers];
}

function report(found: Native.BenchReport): Benchmark {
  const { info, loadingMs, oneThread, allThreads, bufferBytes } = found;
  const plan = Object.freeze(found.plan) as MemoryPlan;
  return {
    model: Object.freeze(info) as ModelInfo,
    plan,
    // Node gives the peak in KiB.
    memory: {
      predictedPeakBytes: plan.predictedPeakBytes,
      peakRssBytes: process.resourceUsage().maxRSS * 1024,
    },
    loadingMs,
    bandwidth: { oneThread, allThreads, bufferBytes },
    results: found.measurements.map((measured) => result(measured, allThreads, plan.streaming)),
  };
}

function result(measured: Native.BenchMeasurement, bandwidth: number, streaming: boolean): BenchmarkResult {
  const { name, tokens, depth, tokensPerSecond } = measured;
  const runs = measured.runs.map(({ elapsedMs }) => ratio(tokens * 1000, elapsedMs));
  const perToken = (count: (run: Native.BenchRun) => number): number =>
    ratio(sum(measured.runs, count), tokens * runs.length);
  const weightBytesPerToken = perToken((run) => run.weightBytes);
  const weightBytesPerSecond = weightBytesPerToken * tokensPerSecond;
  const plain: BenchmarkResult = {
    name: depth === 0 ? name : `${name} @ d${depth}`,
    kind: measured.kind as "prompt" | "decode",
    tokens,
    depth,
    tokensPerSecond,
    least: Math.min(...runs),
    most: Math.max(...runs),
    runs,
    weightBytesPerToken,
    weightBytesPerSecond,
    bandwidthShare: ratio(weightBytesPerSecond, bandwidth),
  };
  if (!streaming) return plain;
  const hits = sum(measured.runs, (run) => run.hits);
  const streamed = {
    hitRate: ratio(
      hits,
      sum(measured.runs, (run) => run.accesses),
    ),
    bytesPerToken: perToken((run) => run.readBytes),
    waitMsPerToken: perToken((run) => run.waitUs) / 1000,
  };
  return { ...plain, streamed };
}

function sum(runs: Native.BenchRun[], count: (run: Native.BenchRun) => number): number {
  return runs.reduce((total, run) => total + count(run), 0);
}

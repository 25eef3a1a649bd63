// What the commands that compute have in common about models larger than memory: flags, the plan, statistics.
import type { CacheOptions, CachePolicy, LoadOptions, MemoryPlan, ModelStats, SmartRouteOptions } from "@clutor/core";
import { type Command, InvalidArgumentError, type Option } from "commander";
import { flag, integer, number, UsageError } from "./flags.js";
import { bytes, percent } from "./format.js";
import { note } from "./terminal.js";

export interface StreamingOptions {
  memory?: string;
  dense?: "auto" | "resident" | "ring";
  cacheMb?: number;
  policy?: string;
  window?: number;
  stage?: number;
  prefetch?: "off" | "prev" | "ahead" | "auto";
  prefetchN?: number;
  ioThreads?: number;
  osCache?: "on" | "off";
  smart?: SmartRouteOptions;
  warmStart?: "on" | "off";
}

/** Flags of memory and streaming. */
export function streamingFlags(command: Command): Command {
  return command
    .addOption(
      flag(
        "--memory <size>",
        "memory for the whole process, such as 8G, 512M, 50%; experts that do not fit are streamed",
      ).argParser(size),
    )
    .addOption(
      flag("--dense <where>", "weights that every token needs: in memory, two layers' at a time, or as memory allows")
        .choices(["auto", "resident", "ring"])
        .default("auto"),
    )
    .addOption(flag("--cache-mb <n>", "MiB for cached experts alone, which are streamed then").argParser(integer(0)))
    .addOption(
      flag(
        "--policy <name>",
        "which experts stay: lru, lfu, w-tinylfu, adaptive, decayed-lfu, layer-aware; default: the best",
      ),
    )
    .addOption(flag("--window <share>", "share of w-tinylfu's window").argParser(number(0, 1)))
    .addOption(flag("--stage <n>", "buffers for prefetched experts; default: those a token uses").argParser(integer(0)))
    .addOption(
      flag(
        "--prefetch <how>",
        "experts to read early: none, the last token's, the router's guess, or that while it pays",
      )
        .choices(["off", "prev", "ahead", "auto"])
        .default("auto"),
    )
    .addOption(flag("--prefetch-n <n>", "most prefetched for a layer; default: those used").argParser(integer(1, 1024)))
    .addOption(flag("--io-threads <n>", "threads that read").argParser(integer(1, 16)).default(3))
    .addOption(
      flag("--os-cache <on|off>", "leave what is read in the system's page cache")
        .choices(["on", "off"])
        .default("off"),
    );
}

/** `--warm-start`, of commands that route. */
export function warmStartFlag(): Option {
  return flag(
    "--warm-start <on|off>",
    "remember in ~/.clutor/warm which experts were hot, and read those first next time",
  )
    .choices(["on", "off"])
    .default("on");
}

/** `--smart`, of commands that route. */
export function smartFlag(): Option {
  return flag("--smart <J,M,tau>", "prefer experts in memory: J always stay, M candidates, tau of logit").argParser(
    smart,
  );
}

function size(text: string): string {
  if (/^\s*\d+(\.\d+)?\s*([kmgt]i?b?|b|%)?\s*$/i.test(text)) return text;
  throw new InvalidArgumentError("A size is expected, such as 8G, 512M or 50%.");
}

function smart(text: string): SmartRouteOptions {
  const parts = text.split(",").map((part) => (part.trim() === "" ? Number.NaN : Number(part)));
  const [keep, candidates, tau] = parts;
  const isCount = (value: number | undefined): value is number => Number.isInteger(value) && (value as number) >= 0;
  if (parts.length === 3 && isCount(keep) && isCount(candidates) && tau !== undefined && tau >= 0 && tau < Infinity) {
    return { keep, candidates, tau };
  }
  throw new InvalidArgumentError("Two whole numbers and a number are expected, such as 2,16,1.5.");
}

/** The flags as the library takes them. */
export function streamingLoadOptions(options: StreamingOptions): Pick<LoadOptions, "memory" | "dense" | "cache"> {
  if (options.memory !== undefined && options.cacheMb !== undefined) {
    throw new UsageError("--memory is for the whole process and --cache-mb for experts alone; give one of them");
  }
  const cache: CacheOptions = {};
  if (options.cacheMb !== undefined) cache.size = options.cacheMb * 2 ** 20;
  // The engine knows the names.
  if (options.policy !== undefined) cache.policy = options.policy as CachePolicy;
  if (options.window !== undefined) cache.window = options.window;
  if (options.stage !== undefined) cache.staging = options.stage;
  if (options.prefetch !== undefined) cache.prefetch = options.prefetch;
  if (options.prefetchN !== undefined) cache.prefetchCount = options.prefetchN;
  if (options.ioThreads !== undefined) cache.ioThreads = options.ioThreads;
  if (options.osCache !== undefined) cache.osCache = options.osCache === "on";
  if (options.smart !== undefined) cache.smartRoute = options.smart;
  const load: Pick<LoadOptions, "memory" | "dense" | "cache"> = { cache };
  if (options.memory !== undefined) load.memory = options.memory;
  if (options.dense !== undefined) load.dense = options.dense;
  if (options.warmStart !== undefined) cache.warmStart = options.warmStart === "on";
  return load;
}

/** One line on stderr where streaming was chosen without `--cache-mb`. */
export function noteStreaming(plan: MemoryPlan): void {
  if (plan.reason !== "too-large") return;
  const budget = plan.budgetBytes === undefined ? "" : ` of ${bytes(plan.budgetBytes)}`;
  note(
    `experts are streamed, since ${plan.explanation}${budget}: ${percent(plan.cachedShare)} of them fit in it at once`,
  );
}

/** What the text alone took, without its prompt: the difference of two looks at the statistics. */
export interface DecodeStats {
  tokens: number;
  hitRate: number;
  bytesPerToken: number;
  waitMs: number;
  readMs: number;
}

/** What happened between two looks; undefined where nothing is streamed. */
export function between(before: ModelStats | undefined, after: ModelStats): DecodeStats | undefined {
  const [first, last] = [before?.store, after.store];
  if (before === undefined || first === undefined || last === undefined) return undefined;
  const tokens = after.tokens - before.tokens;
  const accesses = last.accesses - first.accesses;
  const found = last.hits + last.stagingHits - first.hits - first.stagingHits;
  return {
    tokens,
    hitRate: accesses > 0 ? found / accesses : 0,
    bytesPerToken: tokens > 0 ? (last.bytesRead - first.bytesRead) / tokens : 0,
    waitMs: last.waitMs - first.waitMs,
    readMs: last.readMs - first.readMs,
  };
}

/** The part of a command's JSON object that is about memory. `store` is null where all experts are in memory. */
export function statsJson(stats: ModelStats, decode?: DecodeStats): object {
  const { plan, store, ring, memory } = stats;
  const json = { plan, store: store === undefined ? null : { ...store, ...(decode && { decode }) }, memory };
  return ring === undefined ? json : { ...json, ring };
}

/** A block on stderr. */
export function printStats(stats: ModelStats, decode?: DecodeStats): void {
  const { plan, store, ring, memory } = stats;
  const { cachedExperts, nExperts } = plan;
  if (store === undefined) {
    note(`experts: all in memory, since ${plan.explanation}`);
  } else {
    const { prefetch, warmStart, substitutions } = store;
    note(
      `experts: streamed, since ${plan.explanation}; ${cachedExperts} of ${nExperts} ` +
        `(${percent(plan.cachedShare)}) fit in the cache of ${bytes(plan.expertBytes)}`,
    );
    note(
      `cache: ${percent(store.hitRate)} of ${store.accesses} requests found in memory, ` +
        `${store.misses + store.bypasses} read, ${store.evictions} evicted`,
    );
    note(
      `read: ${bytes(store.bytesRead)}, ${bytes(store.bytesPerToken)} a token; ` +
        `waited ${store.waitMs.toFixed(1)} ms, in reads ${store.readMs.toFixed(1)} ms`,
    );
    if (decode !== undefined && decode.tokens > 0) {
      note(
        `read for the text alone: ${bytes(decode.bytesPerToken)} a token, ${percent(decode.hitRate)} found in memory, ` +
          `waited ${decode.waitMs.toFixed(1)} ms`,
      );
    }
    note(
      `prefetch: ${prefetch.issued} begun, ${prefetch.useful} useful, ${prefetch.late} late, ${prefetch.wasted} wasted, ` +
        `${percent(prefetch.share)} of the choices predicted; ${prefetch.active ? "on" : "off"} at the end`,
    );
    if (warmStart.experts > 0) {
      note(`warm start: ${warmStart.experts} experts read ahead of their use, ${bytes(warmStart.bytes)}`);
    }
    if (substitutions !== undefined) {
      note(
        `smart route: ${percent(substitutions.share)} of ${substitutions.slots} choices substituted, probability given ` +
          `away ${substitutions.droppedMass.toFixed(3)}, largest gap ${substitutions.largestGap.toFixed(3)}`,
      );
    }
  }
  if (ring !== undefined) {
    note(
      `dense weights: two layers' in memory at a time; read ${bytes(ring.bytesRead)}, ${bytes(ring.bytesPerToken)} a token, ` +
        `waited ${ring.waitMs.toFixed(1)} ms`,
    );
  }
  note(`memory: peak ${bytes(memory.peakRssBytes)}, predicted ${bytes(memory.predictedPeakBytes)} with a full context`);
}

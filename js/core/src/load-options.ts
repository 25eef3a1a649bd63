import { join, resolve } from "node:path";
import type * as Native from "../../../index.js";
import { home } from "./home.js";
import type { Progress, Watch } from "./link.js";
import {
  boolean,
  booleanOrPath,
  callback,
  checkOptions,
  f32Max,
  integer,
  invalid,
  number,
  oneOf,
  signal,
  text,
} from "./options.js";
import { bytesOf, type Size, size } from "./sizes.js";

/** Numbers in the cache of keys and values. */
export type CacheType = "f16" | "f32" | "q8_0";

export interface LoadOptions {
  /** Compute threads. Default: the physical cores that this process may use. The text is the same with any number. */
  threads?: number | undefined;
  /**
   * Tokens that prompt and answer may have together. Most: what the model was trained for, which is also the default
   * where memory allows it; with streamed experts the default is at most 4096.
   */
  contextLength?: number | undefined;
  /**
   * What will be asked of the model, where that is known. While experts are streamed the default of `contextLength` is no
   * more than this, and buffers are no larger, so that memory serves as cache instead. A longer text ends early.
   */
  expect?: ExpectedText | undefined;
  /**
   * Numbers in the cache of keys and values. `f32` is exact, `f16` takes half its memory, `q8_0` (bytes with a scale for each
   * 32) about a quarter, for long texts; it needs heads whose width is a multiple of 32. Default: `f16`.
   */
  cacheType?: CacheType | undefined;
  /**
   * Memory that this whole process may take, such as `"8GB"`. Where the model does not fit, experts are streamed: kept
   * on the drive, and cached in what memory is left. Less than the smallest that works is an error (`OUT_OF_MEMORY`)
   * which names that. Default: what the system and control groups allow.
   */
  memory?: Size | undefined;
  /**
   * Where the weights are that every token needs, while experts are streamed: in memory (`resident`), or two layers' at a
   * time, read anew for every token (`ring`), which is slower and needs little memory. Default: `auto`, which is
   * `resident` unless the memory cannot hold them. The text is the same.
   */
  dense?: "auto" | "resident" | "ring" | undefined;
  /**
   * Where everything fits in memory: maps the file (`true`), so that it is there at once if the system has it cached, and
   * processes share it; or copies it (`false`), so that nobody who overwrites or shortens the file in place changes the text
   * or ends the process. Default: mapped if the system can have the file in huge pages, which are read up to twice as fast,
   * else copied into such.
   */
  mmap?: boolean | undefined;
  /** How experts are streamed, if they are. Nothing here changes the text but `smartRoute`. */
  cache?: CacheOptions | undefined;
  /** Told how many bytes of the file are read. If it throws, loading stops with that error. */
  onProgress?: ((progress: Progress) => void) | undefined;
  /** Stops loading. */
  signal?: AbortSignal | undefined;
}

/** A cache policy, some with a parameter: the share of W-TinyLFU's window, or a half-life in tokens. */
export type CachePolicy =
  | "lru"
  | "lfu"
  | "w-tinylfu"
  | "adaptive"
  | "decayed-lfu"
  | "layer-aware"
  | `${"w-tinylfu" | "decayed-lfu" | "layer-aware"}:${number}`;

export interface ExpectedText {
  /** Tokens of the longest prompt. No text has more tokens than bytes. */
  promptTokens: number;
  /** Most tokens that are made after it. Default: not known. */
  maxTokens?: number | undefined;
}

export interface CacheOptions {
  /**
   * Memory for cached experts alone, instead of `memory`. Experts are streamed then, also where all would fit. Never
   * less than the experts that one token uses in a layer. Default: what `memory` leaves.
   */
  size?: Size | undefined;
  /** Which experts stay. Default: the one that did best on recorded texts. */
  policy?: CachePolicy | undefined;
  /** Share of the slots, 0 to 1, that recent experts have with the policy `w-tinylfu`. Default: the policy's own. */
  window?: number | undefined;
  /**
   * Which experts are read before a layer asks for them: none (`off`), those it used for the token before (`prev`), those
   * its router picks one layer early (`ahead`), or `ahead` while that pays, as measured (`auto`). Default: `auto`.
   */
  prefetch?: "off" | "prev" | "ahead" | "auto" | undefined;
  /** Most experts that are prefetched for a layer. Default: those that a token uses. */
  prefetchCount?: number | undefined;
  /** Buffers for prefetched experts, on top of the cache; 0 ends prefetching. Default: those that a token uses. */
  staging?: number | undefined;
  /** Threads that read, 1 to 16. Default: 3. More help drives that serve many reads at once. */
  ioThreads?: number | undefined;
  /**
   * Leaves what is read in the system's page cache too. That may serve it again where memory is plenty, but counts
   * towards a container's limit. Default: false, reads go past it.
   */
  osCache?: boolean | undefined;
  /** Prefers experts that are in memory (SMART-ROUTE), which changes the text. Needs streaming. Default: off. */
  smartRoute?: SmartRouteOptions | undefined;
  /**
   * Remembers which experts were used most, in a small file for each model that is written when the model is disposed of,
   * and reads those first at the next load: behind everything else, into free slots. `true` keeps the files in
   * `~/.clutor/warm` (with `CLUTOR_HOME`, in its `warm`), a text names another folder. Where nothing can be written, nothing
   * is remembered, without an error. Default: false, a library writes nothing unasked.
   */
  warmStart?: boolean | string | undefined;
}

export interface SmartRouteOptions {
  /** The router's likeliest experts that always stay (J), 0 to the number used. */
  keep: number;
  /** The router's likeliest experts that a substitute may come from (M), from the number used to all. */
  candidates: number;
  /** Most that a substitute's router logit may lie below that of the expert it replaces; 0 changes nothing. */
  tau: number;
}

const expectOptions = { promptTokens: integer(1, 0xffff_ffff), maxTokens: integer(0, 0xffff_ffff) };

const loadOptions = {
  threads: integer(1, 1024),
  contextLength: integer(1, 0xffff_ffff),
  expect: () => undefined,
  cacheType: oneOf("f16", "f32", "q8_0"),
  memory: size,
  dense: oneOf("auto", "resident", "ring"),
  mmap: boolean,
  // Its own names are checked after this.
  cache: () => undefined,
  onProgress: callback,
  signal,
};

const cacheOptions = {
  size,
  policy: text,
  window: number(0, 1),
  prefetch: oneOf("off", "prev", "ahead", "auto"),
  prefetchCount: integer(1, 1024),
  staging: integer(0, 4096),
  ioThreads: integer(1, 16),
  osCache: boolean,
  smartRoute: () => undefined,
  warmStart: booleanOrPath,
};

const smartRouteOptions = {
  keep: integer(0, 0xffff_ffff),
  candidates: integer(0, 0xffff_ffff),
  tau: number(0, f32Max),
};

/** Options as the engine takes them, and what watches the load; throws where one is wrong. */
export function checkLoadOptions(
  where: string,
  options: LoadOptions | undefined,
): { native: Native.LoadOptions; watch: Watch } {
  const checked = checkOptions(where, options, loadOptions);
  const { threads, contextLength, cacheType = "f16", memory, dense, mmap, onProgress, signal } = checked;
  const cache = checkOptions(`${where}: cache`, checked.cache, cacheOptions);
  if (memory !== undefined && cache.size !== undefined) {
    throw invalid(
      `${where}: \`memory\` is for the whole process and \`cache.size\` for experts alone; give one of them`,
    );
  }
  const kernels = process.env["CLUTOR_KERNELS"];
  const plain: Native.LoadOptions = { cacheType, vocabularyOnly: false };
  const native = withGiven(plain, {
    threads,
    contextLength,
    ...expected(where, checked.expect),
    dense,
    mmap,
    kernels: kernels === "" ? undefined : kernels,
    memoryBytes: memory === undefined ? undefined : bytesOf(memory),
    cacheBytes: cache.size === undefined ? undefined : bytesOf(cache.size),
    policy: policyOf(where, cache),
    prefetch: cache.prefetch,
    prefetchCount: cache.prefetchCount,
    staging: cache.staging,
    ioThreads: cache.ioThreads,
    osCache: cache.osCache,
    smartRoute: smartRouteOf(where, cache.smartRoute),
    warmFolder: warmFolderOf(cache.warmStart),
  });
  return { native, watch: { onProgress, signal } };
}

function policyOf(where: string, { policy, window }: CacheOptions): string | undefined {
  if (window === undefined) return policy;
  if (policy !== "w-tinylfu") {
    throw invalid(`${where}: cache: \`window\` is of the policy "w-tinylfu"; choose that, or leave the window out`);
  }
  return `${policy}:${window}`;
}

/** The folder to remember in; none where that is off, or the user has no home. */
function warmFolderOf(warmStart: boolean | string | undefined): string | undefined {
  if (typeof warmStart === "string") return resolve(warmStart);
  const folder = warmStart ? home() : undefined;
  return folder && join(folder, "warm");
}

function smartRouteOf(where: string, route: SmartRouteOptions | undefined): SmartRouteOptions | undefined {
  if (route === undefined) return undefined;
  const name = `${where}: cache.smartRoute`;
  const checked = checkOptions(name, route, smartRouteOptions);
  for (const field of ["keep", "candidates", "tau"] as const) {
    if (checked[field] === undefined)
      throw invalid(`${name}: \`${field}\` is missing; keep, candidates and tau are needed`);
  }
  return checked;
}

/** The longest prompt and text of which one can be sure; a context is never full before its last token is made. */
function expected(where: string, expect: ExpectedText | undefined): Partial<Native.LoadOptions> {
  const { promptTokens, maxTokens } = checkOptions(`${where}: expect`, expect, expectOptions);
  if (promptTokens === undefined) return {};
  const longest = maxTokens === undefined ? undefined : Math.min(promptTokens + maxTokens + 1, 0xffff_ffff);
  return { longestPrompt: promptTokens, ...(longest && { longestText: longest }) };
}

/** `options` with those of `more` that are given. */
function withGiven<T>(options: T, more: { [K in keyof T]?: T[K] | undefined }): T {
  const given = Object.fromEntries(Object.entries(more).filter(([, value]) => value !== undefined));
  return { ...options, ...given };
}

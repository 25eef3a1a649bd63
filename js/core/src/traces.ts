import type * as Native from "../../../index.js";
import { link } from "./link.js";
import type { CachePolicy } from "./load-options.js";
import { checkOptions, checkPath, signal } from "./options.js";

/** What a trace file holds: the routers' scores, in the binary format, or the experts chosen, as CSV. */
export type TraceInfo = Readonly<Native.TraceInfo & { kind: "router-logits" | "choices" }>;

/** What cache policies would have done with a trace. */
export interface Simulation extends Readonly<Native.Simulation> {
  trace: TraceInfo;
}

export interface SimulateOptions {
  /** Policies to compare. Default: `"all"` of them. */
  policies?: "all" | CachePolicy[] | undefined;
  /** Sizes of the cache, as shares of all experts, 0 to 1. Default: `[0.1]`. */
  shares?: number[] | undefined;
  /** Stops it. */
  signal?: AbortSignal | undefined;
}

const isShare = (value: unknown): boolean => typeof value === "number" && value >= 0 && value <= 1;

const simulateOptions = {
  policies: (value: unknown) =>
    value === "all" || (Array.isArray(value) && value.length > 0 && value.every((name) => typeof name === "string"))
      ? undefined
      : '"all" or an array of names',
  shares: (value: unknown) =>
    Array.isArray(value) && value.length > 0 && value.every(isShare) ? undefined : "an array of numbers from 0 to 1",
  signal,
};

/** Says what a trace file holds: one that `generate` recorded, or a CSV of another program, compressed with gzip or not. */
export async function inspectTrace(
  path: string | URL,
  options?: { signal?: AbortSignal | undefined },
): Promise<TraceInfo> {
  const watch = checkOptions("inspectTrace", options, { signal });
  const file = checkPath("inspectTrace", path, "a trace");
  const event = await link().ask((host, request) => host.inspectTrace(request, file), watch);
  return Object.freeze(event.trace) as TraceInfo;
}

/**
 * Writes the choices that follow from the routers' scores in a binary trace to a CSV file, which is overwritten if it
 * exists. Gives the number of tokens.
 */
export async function convertTrace(
  path: string | URL,
  out: string | URL,
  options?: { signal?: AbortSignal | undefined },
): Promise<number> {
  const watch = checkOptions("convertTrace", options, { signal });
  const [from, to] = [checkPath("convertTrace", path, "a trace"), checkPath("convertTrace", out, "the CSV file")];
  const event = await link().ask((host, request) => host.convertTrace(request, from, to), watch);
  return event.done as number;
}

/**
 * Replays the choices of a trace through cache policies alone, each with a cache that is empty at first, and compares
 * them with the best that could be (Belady's). Nothing is loaded.
 */
export async function simulateTrace(path: string | URL, options?: SimulateOptions): Promise<Simulation> {
  const { policies = "all", shares = [0.1], signal } = checkOptions("simulateTrace", options, simulateOptions);
  const file = checkPath("simulateTrace", path, "a trace");
  const names = policies === "all" ? null : [...policies];
  const event = await link().ask((host, request) => host.simulateTrace(request, file, names, [...shares]), { signal });
  return event.simulation as Simulation;
}

import type { LoadOptions, Model } from "@clutor/core";
import type { ComputeOptions } from "./flags.js";
import { interrupt, note } from "./terminal.js";

/** The model file to use: the one given, or the built-in one, which is then named on stderr. */
export async function modelPath(given: string | undefined): Promise<string> {
  if (given !== undefined) return given;
  const { path, name } = await import("@clutor/tiny-stories-moe");
  note(`no --model given, so the built-in ${name} is used: a tiny model that tells stories`);
  return path;
}

/** Loads the model that the flags name; a `ctx` of 0 stands for all that the model can. */
export async function loadModel(options: ComputeOptions & { ctx?: number }): Promise<Model> {
  const { Model } = await import("@clutor/core");
  const load: LoadOptions = { cacheType: options.cacheType, signal: interrupt.signal };
  if (options.threads !== undefined) load.threads = options.threads;
  if (options.ctx) load.contextLength = options.ctx;
  return Model.load(await modelPath(options.model), load);
}

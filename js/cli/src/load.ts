import type { ExpectedText, LoadOptions, Model } from "@clutor/core";
import type { Command, Option } from "commander";
import { flag, modelFlag, threadsFlag } from "./flags.js";
import {
  noteStreaming,
  type StreamingOptions,
  smartFlag,
  streamingFlags,
  streamingLoadOptions,
  warmStartFlag,
} from "./streaming.js";
import { interrupt, note } from "./terminal.js";

/** Flags of commands that compute, or that plan to. */
export function computeFlags(command: Command, cacheType: "f16" | "f32"): Command {
  return coldFlags(command, cacheType).addOption(warmStartFlag());
}

/** The same without a warm start, of commands that begin cold and remember nothing. */
export function coldFlags(command: Command, cacheType: "f16" | "f32"): Command {
  command
    .addOption(modelFlag())
    .addOption(threadsFlag())
    .addOption(
      flag("--cache-type <type>", "numbers in the cache of keys and values").choices(["f16", "f32"]).default(cacheType),
    )
    .addOption(flag("--mmap", "map the file where everything fits in memory; default: as pages allow"))
    .addOption(flag("--no-mmap", "copy the file where everything fits in memory"));
  return streamingFlags(command).addOption(smartFlag());
}

/** `--stats`, of commands that compute. */
export function statsFlag(): Option {
  return flag("--stats", "times, counts, memory and reads on stderr");
}

export interface ComputeOptions extends StreamingOptions {
  model?: string;
  threads?: number;
  cacheType: "f16" | "f32";
  mmap?: boolean;
}

/** The model file to use: the one given, or the built-in one, which is then named on stderr. */
export async function modelPath(given: string | undefined): Promise<string> {
  if (given !== undefined) return given;
  const { path, name } = await import("@clutor/tiny-stories-moe");
  note(`no --model given, so the built-in ${name} is used: a tiny model that tells stories`);
  return path;
}

/**
 * The flags as the library takes them; a `ctx` of 0 stands for all that the model can. `expect` is what the
 * command knows of the text that it will make.
 */
export function loadOptions(options: ComputeOptions & { ctx?: number }, expect?: ExpectedText): LoadOptions {
  const load: LoadOptions = {
    ...streamingLoadOptions(options),
    cacheType: options.cacheType,
    signal: interrupt.signal,
  };
  if (options.threads !== undefined) load.threads = options.threads;
  if (options.mmap !== undefined) load.mmap = options.mmap;
  if (options.ctx) load.contextLength = options.ctx;
  // A context of 0 asks for all that the model can, so nothing shorter is to be planned.
  if (options.ctx !== 0 && expect !== undefined) load.expect = expect;
  return load;
}

/** One line on stderr where the model cannot have the context that was asked for. */
export function noteContext(asked: number | undefined, contextLength: number): void {
  if (asked === undefined || asked <= contextLength) return;
  note(`a context of ${asked} tokens was asked for, but the model can have ${contextLength}, which are used`);
}

/**
 * Loads the model that the flags name. Says so on stderr where its experts are streamed for want of memory, and, unless
 * `notesContext` is false, where its context is shorter than asked for.
 */
export async function loadModel(
  options: ComputeOptions & { ctx?: number },
  { notesContext = true, expect }: { notesContext?: boolean; expect?: ExpectedText } = {},
): Promise<Model> {
  const { Model } = await import("@clutor/core");
  // First, so that flags that exclude each other show before the note about the built-in model.
  const load = loadOptions(options, expect);
  const model = await Model.load(await modelPath(options.model), load);
  noteStreaming(model.stats().plan);
  if (notesContext) noteContext(options.ctx, model.info.contextLength);
  return model;
}

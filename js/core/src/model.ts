import "./symbols.js";
import type * as Native from "../../../index.js";
import { type ApplyChatTemplateOptions, type ChatMessage, type ChatTemplate, checkConversation } from "./chat.js";
import { AbortedAtStart, Generation } from "./generation.js";
import { link, type Progress } from "./link.js";
import { type CacheType, checkLoadOptions, type LoadOptions } from "./load-options.js";
import {
  boolean,
  callback,
  checkIds,
  checkOptions,
  checkPath,
  f32Max,
  integer,
  number,
  path,
  signal,
  stopStrings,
} from "./options.js";
import { type MemoryPlan, type ModelStats, statsOf } from "./stats.js";
import { checkPrompt, Vocabulary } from "./tokenizer.js";

const u32 = 0xffff_ffff;

/** How text is made. Sampling has llama.cpp's names, defaults and order. */
export interface GenerateOptions {
  /** Most tokens to make. Default: until the model ends its text or the context is full. */
  maxTokens?: number | undefined;
  /** Flattens (above 1) or sharpens the distribution; 0 always takes the likeliest token. Default: 0.8. */
  temperature?: number | undefined;
  /** Likeliest tokens to choose from; 0 is all. Default: 40. */
  topK?: number | undefined;
  /** Least probability mass to choose from, likeliest first; 1 is all. Default: 0.95. */
  topP?: number | undefined;
  /** Drops tokens below this share of the likeliest one's probability; 0 drops none. Default: 0.05. */
  minP?: number | undefined;
  /** Makes recent tokens less likely; 1 changes nothing. Default: 1. */
  repeatPenalty?: number | undefined;
  /** Recent tokens that the penalty looks at; -1 is all. Default: 64. */
  repeatLastN?: number | undefined;
  /** Same seed, same text, on every machine. Default: a random one, which the result names. */
  seed?: number | undefined;
  /** Texts that end the generation; they are not part of the text. Default: none. */
  stop?: string | string[] | undefined;
  /** Goes on after the model's end token. Default: false. */
  ignoreEos?: boolean | undefined;
  /** Control tokens written in the prompt become their ids. Default: false, they are text. */
  special?: boolean | undefined;
  /**
   * File to record the routing of every token in, prompt and text: binary with the routers' scores, or CSV with the
   * experts chosen where its name ends in `.csv` (`docs/traces.md`). Overwritten if it exists. The prompt is computed
   * whole then, also where the cache holds its beginning. A write that fails ends the generation (`FILE_WRITE`).
   */
  trace?: string | URL | undefined;
  /** Stops the generation, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface LogitsOptions {
  /** Tokens computed at once; the numbers are the same with any. Default: 512. */
  batch?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface PerplexityOptions {
  /** Tokens of a window. Default: 512, or the context length where that is less. */
  window?: number | undefined;
  /** Tokens computed at once. Default: 512. */
  batch?: number | undefined;
  /** Told how many tokens are scored. */
  onProgress?: ((progress: Progress) => void) | undefined;
  signal?: AbortSignal | undefined;
}

/** What a model is. Counts of bytes are of the file. */
export type ModelInfo = Readonly<Native.ModelInfo & { cacheType: CacheType }>;

/** An array of numbers and its shape, outermost dimension first. */
export interface Tensor<Values> {
  shape: number[];
  values: Values;
}

/** What a model computed for each token of a text. */
export interface Logits {
  /** `[tokens, vocabulary]`: scores of the token that comes next. */
  logits: Tensor<Float32Array>;
  /** `[tokens, layers, experts]`: the routers' scores before the softmax. */
  routerLogits: Tensor<Float32Array>;
  /** `[tokens, layers, used]`: the experts chosen, best first. */
  topk: Tensor<Int32Array>;
  /** `[tokens, layers, used]`: their weights. */
  weights: Tensor<Float32Array>;
}

export interface Perplexity {
  /** Mean negative log-likelihood of a token, in nats. */
  nll: number;
  /** `exp(nll)`. */
  perplexity: number;
  /** Tokens scored: all but the first of each window. */
  tokens: number;
}

const generateOptions = {
  maxTokens: integer(0, u32),
  temperature: number(0, f32Max),
  topK: integer(0, u32),
  topP: number(0, 1, true),
  minP: number(0, 1),
  repeatPenalty: number(0, f32Max, true),
  repeatLastN: integer(-1, u32),
  seed: integer(0, Number.MAX_SAFE_INTEGER),
  stop: stopStrings,
  ignoreEos: boolean,
  special: boolean,
  trace: path,
  signal,
};

const logitsOptions = { batch: integer(1, u32), signal };
const perplexityOptions = { window: integer(2, u32), batch: integer(1, u32), onProgress: callback, signal };

/** A loaded model. */
export class Model extends Vocabulary {
  readonly info: ModelInfo;

  private constructor(id: number, info: ModelInfo) {
    super(id);
    this.info = info;
  }

  /** Loads a GGUF file; of a model in several files, any of them. */
  static async load(path: string | URL, options?: LoadOptions): Promise<Model> {
    const { native, watch } = checkLoadOptions("Model.load", options);
    const event = await link().load(checkPath("Model.load", path), native, watch);
    return new Model(event.request, Object.freeze(event.info) as ModelInfo);
  }

  /**
   * Says without loading where the model's bytes would go with these options: what would be kept in memory, and the
   * predicted peak. Rejects as `load` would where the memory is too small.
   */
  static async plan(path: string | URL, options?: LoadOptions): Promise<MemoryPlan> {
    const { native, watch } = checkLoadOptions("Model.plan", options);
    const file = checkPath("Model.plan", path);
    const event = await link().ask((host, request) => host.plan(request, file, native), { signal: watch.signal });
    return Object.freeze(event.plan) as MemoryPlan;
  }

  /** What the model did since it was loaded: memory, hits of the cache, bytes read, time waited, prefetches. */
  stats(): ModelStats {
    this.checkUsable();
    return statsOf(link().counts(this.id));
  }

  /** The template that `applyChatTemplate` uses; undefined where the file has none and none is known. */
  get chatTemplate(): ChatTemplate | undefined {
    this.checkUsable();
    return link().chatTemplate(this.id) ?? undefined;
  }

  /**
   * The text of a conversation as the model was trained on it, to be continued with
   * `generate(text, { special: true })`. Control tokens written in a message are not told apart from the template's.
   *
   * Rejects with `INVALID_MESSAGES` where the template refuses the conversation, `CHAT_TEMPLATE` where it is broken or
   * does too much, and `NO_CHAT_TEMPLATE` where there is none.
   */
  async applyChatTemplate(messages: readonly ChatMessage[], options?: ApplyChatTemplateOptions): Promise<string> {
    const { json, native, signal } = checkConversation("applyChatTemplate", messages, options);
    this.checkUsable();
    const event = await link().ask((host, request) => host.renderChat(request, this.id, json, native), { signal });
    return event.chat as string;
  }

  /** Continues a prompt, given as text or as token ids. Starts at once; never throws, but rejects. */
  generate(prompt: string | readonly number[] | Uint32Array, options?: GenerateOptions): Generation {
    return new Generation(
      (onNews) => {
        const checked = checkOptions("generate", options, generateOptions);
        const input = checkPrompt("generate", prompt);
        this.checkUsable();
        const { signal } = checked;
        if (signal?.aborted) throw new AbortedAtStart(signal.reason);
        const native = withDefaults(checked);
        const request = link().generate(this.id, input, native, onNews);
        return { request, seed: native.seed, signal };
      },
      () => this.disposed,
    );
  }

  /** Scores of all tokens at each position of `ids`, and what the routers chose. */
  async logits(ids: readonly number[] | Uint32Array, options?: LogitsOptions): Promise<Logits> {
    const { batch = 512, signal } = checkOptions("logits", options, logitsOptions);
    const checked = checkIds("logits", ids);
    this.checkUsable();
    const event = await link().ask((host, request) => host.logits(request, this.id, checked, batch), { signal });
    const [logits, routerLogits, topk, weights] = await link().arrays(event);
    const floats = (array: typeof logits): Tensor<Float32Array> => ({
      shape: array?.shape ?? [],
      values: new Float32Array(array?.bytes ?? new ArrayBuffer(0)),
    });
    return {
      logits: floats(logits),
      routerLogits: floats(routerLogits),
      topk: { shape: topk?.shape ?? [], values: new Int32Array(topk?.bytes ?? new ArrayBuffer(0)) },
      weights: floats(weights),
    };
  }

  /** How well the model foretells a text, over windows that do not overlap; the first token of each is not scored. */
  async perplexity(text: string | readonly number[] | Uint32Array, options?: PerplexityOptions): Promise<Perplexity> {
    const { window, batch = 512, onProgress, signal } = checkOptions("perplexity", options, perplexityOptions);
    const checked = checkPrompt("perplexity", text);
    this.checkUsable();
    const tokens = window ?? Math.min(512, this.info.contextLength);
    const event = await link().ask((host, request) => host.perplexity(request, this.id, checked, tokens, batch), {
      onProgress,
      signal,
    });
    return event.perplexity as Perplexity;
  }
}

/** llama.cpp's defaults. */
function withDefaults(options: GenerateOptions): Native.GenerateOptions {
  const { stop = [], repeatLastN = 64, trace } = options;
  const native: Native.GenerateOptions = {
    maxTokens: options.maxTokens ?? u32,
    temperature: options.temperature ?? 0.8,
    topK: options.topK ?? 40,
    topP: options.topP ?? 0.95,
    minP: options.minP ?? 0.05,
    repeatPenalty: options.repeatPenalty ?? 1,
    repeatLastN: repeatLastN === -1 ? u32 : repeatLastN,
    seed: options.seed ?? Math.floor(Math.random() * 2 ** 32),
    stop: typeof stop === "string" ? [stop] : stop,
    ignoreEos: options.ignoreEos ?? false,
    special: options.special ?? false,
  };
  return trace === undefined ? native : { ...native, trace: checkPath("generate", trace, "the trace") };
}

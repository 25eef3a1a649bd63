import "./symbols.js";
import { ClutorError } from "./errors.js";
import { link } from "./link.js";
import { boolean, checkIds, checkOptions, checkPath, checkText, invalid, signal } from "./options.js";

export interface TokenizeOptions {
  /** Control tokens written in the text, such as `<|im_end|>`, become their ids. Default: false, they are text. */
  special?: boolean | undefined;
}

export interface DetokenizeOptions {
  /** Control tokens give their names; otherwise they give nothing. Default: true. */
  special?: boolean | undefined;
}

const tokenizeOptions = { special: boolean };
const tokenizeAsyncOptions = { special: boolean, signal };

/** Turns text into tokens and back, for one loaded file. The base of `Model` and `Tokenizer`. */
export abstract class Vocabulary implements Disposable, AsyncDisposable {
  /** @internal */
  protected readonly id: number;
  #disposed: Promise<void> | undefined;

  protected constructor(id: number) {
    this.id = id;
    unreachable.register(this, id, this);
  }

  /** Whether `dispose` was called. */
  get disposed(): boolean {
    return this.#disposed !== undefined;
  }

  /**
   * Ids of `text`'s tokens, without begin or end tokens. Works on the calling thread, for a megabyte some 60 ms;
   * `tokenizeAsync` does not. Bytes that are not UTF-8 are read as U+FFFD.
   */
  tokenize(text: string | Uint8Array, options?: TokenizeOptions): number[] {
    const { special = false } = this.#check("tokenize", text, options, tokenizeOptions);
    return link().tokenize(this.id, text, special);
  }

  /** As `tokenize`, on the model's own thread: for long texts. */
  async tokenizeAsync(
    text: string | Uint8Array,
    options?: TokenizeOptions & { signal?: AbortSignal | undefined },
  ): Promise<number[]> {
    const { special = false, signal } = this.#check("tokenizeAsync", text, options, tokenizeAsyncOptions);
    const event = await link().ask((host, request) => host.tokenizeLater(request, this.id, text, special), { signal });
    const [ids] = await link().arrays(event);
    return numbers(new Uint32Array(ids?.bytes ?? new ArrayBuffer(0)));
  }

  /** Text of tokens. Bytes that are no whole character become U+FFFD; an id outside the vocabulary is an error. */
  detokenize(ids: readonly number[] | Uint32Array, options?: DetokenizeOptions): string {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(this.detokenizeBytes(ids, options));
  }

  /** Bytes of tokens, exactly. */
  detokenizeBytes(ids: readonly number[] | Uint32Array, options?: DetokenizeOptions): Uint8Array {
    const { special = true } = checkOptions("detokenize", options, tokenizeOptions);
    this.checkUsable();
    return link().detokenize(this.id, checkIds("detokenize", ids), special);
  }

  /** Stops what runs and frees everything. Resolves when the threads are gone. May be called again. */
  dispose(): Promise<void> {
    if (this.#disposed === undefined) {
      unreachable.unregister(this);
      this.#disposed = link().dispose(this.id);
    }
    return this.#disposed;
  }

  [Symbol.dispose](): void {
    void this.dispose();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }

  /** @internal */
  protected checkUsable(): void {
    if (this.disposed) throw new ClutorError("DISPOSED", "the model was disposed of; load it again");
  }

  #check<Options extends object>(
    where: string,
    text: unknown,
    options: Options | undefined,
    checks: Parameters<typeof checkOptions>[2],
  ): Options {
    const checked = checkOptions(where, options, checks);
    if (!(text instanceof Uint8Array)) checkText(where, text);
    this.checkUsable();
    return checked;
  }
}

/** As `Array.from`, which takes ten times as long and would hold the JavaScript thread for a long text. */
function numbers(ids: Uint32Array): number[] {
  const copy = new Array<number>(ids.length);
  for (let i = 0; i < ids.length; i += 1) copy[i] = ids[i] as number;
  return copy;
}

/** Frees models that were lost without `dispose`. */
const unreachable = new FinalizationRegistry<number>((id) => link().abandon(id));

/** A file's tokenizer alone. Also opens files that hold only a vocabulary. */
export class Tokenizer extends Vocabulary {
  static async load(path: string | URL, options?: { signal?: AbortSignal | undefined }): Promise<Tokenizer> {
    const watch = checkOptions("Tokenizer.load", options, { signal });
    const file = checkPath("Tokenizer.load", path);
    const event = await link().load(file, { cacheType: "f16", vocabularyOnly: true }, watch);
    return new Tokenizer(event.request);
  }
}

/** @internal */
export function checkPrompt(where: string, prompt: unknown): string | Uint32Array {
  if (typeof prompt === "string") return prompt;
  if (prompt instanceof Uint32Array || Array.isArray(prompt)) return checkIds(where, prompt);
  throw invalid(`${where}: the prompt must be a string or an array of token ids`);
}

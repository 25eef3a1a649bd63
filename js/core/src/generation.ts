import "./symbols.js";
import type { Drained, Outcome } from "../../../index.js";
import { ClutorError, fromFailure } from "./errors.js";
import { link } from "./link.js";

/** Pieces taken from the engine at once. It runs ahead of its reader by about as many, then it waits. */
const DRAIN_LIMIT = 32;

/** Text that one token added. */
export interface Piece {
  /** Always whole characters. Empty where a token only began a character, or text that may become a stop string. */
  text: string;
  /** Absent on a last piece that brings only what was held back. */
  id?: number;
}

/**
 * Why a generation ended: the model ended its text (`eos`), a stop string came (`stop`), `maxTokens` were made, the
 * context is full, the caller stopped it (`abort`), or it failed (`error`).
 */
export type FinishReason = "eos" | "stop" | "max-tokens" | "context" | "abort" | "error";

/** What a generation came to. */
export interface GenerationResult {
  /** All pieces' text. */
  text: string;
  /** Ids of the tokens made. The end token is not among them. */
  ids: number[];
  finishReason: FinishReason;
  /** Tokens of the prompt. */
  promptTokens: number;
  /** Of these, tokens that an earlier generation had left in the cache. */
  reusedTokens: number;
  /** Tokens made. */
  tokens: number;
  /** Milliseconds to read the prompt. */
  promptMs: number;
  /** Milliseconds to make the tokens. */
  decodeMs: number;
  /** Tokens made after the first, which the prompt's pass gives, per second of `decodeMs`; 0 where there is none. */
  tokensPerSecond: number;
  /** Seed of the draws: the same seed, prompt and options give the same text. */
  seed: number;
}

/** Generations that someone waits for. The others are held by their users only, so that forgotten ones can end. */
const awaited = new Set<Generation>();

/** Stops the engine for generations that were garbage collected. */
const forgotten = new FinalizationRegistry<{ request: number; unlisten: () => void }>(({ request, unlisten }) => {
  unlisten();
  link().forget(request);
});

/** How a generation is started. Given by `Model`; may throw, and the generation then fails with what was thrown. */
export type Start = (onNews: () => void) => { request: number; seed: number; signal: AbortSignal | undefined };

/** Thrown by a `Start` whose signal was aborted before. */
export class AbortedAtStart {
  constructor(readonly reason: unknown) {}
}

/** Aborts a generation with `signal`, without keeping it alive. Gives a function that ends this. */
function listen(signal: AbortSignal | undefined, generation: WeakRef<Generation>): () => void {
  const onAbort = (): void => generation.deref()?.abort();
  signal?.addEventListener("abort", onAbort, { once: true });
  return () => signal?.removeEventListener("abort", onAbort);
}

/**
 * A text in the making. Iterate it for pieces as they come, or await it for the whole; both work, also together.
 *
 * - Leaving a `for await` loop stops the engine; awaiting then gives what there was, with the reason `abort`.
 * - An aborted `signal` rejects with the signal's reason; `text` and `ids` keep what there was.
 * - While nobody reads or awaits, the engine stops after a few tokens and waits.
 */
export class Generation implements AsyncIterable<Piece>, PromiseLike<GenerationResult>, AsyncDisposable {
  readonly #pieces: Piece[] = [];
  readonly #ids: number[] = [];
  readonly #isDisposed: () => boolean;
  readonly #result: Promise<GenerationResult>;
  #resolve!: (result: GenerationResult) => void;
  #reject!: (reason: unknown) => void;
  #text = "";
  #request: number | undefined;
  #seed = 0;
  #signal: AbortSignal | undefined;
  #unlisten: () => void = () => {};
  #finishReason: FinishReason | undefined;
  #failed = false;
  /** What it failed with: of an aborted signal anything, `null` too. */
  #error: unknown;
  /** Someone awaits the whole, so pieces are taken as they come. */
  #eager = false;
  #cancelled = false;
  /** Iterators that wait for the next piece. */
  #readers: (() => void)[] = [];

  constructor(start: Start, isDisposed: () => boolean) {
    this.#isDisposed = isDisposed;
    this.#result = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // Whoever awaits or iterates gets the error; without any, it is not an unhandled one.
    this.#result.catch(() => {});
    try {
      const self = new WeakRef(this);
      const { request, seed, signal } = start(() => self.deref()?.onNews());
      const unlisten = listen(signal, self);
      forgotten.register(this, { request, unlisten }, this);
      this.#request = request;
      this.#seed = seed;
      this.#signal = signal;
      this.#unlisten = unlisten;
    } catch (error) {
      if (error instanceof AbortedAtStart) this.#fail(error.reason, "abort");
      else this.#fail(error);
    }
  }

  /** The text received so far. */
  get text(): string {
    return this.#text;
  }

  /** The tokens received so far. */
  get ids(): number[] {
    return [...this.#ids];
  }

  /** Why it ended, or undefined while it goes on. */
  get finishReason(): FinishReason | undefined {
    return this.#finishReason;
  }

  /** Stops the engine within one token. Resolves when it has stopped. */
  async cancel(): Promise<void> {
    if (this.#finishReason === undefined && this.#request !== undefined) {
      this.#cancelled = true;
      link().cancel(this.#request);
    }
    await this.then(
      () => {},
      () => {},
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.cancel();
  }

  // biome-ignore lint/suspicious/noThenProperty: the result is meant to be awaited.
  then<A = GenerationResult, B = never>(
    onFulfilled?: ((result: GenerationResult) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.#eager = true;
    this.#take();
    return this.#result.then(onFulfilled, onRejected);
  }

  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<GenerationResult | B> {
    return this.then(undefined, onRejected);
  }

  finally(onFinally?: (() => void) | null): Promise<GenerationResult> {
    return this.then().finally(onFinally);
  }

  [Symbol.asyncIterator](): AsyncIterator<Piece, undefined> {
    let index = 0;
    return {
      next: async () => {
        for (;;) {
          const piece = this.#pieces[index];
          if (piece !== undefined) {
            index += 1;
            return { done: false, value: piece };
          }
          if (this.#finishReason !== undefined) {
            if (this.#failed) throw this.#error;
            return { done: true, value: undefined };
          }
          const news = new Promise<void>((resolve) => this.#readers.push(resolve));
          this.#take();
          await news;
        }
      },
      return: async () => {
        await this.cancel();
        return { done: true, value: undefined };
      },
    };
  }

  /** @internal */
  onNews(): void {
    if (this.#finishReason !== undefined) link().forget(this.#request);
    else if (this.#eager || this.#readers.length > 0) this.#take();
  }

  /** Takes what the engine has, as far as someone wants it, and keeps the process alive for more. */
  #take(): void {
    if (this.#finishReason !== undefined) {
      this.#tellReaders();
      return;
    }
    if (this.#request === undefined) return;
    this.#receive(link().drain(this.#request, DRAIN_LIMIT));
    const wanted = this.#finishReason === undefined && (this.#eager || this.#readers.length > 0);
    if (wanted) this.#hold();
    else this.#release();
  }

  #hold(): void {
    if (awaited.has(this)) return;
    awaited.add(this);
    link().hold();
  }

  #release(): void {
    if (awaited.delete(this)) link().release();
  }

  #receive(drained: Drained | null): void {
    if (drained === null) return;
    this.#append(drained);
    const { outcome, failure } = drained;
    if (failure !== undefined) {
      this.#fail(fromFailure(failure));
    } else if (outcome !== undefined) {
      if (outcome.reason === "abort" && !this.#cancelled && this.#isDisposed()) {
        this.#fail(new ClutorError("DISPOSED", "the model was disposed of while it was generating"));
      } else {
        this.#complete(outcome);
      }
    } else if (drained.ids.length > 0) {
      this.#tellReaders();
    }
  }

  #complete(outcome: Outcome): void {
    const { promptTokens, reusedTokens, tokens, promptMs, decodeMs } = outcome;
    const finishReason = outcome.reason as FinishReason;
    this.#finish(finishReason);
    this.#resolve({
      text: this.text,
      ids: this.ids,
      finishReason,
      promptTokens,
      reusedTokens,
      tokens,
      promptMs,
      decodeMs,
      tokensPerSecond: tokens > 1 && decodeMs > 0 ? (1000 * (tokens - 1)) / decodeMs : 0,
      seed: this.#seed,
    });
  }

  /** Keeps pieces, and with the last of them what was held back. */
  #append({ ids, texts, outcome }: Drained): void {
    for (const [index, id] of ids.entries()) {
      this.#ids.push(id);
      this.#add({ text: texts[index] ?? "", id });
    }
    if (outcome !== undefined && outcome.text !== "") this.#add({ text: outcome.text });
  }

  #add(piece: Piece): void {
    this.#pieces.push(piece);
    this.#text += piece.text;
  }

  /** @internal */
  abort(): void {
    const request = this.#request;
    if (this.#finishReason !== undefined || request === undefined) return;
    link().cancel(request);
    // What is there already belongs to the partial text. Its end may be there too, for the engine can be as quick as this
    // call; who aborts is told so all the same.
    const drained = link().drain(request, DRAIN_LIMIT);
    if (drained !== null) this.#append(drained);
    this.#fail(this.#signal?.reason, "abort");
  }

  #fail(error: unknown, reason: FinishReason = "error"): void {
    this.#error = error;
    this.#failed = true;
    this.#finish(reason);
    this.#reject(this.#error);
  }

  #finish(reason: FinishReason): void {
    this.#finishReason = reason;
    forgotten.unregister(this);
    this.#unlisten();
    this.#release();
    this.#tellReaders();
  }

  #tellReaders(): void {
    const readers = this.#readers;
    this.#readers = [];
    for (const wake of readers) wake();
  }
}

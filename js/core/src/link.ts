import type {
  ChatTemplateInfo,
  Drained,
  Event,
  GenerateOptions,
  Host,
  LoadOptions,
  ModelCounts,
} from "../../../index.js";
import { loadAddon } from "./binding.js";
import { fromFailure } from "./errors.js";

/** Parts of a bulk result are copied in slices of this many bytes, so that no copy holds the JavaScript thread long. */
const SLICE_BYTES = 1 << 20;

export interface Progress {
  /** Work done so far, in the unit of `total`: bytes while loading, tokens while scoring or measuring. */
  done: number;
  total: number;
}

/** How far a benchmark of streaming has got. */
export interface StreamProgress extends Progress {
  /** Share of the requests of the last tokens, at most 32, that were found in memory. */
  hitRate: number;
}

export interface Watch {
  onProgress?: ((progress: StreamProgress) => void) | undefined;
  signal?: AbortSignal | undefined;
}

interface Waiting {
  resolve(event: Event): void;
  reject(reason: unknown): void;
  onProgress: ((progress: StreamProgress) => void) | undefined;
}

/**
 * The only place that talks to the compiled engine: numbers requests, posts them, and hands answers to whoever waits.
 * One per JavaScript environment, made on first use.
 */
class Link {
  readonly #addon = loadAddon();
  readonly #host: Host = new this.#addon.Host(() => this.#collect());
  readonly #waiting = new Map<number, Waiting>();
  readonly #generations = new Map<number, () => void>();
  readonly #ends = new Map<number, () => void>();
  #lastRequest = 0;
  #holds = 0;
  #timer: NodeJS.Timeout | undefined;

  kernels(): string[] {
    return this.#addon.kernels();
  }

  /** Bytes of memory that this process may ever use; null where the system does not say. */
  usableMemory(): number | null {
    return this.#addon.usableMemory();
  }

  /** Posts with `start` and waits for the answer. Rejects with the signal's reason as soon as that is aborted. */
  ask(start: (host: Host, request: number) => void, watch: Watch = {}): Promise<Event> {
    const { signal, onProgress } = watch;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const request = this.#next();
    return new Promise<Event>((resolve, reject) => {
      const onAbort = (): void => {
        this.#host.cancel(request);
        leave();
        reject(signal?.reason);
      };
      const leave = (): void => {
        this.#waiting.delete(request);
        signal?.removeEventListener("abort", onAbort);
        this.release();
      };
      this.hold();
      signal?.addEventListener("abort", onAbort, { once: true });
      this.#waiting.set(request, {
        resolve: (event) => {
          leave();
          resolve(event);
        },
        reject: (reason) => {
          leave();
          reject(reason);
        },
        onProgress,
      });
      try {
        start(this.#host, request);
      } catch (error) {
        leave();
        reject(error);
      }
    });
  }

  load(path: string, options: LoadOptions, watch: Watch): Promise<Event> {
    return this.ask((host, request) => host.load(request, path, options), watch);
  }

  /** Starts a generation; `onNews` is called when `drain` may have something. */
  generate(model: number, prompt: string | Uint32Array, options: GenerateOptions, onNews: () => void): number {
    const request = this.#next();
    this.#generations.set(request, onNews);
    try {
      this.#host.generate(request, model, prompt, options);
    } catch (error) {
      this.#generations.delete(request);
      throw error;
    }
    return request;
  }

  drain(request: number, limit: number): Drained | null {
    const drained = this.#host.drain(request, limit);
    if (drained?.outcome || drained?.failure) this.#generations.delete(request);
    return drained;
  }

  cancel(request: number): void {
    this.#host.cancel(request);
  }

  /** Stops a generation whose pieces nobody wants any more. */
  forget(request: number | undefined): void {
    if (request === undefined || !this.#generations.has(request)) return;
    this.#generations.set(request, () => this.drain(request, 0xffff_ffff));
    this.#host.cancel(request);
    this.drain(request, 0xffff_ffff);
  }

  chatTemplate(model: number): ChatTemplateInfo | null {
    return this.#host.chatTemplate(model);
  }

  counts(model: number): ModelCounts {
    return this.#host.counts(model);
  }

  tokenize(model: number, text: string | Uint8Array, special: boolean): number[] {
    return this.#host.tokenize(model, text, special);
  }

  detokenize(model: number, ids: Uint32Array, special: boolean): Buffer {
    return this.#host.detokenize(model, ids, special);
  }

  /** Copies the arrays of an answer, piece by piece. */
  async arrays(event: Event): Promise<{ shape: number[]; bytes: ArrayBuffer }[]> {
    this.hold();
    try {
      const copies = [];
      for (const [index, shape] of (event.arrays ?? []).entries()) {
        const bytes = new Uint8Array(4 * shape.reduce((product, dimension) => product * dimension, 1));
        for (let offset = 0; offset < bytes.length; offset += SLICE_BYTES) {
          bytes.set(this.#host.copyOut(event.request, index, offset, SLICE_BYTES), offset);
          if (bytes.length > SLICE_BYTES) await new Promise(setImmediate);
        }
        copies.push({ shape, bytes: bytes.buffer });
      }
      return copies;
    } finally {
      this.#host.freeArrays(event.request);
      this.release();
    }
  }

  /** Closes a model and waits until its threads are gone and its memory is free. */
  dispose(model: number): Promise<void> {
    return new Promise((resolve) => {
      this.hold();
      this.#ends.set(model, () => {
        this.release();
        resolve();
      });
      this.#host.dispose(model);
    });
  }

  /** Closes a model that nobody can reach any more. */
  abandon(model: number): void {
    this.#host.dispose(model);
  }

  /** Keeps the process alive until `release`: the engine's own wake-ups do not. */
  hold(): void {
    this.#holds += 1;
    this.#timer ??= setInterval(() => {}, 0x7fff_ffff);
  }

  release(): void {
    this.#holds -= 1;
    if (this.#holds === 0) {
      clearInterval(this.#timer);
      this.#timer = undefined;
    }
  }

  #next(): number {
    this.#lastRequest += 1;
    return this.#lastRequest;
  }

  #collect(): void {
    for (const event of this.#host.take()) {
      const waiting = this.#waiting.get(event.request);
      switch (event.kind) {
        case "progress":
          if (waiting !== undefined) this.#report(event, waiting);
          break;
        case "pieces":
          this.#generations.get(event.request)?.();
          break;
        case "done":
          if (waiting !== undefined) waiting.resolve(event);
          else this.#discard(event);
          break;
        case "failed":
          waiting?.reject(fromFailure(event.failure));
          break;
        case "ended":
          this.#ends.get(event.request)?.();
          this.#ends.delete(event.request);
          break;
      }
    }
  }

  #report(event: Event, waiting: Waiting): void {
    try {
      const { done = 0, total = 0, hitRate } = event;
      // Only a benchmark's watcher knows of the hit rate, and its events have one.
      const progress = hitRate === undefined ? { done, total } : { done, total, hitRate };
      waiting.onProgress?.(progress as StreamProgress);
    } catch (error) {
      this.#host.cancel(event.request);
      waiting.reject(error);
    }
  }

  /** An answer that came after its request was aborted. */
  #discard(event: Event): void {
    if (event.arrays !== undefined) this.#host.freeArrays(event.request);
    else this.#host.dispose(event.request); // Only a load leaves something: a model of this number.
  }
}

let instance: Link | undefined;

export function link(): Link {
  instance ??= new Link();
  return instance;
}

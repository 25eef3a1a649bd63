// Models larger than memory: the plan, the cache of experts, statistics. The built-in model streams with a small cache.
import { type CacheOptions, type LoadOptions, Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const MiB = 2 ** 20;
const prompt = "Once upon a time there was a little fox";
const greedy = { temperature: 0, maxTokens: 40 };
/** 4 layers of 16 experts, of which a token uses 4 each; a quarter of them fits. */
const small = { size: "2MiB" } satisfies CacheOptions;
let resident: Model;
let text: string;

beforeAll(async () => {
  resident = await Model.load(path);
  text = (await resident.generate(prompt, greedy)).text;
});

afterAll(() => resident.dispose());

/** Loads the built-in model with streamed experts, and lets go of it after `use`. */
async function streamed<R>(cache: CacheOptions, use: (model: Model) => Promise<R>): Promise<R> {
  const model = await Model.load(path, { cache: { ...small, ...cache } });
  try {
    return await use(model);
  } finally {
    await model.dispose();
  }
}

describe("a streamed model", () => {
  it.each<[string, CacheOptions]>([
    ["a quarter of the experts in its cache", {}],
    ["the smallest cache", { size: 0 }],
    ["a cache for everything", { size: "64MB" }],
    ["the policy lru", { policy: "lru" }],
    ["the policy lfu", { policy: "lfu" }],
    ["the policy adaptive", { policy: "adaptive" }],
    ["a window of its own", { policy: "w-tinylfu", window: 0.05 }],
    ["a half-life of its own", { policy: "decayed-lfu:8" }],
    ["no prefetching", { prefetch: "off" }],
    ["the last token's experts prefetched", { prefetch: "prev", prefetchCount: 2, staging: 8 }],
    ["the router's guesses prefetched", { prefetch: "ahead" }],
    ["one thread that reads, through the system's page cache", { ioThreads: 1, osCache: true }],
    ["a tau of 0", { smartRoute: { keep: 1, candidates: 8, tau: 0 } }],
  ])("gives the resident model's text with %s", (_, cache) =>
    streamed(cache, async (model) => {
      expect(model.stats().plan.streaming).toBe(true);
      expect((await model.generate(prompt, greedy)).text).toBe(text);
    }),
  );

  it("gives the resident model's text with dense weights in a ring, and counts what it read of them", async () => {
    const model = await Model.load(path, { cache: small, dense: "ring" });
    expect((await model.generate(prompt, greedy)).text).toBe(text);
    const { plan, ring, tokens } = model.stats();
    expect(plan.dense).toBe("ring");
    expect(ring?.bytesRead).toBeGreaterThan(plan.denseBytes);
    expect(ring?.bytesPerToken).toBeCloseTo((ring?.bytesRead ?? 0) / tokens);
    await model.dispose();
    expect(resident.stats().ring).toBeUndefined();
    await expect(Model.load(path, { dense: "ring" })).rejects.toMatchObject({ code: "INVALID_OPTION" });
  });

  it("gives the resident model's logits, to the bit", async () => {
    const ids = Array.from({ length: 100 }, (_, i) => (i * i * 7919) % 4096);
    const right = await resident.logits(ids);
    const found = await streamed({}, (model) => model.logits(ids, { batch: 7 }));
    expect(Buffer.from(found.logits.values.buffer).equals(Buffer.from(right.logits.values.buffer))).toBe(true);
  });

  it("stops for a signal while it reads a prompt, and works on after it", () =>
    streamed({ size: 0, ioThreads: 1 }, async (model) => {
      const controller = new AbortController();
      const long = Array.from({ length: 500 }, (_, i) => 100 + (i % 900));
      const generation = model.generate(long, { ...greedy, signal: controller.signal });
      setTimeout(() => controller.abort(), 10);
      await expect(generation).rejects.toMatchObject({ name: "AbortError" });
      expect(generation.finishReason).toBe("abort");
      expect((await model.generate(prompt, greedy)).text).toBe(text);
    }));

  it("may take other experts with smartRoute, and counts them", async () => {
    const route = { keep: 1, candidates: 8, tau: 2 };
    const ids = Array.from({ length: 60 }, (_, i) => (i * i * 7919) % 4096);
    const store = await streamed({ prefetch: "off", smartRoute: route }, async (model) => {
      await model.logits(ids, { batch: 1 });
      return model.stats().store;
    });
    const { slots = 0, substituted = 0, share = 0, droppedMass = 0, largestGap = 0 } = store?.substitutions ?? {};
    expect(slots).toBe(60 * 4 * 4);
    expect(substituted).toBeGreaterThan(0);
    expect(share).toBeCloseTo(substituted / slots);
    expect(droppedMass).toBeGreaterThan(0);
    expect(largestGap).toBeGreaterThan(0);
    expect(largestGap).toBeLessThanOrEqual(2);
  });
});

describe("statistics", () => {
  it("of a resident model are its plan, its memory and its tokens", async () => {
    const { plan, memory, tokens, store } = resident.stats();
    expect(plan).toMatchObject({ streaming: false, reason: "fits-memory", cachedShare: 1 });
    expect(memory.peakRssBytes).toBeGreaterThanOrEqual(memory.rssBytes * 0.9);
    expect(tokens).toBeGreaterThan(0);
    expect(store).toBeUndefined();
  });

  it("of a streamed model add up", () =>
    streamed({ prefetch: "ahead" }, async (model) => {
      const ids = model.tokenize(prompt);
      await model.generate(ids, greedy);
      const { tokens, store } = model.stats();
      // The last token is made and not read again.
      expect(tokens).toBe(ids.length + greedy.maxTokens - 1);
      if (store === undefined) throw new Error("nothing was streamed");
      const { accesses, hits, stagingHits, misses, bypasses, hitRate, prefetch } = store;
      expect(hits + stagingHits + misses + bypasses).toBe(accesses);
      expect(hitRate).toBeCloseTo((hits + stagingHits) / accesses);
      // Each token of the text asks for 4 experts in each of 4 layers; the prompt's pass asks for each expert once.
      expect(accesses).toBeGreaterThan(16 * (greedy.maxTokens - 1));
      expect(accesses).toBeLessThanOrEqual(16 * (greedy.maxTokens - 1) + 64);
      expect(misses).toBeGreaterThan(0);
      expect(store.bytesRead).toBe(store.demandBytes + store.prefetchBytes);
      expect(store.warmStart).toEqual({ experts: 0, bytes: 0 });
      expect(store.bytesPerToken).toBeCloseTo(store.bytesRead / tokens);
      expect(store.readMs).toBeGreaterThan(0);
      expect(store.failedReads).toBe(0);
      expect(prefetch.issued).toBeGreaterThan(0);
      expect(prefetch.useful + prefetch.late).toBe(stagingHits);
      expect(stagingHits + prefetch.wasted + prefetch.cancelled).toBeLessThanOrEqual(prefetch.issued);
      expect(prefetch.confirmed).toBeLessThanOrEqual(prefetch.predicted);
      expect(prefetch.share).toBeGreaterThan(0.3);
      expect(store.substitutions).toBeUndefined();
    }));

  it("begin at nothing, and a larger cache reads less", async () => {
    const read = async (size: string) =>
      streamed({ size, prefetch: "off" }, async (model) => {
        expect(model.stats()).toMatchObject({ tokens: 0, store: { accesses: 0, bytesRead: 0, hitRate: 0 } });
        await model.generate(prompt, greedy);
        return model.stats().store?.bytesRead ?? 0;
      });
    const [least, most] = [await read("64MB"), await read("1MB")];
    expect(least).toBeGreaterThan(0);
    expect(most).toBeGreaterThan(2 * least);
  });

  it("are not to be had of a model that was disposed of", async () => {
    const model = await Model.load(path, { cache: small });
    await model.dispose();
    expect(() => model.stats()).toThrow(expect.objectContaining({ code: "DISPOSED" }));
  });
});

describe("a plan", () => {
  it("says without loading what a load then does", async () => {
    const options: LoadOptions = { contextLength: 256, cache: small };
    const plan = await Model.plan(path, options);
    expect(plan).toMatchObject({ streaming: true, reason: "cache-size", contextLength: 256, nExperts: 64 });
    expect(plan.cachedShare).toBeCloseTo(plan.cachedExperts / 64);
    const { denseBytes, expertBytes, kvBytes, bufferBytes, processBytes } = plan;
    expect(plan.predictedPeakBytes).toBe(denseBytes + expertBytes + kvBytes + bufferBytes + processBytes);
    const loaded = await streamed({}, async (model) => model.stats().plan);
    expect(loaded).toMatchObject({ cachedExperts: plan.cachedExperts, expertBytes, denseBytes });
  });

  it("plans for what will be asked, where that is known", async () => {
    const expected = { promptTokens: 20, maxTokens: 11 };
    const plan = await Model.plan(path, { cache: small, expect: expected });
    expect(plan).toMatchObject({ contextLength: 32, batchTokens: 20 });
    const unknown = await Model.plan(path, { cache: small });
    expect(plan.bufferBytes).toBeLessThan(unknown.bufferBytes);
    expect(await Model.plan(path, { cache: small, expect: expected, contextLength: 99 })).toMatchObject({
      contextLength: 99,
    });
    const wrong = Model.plan(path, { expect: { promptTokens: 0 } });
    await expect(wrong).rejects.toMatchObject({
      code: "INVALID_OPTION",
      message: expect.stringContaining("promptTokens"),
    });
    // Longer than expected is no error as long as the context holds it.
    const model = await Model.load(path, { cache: small, contextLength: 512, expect: { promptTokens: 2 } });
    expect((await model.generate(prompt, greedy)).text).toBe(text);
    await model.dispose();
  });

  it("keeps everything in memory where it fits", async () => {
    expect(await Model.plan(path)).toMatchObject({ streaming: false, reason: "fits-memory", cachedExperts: 64 });
    const given = await Model.plan(path, { memory: "4GB" });
    expect(given).toMatchObject({ streaming: false, reason: "fits-budget", budgetBytes: 4096 * MiB });
  });

  it("names the least memory that works where it is too little, and streams with a little more", async () => {
    const refused = Model.plan(path, { memory: "1MB" });
    await expect(refused).rejects.toMatchObject({ code: "OUT_OF_MEMORY" });
    const least = Number(/at least (\d+) MiB/.exec(await refused.catch((error) => error.message))?.[1]);
    // What this process holds is part of it and moves from call to call, by megabytes where memory is short.
    const plans = [];
    for (let more = -16; more <= 24; more += 1) {
      plans.push(await Model.plan(path, { memory: (least + more) * MiB }).catch(() => undefined));
    }
    const found = plans.find((plan) => plan?.streaming);
    expect(found).toMatchObject({ streaming: true, reason: "too-large" });
    expect(found?.predictedPeakBytes).toBeLessThanOrEqual(found?.budgetBytes ?? 0);
    expect(plans.at(-1)).toMatchObject({ streaming: false });
  });
});

describe("a size", () => {
  it.each([
    ["8G", 8 * 1024 * MiB],
    ["8GB", 8 * 1024 * MiB],
    ["8GiB", 8 * 1024 * MiB],
    ["8 gib", 8 * 1024 * MiB],
    ["4096M", 4096 * MiB],
    ["4194304K", 4096 * MiB],
    ["0.5T", 512 * 1024 * MiB],
    ["8589934592", 8 * 1024 * MiB],
    ["8589934592B", 8 * 1024 * MiB],
    [8 * 1024 * MiB, 8 * 1024 * MiB],
  ])("of %s is %d bytes", async (memory, bytes) => {
    expect((await Model.plan(path, { memory })).budgetBytes).toBe(bytes);
  });

  it("of a percentage is of the memory that this process may use", async () => {
    const half = (await Model.plan(path, { memory: "50%" })).budgetBytes ?? 0;
    const all = (await Model.plan(path, { memory: "100%" })).budgetBytes ?? 0;
    expect(half).toBe(Math.floor(all / 2));
    // Four fifths of it are the default budget.
    expect((await Model.plan(path)).budgetBytes).toBeCloseTo(0.8 * all, -3);
  });

  it.each(["", "G", "8X", "8GBs", "-1", "1e9", "0%", "101%", "8,5G", 1.5, -1, Number.NaN, Infinity, 8n, {}, null])(
    "is none: %s",
    async (memory) => {
      const plan = Model.plan(path, { memory: memory as string });
      await expect(plan).rejects.toMatchObject({ code: "INVALID_OPTION" });
      await expect(plan).rejects.toThrow('`memory` must be a size such as "8GB", "512M" or "50%"');
    },
  );
});

describe("a wrong option of the cache", () => {
  const route = { keep: 1, candidates: 8, tau: 1 };
  it.each<[string, object, string]>([
    ["an unknown name", { cache: { polcy: "lru" } }, "did you mean `policy`?"],
    ["an unknown policy", { cache: { policy: "fifo" } }, "no cache policy `fifo`; choose lru, lfu"],
    ["a window of another policy", { cache: { policy: "lru", window: 0.1 } }, "w-tinylfu"],
    ["a window out of range", { cache: { policy: "w-tinylfu", window: 2 } }, "`window` must be a number"],
    ["an unknown way to prefetch", { cache: { prefetch: "all" } }, '"off" or "prev" or "ahead" or "auto"'],
    ["too many threads", { cache: { ioThreads: 17 } }, "a whole number from 1 to 16"],
    ["memory for the whole and for the cache", { memory: "1G", cache: small }, "give one of them"],
    ["something else than an object", { cache: 5 }, "options must be an object"],
    ["no object at all", { cache: null }, "options must be an object"],
    ["half a smartRoute", { cache: { ...small, smartRoute: { keep: 1 } } }, "`candidates` is missing"],
    [
      "a smartRoute without streaming",
      { cache: { smartRoute: route } },
      "SMART-ROUTE prefers experts that are in memory",
    ],
    [
      "a smartRoute beyond the experts",
      { cache: { ...small, smartRoute: { ...route, candidates: 17 } } },
      "16 experts",
    ],
  ])("rejects: %s", async (_, options, message) => {
    for (const use of [Model.load, Model.plan]) {
      const answer = use(path, options as LoadOptions);
      await expect(answer).rejects.toMatchObject({ name: "ClutorError", code: "INVALID_OPTION" });
      await expect(answer).rejects.toThrow(message);
    }
  });
});

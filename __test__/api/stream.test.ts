// The streaming engine as a benchmark: `streamBenchmark` and `clutor stream`.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type StreamProgress, streamBenchmark } from "@clutor/core";
import { path as builtIn } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { clutor, run } from "./clutor.js";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

const small = { tokens: 40, cache: { size: 2 * 2 ** 20 } };

describe("streamBenchmark", () => {
  it("tells its watcher the tokens done and the hit rate of the latest", async () => {
    const seen: StreamProgress[] = [];
    await streamBenchmark(builtIn, { ...small, onProgress: (progress) => seen.push(progress) });
    expect(seen.at(-1)).toEqual({ done: 40, total: 40, hitRate: expect.any(Number) });
    expect(seen.at(-1)?.hitRate).toBeGreaterThan(0);
  });

  it("tells what the cache, the prediction and the drive did for synthetic choices", async () => {
    const found = await streamBenchmark(builtIn, { ...small, windows: 4 });
    expect(found).toMatchObject({
      routing: { kind: "synthetic", seed: 0, skew: 1, drift: 48, accuracy: 0.85 },
      model: { architecture: "qwen3moe", nLayers: 4, nExperts: 16, nExpertsUsed: 4 },
      compute: "dot",
      tokens: 40,
      plan: { streaming: true, dense: "resident", nExperts: 64 },
      store: { accesses: 640 },
    });
    const { store, windows, memory } = found;
    expect(store.hits + store.stagingHits + store.misses + store.bypasses).toBe(640);
    expect(windows.map(({ firstToken, tokens }) => [firstToken, tokens])).toEqual([
      [0, 10],
      [10, 10],
      [20, 10],
      [30, 10],
    ]);
    const mean = windows.reduce((sum, { hitRate }) => sum + hitRate / 4, 0);
    expect(mean).toBeCloseTo(store.hitRate, 6);
    expect(memory.predictedPeakBytes).toBe(found.plan.predictedPeakBytes);
    for (const field of ["tokensPerSecond", "elapsedMs", "computeMs", "bytesPerToken", "bytesPerSecond"] as const) {
      expect(found[field], field).toBeGreaterThan(0);
    }
    expect(found.ring).toBeUndefined();
    expect(found.burst).toBeUndefined();
  });

  it("works on the same weights for the same seed, wherever they are kept", async () => {
    const { digest, store } = await streamBenchmark(builtIn, small);
    const again = await streamBenchmark(builtIn, { ...small, cache: {}, threads: 1 });
    expect(again.digest).toBe(digest);
    expect(again.store.hitRate).toBeGreaterThan(store.hitRate);
    const ring = await streamBenchmark(builtIn, { ...small, dense: "ring" });
    expect(ring.digest).toBe(digest);
    expect(ring.ring?.bytesPerToken).toBeGreaterThan(0);
    expect((await streamBenchmark(builtIn, { ...small, seed: 1 })).digest).not.toBe(digest);
  });

  it("shows a burst without structure in the hit rates", async () => {
    const burst = { start: 100, tokens: 50 };
    const found = await streamBenchmark(builtIn, { ...small, tokens: 200, skew: 2, burst, compute: "checksum" });
    expect(found.burst).toMatchObject({ firstToken: 100, tokens: 50 });
    expect(found.burst?.during).toBeLessThan(found.burst?.before ?? 0);
  });

  it("takes its time with a delay, and stops when it is aborted or its watcher throws", async () => {
    const slow = { ...small, tokens: 1000, compute: { delayMs: 5 } };
    await expect(streamBenchmark(builtIn, { ...slow, signal: AbortSignal.timeout(50) })).rejects.toThrow(/timeout/);
    const onProgress = () => {
      throw new Error("enough");
    };
    await expect(streamBenchmark(builtIn, { ...slow, onProgress })).rejects.toThrow("enough");
    const { computeMs } = await streamBenchmark(builtIn, { ...slow, tokens: 2, compute: { delayMs: 1 } });
    expect(computeMs).toBeGreaterThanOrEqual(32);
  });

  it("refuses what makes no sense, with the reason", async () => {
    const wrong: [object, string][] = [
      [{ trace: "a.csv", skew: 1 }, "`skew` is of synthetic choices"],
      [{ compute: { delayMs: -1 } }, "`delayMs` must be a number"],
      [{ compute: {} }, "`delayMs` is missing"],
      [{ compute: "sleep" }, "`compute` must be"],
      [{ burst: { start: 1 } }, "`start` and `tokens` are needed"],
      [{ burst: { start: 40, tokens: 5 }, tokens: 40 }, "begins at token 40, after the last of 40"],
      [{ cache: { smartRoute: { keep: 1, candidates: 8, tau: 1 } } }, "`cache.smartRoute` changes"],
      [{ cache: { policy: "fifo" } }, "no cache policy `fifo`"],
      [{ accuracy: 2 }, "`accuracy` must be a number"],
      [{ token: 3 }, "did you mean `tokens`?"],
    ];
    for (const [options, message] of wrong) {
      const failed = streamBenchmark(builtIn, options as object);
      await expect(failed, message).rejects.toMatchObject({ code: "INVALID_OPTION" });
      await expect(failed).rejects.toThrow(message);
    }
    await expect(streamBenchmark("absent.gguf")).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
    await expect(streamBenchmark(builtIn, { trace: "absent.csv" })).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
    await expect(streamBenchmark(builtIn, { memory: "1M" })).rejects.toMatchObject({ code: "OUT_OF_MEMORY" });
  });
});

describe("clutor stream", () => {
  const flags = ["-m", builtIn, "-n", "40", "--cache-mb", "2"];

  it("prints a table that says what is synthetic, with the hit rate over time", async () => {
    const { code, out, err } = await run(["stream", ...flags, "--windows", "2", "--burst", "20,10"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(
      /^routing +synthetic, no model chose: seed 0, skew 1, drift 48 tokens\nprediction +auto; synth/,
    );
    for (const label of ["compute", "dense weights", "cache", "speed", "hit rate", "read", "waited", "prefetch"]) {
      expect(out).toMatch(new RegExp(`\n${label} {2,}\\S`));
    }
    expect(out).toMatch(/\npeak memory +predicted [\d.]+ MiB, measured [\d.]+ MiB/);
    expect(out).toMatch(/\nburst +tokens 20 to 29: hit rate [\d.]+ % before, [\d.]+ % in it, [\d.]+ % after; /);
    expect(out).toMatch(/\n\ntokens +hit rate +read\/token +tokens\/s +waited\/token\n0-19 .*\n20-39 .*\n$/);
  });

  it("takes every flag, and gives one object with --json", async () => {
    const cache = ["--policy", "w-tinylfu", "--window", "0.2", "--prefetch", "ahead", "--prefetch-n", "3"];
    const more = ["--stage", "6", "--io-threads", "2", "--os-cache", "on", "--dense", "ring", "--threads", "1"];
    const choices = ["--seed", "7", "--skew", "0.5", "--drift", "0", "--accuracy", "0.5", "--compute", "delay:200us"];
    const { code, out, err } = await run(["stream", ...flags, ...cache, ...more, ...choices, "--json"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(JSON.parse(out)).toMatchObject({
      routing: { kind: "synthetic", seed: 7, skew: 0.5, drift: 0, accuracy: 0.5 },
      policy: "w-tinylfu:0.2",
      compute: { delayMs: 0.2 },
      threads: 1,
      plan: { dense: "ring" },
      ring: { bytesPerToken: expect.any(Number) },
      store: { accesses: 640, prefetch: { active: true } },
    });
  });

  it("leaves nothing behind: what was chosen here says nothing of texts", async () => {
    const env = { HOME: folder, USERPROFILE: folder };
    expect((await run(["stream", ...flags], { env })).code).toBe(0);
    expect(existsSync(join(folder, ".clutor"))).toBe(false);
  });

  it("replays the trace of a text, and says whose it is", async () => {
    const trace = join(folder, "fox.trace");
    const text = ["--temp", "0", "-n", "20", "-m", builtIn];
    expect((await run(["generate", "Once upon a time", ...text, "--trace", trace])).code).toBe(0);
    const args = ["stream", "-m", builtIn, "--cache-mb", "2", "--prefetch", "off", "--trace", trace];
    // What the environment says of synthetic choices gives way.
    const { out } = await run([...args, "--json"], { env: { CLUTOR_SEED: "3" } });
    const found = JSON.parse(out);
    expect(found.routing).toMatchObject({ kind: "trace", trace });
    const { cachedExperts, nExperts } = found.plan;
    const share = `${cachedExperts / nExperts}`;
    const simulated = await run([
      "trace",
      trace,
      "--simulate",
      "--policy",
      "layer-aware",
      "--cache-share",
      share,
      "--json",
    ]);
    const [{ policies }] = JSON.parse(simulated.out).caches;
    const { hits, promptHits } = policies[0].rates;
    expect(found.store.hits).toBe(hits + promptHits);
    expect((await run(args)).out).toMatch(/^routing +replayed from .*fox\.trace\n/);
    const both = await run([...args, "--skew", "1"]);
    expect(both).toMatchObject({ code: 2, out: "" });
    expect(both.err).toMatch(/^clutor: INVALID_OPTION: .*`skew` is of synthetic choices/);
  });

  it("ends with 2 for wrong usage and 1 for a failure, each in one line", async () => {
    for (const wrong of [
      ["--compute", "delay:3"],
      ["--burst", "10"],
      ["--smart", "1,8,1"],
      ["--accuracy", "2"],
    ]) {
      const { code, out, err } = await run(["stream", ...flags, ...wrong]);
      expect({ code, out }, wrong.join(" ")).toEqual({ code: 2, out: "" });
      expect(err).toMatch(/^clutor: USAGE: [^\n]+\n$/);
    }
    const absent = await run(["stream", "-m", "absent.gguf"]);
    expect(absent).toMatchObject({ code: 1, out: "" });
    expect(absent.err).toMatch(/^clutor: FILE_NOT_FOUND: [^\n]+\n$/);
  });

  it("ends with 130 on Ctrl-C, without a word", async () => {
    const args = ["stream", ...flags, "-n", "100000", "--compute", "delay:2ms"];
    const told = 'process.on("newListener", (name) => name === "SIGINT" && process.stderr.write("handled"));';
    const child = spawn(process.execPath, [
      "--import",
      `data:text/javascript,${encodeURIComponent(told)}`,
      clutor,
      ...args,
    ]);
    let out = "";
    child.stdout.on("data", (text) => {
      out += text;
    });
    await once(child.stderr, "data");
    child.kill("SIGINT");
    const [code] = await once(child, "close");
    expect({ code, out }).toEqual({ code: 130, out: "" });
  });
});

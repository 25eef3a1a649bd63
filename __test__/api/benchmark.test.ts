// How fast a model computes: the library's figures, and the command's.
import { type BenchmarkOptions, benchmark, inspect } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { describe, expect, it } from "vitest";
import { run } from "./clutor.js";

const quick: BenchmarkOptions = { prompt: [8, 24], decode: 4, repetitions: 3, threads: 2 };

describe("a benchmark", () => {
  it("has the median, the spread and the share of the bandwidth of every measurement", async () => {
    const { results, bandwidth, plan, model, loadingMs } = await benchmark(path, { ...quick, depth: [0, 16] });
    const names = ["pp8", "pp24", "tg4"];
    expect(results.map(({ name }) => name)).toEqual([...names, ...names.map((name) => `${name} @ d16`)]);
    expect(plan).toMatchObject({ streaming: false, contextLength: 40 });
    expect(model.threads).toBe(2);
    expect(loadingMs).toBeGreaterThan(0);
    expect(bandwidth.allThreads).toBeGreaterThan(1e8);
    for (const result of results) {
      const sorted = [...result.runs].sort((a, b) => a - b);
      expect(result.tokensPerSecond).toBeCloseTo(sorted[1] ?? 0, 3);
      expect([result.least, result.most]).toEqual([sorted[0], sorted[2]]);
      const perSecond = result.weightBytesPerToken * result.tokensPerSecond;
      expect(result.bandwidthShare).toBeCloseTo(perSecond / bandwidth.allThreads, 6);
      expect(result.streamed).toBeUndefined();
    }
    // A token alone reads its experts and what every token needs. The embedding is the output too: a row comes twice.
    const { denseBytes, expertBytesPerToken } = await inspect(path);
    const [prompt, decode] = [results[1], results[2]];
    const row = (decode?.weightBytesPerToken ?? 0) - denseBytes - expertBytesPerToken;
    expect(row).toBeGreaterThan(0);
    expect(row).toBeLessThan(4 * model.embedDim);
    // Tokens of a prompt share what they read.
    expect(prompt?.weightBytesPerToken).toBeLessThan((decode?.weightBytesPerToken ?? 0) / 2);
  });

  it("tells of what was streamed where experts are", async () => {
    const { results, plan } = await benchmark(path, { ...quick, cache: { size: "2MB", prefetch: "off" } });
    expect(plan.streaming).toBe(true);
    for (const { streamed } of results) {
      // A prompt that sweeps through all experts may find none of them.
      expect(streamed?.hitRate).toBeGreaterThanOrEqual(0);
      expect(streamed?.hitRate).toBeLessThan(1);
      expect(streamed?.bytesPerToken).toBeGreaterThan(0);
    }
    expect(results.at(-1)?.streamed?.hitRate).toBeGreaterThan(0);
  });

  it("tells how many tokens are done, and stops when it is aborted", async () => {
    let last = { done: 0, total: 0 };
    await benchmark(path, { ...quick, onProgress: (progress) => (last = progress) });
    expect(last).toEqual({ done: 4 * 8 + 4 * 24 + 4 * 4, total: 144 });
    const stop = new AbortController();
    const long = benchmark(path, {
      ...quick,
      repetitions: 1000,
      signal: stop.signal,
      onProgress: () => stop.abort(new Error("enough")),
    });
    await expect(long).rejects.toThrow("enough");
  });

  it.each<[object, string]>([
    [{ prompt: [] }, "`prompt` must be a whole number"],
    [{ decode: -1 }, "`decode` must be a whole number"],
    [{ depth: [0, 1.5] }, "`depth` must be a whole number"],
    [{ repetitions: 0 }, "`repetitions` must be a whole number"],
    [{ threads: 0 }, "`threads` must be a whole number"],
    [{ depth: 1_000_000 }, "a context of 1000512 tokens is needed"],
  ])("rejects %j", async (options, message) => {
    const answer = benchmark(path, options as BenchmarkOptions);
    await expect(answer).rejects.toMatchObject({ name: "ClutorError", code: "INVALID_OPTION" });
    await expect(answer).rejects.toThrow(message);
  });
});

describe("clutor bench", () => {
  const small = ["bench", "-m", path, "-t", "2", "-r", "2", "-p", "8,16", "-n", "4"];

  it("gives a table, and one object with --json", async () => {
    const { code, out, err } = await run(small);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(/^bandwidth +memory is read at [\d.]+ GB\/s by one thread, [\d.]+ GB\/s by 2$/m);
    expect(out).toMatch(/^experts +all in memory$/m);
    expect(out).toMatch(/^test +tokens\/s +least +most +weights\/token +weights\/s +of bandwidth$/m);
    for (const name of ["pp8", "pp16", "tg4"]) {
      expect(out).toMatch(new RegExp(`^${name}( +[\\d.]+){3} +[\\d.]+ MB +[\\d.]+ GB/s +[\\d.]+ %$`, "m"));
    }
    const json = await run([...small, "--depth", "8", "--json"], { env: { CLUTOR_N_GEN: "2" } });
    const { results } = JSON.parse(json.out);
    // The command line counts more than the environment.
    expect(results.map((result: { name: string }) => result.name)).toEqual(["pp8 @ d8", "pp16 @ d8", "tg4 @ d8"]);
  });

  it("shows what the store did where experts are streamed", async () => {
    const { code, out } = await run([...small, "-p", "0", "--cache-mb", "2"]);
    expect(code).toBe(0);
    expect(out).toMatch(/^experts +streamed, \d+ of 64 \([\d.]+ %\) fit in the cache$/m);
    expect(out).toMatch(/ +hit rate +read\/token +waited\/token\ntg4 .* [\d.]+ % +[\d.]+ MB +[\d.]+ ms\n$/);
  });

  it("refuses what is no number", async () => {
    for (const list of ["x", "1,", "1.5", "-3"]) {
      const { code, err } = await run(["bench", `--n-prompt=${list}`]);
      expect({ list, code }).toEqual({ list, code: 2 });
      expect(err).toMatch(/^clutor: USAGE: .*Whole numbers are expected, such as 512 or 128,512.*\n$/);
    }
  });
});

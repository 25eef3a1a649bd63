// Models larger than memory at the terminal.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { path as builtIn } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { run } from "./clutor.js";

const greedy = ["--temp", "0", "-n", "20", "-m", builtIn];
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

describe("clutor with streamed experts", () => {
  const small = ["--cache-mb", "2"];

  it("gives the same text with every flag, and nothing on stderr where a cache was asked for", async () => {
    const { out } = await run(["generate", "Once upon a time", ...greedy]);
    const flags = [
      "--policy",
      "w-tinylfu",
      "--window",
      "0.2",
      "--stage",
      "6",
      "--prefetch",
      "prev",
      "--prefetch-n",
      "3",
    ];
    const more = ["--io-threads", "2", "--os-cache", "on", "--smart", "1,8,0"];
    const streamed = await run(["generate", "Once upon a time", ...greedy, ...small, ...flags, ...more]);
    expect(streamed).toEqual({ code: 0, out, err: "" });
  });

  it("has the plan and what the store did in --json", async () => {
    const env = { CLUTOR_CACHE_MB: "2", CLUTOR_PREFETCH: "ahead" };
    const { out } = await run(["generate", "Once upon a time", ...greedy, "--json"], { env });
    const { plan, store, memory, peakRssBytes } = JSON.parse(out);
    expect(plan).toMatchObject({ streaming: true, reason: "cache-size", nExperts: 64 });
    expect(plan.predictedPeakBytes).toBeGreaterThan(plan.denseBytes + plan.expertBytes);
    expect(store.hits + store.stagingHits + store.misses + store.bypasses).toBe(store.accesses);
    expect(store.bytesPerToken).toBeGreaterThan(0);
    expect(store.prefetch).toMatchObject({ active: true });
    // From the first piece on: the prompt's tokens are not among them, and the last token is not read again.
    expect(store.decode.tokens).toBeLessThanOrEqual(19);
    expect(memory).toMatchObject({ peakRssBytes, predictedPeakBytes: plan.predictedPeakBytes });
    // The prompt's bytes bound its tokens: 16, one that may begin the text, 20 made and one that need not be run.
    expect(plan).toMatchObject({ contextLength: 38, batchTokens: 17 });
    const resident = JSON.parse((await run(["generate", "Once upon a time", ...greedy, "--json"])).out);
    expect(resident).toMatchObject({ plan: { streaming: false }, store: null });
  });

  it("says so on stderr where the memory is too little for everything, and fails with the least where it is less", async () => {
    // A short text needs less than the full context that `plan` is for.
    const refused = await run(["generate", "Once", ...greedy, "--memory", "1M"]);
    expect(refused).toMatchObject({ code: 1, out: "" });
    const least = Number(/^clutor: OUT_OF_MEMORY: .*at least (\d+) MiB.*\n$/.exec(refused.err)?.[1]);
    // What a process holds at its start is part of the least, and not the same every time.
    const notes: string[] = [];
    for (let more = -2; more <= 12; more += 1) {
      const { err } = await run(["generate", "Once", ...greedy, "--memory", `${least + more}M`]);
      if (!err.includes("OUT_OF_MEMORY")) notes.push(err);
    }
    const note =
      /^clutor: experts are streamed, since the model is larger than .* of [\d.]+ MiB: [\d.]+ % of them .*\n$/;
    expect(notes.filter((err) => note.test(err)).length).toBeGreaterThan(0);
    expect(notes.filter((err) => !note.test(err) && err !== "")).toEqual([]);
  });

  it("prints a block on stderr with --stats, in every command that computes", async () => {
    const text = join(folder, "stats.txt");
    writeFileSync(text, "Once upon a time there was a little fox.");
    const smart = ["--smart", "1,8,1"];
    const { out, err } = await run(["generate", "Once", ...greedy, ...small, ...smart, "--stats"]);
    expect(out).not.toContain("clutor:");
    for (const name of ["prompt", "text", "experts", "cache", "read", "prefetch", "smart route", "memory"]) {
      expect(err, name).toContain(`clutor: ${name}: `);
    }
    const computing = [
      ["logits", "--ids", "1,2,3", "--out", join(folder, "stats")],
      ["perplexity", "--file", text],
    ];
    for (const command of computing) {
      const { code, err } = await run([...command, "-m", builtIn, ...small, "--stats"]);
      expect(code).toBe(0);
      expect(err).toMatch(/^clutor: experts: streamed.*\nclutor: cache: .*\nclutor: read: /);
      const json = JSON.parse((await run([...command, "-m", builtIn, ...small, "--json"])).out);
      expect(json.store.accesses).toBeGreaterThan(0);
    }
  });

  it("reads dense weights anew with --dense ring, and gives the same text", async () => {
    const ring = ["--dense", "ring"];
    const { out } = await run(["generate", "Once upon a time", ...greedy]);
    const streamed = await run(["generate", "Once upon a time", ...greedy, ...small, ...ring, "--stats"]);
    expect(streamed).toMatchObject({ code: 0, out });
    expect(streamed.err).toMatch(/\nclutor: dense weights: two layers' in memory at a time; read [\d.]+ MiB/);
    const plan = await run(["plan", "-m", builtIn, ...small, ...ring]);
    expect(plan.out).toMatch(/\ndense weights +[\d.]+ KiB, two layers' at a time\n/);
    expect(plan.out).toMatch(/\nkept free +[\d.]+ MiB, seldom needed, on top\n/);
  });

  it("refuses options that make no sense, with the reason", async () => {
    const wrong: [string[], string][] = [
      [["--policy", "fifo"], "no cache policy `fifo`; choose lru"],
      [["--memory", "0%"], "`memory` must be a size"],
      [["--dense", "ring"], "only while experts are streamed"],
      [["--smart", "1,8,1"], "SMART-ROUTE prefers experts that are in memory, and here all are"],
    ];
    for (const [flags, message] of wrong) {
      const { code, out, err } = await run(["generate", "Once", ...greedy, ...flags]);
      expect({ code, out }).toEqual({ code: 2, out: "" });
      expect(err).toMatch(/^clutor: INVALID_OPTION: [^\n]*\n$/);
      expect(err).toContain(message);
    }
  });
});

describe("clutor plan", () => {
  it("gives a table, and one object with --json", async () => {
    const { code, out, err } = await run(["plan", "-m", builtIn, "--cache-mb", "2", "--ctx", "256"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toMatch(/^experts +streamed: a size of the cache was given\nat once +\d+ of 64 experts \([\d.]+ %\)\n/);
    expect(out).toMatch(/\nkeys and values +[\d.]+ \w+ for 256 tokens\n/);
    const json = JSON.parse((await run(["plan", "-m", builtIn, "--memory", "4G", "--ctx", "256", "--json"])).out);
    expect(json).toMatchObject({ streaming: false, budgetBytes: 4 * 2 ** 30, contextLength: 256, cachedShare: 1 });
    expect(json.predictedPeakBytes).toBeLessThan(4 * 2 ** 30);
  });
});

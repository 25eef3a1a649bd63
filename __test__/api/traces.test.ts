// Traces: recorded by a generation, read, converted, simulated; as a library and at the terminal.
import { appendFileSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { convertTrace, inspectTrace, Model, simulateTrace } from "@clutor/core";
import { path as builtIn } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { run } from "./clutor.js";

const fox = "Once upon a time there was a little fox";
const recorded = join(import.meta.dirname, "../data/traces/qwen3-30b-a3b.csv.gz");
let folder: string;
let model: Model;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
  model = await Model.load(builtIn, { threads: 2 });
});

afterAll(async () => {
  await model.dispose();
  rmSync(folder, { recursive: true });
});

/** The ids that the model read, when it was asked for `fox` and made `ids`. */
const readByModel = (ids: number[]): number[] => [...model.tokenize(fox), ...ids.slice(0, -1)];

describe("a trace", () => {
  it("holds the tokens and router scores that logits has for the same ids", async () => {
    const path = join(folder, "fox.trace");
    const { ids } = await model.generate(fox, { temperature: 0, maxTokens: 12, ignoreEos: true, trace: path });
    const read = readByModel(ids);
    const { routerLogits } = await model.logits(read);
    const record = 4 + 4 * model.info.nLayers * model.info.nExperts;
    const bytes = readFileSync(path);
    expect(bytes.length).toBe(40 + read.length * record);
    for (const [token, id] of read.entries()) {
      const start = 40 + token * record;
      expect(bytes.readUInt32LE(start)).toBe(id);
      const logits = new Float32Array(
        bytes.buffer.slice(bytes.byteOffset + start + 4, bytes.byteOffset + start + record),
      );
      expect(logits).toEqual(routerLogits.values.subarray(token * logits.length, (token + 1) * logits.length));
    }
    expect(await inspectTrace(pathToFileURL(path))).toEqual({
      kind: "router-logits",
      nLayers: model.info.nLayers,
      nExperts: model.info.nExperts,
      nExpertsUsed: model.info.nExpertsUsed,
      promptTokens: model.tokenize(fox).length,
      tokens: 11,
      choices: read.length * model.info.nLayers * model.info.nExpertsUsed,
      leftOverBytes: 0,
    });
  });

  it("of choices has those that logits reports, as does a binary one that is converted", async () => {
    const options = { temperature: 0, maxTokens: 12, ignoreEos: true };
    const [csv, binary, converted] = [join(folder, "a.csv"), join(folder, "a.trace"), join(folder, "b.csv")];
    const { ids } = await model.generate(fox, { ...options, trace: csv });
    await model.generate(fox, { ...options, trace: binary });
    expect(await convertTrace(binary, converted)).toBe(readByModel(ids).length);
    const text = readFileSync(csv, "utf8");
    expect(readFileSync(converted, "utf8")).toBe(text);
    const { topk, weights } = await model.logits(readByModel(ids));
    const rows = text.trimEnd().split("\n").slice(2);
    expect(rows.map((row) => Number(row.split(",")[3]))).toEqual([...topk.values]);
    expect(rows.map((row) => Math.fround(Number(row.split(",")[4])))).toEqual([...weights.values]);
  });

  it("changes nothing in the text, also of generations that run at the same time", async () => {
    const options = { seed: 5, maxTokens: 20 };
    const { text } = await model.generate(fox, options);
    const both = await Promise.all([
      model.generate(fox, { ...options, trace: join(folder, "one.trace") }),
      model.generate(fox, { ...options, trace: join(folder, "two.trace") }),
    ]);
    expect(both.map((result) => result.text)).toEqual([text, text]);
    expect(readFileSync(join(folder, "one.trace")).equals(readFileSync(join(folder, "two.trace")))).toBe(true);
  });

  it("of a generation that was left early holds what it had", async () => {
    const path = join(folder, "left.trace");
    const generation = model.generate(fox, { temperature: 0, ignoreEos: true, trace: path });
    for await (const _ of generation) if (generation.ids.length > 3) break;
    const { tokens } = await generation;
    const info = await inspectTrace(path);
    expect(info).toMatchObject({ promptTokens: model.tokenize(fox).length, leftOverBytes: 0 });
    expect([tokens - 1, tokens]).toContain(info.tokens);
  });

  it("that cannot be written fails the generation", async () => {
    const path = join(folder, "absent", "fox.trace");
    const failure = { code: "FILE_WRITE", message: expect.stringContaining(`${path}: the trace cannot be written`) };
    await expect(model.generate(fox, { trace: path })).rejects.toMatchObject(failure);
    await expect(model.generate(fox, { trace: "" })).rejects.toMatchObject({ code: "INVALID_OPTION" });
    await expect(model.generate(fox, { trace: "a\0b" })).rejects.toMatchObject({ code: "INVALID_OPTION" });
    expect((await model.generate(fox, { maxTokens: 2 })).tokens).toBe(2);
  });

  it("that is none, or is absent, or of another version, is refused with a code", async () => {
    const write = (name: string, content: string | Uint8Array): string => {
      writeFileSync(join(folder, name), content);
      return join(folder, name);
    };
    const cases = [
      [join(folder, "nothing.csv"), "FILE_NOT_FOUND"],
      [folder, "FILE_READ"],
      [builtIn, "INVALID_FILE"],
      [write("empty", ""), "INVALID_FILE"],
      [write("short", "CLUTRACE\u0001\0\0\0"), "INVALID_FILE"],
      [write("newer", Buffer.concat([Buffer.from("CLUTRACE\u0002"), Buffer.alloc(40)])), "UNSUPPORTED"],
    ] as const;
    for (const [path, code] of cases) {
      await expect(inspectTrace(path), path).rejects.toMatchObject({ code });
      await expect(simulateTrace(path), path).rejects.toMatchObject({ code });
      await expect(convertTrace(path, join(folder, "out.csv")), path).rejects.toMatchObject({ code });
    }
    expect(existsSync(join(folder, "out.csv"))).toBe(false);
  });
});

describe("simulateTrace", () => {
  it("replays a recorded trace through the policies asked for", async () => {
    const { trace, caches } = await simulateTrace(recorded, { policies: ["lru", "layer-aware"], shares: [0.1, 0.3] });
    expect(trace).toMatchObject({ kind: "choices", nLayers: 48, nExperts: 128, promptTokens: 28, tokens: 128 });
    expect(caches.map(({ cachedExperts }) => cachedExperts)).toEqual([614, 1843]);
    // As `npm run bench:policy` has them.
    const rates = caches.map(({ belady, policies }) => [
      belady.hitRate.toFixed(3),
      ...policies.map(({ rates }) => rates.hitRate.toFixed(3)),
    ]);
    expect(rates.map((row) => row.slice(0, 2))).toEqual([
      ["0.756", "0.500"],
      ["0.955", "0.880"],
    ]);
    for (const { belady, policies } of caches) {
      const [lru, layerAware] = policies;
      expect(policies.map(({ isDefault }) => isDefault)).toEqual([false, true]);
      expect(layerAware?.rates.hitRate).toBeGreaterThan(lru?.rates.hitRate ?? 1);
      expect(layerAware?.rates.hitRate).toBeLessThanOrEqual(belady.hitRate);
      expect(lru?.accessesPerSecond).toBeGreaterThan(0);
      expect(lru?.rates).toMatchObject({ accesses: belady.accesses, promptAccesses: belady.promptAccesses });
    }
  });

  it("takes all policies unless told otherwise, and refuses what it does not know", async () => {
    const { caches } = await simulateTrace(recorded);
    expect(caches).toHaveLength(1);
    expect(caches[0]?.policies.map(({ policy }) => policy.split(":")[0])).toEqual(
      expect.arrayContaining(["lru", "lfu", "w-tinylfu", "adaptive", "decayed-lfu", "layer-aware"]),
    );
    const wrong = [{ policies: ["mru"] }, { policies: [] }, { shares: [1.5] }, { shares: ["0.1"] }, { share: 0.1 }];
    for (const options of wrong) {
      await expect(simulateTrace(recorded, options as object)).rejects.toMatchObject({ code: "INVALID_OPTION" });
    }
  });

  it("stops when its signal is aborted", async () => {
    const controller = new AbortController();
    const simulation = simulateTrace(recorded, { shares: Array(50).fill(0.2), signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(simulation).rejects.toThrow("enough");
  });
});

describe("clutor", () => {
  const generate = ["generate", fox, "--temp", "0", "-n", "6", "-m", builtIn];

  it("records with --trace, and tells what a trace holds, also of one that was cut off", async () => {
    const path = join(folder, "cli.trace");
    expect(await run([...generate, "--trace", path])).toMatchObject({ code: 0, err: "" });
    const told = await run(["trace", path]);
    expect(told).toMatchObject({ code: 0, err: "" });
    expect(told.out).toMatch(/^holds +router scores \(binary\)\ntokens +\d+ of the prompt, 5 after it\n/);
    expect(told.out).not.toContain("cut off");
    appendFileSync(path, "abc");
    expect((await run(["trace", path])).out).toMatch(/^cut off +3 bytes of an unfinished token are left out$/m);
    expect(JSON.parse((await run(["trace", path, "--json"])).out)).toMatchObject({ tokens: 5, leftOverBytes: 3 });
  });

  it("makes the same CSV with --csv as generate does", async () => {
    const [binary, csv, converted] = ["c.trace", "c.csv", "d.csv"].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    await run([...generate, "--trace", binary]);
    await run(generate, { env: { CLUTOR_TRACE: csv } });
    const done = await run(["trace", binary, "--csv", converted]);
    expect(done).toMatchObject({ code: 0, out: "" });
    expect(done.err).toMatch(/^clutor: .*d\.csv: the choices of \d+ tokens\n$/);
    expect(readFileSync(converted, "utf8")).toBe(readFileSync(csv, "utf8"));
    const refused = await run(["trace", csv, "--csv", join(folder, "e.csv")]);
    expect(refused).toMatchObject({ code: 1, out: "" });
    expect(refused.err).toContain("only a binary trace is converted");
  });

  it("simulates with --simulate, as a table and as JSON", async () => {
    const shown = await run(["trace", "--simulate", recorded, "--cache-share", "5%,10%"]);
    expect(shown).toMatchObject({ code: 0, err: "" });
    expect(shown.out).toMatch(/^10\.0 % of the experts: 614 of 6144$/m);
    expect(shown.out).toMatch(/^Belady +75\.6 %$/m);
    expect(shown.out).toMatch(/^lru +50\.0 % +66\.\d % +\d+\.\d$/m);
    expect(shown.out).toMatch(/^layer-aware:16 \* +\d\d\.\d % +\d\d\.\d % +\d+\.\d$/m);
    const { out } = await run(["trace", "--simulate", recorded, "--policy", "lru", "--json"]);
    const { caches } = JSON.parse(out);
    expect(caches).toMatchObject([{ share: 0.1, cachedExperts: 614, policies: [{ policy: "lru" }] }]);
  });

  it("refuses wrong use, and fails before it loads where a trace could not be written", async () => {
    const cases: [args: string[], code: number, err: string][] = [
      [["trace"], 2, "missing required argument"],
      [["trace", recorded, "--simulate", "--csv", "x.csv"], 2, "give --csv or --simulate, not both"],
      [["trace", recorded, "--simulate", "--policy", "mru"], 2, "no cache policy `mru`"],
      [["trace", recorded, "--simulate", "--cache-share", "10"], 2, "A share of the experts is expected"],
      [["generate", "Once", "-m", "absent.gguf", "--trace", folder], 1, "FILE_WRITE"],
      [["generate", "Once", "-m", "absent.gguf", "--trace", join(folder, "no/x")], 1, `there is no folder ${folder}`],
      [["generate", "Once", "-m", "absent.gguf", "--trace", join(folder, "x")], 1, "FILE_NOT_FOUND"],
    ];
    for (const [args, code, err] of cases) {
      const ended = await run(args);
      expect(ended, args.join(" ")).toMatchObject({ code, out: "" });
      expect(ended.err, args.join(" ")).toContain(err);
    }
    expect(existsSync(join(folder, "x"))).toBe(false);
  });

  it("ends with a clear error where the drive is full", async () => {
    if (!existsSync("/dev/full") || !statSync("/dev/full").isCharacterDevice()) return;
    const { code, err } = await run([...generate, "--trace", "/dev/full"]);
    expect(code).toBe(1);
    expect(err).toMatch(/^clutor: FILE_WRITE: \/dev\/full: the trace cannot be written: No space left on device/);
  });
});

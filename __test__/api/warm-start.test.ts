// Which experts were hot is remembered for the next start: where, when, and what is never done.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type CacheOptions, type LoadOptions, Model, type StoreStats } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { clutor, run } from "./clutor.js";

const prompt = "Once upon a time there was a little fox";
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
});

afterEach(() => {
  delete process.env["CLUTOR_HOME"];
  rmSync(folder, { recursive: true });
});

/** Loads the built-in model with a quarter of its experts cached, lets it read all that is remembered, and tells a story. */
async function story(cache: CacheOptions, tokens = 20): Promise<{ text: string; store: StoreStats }> {
  const model = await Model.load(path, { cache: { size: "2MiB", prefetch: "off", ...cache } });
  try {
    const warmed = (): number => model.stats().store?.warmStart.experts ?? 0;
    if (cache.warmStart && existsSync(warm())) await expect.poll(warmed).toBe(model.stats().plan.cachedExperts);
    const { text } = await model.generate(prompt, { temperature: 0, maxTokens: tokens });
    return { text, store: model.stats().store as StoreStats };
  } finally {
    await model.dispose();
  }
}

/** Where the command line, and `warmStart: true`, remember with `CLUTOR_HOME` set to the test's folder. */
function warm(): string {
  return join(folder, "warm");
}

describe("a warm start", () => {
  it("finds more in memory at the next start, with the same text", async () => {
    const first = await story({ warmStart: warm() });
    expect(first.store.warmStart).toEqual({ experts: 0, bytes: 0 });
    const [file = "", ...others] = readdirSync(warm());
    expect(others).toEqual([]);
    if (process.platform !== "win32") {
      expect(statSync(warm()).mode & 0o777).toBe(0o700);
      expect(statSync(join(warm(), file)).mode & 0o777).toBe(0o600);
    }
    const second = await story({ warmStart: warm() });
    expect(second.text).toBe(first.text);
    expect(second.store.warmStart.experts).toBeGreaterThan(8);
    expect(second.store.warmStart.bytes).toBeGreaterThan(0);
    expect(second.store.demandBytes).toBeLessThan(first.store.demandBytes);
    expect(second.store.bytesRead).toBe(second.store.demandBytes + second.store.warmStart.bytes);
  });

  it("of `true` remembers in CLUTOR_HOME", async () => {
    process.env["CLUTOR_HOME"] = folder;
    await story({ warmStart: true });
    expect(readdirSync(warm())).toHaveLength(1);
  });

  it("is not made, and nothing written, unless it is asked for", async () => {
    process.env["CLUTOR_HOME"] = folder;
    await story({});
    await story({ warmStart: false });
    expect(readdirSync(folder)).toEqual([]);
  });

  it("is not needed where all experts are in memory", async () => {
    const model = await Model.load(path, { cache: { warmStart: warm() } });
    await model.generate(prompt, { maxTokens: 3 });
    await model.dispose();
    expect(existsSync(warm())).toBe(false);
  });

  it("does without a folder that cannot be made", async () => {
    const taken = join(folder, "taken");
    writeFileSync(taken, "a file");
    const model = await Model.load(path, { cache: { size: "2MiB", warmStart: join(taken, "warm") } });
    expect((await model.generate(prompt, { maxTokens: 3 })).tokens).toBe(3);
    await model.dispose();
    expect(readFileSync(taken, "utf8")).toBe("a file");
  });

  it.each([5, "", "a\0b", {}, null])("rejects %j as its folder", async (warmStart) => {
    const options = { cache: { warmStart } } as LoadOptions;
    await expect(Model.load(path, options)).rejects.toMatchObject({ code: "INVALID_OPTION" });
    await expect(Model.load(path, options)).rejects.toThrow("`warmStart` must be true, false or the path of a folder");
  });
});

describe("clutor", () => {
  const args = ["generate", prompt, "-m", path, "--temp", "0", "-n", "20", "--cache-mb", "2"];

  it("starts warm unless told otherwise, and says so with --stats", async () => {
    const env = { CLUTOR_HOME: folder, CLUTOR_WARM_START: "on" };
    const off = await run([...args, "--warm-start", "off"], { env });
    expect(readdirSync(folder)).toEqual([]);
    const first = await run([...args, "--json"], { env: { ...env, CLUTOR_WARM_START: "" } });
    expect(JSON.parse(first.out)).toMatchObject({ text: off.out, store: { warmStart: { experts: 0 } } });
    expect(readdirSync(warm())).toHaveLength(1);
    const second = await run([...args, "--stats"], { env });
    expect(second.out).toBe(off.out);
    // Some are read before the prompt takes their place, but how many is up to the drive.
    expect(second.err).toMatch(
      /(clutor: warm start: \d+ experts read ahead of their use, [\d.]+ \w+\n|)clutor: memory/,
    );
  });

  it("may run many times at once and leaves one whole file", async () => {
    const env = { CLUTOR_HOME: folder, CLUTOR_WARM_START: "on" };
    const all = await Promise.all(Array.from({ length: 4 }, () => run(args, { env })));
    expect(new Set(all.map(({ code, out, err }) => JSON.stringify({ code, out, err }))).size).toBe(1);
    expect(all[0]).toMatchObject({ code: 0, err: "" });
    expect(readdirSync(warm())).toHaveLength(1);
    expect((await story({ warmStart: warm() }, 1)).store.warmStart.experts).toBeGreaterThan(8);
  });

  // Windows has no signals: a kill is one.
  it.skipIf(process.platform === "win32").each(["SIGINT", "SIGTERM", "EPIPE"])(
    "remembers what was hot when it ends by %s",
    async (end) => {
      const endless = ["generate", prompt, "-m", path, "-n", "-1", "--ctx", "0", "--ignore-eos", "--cache-mb", "2"];
      const env = { ...process.env, CLUTOR_HOME: folder, CLUTOR_WARM_START: "on" };
      const child = spawn(process.execPath, [clutor, ...endless], { env });
      const ended = once(child, "exit");
      await once(child.stdout, "data");
      if (end === "EPIPE") child.stdout.destroy();
      else child.kill(end as NodeJS.Signals);
      const [code] = await ended;
      expect(code).toBe({ SIGINT: 130, SIGTERM: 143, EPIPE: 0 }[end]);
      expect(readdirSync(warm())).toHaveLength(1);
    },
  );

  it("goes on where the home cannot be written", async () => {
    writeFileSync(join(folder, "taken"), "");
    const env = { CLUTOR_HOME: join(folder, "taken"), CLUTOR_WARM_START: "on" };
    expect(await run(args, { env })).toMatchObject({ code: 0, err: "" });
  });
});

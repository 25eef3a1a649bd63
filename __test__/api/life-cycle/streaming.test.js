// Streamed experts leave nothing behind: no memory, no thread, no byte on the drive.
import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { busyMs, onLinux, settledMemory, threadsLeft, wait } from "./process.js";

const prompt = "Once upon a time there was a little fox";
const greedy = { temperature: 0, ignoreEos: true };
const cache = { size: "2MiB" };
const skip = onLinux ? false : "reads /proc";
const MiB = 2 ** 20;

/** The number behind `name:` in a file of /proc/self. */
function procNumber(file, name) {
  const found = new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(readFileSync(`/proc/self/${file}`, "utf8"));
  return Number(found?.[1] ?? 0);
}

test("disposing frees the cache at once, without the garbage collector", { skip }, async () => {
  const held = [];
  const left = [];
  for (let i = 0; i < 12; i += 1) {
    await settledMemory();
    const before = process.memoryUsage.rss();
    const model = await Model.load(path, { cache: { size: "64MiB" } });
    await model.generate(prompt, { ...greedy, maxTokens: 100 });
    held.push(process.memoryUsage.rss() - before);
    await model.dispose();
    left.push(process.memoryUsage.rss() - before);
  }
  // The first rounds grow what the runtime keeps; noise only adds, so the least of the others tells.
  const least = (values) => Math.min(...values.slice(4)) / MiB;
  console.log(`# a streamed model holds ${least(held).toFixed(1)} MiB, disposing leaves ${least(left).toFixed(1)} MiB`);
  assert.ok(least(held) > 6, `${held}`);
  assert.ok(least(left) < 2, `${left}`);
  assert.deepEqual(await threadsLeft(), []);
});

test("disposing while experts are read leaves nothing", { skip }, async () => {
  const rounds = async () => {
    for (let i = 0; i < 20; i += 1) {
      const model = await Model.load(path, { cache: { size: 0, prefetch: "ahead" } });
      const generation = model.generate(prompt, greedy);
      const rejected = assert.rejects(Promise.resolve(generation), { code: "DISPOSED" });
      await wait(i);
      await model.dispose();
      await rejected;
      assert.deepEqual(await threadsLeft(), []);
    }
  };
  await rounds();
  const first = await settledMemory();
  await rounds();
  const grown = (await settledMemory()) - first;
  // 20 models of 3 MB and more: one kept in two rounds would show.
  assert.ok(grown < 12 * MiB, `grew by ${(grown / MiB).toFixed(1)} MiB`);
});

test("streaming writes nothing and swaps nothing", { skip: skip || !existsSync("/proc/self/io") }, async () => {
  const model = await Model.load(path, { cache });
  await model.generate(prompt, { ...greedy, maxTokens: 5 });
  const [written, swapped] = [procNumber("io", "write_bytes"), procNumber("status", "VmSwap")];
  const { tokens } = await model.generate("The old king", { ...greedy, maxTokens: 100 });
  assert.equal(procNumber("io", "write_bytes"), written);
  assert.ok(procNumber("status", "VmSwap") <= swapped);
  assert.equal(tokens, 100);
  assert.ok(model.stats().store.bytesRead > MiB);
  await model.dispose();
});

test("another file that is renamed over the model's path changes nothing: the open one goes on being used", async () => {
  const folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
  const file = join(folder, "model.gguf");
  const other = join(folder, "other.gguf");
  copyFileSync(path, file);
  // As valid as the first, with other weights.
  writeFileSync(other, readFileSync(path).fill(0, 4 * MiB, 8 * MiB));
  const resident = await Model.load(path);
  const model = await Model.load(file, { cache });
  for (const maxTokens of [5, 20, 100]) {
    const options = { ...greedy, maxTokens };
    assert.equal((await model.generate(prompt, options)).text, (await resident.generate(prompt, options)).text);
    if (maxTokens === 5) renameSync(other, file);
  }
  const replaced = await Model.load(file, { cache });
  const options = { ...greedy, maxTokens: 20 };
  const texts = [await replaced.generate(prompt, options), await resident.generate(prompt, options)];
  assert.notEqual(texts[0].text, texts[1].text);
  for (const each of [resident, model, replaced]) await each.dispose();
  rmSync(folder, { recursive: true });
});

test("aborting while a prompt is read stops the reads, and idles the processor", { skip }, async () => {
  const model = await Model.load(path, { threads: 1, cache: { size: 0, ioThreads: 1 } });
  const ids = (i) => Array.from({ length: 500 }, (_, at) => (at === 0 ? i : 100 + (at % 900)));
  const { promptMs } = await model.generate(ids(1), { maxTokens: 1 });
  const controller = new AbortController();
  const generation = model.generate(ids(2), { ...greedy, signal: controller.signal });
  const rejected = assert.rejects(Promise.resolve(generation), { name: "AbortError" });
  await wait(promptMs / 10);
  const start = performance.now();
  controller.abort();
  await rejected;
  assert.ok(performance.now() - start < 300);
  assert.deepEqual([generation.finishReason, generation.ids], ["abort", []]);
  await wait(promptMs / 2 + 50);
  const before = busyMs();
  const { accesses } = model.stats().store;
  await wait(300);
  assert.ok(busyMs() - before < 60, `busy for ${busyMs() - before} ms of 300`);
  assert.equal(model.stats().store.accesses, accesses);
  assert.equal((await model.generate(ids(1), { ...greedy, maxTokens: 5 })).tokens, 5);
  await model.dispose();
});

// No thread and no memory stays behind, however a model or a generation ends.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";
import { Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { busyMs, engineThreads, onLinux, runModule, settledMemory, threadsLeft, wait } from "./process.js";

const endless = { ignoreEos: true, temperature: 0 };
const skip = onLinux ? false : "reads /proc";

/** Uses `use` often; no thread may be left, and memory may not grow from one half of the rounds to the other. */
async function leavesNothing(rounds, use) {
  for (let i = 0; i < 5; i += 1) await use(i);
  const first = await settledMemory();
  for (let i = 0; i < rounds; i += 1) await use(i);
  const grown = (await settledMemory()) - first;
  assert.deepEqual(await threadsLeft(), []);
  // A model's file is 9 MB, its cache of 512 tokens 2 MB: one kept in ten rounds would show.
  assert.ok(grown < 12 << 20, `${rounds} rounds left ${(grown / 2 ** 20).toFixed(1)} MiB`);
}

test("a model that was disposed of leaves no thread and no memory", { skip }, () =>
  leavesNothing(40, async () => {
    const model = await Model.load(path, { threads: 2 });
    await model.generate("Once upon a time", { maxTokens: 10 });
    assert.ok(engineThreads().length >= 3);
    await model.dispose();
  }),
);

test("`await using` disposes of it", { skip }, async () => {
  const model = await Model.load(path);
  await model[Symbol.asyncDispose]();
  await model.dispose();
  assert.equal(model.disposed, true);
  assert.deepEqual(await threadsLeft(), []);
});

test("two models at once do not know of each other, and leave nothing", { skip }, () =>
  leavesNothing(20, async () => {
    const models = await Promise.all([Model.load(path), Model.load(path)]);
    const results = models.map((model) => model.generate("Once", { maxTokens: 20, temperature: 0 }));
    const [first, second] = await Promise.all(results);
    assert.equal(first.text, second.text);
    await models[0].dispose();
    assert.equal((await models[1].generate("Once", { maxTokens: 20, temperature: 0 })).text, first.text);
    await models[1].dispose();
  }),
);

test("disposing while a generation runs rejects it, and leaves nothing", { skip }, () =>
  leavesNothing(50, async () => {
    const model = await Model.load(path);
    const generation = model.generate("Once", endless);
    const rejected = assert.rejects(Promise.resolve(generation), { code: "DISPOSED" });
    await model.dispose();
    await rejected;
    assert.deepEqual(await threadsLeft(), []);
    assert.throws(() => model.tokenize("Once"), { code: "DISPOSED" });
    await assert.rejects(Promise.resolve(model.generate("Once")), { code: "DISPOSED" });
    await assert.rejects(model.logits([1]), { code: "DISPOSED" });
  }),
);

test("a model that nobody can reach any more is freed", { skip }, async () => {
  await (async () => {
    const model = await Model.load(path);
    await model.generate("Once", { maxTokens: 5 });
  })();
  for (let i = 0; i < 100 && engineThreads().length > 0; i += 1) {
    await settledMemory();
    await wait(10);
  }
  assert.deepEqual(await threadsLeft(), []);
});

test("aborted loads leave nothing", { skip }, async () => {
  for (let i = 0; i < 20; i += 1) {
    const controller = new AbortController();
    const load = Model.load(path, { signal: controller.signal });
    // In the middle of it, where it takes long enough to have one; the answer may also be on its way already.
    for (let turn = 0; turn < i % 4; turn += 1) await new Promise(setImmediate);
    controller.abort(new Error("changed my mind"));
    const ended = await load.catch((error) => error);
    if (ended instanceof Model) await ended.dispose();
    else assert.equal(ended.message, "changed my mind");
  }
  for (let i = 0; i < 200 && engineThreads().length > 0; i += 1) await wait(10);
  assert.deepEqual(await threadsLeft(), []);
});

test("a worker that is terminated in the middle leaves nothing, and the main thread works on", { skip }, async () => {
  await leavesNothing(30, async (i) => {
    const worker = new Worker(new URL("./endless-worker.js", import.meta.url));
    await new Promise((resolve, reject) => {
      worker.once("error", reject);
      if (i % 3 === 0) setTimeout(resolve, 5 * i);
      else worker.once("message", resolve);
    });
    await worker.terminate();
  });
  const model = await Model.load(path);
  assert.equal((await model.generate("Once", { maxTokens: 5 })).tokens, 5);
  await model.dispose();
});

test("workers that alone load the engine may be terminated, whoever is the last to let go of it", async () => {
  const source = `
    import { Worker } from "node:worker_threads";
    for (let i = 0; i < 30; i += 1) {
      const url = new URL("./endless-worker.js", ${JSON.stringify(import.meta.url)});
      const worker = new Worker(url, { execArgv: [] });
      await new Promise((resolve) => (i % 3 === 0 ? setTimeout(resolve, 5 * i) : worker.once("message", resolve)));
      await worker.terminate();
    }
    const { Model } = await import("@clutor/core");
    const { path } = await import("@clutor/tiny-stories-moe");
    const model = await Model.load(path);
    await model.generate("Once", { maxTokens: 5 });
  `;
  assert.deepEqual(await runModule(source), { code: 0, out: "", err: "" });
});

test("the process ends by itself with code 0, with and without dispose, in the middle or after the work", async () => {
  const start = `
    import { Model } from "@clutor/core";
    import { path } from "@clutor/tiny-stories-moe";
    const model = await Model.load(path);
  `;
  const ends = [
    "await model.generate('Once', { maxTokens: 20 }); await model.dispose();",
    "await model.generate('Once', { maxTokens: 20 });",
    "model.generate('Once', { ignoreEos: true });",
    "for await (const piece of model.generate('Once', { ignoreEos: true })) if (piece.text) process.exit(0);",
    "model.logits([1, 2, 3]); process.exit(0);",
    // The engine refuses it at once. The timer ends the process where something still holds it.
    `setTimeout(() => process.exit(3), 5000).unref();
     await model.tokenizeAsync(Object.create(Uint8Array.prototype)).catch(() => {});`,
  ];
  for (const end of ends) {
    for (let i = 0; i < 5; i += 1) {
      assert.deepEqual(await runModule(start + end), { code: 0, out: "", err: "" }, end);
    }
  }
});

let model;
after(() => model?.dispose());

test("an unread generation stops the engine after a few tokens, and goes on when it is read", async () => {
  model = await Model.load(path);
  const generation = model.generate("Once", { ...endless, maxTokens: 200 });
  await wait(300);
  const before = busyMs();
  await wait(300);
  assert.ok(busyMs() - before < 60, `busy for ${busyMs() - before} ms of 300`);
  let tokens = 0;
  for await (const piece of generation) if (piece.id !== undefined) tokens += 1;
  assert.equal(tokens, 200);
});

test("leaving the loop idles the processor within one token", async () => {
  for await (const _ of model.generate("Once", endless)) break;
  const before = busyMs();
  await wait(300);
  assert.ok(busyMs() - before < 60, `busy for ${busyMs() - before} ms of 300`);
});

test("cancelling while the prompt is read stops between two layers", async () => {
  const slow = await Model.load(path, { threads: 1 });
  const prompt = (i) => Array.from({ length: 500 }, (_, at) => (at === 0 ? i : 100 + (at % 900)));
  const { promptMs } = await slow.generate(prompt(1), { maxTokens: 1 });
  const waits = [];
  for (let i = 2; i < 8; i += 1) {
    const generation = slow.generate(prompt(i), endless);
    await wait(promptMs / 10);
    const start = performance.now();
    await generation.cancel();
    waits.push(performance.now() - start);
    assert.deepEqual([generation.finishReason, generation.ids], ["abort", []]);
  }
  await slow.dispose();
  // The model has 4 layers. The least of several: this is about the program, not about what else the machine does.
  console.log(`# the prompt takes ${promptMs.toFixed(1)} ms, cancelling it ${Math.min(...waits).toFixed(1)} ms`);
  assert.ok(Math.min(...waits) < promptMs / 2, `${waits} ms of ${promptMs}`);
});

// The JavaScript thread never waits for the engine.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { test } from "node:test";
import { Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";

/** Longest delay of the event loop, in milliseconds, while `work` runs. */
async function longestDelay(work) {
  const delays = monitorEventLoopDelay({ resolution: 1 });
  delays.enable();
  await work();
  await new Promise((resolve) => setTimeout(resolve, 5));
  delays.disable();
  return delays.max / 1e6;
}

/** The least of several runs: this is about the program, not about what else the machine does. */
async function leastDelay(work) {
  const longest = [];
  for (let i = 0; i < 5; i += 1) longest.push(await longestDelay(work));
  return Math.min(...longest);
}

const ids = Array.from({ length: 500 }, (_, i) => 100 + (i % 900));

test("a prompt of 500 tokens delays the event loop by less than 10 ms", async () => {
  const model = await Model.load(path, { threads: 1 });
  const delay = await leastDelay(async () => {
    // Another first token each time, so that nothing of the prompt is in the cache.
    ids[0] = Math.floor(Math.random() * 4000);
    const { promptMs } = await model.generate(ids, { maxTokens: 1 });
    assert.ok(promptMs > 10, `the prompt took ${promptMs} ms, too short to show anything`);
  });
  console.log(`# longest delay while a prompt is read: ${delay.toFixed(1)} ms`);
  assert.ok(delay < 10, `${delay} ms`);
  await model.dispose();
});

test("loading, tokenizing a megabyte, logits and a whole text do not either", async () => {
  const story = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
  const megabyte = story.repeat(Math.ceil(1e6 / story.length));
  const model = await Model.load(path);
  const works = {
    loading: async () => (await Model.load(path)).dispose(),
    tokenizing: () => model.tokenizeAsync(megabyte),
    logits: () => model.logits(ids.slice(0, 128)),
    generating: () => model.generate("Once upon a time", { maxTokens: 100, ignoreEos: true }),
  };
  for (const [name, work] of Object.entries(works)) {
    const delay = await leastDelay(work);
    console.log(`# longest delay while ${name}: ${delay.toFixed(1)} ms`);
    assert.ok(delay < 50, `${name}: ${delay} ms`);
  }
  await model.dispose();
});

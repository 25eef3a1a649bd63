// One run of this project's engine: text on stdout as it is made, then what the store counted on stderr.
import { Model } from "@clutor/core";

const { model: file, prompt, tokens, threads, limit, slack, cache } = JSON.parse(process.argv[2]);
const model = await Model.load(file, { threads, contextLength: 1024, memory: limit - slack, cache });
let atFirst;
const options = { maxTokens: tokens, temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1, ignoreEos: true };
for await (const { text } of model.generate(prompt, options)) {
  atFirst ??= model.stats();
  process.stdout.write(text === "" ? " " : text);
}
const stats = model.stats();
const since = (count) => count(stats.store) - count(atFirst.store);
const accesses = since((store) => store.accesses);
const report = {
  hitRate: accesses === 0 ? 1 : since((store) => store.hits + store.stagingHits) / accesses,
  waitMs: since((store) => store.waitMs),
  predictedPeakBytes: stats.plan.predictedPeakBytes,
  prefetching: stats.store.prefetch.active,
};
await model.dispose();
process.stderr.write(`\n${JSON.stringify(report)}\n`);

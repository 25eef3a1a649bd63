// One run of node-llama-cpp: text on stdout as it is made.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const { model: file, prompt, tokens, threads, folder } = JSON.parse(process.argv[2]);
const { getLlama, LlamaLogLevel } = await import(
  pathToFileURL(createRequire(path.join(folder, "package.json")).resolve("node-llama-cpp")).href
);
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
const model = await llama.loadModel({
  modelPath: file,
  gpuLayers: 0,
  useMmap: true,
  ignoreMemorySafetyChecks: true,
});
const context = await model.createContext({ contextSize: 1024, threads, ignoreMemorySafetyChecks: true });
let n = 0;
const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1, yieldEogToken: true };
for await (const token of context.getSequence().evaluate(model.tokenize(prompt), sampling)) {
  process.stdout.write(model.detokenize([token]) || " ");
  n += 1;
  if (n === tokens) break;
}
process.exit(0);

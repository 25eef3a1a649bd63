// One run of node-llama-cpp: the speeds of a prompt and of the text after it, as an object on stdout.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { speeds } from "./speeds.js";

const { model: file, prompt, decode, threads, folder } = JSON.parse(process.argv[2]);
const { getLlama, LlamaLogLevel } = await import(
  pathToFileURL(createRequire(path.join(folder, "package.json")).resolve("node-llama-cpp")).href
);
const llama = await getLlama({ gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads });
const model = await llama.loadModel({ modelPath: file, gpuLayers: 0, ignoreMemorySafetyChecks: true });
const contextSize = prompt.length + decode + 1;
const context = await model.createContext({ contextSize, batchSize: 512, threads, ignoreMemorySafetyChecks: true });
const sequence = context.getSequence();
const sampling = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1, yieldEogToken: true };
let n = 0;
for await (const _ of sequence.evaluate(prompt.slice(0, 8).reverse(), sampling)) if (++n === 4) break;
await sequence.clearHistory();
process.stdout.write(JSON.stringify(await speeds(prompt.length, decode, sequence.evaluate(prompt, sampling))));
process.exit(0);

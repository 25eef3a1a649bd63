// One run of this project's package: the speeds of a prompt and of the text after it, as an object on stdout.
import { Model } from "@clutor/core";
import { speeds } from "./speeds.js";

const { model: file, prompt, decode, threads } = JSON.parse(process.argv[2]);
const model = await Model.load(file, { threads, contextLength: prompt.length + decode + 1 });
const options = { temperature: 1, topK: 0, topP: 1, minP: 0, seed: 1, ignoreEos: true };
// Other tokens than those measured, so that nothing is kept of them.
await model.generate(prompt.slice(0, 8).reverse(), { ...options, maxTokens: 4 });
const found = await speeds(prompt.length, decode, model.generate(prompt, { ...options, maxTokens: decode }));
process.stdout.write(JSON.stringify(found));
await model.dispose();

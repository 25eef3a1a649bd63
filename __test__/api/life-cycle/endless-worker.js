// Generates until it is terminated, and tells of each piece.
import { parentPort } from "node:worker_threads";
import { Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";

const model = await Model.load(path);
for (;;) {
  for await (const piece of model.generate("Once", { ignoreEos: true })) parentPort.postMessage(piece.text);
}

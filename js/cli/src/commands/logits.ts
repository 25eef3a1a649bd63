import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Command } from "commander";
import { contextFlags, exclusive, fileError, flag, integer, readText, UsageError } from "../flags.js";
import { type ComputeOptions, computeFlags, loadModel, statsFlag } from "../load.js";
import { npy } from "../npy.js";
import { printStats, statsJson } from "../streaming.js";
import { interrupt, write } from "../terminal.js";
import { parseIds } from "./tokenize.js";

interface Options extends ComputeOptions {
  ids?: string;
  idsFile?: string;
  out: string;
  batch: number;
  ctx?: number;
  stats?: boolean;
  json?: boolean;
}

export function logitsCommand(): Command {
  const command = new Command("logits")
    .description(
      "Writes what the model computes for each token of a text, as NumPy files: logits.npy f32 [tokens, vocab], " +
        "tokens.npy i32, router_logits.npy f32 [tokens, layers, experts], topk.npy i32 and weights.npy f32 [tokens, layers, k].",
    )
    .addOption(flag("--ids <ids>", "token ids, separated by commas"))
    .addOption(flag("--ids-file <file>", "file with token ids; - is standard input"))
    .addOption(flag("-o, --out <dir>", "folder for the files; made if it is missing").makeOptionMandatory())
    .addOption(flag("-b, --batch <n>", "tokens computed at once").argParser(integer(1)).default(512))
    .addOption(statsFlag())
    .addOption(flag("--json", "one JSON object: files and shapes, the memory plan, the store of experts"));
  contextFlags(command, "tokens of the context; 0: all", 0);
  return computeFlags(command, "f32").action(logits);
}

async function logits(_: Options, command: Command): Promise<void> {
  const options = exclusive<Options>(command, ["ids", "idsFile"]);
  const ids = await findIds(options);
  // Before the work, so that a folder that cannot be made costs nothing.
  await makeFolder(options.out).catch((error: unknown) => {
    throw fileError(error, options.out, "FILE_WRITE");
  });
  const model = await loadModel(options);
  try {
    const computed = await model.logits(ids, { batch: options.batch, signal: interrupt.signal });
    const files = {
      "logits.npy": computed.logits,
      "tokens.npy": { shape: [ids.length], values: Int32Array.from(ids) },
      "router_logits.npy": computed.routerLogits,
      "topk.npy": computed.topk,
      "weights.npy": computed.weights,
    };
    try {
      for (const [name, tensor] of Object.entries(files)) await writeFile(join(options.out, name), npy(tensor));
    } catch (error) {
      throw fileError(error, options.out, "FILE_WRITE");
    }
    const stats = model.stats();
    if (options.stats) printStats(stats);
    if (options.json) {
      const shapes = Object.fromEntries(Object.entries(files).map(([name, { shape }]) => [name, shape]));
      await write(`${JSON.stringify({ out: options.out, shapes, ...statsJson(stats) })}\n`);
    }
  } finally {
    await model.dispose();
  }
}

/** Makes a folder and those above it. Node's own recursive form never ends where the system has no folder to make one in. */
async function makeFolder(folder: string): Promise<void> {
  if (existsSync(folder)) return;
  const above = dirname(folder);
  if (above !== folder) await makeFolder(above);
  await mkdir(folder);
}

async function findIds(options: Options): Promise<number[]> {
  if ((options.ids === undefined) === (options.idsFile === undefined)) {
    throw new UsageError("give the tokens with --ids 1,2,3 or with --ids-file FILE");
  }
  const ids = parseIds(options.ids ?? (await readText(options.idsFile ?? "-")));
  if (ids.length === 0) throw new UsageError("at least one token id is needed: --ids 1,2,3");
  return ids;
}

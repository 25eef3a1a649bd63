// Prompts and decoding beside other engines: `npm run bench:peer -- [options]`. Prints the tables of docs/performance.md.
//
// Every run is a process of its own; in each round all engines run once, one after the other, so that a machine that is
// slower for a while is so for all of them.
import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import path from "node:path";
import { parseArgs, promisify } from "node:util";
import { inspect } from "@clutor/core";
import { commit, installPeer, machine, PEER, synthesize } from "../setup.js";
import { clutorBench, clutorText, llamaBench, nodeLlama } from "./engines.js";
import { compare, markdown } from "./table.js";

const USAGE = `npm run bench:peer -- [options]
  --model LIST    files, separated by commas; default: a synthetic model of OLMoE's shape, 4.2 GB, made in target/bench
  --prompt N      tokens of the prompt, default 512     --decode N   tokens to decode, default 64
  --threads N     default 2                             --rounds N   default 5
  --llama FILE    llama.cpp's llama-bench, if it is to be measured
  --peer DIR      folder with ${PEER} in its node_modules; default: it is installed into one of its own, for the run
  --no-peer       leave it out
  --timeout S     most seconds of a run, default 900
  --json          one JSON object per run instead of the table`;

const { values: options } = parseArgs({
  options: {
    model: { type: "string" },
    prompt: { type: "string", default: "512" },
    decode: { type: "string", default: "64" },
    threads: { type: "string", default: "2" },
    rounds: { type: "string", default: "5" },
    llama: { type: "string" },
    peer: { type: "string" },
    "no-peer": { type: "boolean", default: false },
    timeout: { type: "string", default: "900" },
    json: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});

if (options.help) console.log(USAGE);
else await main();

async function main() {
  // What is measured, also where the checkout moves on meanwhile.
  const head = `${machine()}; commit ${commit()}, ${new Date().toISOString().slice(0, 10)}.`;
  const models = (options.model ?? synthesize("olmoe-1b-7b")).split(",").map((file) => path.resolve(file));
  const engines = [clutorBench()];
  if (options.llama !== undefined)
    engines.push(...[true, false].map((repack) => llamaBench(path.resolve(options.llama), repack)));
  if (!options["no-peer"]) engines.push(clutorText(), nodeLlama(peerFolder()));
  const results = [];
  for (const model of models) results.push({ model: path.basename(model), runs: await measure(model, engines) });
  if (options.json) return;
  const { prompt, decode, threads, rounds } = options;
  console.log(head);
  console.log(
    `Prompt of ${prompt} tokens, ${decode} decoded, ${threads} threads; medians of ${rounds} alternating runs.\n`,
  );
  console.log(markdown(results.flatMap(({ model, runs }) => compare(model, runs))));
}

function peerFolder() {
  if (options.peer !== undefined) return path.resolve(options.peer);
  const folder = installPeer(note);
  process.once("SIGINT", () => process.exit(130));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** All rounds on one model: for each engine its speeds, in the order of the rounds, or why it has none. */
async function measure(model, engines) {
  const { vocabSize } = await inspect(model);
  const runs = engines.map((engine) => ({ engine, speeds: [], failure: undefined }));
  for (let round = 0; round < Number(options.rounds); round++) {
    const work = {
      model,
      prompt: randomIds(Number(options.prompt), vocabSize, round),
      decode: Number(options.decode),
      threads: Number(options.threads),
    };
    for (const run of runs.filter((run) => run.failure === undefined)) {
      try {
        run.speeds.push(run.engine.read(await output(...run.engine.command(work))));
        note(`${run.engine.name}, round ${round + 1}: ${speedsText(run.speeds.at(-1))}`);
        if (options.json) console.log(JSON.stringify({ model, round, engine: run.engine.name, ...run.speeds.at(-1) }));
      } catch (error) {
        // An engine that does not run is told of, and not asked again; the others go on.
        run.failure = failureText(error);
        note(`${run.engine.name}: ${run.failure}`);
        if (options.json) console.log(JSON.stringify({ model, round, engine: run.engine.name, failure: run.failure }));
      }
    }
  }
  return runs;
}

async function output(command, args) {
  const limits = { timeout: 1e3 * Number(options.timeout), killSignal: "SIGKILL", maxBuffer: 2 ** 26 };
  return (await promisify(execFile)(command, args, limits)).stdout;
}

function failureText({ signal, code, killed, stderr, message }) {
  if (killed) return `not done within ${options.timeout} s`;
  if (signal) return `crashed (${signal})`;
  if (typeof code !== "number") return message;
  return `failed (exit code ${code}): ${(stderr ?? "").trim().split("\n").at(-1)}`;
}

/** Ids without a pattern, the same in every run of a round. */
function randomIds(n, vocabSize, seed) {
  let state = seed + 1;
  return Array.from({ length: n }, () => {
    // Numerical Recipes' multiplier and increment; the upper bits are the random ones.
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * vocabSize);
  });
}

function speedsText({ prompt, decode }) {
  return `prompt ${prompt.toFixed(1)}, decode ${decode.toFixed(2)} tokens/s`;
}

function note(line) {
  process.stderr.write(`${line}\n`);
}

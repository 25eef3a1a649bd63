// Decoding from a model larger than memory, beside engines that map the file: `npm run bench:stream -- [options]`.
//
// Every engine runs inside a control group with the same limit, cold, with the same prompt, threads and sampling, one after
// the other. Mapping engines run twice: with the drive's read-ahead as it is, and with 128 KiB, which suits them better.
import { rmSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { installPeer, machine, synthesize } from "../setup.js";
import { clutor, llamaCompletion, nodeLlama } from "./engines.js";
import { measure } from "./measure.js";
import { Drive, MemoryGroup } from "./system.js";

const USAGE = `npm run bench:stream -- [options]
  --model FILE    default: a synthetic model of Qwen3-30B-A3B's shape, 18.6 GB, made in target/bench
  --limits LIST   memory limits in GiB, default 4,8,12
  --tokens N      tokens to make, default 64     --threads N   default 2     --rounds N   default 1
  --llama FILE    llama.cpp's llama-completion, if it is to be measured
  --no-peer       leave node-llama-cpp out (it is installed into a folder of its own, for the run)
  --smart J,M,tau also measure SMART-ROUTE
  --timeout S     most seconds of a run, default 900; the tokens made by then count
  --json          one JSON object per run instead of the table
Linux, as root: it makes control groups and sets the drive's read-ahead, which it puts back at the end.`;

const PROMPT = "Once upon a time there was a little fox who lived in the wood with his mother. One day he said to her,";
const GIB = 2 ** 30;
/** What the limit leaves to the process beside its budget. */
const SLACK = 64 * 2 ** 20;
const TUNED_READ_AHEAD_KIB = 128;

const { values: options } = parseArgs({
  options: {
    model: { type: "string" },
    limits: { type: "string", default: "4,8,12" },
    tokens: { type: "string", default: "64" },
    threads: { type: "string", default: "2" },
    rounds: { type: "string", default: "1" },
    timeout: { type: "string", default: "900" },
    llama: { type: "string" },
    smart: { type: "string" },
    peer: { type: "boolean", default: true },
    json: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
  allowNegative: true,
});

if (options.help) {
  console.log(USAGE);
} else if (process.platform !== "linux" || process.getuid?.() !== 0) {
  console.error(`this benchmark needs Linux and root\n\n${USAGE}`);
  process.exitCode = 2;
} else {
  await main();
}

async function main() {
  const model = path.resolve(options.model ?? synthesize("qwen3-30b-a3b"));
  const drive = new Drive(model);
  const readAhead = drive.readAheadKib;
  const folder = options.peer ? installPeer(say) : undefined;
  const stop = () => process.exit(130);
  process.once("SIGINT", stop);
  // Whatever happens, the drive is left as it was.
  process.once("exit", () => {
    drive.readAheadKib = readAhead;
    if (folder !== undefined) rmSync(folder, { recursive: true, force: true });
  });
  const rate = drive.sustainedRate();
  say(machine());
  say(`${path.basename(model)}; drive ${(rate / 1e9).toFixed(2)} GB/s sustained, read-ahead ${readAhead} KiB`);
  say(`${options.tokens} tokens at temperature 1, ${options.threads} threads, cold; ${new Date().toISOString()}\n`);
  for (const limit of options.limits.split(",").map(Number)) {
    const rows = [];
    for (let round = 0; round < Number(options.rounds); round++) {
      for (const { engine, kib } of runs(folder, readAhead)) {
        drive.readAheadKib = kib;
        rows.push({ limit, readAheadKib: kib, ...(await run(engine, model, limit * GIB, drive)) });
        drive.readAheadKib = readAhead;
        if (options.json) console.log(JSON.stringify(rows.at(-1)));
        else process.stderr.write(".");
      }
    }
    if (!options.json) print(limit, medians(rows), rate);
  }
}

/** The object on the last line, which only a run that came to its end has written. */
function lastJson(text) {
  const line = text.trim().split("\n").at(-1) ?? "";
  if (!line.startsWith("{")) throw new Error(`the run gave no report:\n${text}`);
  return JSON.parse(line);
}

/** Every engine with the read-ahead that it runs at. */
function runs(folder, readAhead) {
  const own = [clutor("clutor", SLACK, {})];
  if (options.smart !== undefined) {
    const [keep, candidates, tau] = options.smart.split(",").map(Number);
    own.push(clutor(`clutor --smart ${options.smart}`, SLACK, { smartRoute: { keep, candidates, tau } }));
  }
  const mapped = [];
  if (options.llama !== undefined) mapped.push(llamaCompletion(path.resolve(options.llama)));
  if (folder !== undefined) mapped.push(nodeLlama(folder));
  const at = (kib) => (engine) => ({ engine, kib });
  return [...own.map(at(readAhead)), ...mapped.map(at(TUNED_READ_AHEAD_KIB)), ...mapped.map(at(readAhead))];
}

async function run(engine, model, limit, drive) {
  const [tokens, threads] = [Number(options.tokens), Number(options.threads)];
  const group = new MemoryGroup(limit);
  try {
    drive.forget();
    const command = group.wrap(...engine.command({ model, prompt: PROMPT, tokens, threads, limit }));
    const measured = await measure(...command, 1e3 * Number(options.timeout), () => drive.readBytes());
    const report = engine.mapped ? undefined : lastJson(measured.stderr);
    const failure = group.kills() > 0 ? "killed: out of memory" : measured.failure;
    const { firstMs, decodeMs, readBytes, majorFaults } = measured;
    const made = (measured.stopped ? measured.pieces : tokens) - 1;
    return {
      engine: engine.name,
      tokensPerSecond: failure === undefined ? made / (decodeMs / 1e3) : 0,
      bytesPerToken: readBytes / made,
      majorFaultsPerToken: majorFaults / made,
      firstMs,
      msPerToken: decodeMs / made,
      tokens: made + 1,
      peakBytes: group.peakBytes(),
      report,
      failure,
    };
  } finally {
    await group.remove();
  }
}

function name({ engine, readAheadKib }) {
  return `${engine} ${readAheadKib}`;
}

/** One row for each engine and read-ahead: that of the median speed. */
function medians(rows) {
  const names = [...new Set(rows.map(name))];
  return names.map((wanted) => {
    const group = rows.filter((row) => name(row) === wanted);
    group.sort((a, b) => a.tokensPerSecond - b.tokensPerSecond);
    return group[Math.floor(group.length / 2)];
  });
}

function print(limit, rows, rate) {
  const own = rows[0].tokensPerSecond;
  const cells = [
    [
      "engine",
      "read-ahead",
      "tokens/s",
      "clutor is",
      "MB/token",
      "drive MB/s",
      "hits",
      "of limit",
      "first s",
      "peak MiB",
    ],
  ];
  for (const row of rows) {
    const { engine, readAheadKib, tokensPerSecond, bytesPerToken, firstMs, peakBytes, report, failure } = row;
    const predicted = report === undefined ? "" : ` (${(report.predictedPeakBytes / 2 ** 20).toFixed(0)} predicted)`;
    cells.push([
      engine,
      report === undefined ? `${readAheadKib} KiB` : "none",
      failure ?? tokensPerSecond.toFixed(2),
      failure === undefined && report === undefined ? `${(own / tokensPerSecond).toFixed(1)}x` : "",
      (bytesPerToken / 1e6).toFixed(0),
      ((bytesPerToken * tokensPerSecond) / 1e6).toFixed(0),
      report === undefined ? "" : `${(100 * report.hitRate).toFixed(1)} %`,
      report === undefined ? "" : `${(100 * shareOfLimit(row, rate)).toFixed(0)} %`,
      (firstMs / 1e3).toFixed(1),
      `${(peakBytes / 2 ** 20).toFixed(0)}${predicted}`,
    ]);
  }
  const widths = cells[0].map((_, i) => Math.max(...cells.map((row) => row[i].length)));
  console.log(`\n${limit} GiB`);
  for (const row of cells)
    console.log(
      row
        .map((cell, i) => cell.padEnd(widths[i]))
        .join("  ")
        .trimEnd(),
    );
}

/** Speed reached of what the slower of drive and arithmetic allows: the time not waited counts as arithmetic. */
function shareOfLimit({ msPerToken, bytesPerToken, tokens, report }, rate) {
  const drive = (1e3 * bytesPerToken) / rate;
  const compute = msPerToken - report.waitMs / (tokens - 1);
  return Math.max(drive, compute) / msPerToken;
}

function say(line) {
  if (!options.json) console.log(line);
}

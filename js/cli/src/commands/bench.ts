import type { Benchmark, BenchmarkOptions, BenchmarkResult } from "@clutor/core";
import { Command, InvalidArgumentError } from "commander";
import { flag, integer } from "../flags.js";
import { bytes, columns, percent, table } from "../format.js";
import { type ComputeOptions, coldFlags, loadOptions, modelPath } from "../load.js";
import { noteStreaming } from "../streaming.js";
import { progressLine, write } from "../terminal.js";

interface Options extends ComputeOptions {
  nPrompt: number[];
  nGen: number[];
  depth: number[];
  repetitions: number;
  seed: number;
  json?: boolean;
}

export function benchCommand(): Command {
  const command = new Command("bench")
    .description(
      "Measures how fast a model reads prompts (pp) and decodes (tg), on random tokens as llama-bench does, and what share " +
        "that is of the bandwidth at which this machine reads memory. Speeds are medians.",
    )
    .addOption(
      flag("-p, --n-prompt <list>", "tokens of prompts, such as 128,512; 0: none")
        .argParser(counts)
        .default([512], "512"),
    )
    .addOption(
      flag("-n, --n-gen <list>", "tokens to decode, such as 32,128; 0: none").argParser(counts).default([128], "128"),
    )
    .addOption(
      flag("-d, --depth <list>", "tokens in the context before, such as 0,4096").argParser(counts).default([0], "0"),
    )
    .addOption(
      flag("-r, --repetitions <n>", "runs of each, after one that does not count")
        .argParser(integer(1, 1000))
        .default(5),
    )
    .addOption(
      flag("-s, --seed <n>", "same seed, same tokens").argParser(integer(0, Number.MAX_SAFE_INTEGER)).default(0),
    )
    .addOption(flag("--json", "one JSON object"));
  return coldFlags(command, "f16").action(bench);
}

function counts(text: string): number[] {
  const parts = text.split(",").map((part) => part.trim());
  if (parts.every((part) => /^\d{1,9}$/.test(part))) return parts.map(Number);
  throw new InvalidArgumentError("Whole numbers are expected, such as 512 or 128,512.");
}

async function bench(options: Options): Promise<void> {
  const { benchmark } = await import("@clutor/core");
  const line = progressLine("tokens");
  const asked: BenchmarkOptions = {
    ...loadOptions(options),
    prompt: options.nPrompt,
    decode: options.nGen,
    depth: options.depth,
    repetitions: options.repetitions,
    seed: options.seed,
    onProgress: line.show,
  };
  const found = await benchmark(await modelPath(options.model), asked).finally(line.erase);
  noteStreaming(found.plan);
  await write(options.json ? `${JSON.stringify(found)}\n` : describe(found));
}

function describe(found: Benchmark): string {
  const { model, plan, memory, bandwidth } = found;
  const { threads } = model;
  const where = plan.streaming
    ? `streamed, ${plan.cachedExperts} of ${plan.nExperts} (${percent(plan.cachedShare)}) fit in the cache`
    : "all in memory";
  const rows: [string, string][] = [
    ["model", `${[model.architecture, model.name].filter(Boolean).join(", ")}, ${bytes(model.fileBytes)}`],
    ["compute", `${model.kernels} on ${threads} ${threads === 1 ? "thread" : "threads"}`],
    ["experts", where],
    ["bandwidth", describeBandwidth(bandwidth, threads)],
    ["loaded in", `${(found.loadingMs / 1000).toFixed(2)} s`],
    ["peak memory", `predicted ${bytes(memory.predictedPeakBytes)}, measured ${bytes(memory.peakRssBytes)}`],
  ];
  return `${table(rows)}\n${describeResults(found)}`;
}

function describeBandwidth({ oneThread, allThreads }: Benchmark["bandwidth"], threads: number): string {
  const one = `memory is read at ${gigabytes(oneThread)} by one thread`;
  return threads === 1 ? one : `${one}, ${gigabytes(allThreads)} by ${threads}`;
}

function describeResults({ results, plan }: Benchmark): string {
  const streaming = ["hit rate", "read/token", "waited/token"];
  const heads = ["test", "tokens/s", "least", "most", "weights/token", "weights/s", "of bandwidth"];
  return columns([plan.streaming ? [...heads, ...streaming] : heads, ...results.map(row)]);
}

function row(result: BenchmarkResult): string[] {
  const { streamed } = result;
  const cells = [
    result.name,
    result.tokensPerSecond.toFixed(2),
    result.least.toFixed(2),
    result.most.toFixed(2),
    `${(result.weightBytesPerToken / 1e6).toFixed(1)} MB`,
    gigabytes(result.weightBytesPerSecond),
    percent(result.bandwidthShare),
  ];
  if (streamed === undefined) return cells;
  const { hitRate, bytesPerToken, waitMsPerToken } = streamed;
  return [...cells, percent(hitRate), `${(bytesPerToken / 1e6).toFixed(1)} MB`, `${waitMsPerToken.toFixed(2)} ms`];
}

/** Bandwidths count in powers of ten. */
function gigabytes(bytesPerSecond: number): string {
  return `${(bytesPerSecond / 1e9).toFixed(1)} GB/s`;
}

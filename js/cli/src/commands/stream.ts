import type { StreamBenchmark, StreamBenchmarkOptions } from "@clutor/core";
import { Command, InvalidArgumentError, Option } from "commander";
import { exclusive, flag, integer, modelFlag, nonEmpty, number, threadsFlag } from "../flags.js";
import { bytes, columns, percent, table } from "../format.js";
import { modelPath } from "../load.js";
import { type StreamingOptions, streamingFlags, streamingLoadOptions } from "../streaming.js";
import { interrupt, progressLine, write } from "../terminal.js";

type Compute = NonNullable<StreamBenchmarkOptions["compute"]>;

interface Options extends StreamingOptions {
  model?: string;
  tokens?: number;
  threads?: number;
  trace?: string;
  seed?: number;
  skew?: number;
  drift?: number;
  burst?: { start: number; tokens: number };
  accuracy: number;
  compute: Compute;
  windows: number;
  json?: boolean;
}

const ofSynthetic = ["seed", "skew", "drift", "burst"] as const;

export function streamCommand(): Command {
  const command = new Command("stream")
    .description(
      "Measures how fast the experts of a model can be streamed: real reads through the real cache, without the model's " +
        "arithmetic. Which experts are chosen is synthetic, or replayed from a trace; no text is made.",
    )
    .addOption(modelFlag())
    .addOption(flag("-n, --tokens <n>", "tokens; default: 256, or the whole trace").argParser(integer(1, 1_000_000)))
    .addOption(threadsFlag())
    .addOption(
      // Without a twin: CLUTOR_TRACE names what generate is to write.
      new Option("--trace <file>", "replay the choices of generate --trace, or of a CSV").argParser(nonEmpty("A file")),
    )
    .addOption(flag("-s, --seed <n>", "same seed, same choices").argParser(integer(0, Number.MAX_SAFE_INTEGER)))
    .addOption(flag("--skew <x>", "how uneven experts are chosen; 0: all alike; default: 1").argParser(number(0, 10)))
    .addOption(
      flag("--drift <n>", "tokens that an expert stays a favourite; 0: no favourites; default: 48").argParser(
        number(0, 0xffff_ffff),
      ),
    )
    .addOption(flag("--burst <start,n>", "choose without structure for n tokens from start on").argParser(burst))
    .addOption(
      flag("--accuracy <share>", "share of the choices that --prefetch ahead and auto guess")
        .argParser(number(0, 1))
        .default(0.85),
    )
    .addOption(
      flag("--compute <work>", "done with weights: dot, checksum, or delay:200us for each expert")
        .argParser(compute)
        .default("dot"),
    )
    .addOption(flag("--windows <n>", "parts whose hit rates are shown").argParser(integer(1, 10_000)).default(8))
    .addOption(flag("--json", "one JSON object"));
  return streamingFlags(command).action(stream);
}

function burst(text: string): { start: number; tokens: number } {
  const [, start, tokens] = /^\s*(\d{1,9})\s*,\s*(\d{1,9})\s*$/.exec(text) ?? [];
  if (start !== undefined && Number(tokens) > 0) return { start: Number(start), tokens: Number(tokens) };
  throw new InvalidArgumentError("A token and a number of tokens are expected, such as 100,50.");
}

function compute(text: string): Compute {
  if (text === "dot" || text === "checksum") return text;
  const [, digits, unit] = /^delay:(\d+(?:\.\d+)?)(us|µs|ms)$/.exec(text) ?? [];
  if (digits !== undefined) return { delayMs: Number(digits) / (unit === "ms" ? 1 : 1000) };
  throw new InvalidArgumentError("dot, checksum or a delay is expected, such as delay:200us or delay:1.5ms.");
}

async function stream(_: unknown, command: Command): Promise<void> {
  // A trace on the command line counts more than what the environment says of synthetic choices.
  const isTyped = ofSynthetic.some((name) => command.getOptionValueSource(name) === "cli");
  const options = isTyped ? command.opts<Options>() : exclusive<Options>(command, ["trace", ...ofSynthetic]);
  const { streamBenchmark } = await import("@clutor/core");
  const { tokens, threads, trace, accuracy, windows } = options;
  const { cache = {}, ...load } = streamingLoadOptions(options);
  const { smartRoute: _none, ...rest } = cache;
  const asked: StreamBenchmarkOptions = {
    ...load,
    cache: rest,
    tokens,
    threads,
    trace,
    accuracy,
    windows,
    compute: options.compute,
    signal: interrupt.signal,
  };
  for (const name of ofSynthetic) Object.assign(asked, { [name]: options[name] });
  const line = progressLine("tokens");
  asked.onProgress = line.show;
  const found = await streamBenchmark(await modelPath(options.model), asked).finally(line.erase);
  await write(options.json ? `${JSON.stringify(found)}\n` : describe(found, options));
}

function describe(found: StreamBenchmark, options: Options): string {
  const { plan, store, memory, tokens } = found;
  const { prefetch } = store;
  const filled = store.evictions > 0 ? "" : " (the cache never filled up)";
  const rows: [string, string][] = [
    ["routing", describeRouting(found)],
    [
      "prediction",
      `${options.prefetch}; synthetic guesses are right in ${percent(found.routing.accuracy)}, ` +
        `${percent(prefetch.share)} of the choices were predicted`,
    ],
    ["compute", describeCompute(found)],
    [
      "dense weights",
      `${plan.dense === "ring" ? "ring, two layers' at a time" : "resident"}, ${bytes(plan.denseBytes)}`,
    ],
    ["cache", `${plan.cachedExperts} of ${plan.nExperts} experts (${percent(plan.cachedShare)}), ${found.policy}`],
    ["speed", `${found.tokensPerSecond.toFixed(2)} tokens/s: ${tokens} tokens in ${seconds(found.elapsedMs)}`],
    [
      "hit rate",
      `${percent(store.hitRate)} of ${store.accesses} requests: ${percent(store.hits / store.accesses)} by the cache, ` +
        `${percent(store.stagingHits / store.accesses)} by prefetches`,
    ],
    ["read", `${bytes(found.bytesPerToken)} a token, ${bytes(found.bytesPerSecond)}/s from the drive`],
    [
      "waited",
      `${(found.waitMs / tokens).toFixed(2)} ms a token; computed ${(found.computeMs / tokens).toFixed(2)} ms`,
    ],
    [
      "prefetch",
      `${prefetch.issued} begun, ${prefetch.useful} useful, ${prefetch.late} late, ${prefetch.wasted} wasted`,
    ],
    ["peak memory", `predicted ${bytes(memory.predictedPeakBytes)}, measured ${bytes(memory.peakRssBytes)}${filled}`],
  ];
  if (found.ring !== undefined) {
    const { bytesPerToken, waitMs } = found.ring;
    const waited = (waitMs / tokens).toFixed(2);
    rows.splice(4, 0, ["ring", `${bytes(bytesPerToken)} read a token, waited ${waited} ms a token for them`]);
  }
  if (found.burst !== undefined) rows.push(["burst", describeBurst(found.burst)]);
  return `${table(rows)}\n${describeWindows(found)}`;
}

function describeRouting({ routing }: StreamBenchmark): string {
  if (routing.kind === "trace") return `replayed from ${routing.trace}`;
  const { seed, skew, drift } = routing;
  return `synthetic, no model chose: seed ${seed}, skew ${skew}, drift ${drift === 0 ? "none" : `${drift} tokens`}`;
}

function describeCompute({ compute, threads, kernels }: StreamBenchmark): string {
  if (typeof compute === "object") return `none, a delay of ${compute.delayMs} ms for each expert`;
  const what = compute === "dot" ? `dot products (${kernels})` : "a checksum";
  return `${what} on ${threads} ${threads === 1 ? "thread" : "threads"}`;
}

function describeBurst(burst: NonNullable<StreamBenchmark["burst"]>): string {
  const { firstToken, tokens, before, during, after, recoveredAfter } = burst;
  const rate = (share: number | null): string => (share === null ? "-" : percent(share));
  const back = recoveredAfter === null ? "not recovered from" : `recovered after ${recoveredAfter} tokens`;
  return (
    `tokens ${firstToken} to ${firstToken + tokens - 1}: hit rate ${rate(before)} before, ${rate(during)} in it, ` +
    `${rate(after)} after; ${back}`
  );
}

function describeWindows({ windows }: StreamBenchmark): string {
  const rows = windows.map(({ firstToken, tokens, hitRate, bytesPerToken, tokensPerSecond, waitMs }) => [
    `${firstToken}-${firstToken + tokens - 1}`,
    percent(hitRate),
    bytes(bytesPerToken),
    tokensPerSecond.toFixed(2),
    `${(waitMs / Math.max(tokens, 1)).toFixed(2)} ms`,
  ]);
  return columns([["tokens", "hit rate", "read/token", "tokens/s", "waited/token"], ...rows]);
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(2)} s`;
}

import type { CachePolicy, SimulateOptions, Simulation, TraceInfo } from "@clutor/core";
import { Command, InvalidArgumentError } from "commander";
import { checkWritable, exclusive, flag, nonEmpty, UsageError } from "../flags.js";
import { bytes, columns, percent, table } from "../format.js";
import { interrupt, note, write } from "../terminal.js";

interface Options {
  csv?: string;
  simulate?: boolean;
  policy: string;
  cacheShare: number[];
  json?: boolean;
}

export function traceCommand(): Command {
  return new Command("trace")
    .description(
      "Tells what a trace of generate --trace holds, turns its router scores into a CSV of choices, or replays the " +
        "choices through cache policies. CSV of other programs is read too, and what gzip compressed.",
    )
    .argument("<file>", "the trace")
    .addOption(flag("--csv <out>", "write the choices of a binary trace to this file").argParser(nonEmpty("A file")))
    .addOption(flag("--simulate", "hit rates of cache policies, beside the best that could be (Belady's)"))
    .addOption(flag("--policy <name>", "with --simulate: one policy as of generate, or all").default("all"))
    .addOption(
      flag("--cache-share <share>", "with --simulate: experts that fit, such as 10% or 5%,10%,20%")
        .argParser(shares)
        .default([0.1], "10%"),
    )
    .addOption(flag("--json", "one JSON object"))
    .action(trace);
}

async function trace(file: string, _: Options, command: Command): Promise<void> {
  const options = exclusive<Options>(command, ["csv", "simulate"]);
  const { csv, simulate } = options;
  if (csv !== undefined && simulate) throw new UsageError("give --csv or --simulate, not both");
  const { convertTrace, inspectTrace, simulateTrace } = await import("@clutor/core");
  const { signal } = interrupt;
  let answer: { json: object; text: string };
  if (csv !== undefined) {
    await checkWritable(csv);
    const tokens = await convertTrace(file, csv, { signal });
    answer = { json: { csv, tokens }, text: "" };
    note(`${csv}: the choices of ${tokens} tokens`);
  } else if (simulate) {
    const policies = options.policy === "all" ? "all" : ([options.policy] as CachePolicy[]);
    const asked: SimulateOptions = { policies, shares: options.cacheShare, signal };
    const found = await simulateTrace(file, asked);
    answer = { json: found, text: describeSimulation(found) };
  } else {
    const info = await inspectTrace(file, { signal });
    answer = { json: info, text: describe(info) };
  }
  await write(options.json ? `${JSON.stringify(answer.json)}\n` : answer.text);
}

function describe(info: TraceInfo): string {
  const { kind, promptTokens, tokens, nLayers, nExperts, nExpertsUsed, choices, leftOverBytes } = info;
  const rows: [string, string][] = [
    ["holds", kind === "choices" ? "chosen experts (CSV)" : "router scores (binary)"],
    ["tokens", `${promptTokens} of the prompt, ${tokens} after it`],
    ["layers", `${nLayers}`],
    ["experts", `${nExperts} a layer, ${nExpertsUsed} used`],
    ["choices", `${choices}`],
  ];
  if (leftOverBytes > 0) rows.push(["cut off", `${bytes(leftOverBytes)} of an unfinished token are left out`]);
  return table(rows);
}

function describeSimulation({ trace, caches }: Simulation): string {
  const { nLayers, nExperts } = trace;
  const { promptAccesses = 0, accesses = 0 } = caches[0]?.belady ?? {};
  const tables = caches.map(({ share, cachedExperts, belady, policies }) => {
    const title = `\n${percent(share)} of the experts: ${cachedExperts} of ${nLayers * nExperts}\n`;
    const rows = policies.map(({ policy, isDefault, rates, accessesPerSecond }) => [
      isDefault ? `${policy} *` : policy,
      percent(rates.hitRate),
      belady.hitRate > 0 ? percent(rates.hitRate / belady.hitRate) : "-",
      (accessesPerSecond / 1e6).toFixed(1),
    ]);
    const head = ["policy", "hit rate", "of Belady's", "M accesses/s"];
    return title + columns([head, ["Belady", percent(belady.hitRate), "", ""], ...rows]);
  });
  const hasDefault = caches.some(({ policies }) => policies.some(({ isDefault }) => isDefault));
  return (
    `${nLayers} layers of ${nExperts} experts; ${promptAccesses} choices for the prompt, ${accesses} after it, ` +
    `of which the hit rates are\n${tables.join("")}${hasDefault ? "\n* the default\n" : ""}`
  );
}

/** Shares of 0 to 1 from `10%`, `0.1` or several of them with commas between. */
function shares(text: string): number[] {
  return text.split(",").map((part) => {
    const [, digits, sign] = /^\s*(\d+(?:\.\d+)?)\s*(%?)\s*$/.exec(part) ?? [];
    const share = Number(digits) / (sign === "%" ? 100 : 1);
    if (share <= 1) return share;
    throw new InvalidArgumentError("A share of the experts is expected, such as 10% or 0.1, or several: 5%,10%,20%.");
  });
}

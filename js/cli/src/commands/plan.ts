import type { MemoryPlan } from "@clutor/core";
import { Command } from "commander";
import { contextFlags, flag } from "../flags.js";
import { bytes, percent, table } from "../format.js";
import { type ComputeOptions, computeFlags, loadOptions, modelPath, noteContext } from "../load.js";
import { write } from "../terminal.js";

interface Options extends ComputeOptions {
  ctx?: number;
  json?: boolean;
}

export function planCommand(): Command {
  const command = new Command("plan")
    .description(
      "Says without loading a model what would be kept in memory, how much of it would be streamed from the drive, and " +
        "the peak of memory to expect. Takes the flags of the other commands.",
    )
    .addOption(flag("--json", "one JSON object"));
  contextFlags(command, "tokens that prompt and text may have; 0: all", 0);
  return computeFlags(command, "f16").action(plan);
}

async function plan(options: Options): Promise<void> {
  const { Model } = await import("@clutor/core");
  const found = await Model.plan(await modelPath(options.model), loadOptions(options));
  noteContext(options.ctx, found.contextLength);
  await write(options.json ? `${JSON.stringify(found)}\n` : describe(found));
}

function describe(plan: MemoryPlan): string {
  const { cachedExperts, nExperts } = plan;
  const rows: [string, string][] = [
    ["experts", `${plan.streaming ? "streamed" : "all in memory"}: ${plan.explanation}`],
    ["at once", `${cachedExperts} of ${nExperts} experts (${percent(plan.cachedShare)})`],
    [
      "dense weights",
      plan.dense === "ring" ? `${bytes(plan.denseBytes)}, two layers' at a time` : bytes(plan.denseBytes),
    ],
    [plan.streaming ? "expert cache" : "expert weights", bytes(plan.expertBytes)],
    ["keys and values", `${bytes(plan.kvBytes)} for ${plan.contextLength} tokens`],
    ["buffers", bytes(plan.bufferBytes)],
    ["the process", bytes(plan.processBytes)],
    ["peak", bytes(plan.predictedPeakBytes)],
  ];
  if (plan.spareBytes > 0) rows.push(["kept free", `${bytes(plan.spareBytes)}, seldom needed, on top`]);
  if (plan.budgetBytes !== undefined) rows.push(["may use", bytes(plan.budgetBytes)]);
  return table(rows);
}

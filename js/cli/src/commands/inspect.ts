import type { Inspection } from "@clutor/core";
import { Command, Option } from "commander";
import { exclusive, flag, nonEmpty, UsageError } from "../flags.js";
import { bytes, table } from "../format.js";
import { modelPath } from "../load.js";
import { interrupt, write } from "../terminal.js";

interface Options {
  model?: string;
  kernels?: boolean;
  json?: boolean;
}

export function inspectCommand(): Command {
  return (
    new Command("inspect")
      .description("Tells what a GGUF file holds; of a model in several files, any of them will do.")
      .argument("[file]", "GGUF file; default: the built-in model")
      .addOption(flag("-m, --model <file>", "the file, as an option").argParser(nonEmpty("A file")))
      // Without a twin: CLUTOR_KERNELS chooses one of these paths.
      .addOption(new Option("--kernels", "instead, list the arithmetic paths that this processor can run"))
      .addOption(flag("--json", "one JSON object"))
      .action(inspectFile)
  );
}

async function inspectFile(file: string | undefined, _: Options, command: Command): Promise<void> {
  const options = exclusive<Options>(command, ["model", "kernels"], file);
  if (options.kernels && (file !== undefined || options.model !== undefined)) {
    throw new UsageError("--kernels looks at the processor and takes no file");
  }
  if (file !== undefined && options.model !== undefined) {
    throw new UsageError("give one file: as the argument, or with --model");
  }
  const { inspect, kernels } = await import("@clutor/core");
  if (options.kernels) {
    const names = kernels();
    await write(options.json ? `${JSON.stringify({ kernels: names })}\n` : `${names.join("\n")}\n`);
    return;
  }
  const found = await inspect(await modelPath(file ?? options.model), { signal: interrupt.signal });
  await write(options.json ? `${JSON.stringify(found)}\n` : describe(found));
}

function describe(found: Inspection): string {
  const rows: [string, string][] = [
    ["architecture", found.architecture],
    ["name", found.name ?? "(none)"],
    ["layers", `${found.nLayers}`],
    ["experts", found.nExperts === 0 ? "none (dense)" : `${found.nExperts} a layer, ${found.nExpertsUsed} used`],
    ["heads", `${found.nHeads} query, ${found.nKvHeads} key/value, ${found.headDim} wide`],
    ["widths", `${found.embedDim} embedding, ${found.expertDim} expert`],
    ["vocabulary", `${found.vocabSize} tokens`],
    ["context", `${found.contextLength} tokens`],
    ["file", bytes(found.fileBytes)],
    ["dense", `${bytes(found.denseBytes)}, read for every token`],
  ];
  if (found.nExperts > 0) {
    rows.push(["all experts", bytes(found.expertBytes)]);
    rows.push(["one expert", bytes(found.bytesPerExpert)]);
    rows.push(["a token's experts", bytes(found.expertBytesPerToken)]);
  }
  for (const [type, use] of Object.entries(found.tensorTypes)) {
    rows.push([type, `${use.tensors} tensors, ${bytes(use.bytes)}`]);
  }
  return table(rows);
}

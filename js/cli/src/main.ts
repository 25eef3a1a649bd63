import { Command, CommanderError } from "commander";
import { benchCommand } from "./commands/bench.js";
import { generateCommand } from "./commands/generate.js";
import { inspectCommand } from "./commands/inspect.js";
import { logitsCommand } from "./commands/logits.js";
import { perplexityCommand } from "./commands/perplexity.js";
import { planCommand } from "./commands/plan.js";
import { streamCommand } from "./commands/stream.js";
import { tokenizeCommand } from "./commands/tokenize.js";
import { traceCommand } from "./commands/trace.js";
import { UsageError } from "./flags.js";
import { Interruption, interrupt, writeError } from "./terminal.js";

/** Exit codes: success, a failure with one line on stderr, wrong usage. An `Interruption` has its own. */
const exitCodes = { success: 0, failure: 1, usage: 2 } as const;

/** How long work may take to end once nobody reads the output. */
const graceMs = 2000;

/** Runs the command line `args` and sets the process's exit code. */
export async function run(args: string[]): Promise<void> {
  // Notes that cannot be written change neither the answer nor the exit code.
  process.stderr.on("error", () => {});
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    // The reader has seen enough (`clutor generate | head`).
    if (error.code === "EPIPE") {
      interrupt.abort(new Interruption(exitCodes.success));
      setTimeout(() => process.exit(exitCodes.success), graceMs).unref();
      return;
    }
    writeError("FILE_WRITE", `standard output: ${error.message}`);
    process.exit(exitCodes.failure);
  });
  try {
    interrupt.signal.throwIfAborted();
    await program().parseAsync(args, { from: "user" });
  } catch (error) {
    process.exitCode = report(error);
    // What nobody reads would keep the process.
    if (interrupt.signal.aborted) process.exit();
  }
}

function program(): Command {
  const clutor = new Command("clutor")
    .description("Runs mixture-of-experts language models from GGUF files, on the CPU.")
    .option("--verbose", "show where an error came from")
    .version("0.1.0", "-V, --version")
    .helpCommand("help [command]", "show help")
    .addHelpText(
      "after",
      "\nFlags have environment twins: --top-k is CLUTOR_TOP_K. A flag counts more; empty is as if absent, and 0, false,\n" +
        "no and off are too where a flag takes no value. CLUTOR_KERNELS chooses an arithmetic path (inspect --kernels).",
    );
  clutor.addCommand(generateCommand());
  clutor.addCommand(inspectCommand());
  clutor.addCommand(planCommand());
  clutor.addCommand(tokenizeCommand());
  clutor.addCommand(logitsCommand());
  clutor.addCommand(perplexityCommand());
  clutor.addCommand(traceCommand());
  clutor.addCommand(streamCommand());
  clutor.addCommand(benchCommand());
  for (const command of [clutor, ...clutor.commands]) {
    command.exitOverride().allowExcessArguments(false);
    // One line, written by `report`.
    command.configureOutput({ outputError: () => {} });
    if (command !== clutor) command.option("--verbose", "show where an error came from");
  }
  return clutor;
}

/** Tells what went wrong, in one line, and gives the exit code. */
function report(error: unknown): number {
  if (interrupt.signal.reason instanceof Interruption) return interrupt.signal.reason.exitCode;
  if (error instanceof CommanderError) {
    if (error.exitCode === 0) return exitCodes.success;
    if (error.code !== "commander.help") writeError("USAGE", usageMessage(error.message));
    return exitCodes.usage;
  }
  if (error instanceof UsageError) {
    writeError("USAGE", error.message);
    return exitCodes.usage;
  }
  const { code, message, stack } = describe(error);
  writeError(code, message);
  if (process.argv.includes("--verbose") && stack !== undefined) process.stderr.write(`${stack}\n`);
  // Options reach the engine from flags only.
  return code === "INVALID_OPTION" ? exitCodes.usage : exitCodes.failure;
}

/** `error: unknown option '--tmep'\n(Did you mean --temp?)` in one line. */
function usageMessage(message: string): string {
  return message
    .replace(/^error: /, "")
    .replace(/\s*\n\(Did you mean (.*?)\?\)/, "; did you mean $1?")
    .replace(/\.?\s*\n\s*/g, "; ");
}

function describe(error: unknown): { code: string; message: string; stack: string | undefined } {
  if (!(error instanceof Error)) return { code: "INTERNAL", message: String(error), stack: undefined };
  const code = "code" in error && typeof error.code === "string" ? error.code : "INTERNAL";
  return { code, message: error.message, stack: error.stack };
}

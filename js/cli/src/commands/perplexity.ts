import { Command } from "commander";
import { contextFlags, flag, integer, readText } from "../flags.js";
import { type ComputeOptions, computeFlags, loadModel, statsFlag } from "../load.js";
import { printStats, statsJson } from "../streaming.js";
import { interrupt, write } from "../terminal.js";

interface Options extends ComputeOptions {
  file: string;
  ctx?: number;
  batch: number;
  stats?: boolean;
  json?: boolean;
}

export function perplexityCommand(): Command {
  const command = new Command("perplexity")
    .description(
      "How well a model foretells a text: the mean negative log-likelihood over windows of --ctx tokens that do not " +
        "overlap, all positions but each window's first, and its exponential. " +
        "(llama-perplexity scores only the second half of each window: its figures are lower.)",
    )
    .addOption(flag("-f, --file <text>", "file with the text; - is standard input").makeOptionMandatory())
    .addOption(flag("-b, --batch <n>", "tokens computed at once").argParser(integer(1)).default(512))
    .addOption(statsFlag())
    .addOption(flag("--json", "one JSON object: nll, perplexity, tokens, the memory plan, the store of experts"));
  contextFlags(command, "tokens of a window; default: 512, or the model's context where that is less", 2);
  return computeFlags(command, "f32").action(perplexity);
}

async function perplexity(options: Options): Promise<void> {
  const text = await readText(options.file);
  const { ctx = 512 } = options;
  // Without the note about a context that is too long: it would be an error of `perplexity`, or make no difference.
  const model = await loadModel({ ...options, ctx }, { notesContext: false });
  try {
    const score = await model.perplexity(text, {
      window: options.ctx ?? Math.min(ctx, model.info.contextLength),
      batch: options.batch,
      signal: interrupt.signal,
      onProgress: ({ done, total }) => {
        if (process.stderr.isTTY) process.stderr.write(`\r${done} of ${total} tokens`);
      },
    });
    if (process.stderr.isTTY) process.stderr.write("\r\u001b[K");
    const stats = model.stats();
    const { nll, tokens } = score;
    const plain = `perplexity ${score.perplexity.toFixed(4)} (nll ${nll.toFixed(6)} over ${tokens} tokens)\n`;
    await write(options.json ? `${JSON.stringify({ ...score, ...statsJson(stats) })}\n` : plain);
    if (options.stats) printStats(stats);
  } finally {
    await model.dispose();
  }
}

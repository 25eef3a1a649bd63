import type { ExpectedText, GenerateOptions, GenerationResult, Model, ModelStats } from "@clutor/core";
import { Command } from "commander";
import {
  alias,
  checkWritable,
  contextFlags,
  exclusive,
  f32Max,
  flag,
  integer,
  nonEmpty,
  number,
  readText,
  UsageError,
  withoutLastLineEnd,
} from "../flags.js";
import { type ComputeOptions, computeFlags, loadModel, statsFlag } from "../load.js";
import { between, printStats, statsJson } from "../streaming.js";
import { interrupt, note, readStdin, write } from "../terminal.js";

interface Options extends ComputeOptions {
  file?: string;
  tokens?: number;
  ctx?: number;
  temp: number;
  topK: number;
  topP: number;
  minP: number;
  repeatPenalty: number;
  repeatLastN: number;
  seed?: number;
  stop?: string[];
  ignoreEos?: boolean;
  special?: boolean;
  trace?: string;
  stats?: boolean;
  json?: boolean;
  prompt?: string;
}

export function generateCommand(): Command {
  const command = new Command("generate")
    .description("Continues a prompt. The text goes to stdout as it is made; the prompt is not repeated.")
    .argument("[prompt]", "text to continue; - or nothing: --file, or standard input")
    .addOption(flag("-p, --prompt <text>", "the prompt, as an option"))
    .addOption(flag("-f, --file <file>", "file with the prompt, less its last line end; - is standard input"))
    .addOption(flag("-n, --tokens <n>", "most tokens to make; -1: no limit; also --predict").argParser(integer(-1)))
    .addOption(alias("--predict <n>", "tokens").argParser(integer(-1)))
    .addOption(alias("--n-predict <n>", "tokens").argParser(integer(-1)))
    .addOption(flag("--temp <t>", "temperature; 0: always the likeliest").argParser(number(0, f32Max)).default(0.8))
    .addOption(flag("--top-k <k>", "likeliest tokens to choose from; 0: all").argParser(integer(0)).default(40))
    .addOption(
      flag("--top-p <p>", "probability mass to choose from")
        .argParser(number(0, 1, true))
        .default(0.95),
    )
    .addOption(flag("--min-p <p>", "least share of the likeliest's").argParser(number(0, 1)).default(0.05))
    .addOption(
      flag("--repeat-penalty <x>", "1: none")
        .argParser(number(0, f32Max, true))
        .default(1),
    )
    .addOption(flag("--repeat-last-n <n>", "tokens that the penalty sees; -1: all").argParser(integer(-1)).default(64))
    .addOption(
      flag("-s, --seed <n>", "same seed, same text; -1: random").argParser(integer(-1, Number.MAX_SAFE_INTEGER)),
    )
    .addOption(flag("--stop <text>", "text that ends the generation; may be given more than once").argParser(collect))
    .addOption(flag("--ignore-eos", "go on after the model's end token"))
    .addOption(flag("--special", "control tokens in the prompt, such as <|im_start|>, become their ids"))
    .addOption(
      flag(
        "--trace <file>",
        "record the routing of every token: binary, or CSV of the choices where the name ends in .csv; overwritten",
      ).argParser(nonEmpty("A file")),
    )
    .addOption(statsFlag())
    .addOption(
      flag("--json", "one JSON object instead of the text, with the memory `plan` and the `store` of experts"),
    );
  contextFlags(command, "tokens that prompt and text may have; 0: all", 0);
  return computeFlags(command, "f16").action(generate);
}

function collect(text: string, earlier: string[] = []): string[] {
  return [...earlier, nonEmpty("A text")(text)];
}

async function generate(argument: string | undefined, _: Options, command: Command): Promise<void> {
  const options = exclusive<Options>(command, ["prompt", "file"], argument);
  const prompt = await findPrompt(argument, options);
  // Before loading, which may take a while.
  if (options.trace !== undefined) await checkWritable(options.trace);
  const model = await loadModel(options, { expect: expected(prompt, options) });
  try {
    const { result, atFirstPiece } = await make(model, prompt, options);
    const stats = model.stats();
    const decode = between(atFirstPiece, stats);
    if (options.stats) {
      printTimes(result);
      printStats(stats, decode);
    }
    if (options.json) {
      const { peakRssBytes } = stats.memory;
      await write(`${JSON.stringify({ ...result, peakRssBytes, ...statsJson(stats, decode) })}\n`);
    }
  } finally {
    await model.dispose();
  }
}

/** What is known of the text before the model is there. */
function expected(prompt: string, { tokens }: Options): ExpectedText {
  // A token is a byte at least. Some models' tokenizers normalize first, which lengthens a few characters, and one token
  // may begin the text.
  const promptTokens = Math.max(Buffer.byteLength(prompt), Buffer.byteLength(prompt.normalize("NFC"))) + 1;
  return tokens === undefined || tokens < 0 ? { promptTokens } : { promptTokens, maxTokens: tokens };
}

async function findPrompt(argument: string | undefined, options: Options): Promise<string> {
  const given = [argument, options.prompt, options.file].filter((source) => source !== undefined);
  if (given.length > 1) throw new UsageError("give one prompt: as the argument, with --prompt, or with --file");
  if (argument === "-") return withoutLastLineEnd(await readStdin());
  const text = argument ?? options.prompt;
  if (text !== undefined) return text;
  if (options.file !== undefined) return withoutLastLineEnd(await readText(options.file));
  if (process.stdin.isTTY) throw new UsageError('a prompt is needed: clutor generate "Once upon a time"');
  return withoutLastLineEnd(await readStdin());
}

/** The generation's result, and the statistics at its first piece, when the prompt was just read. */
async function make(
  model: Model,
  prompt: string,
  options: Options,
): Promise<{ result: GenerationResult; atFirstPiece: ModelStats | undefined }> {
  const generation = model.generate(prompt, generateOptions(options));
  let atFirstPiece: ModelStats | undefined;
  let last = "";
  for await (const { text } of generation) {
    atFirstPiece ??= model.stats();
    if (options.json) continue;
    await write(text);
    last = text === "" ? last : text;
  }
  if (!options.json && process.stdout.isTTY && !last.endsWith("\n")) await write("\n");
  return { result: await generation, atFirstPiece };
}

function generateOptions(options: Options): GenerateOptions {
  const made: GenerateOptions = {
    temperature: options.temp,
    topK: options.topK,
    topP: options.topP,
    minP: options.minP,
    repeatPenalty: options.repeatPenalty,
    repeatLastN: options.repeatLastN,
    stop: options.stop ?? [],
    ignoreEos: options.ignoreEos ?? false,
    special: options.special ?? false,
    signal: interrupt.signal,
  };
  if (options.trace !== undefined) made.trace = options.trace;
  if (options.tokens !== undefined && options.tokens >= 0) made.maxTokens = options.tokens;
  if (options.seed !== undefined && options.seed >= 0) made.seed = options.seed;
  return made;
}

function printTimes(result: GenerationResult): void {
  const { promptTokens, promptMs, tokens, decodeMs, tokensPerSecond, finishReason, seed } = result;
  note(`prompt: ${promptTokens} tokens in ${promptMs.toFixed(1)} ms`);
  note(`text: ${tokens} tokens in ${decodeMs.toFixed(1)} ms, ${tokensPerSecond.toFixed(1)} a second`);
  note(`ended by ${finishReason}; seed ${seed}`);
}

import type { Tokenizer } from "@clutor/core";
import { Command } from "commander";
import { exclusive, flag, modelFlag, readText, UsageError } from "../flags.js";
import { modelPath } from "../load.js";
import { interrupt, readStdin, stdinLines, write } from "../terminal.js";

interface Options {
  model?: string;
  file?: string;
  special?: boolean;
  decode?: boolean;
  json?: boolean;
  jsonl?: boolean;
}

export function tokenizeCommand(): Command {
  return new Command("tokenize")
    .description("Turns text into token ids, or back with --decode. A file with a vocabulary only will do.")
    .argument("[text]", "text, or ids with --decode; default: --file, or standard input")
    .addOption(modelFlag())
    .addOption(flag("-f, --file <file>", "file with the text; - is standard input"))
    .addOption(flag("--special", "control tokens in the text become their ids"))
    .addOption(flag("--decode", "ids to text"))
    .addOption(flag("--json", "one JSON object"))
    .addOption(
      flag(
        "--jsonl",
        'lines {"text", "special"} or {"hex"} on stdin to lines {"ids"}; with --decode, the reverse; ' +
          'a line that is wrong gives {"error"}, the others go on, and the exit code is 1',
      ),
    )
    .action(tokenize);
}

async function tokenize(text: string | undefined, _: Options, command: Command): Promise<void> {
  const options = exclusive<Options>(command, ["file", "jsonl"], text);
  if (options.jsonl && (text !== undefined || options.file !== undefined)) {
    throw new UsageError("--jsonl reads standard input and takes neither text nor --file");
  }
  if (text !== undefined && options.file !== undefined) throw new UsageError("give the text or --file, not both");
  const { Tokenizer } = await import("@clutor/core");
  const tokenizer = await Tokenizer.load(await modelPath(options.model), { signal: interrupt.signal });
  try {
    if (options.jsonl) await eachLine(tokenizer, options);
    else await once(tokenizer, text ?? (await (options.file ? readText(options.file) : readStdin())), options);
  } finally {
    await tokenizer.dispose();
  }
}

async function once(tokenizer: Tokenizer, text: string, options: Options): Promise<void> {
  if (options.decode) {
    const bytes = tokenizer.detokenizeBytes(parseIds(text));
    await write(options.json ? `${JSON.stringify(decoded(bytes))}\n` : Buffer.from(bytes).toString("utf8"));
    return;
  }
  const ids = await tokenizer.tokenizeAsync(text, { special: options.special ?? false });
  await write(options.json ? `${JSON.stringify({ ids })}\n` : `${ids.join(" ")}\n`);
}

/** Answers each line with one; what is wrong with a line is its answer's `error`. */
async function eachLine(tokenizer: Tokenizer, options: Options): Promise<void> {
  for await (const line of stdinLines()) {
    if (line.trim() === "") continue;
    let answer: object;
    try {
      const asked: unknown = JSON.parse(line);
      answer = options.decode ? decodeLine(tokenizer, asked) : await encodeLine(tokenizer, asked, options);
    } catch (error) {
      answer = { error: error instanceof Error ? error.message : String(error) };
      process.exitCode = 1;
    }
    await write(`${JSON.stringify(answer)}\n`);
  }
}

async function encodeLine(tokenizer: Tokenizer, asked: unknown, options: Options): Promise<object> {
  const { text, hex, special = options.special ?? false } = fields(asked);
  if (typeof special !== "boolean") throw new Error("`special` must be true or false");
  if (typeof text === "string") return { ids: await tokenizer.tokenizeAsync(text, { special }) };
  if (typeof hex === "string" && /^([0-9a-f]{2})*$/i.test(hex)) {
    return { ids: await tokenizer.tokenizeAsync(Buffer.from(hex, "hex"), { special }) };
  }
  throw new Error('a line must have a string `text`, or `hex` with two digits per byte: {"text": "Hello"}');
}

function decodeLine(tokenizer: Tokenizer, asked: unknown): object {
  const { ids } = fields(asked);
  if (!Array.isArray(ids)) throw new Error('a line must have an array `ids`: {"ids": [1, 2]}');
  return decoded(tokenizer.detokenizeBytes(ids));
}

function decoded(bytes: Uint8Array): object {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return { hex: buffer.toString("hex"), text: buffer.toString("utf8") };
}

function fields(asked: unknown): Record<string, unknown> {
  if (typeof asked !== "object" || asked === null) throw new Error("a line must be a JSON object");
  return asked as Record<string, unknown>;
}

/** Ids separated by commas or blanks. */
export function parseIds(text: string): number[] {
  const words = text.split(/[\s,]+/).filter((word) => word !== "");
  return words.map((word) => {
    const id = /^\d+$/.test(word) ? Number(word) : Number.NaN;
    if (id <= 0xffff_ffff) return id;
    throw new UsageError(`\`${word}\` is not a token id; ids are whole numbers, separated by commas: 1,2,3`);
  });
}

import { readFile } from "node:fs/promises";
import { InvalidArgumentError, Option } from "commander";

/** Wrong use of a command that only shows after parsing. */
export class UsageError extends Error {}

/** An option with its environment twin, `CLUTOR_` and the long name. */
export function flag(flags: string, description: string): Option {
  const option = new Option(flags, description);
  return option.env(`CLUTOR_${option.name().replaceAll("-", "_").toUpperCase()}`);
}

export function integer(least: number, most: number = 0xffff_ffff): (text: string) => number {
  return (text) => {
    const value = /^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`A whole number from ${least} to ${most} is expected.`);
  };
}

export function number(least: number, most: number): (text: string) => number {
  return (text) => {
    const value = text.trim() === "" ? Number.NaN : Number(text);
    if (value >= least && value <= most && value < Infinity) return value;
    const range = most < Infinity ? `from ${least} to ${most}` : `of at least ${least}`;
    throw new InvalidArgumentError(`A number ${range} is expected.`);
  };
}

export function modelFlag(): Option {
  return flag("-m, --model <file>", "GGUF file; default: the built-in model that tells stories");
}

/** Text of a file, or of standard input where it is `-`. */
export async function readText(path: string): Promise<string> {
  if (path === "-") {
    const { readStdin } = await import("./terminal.js");
    return readStdin();
  }
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw fileError(error, path);
  }
}

/** A system error with the code that the engine would give. */
export function fileError(error: unknown, path: string): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  const ours = code === "ENOENT" ? "FILE_NOT_FOUND" : "FILE_READ";
  const what = code === "ENOENT" ? "there is no such file" : message;
  return Object.assign(new Error(`${path}: ${what}`, { cause: error }), { code: ours });
}

/** Without the one line end that editors and `echo` put at the end. */
export function withoutLastLineEnd(text: string): string {
  return text.replace(/\r?\n$/, "");
}

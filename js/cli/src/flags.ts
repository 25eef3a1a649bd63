import { access, constants, readFile, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { type Command, InvalidArgumentError, Option } from "commander";

/** Wrong use of a command that only shows after parsing. */
export class UsageError extends Error {}

/** An option with its environment twin, `CLUTOR_` and the long name. */
export function flag(flags: string, description: string): Option {
  const option = new Option(flags, description);
  const twin = `CLUTOR_${option.name().replaceAll("-", "_").toUpperCase()}`;
  const takesValue = option.required || option.optional;
  // commander would take an empty value as one, and any value of a switch's twin as on.
  const off = takesValue ? /^$/ : /^(0|false|no|off)?$/i;
  const value = process.env[twin]?.trim();
  return value !== undefined && off.test(value) ? option : option.env(twin);
}

/** Another name of the option `attribute`, for those who know it from llama.cpp. Without a twin, and not in the help. */
export function alias(flags: string, attribute: string): Option {
  const option = new Option(flags).hideHelp();
  option.attributeName = () => attribute;
  return option;
}

/**
 * Of options that exclude each other, as `names`, those that count: where the command line names one, or has an
 * `argument` instead, those from the environment give way.
 */
export function exclusive<Options extends object>(
  command: Command,
  names: (keyof Options & string)[],
  argument?: string,
): Options {
  const options: Options = { ...command.opts() };
  const isTyped = (name: string): boolean => command.getOptionValueSource(name) === "cli";
  if (argument === undefined && !names.some(isTyped)) return options;
  for (const name of names) if (!isTyped(name)) delete options[name];
  return options;
}

/** A value that is a name or a text, so not empty. */
export function nonEmpty(what: string): (text: string) => string {
  return (text) => {
    if (text !== "") return text;
    throw new InvalidArgumentError(`${what} is expected, not an empty one.`);
  };
}

/** Largest number that the engine's 32-bit floats hold. */
export const f32Max = 3.4028234663852886e38;

export function integer(least: number, most: number = 0xffff_ffff): (text: string) => number {
  return (text) => {
    const value = /^[+-]?\d+$/.test(text) ? Number(text) : Number.NaN;
    if (value >= least && value <= most) return value;
    throw new InvalidArgumentError(`A whole number from ${least} to ${most} is expected.`);
  };
}

/** A number from `least` to `most`; with `aboveLeast`, more than `least` by what a 32-bit float can tell. */
export function number(least: number, most: number, aboveLeast = false): (text: string) => number {
  return (text) => {
    const value = text.trim() === "" ? Number.NaN : Number(text);
    if (value <= most && (aboveLeast ? Math.fround(value) > least : value >= least)) return value;
    const largest = most < f32Max ? most : "3.4e38";
    const range = aboveLeast ? `above ${least} and at most ${largest}` : `from ${least} to ${largest}`;
    throw new InvalidArgumentError(`A number ${range} is expected.`);
  };
}

export function modelFlag(): Option {
  return flag("-m, --model <file>", "GGUF file; default: the built-in model that tells stories").argParser(
    nonEmpty("A file"),
  );
}

export function threadsFlag(): Option {
  return flag("-t, --threads <n>", "compute threads; default: the physical cores").argParser(integer(1, 1024));
}

/** `--ctx`, of commands that keep a context, and its name in llama.cpp. */
export function contextFlags(command: Command, description: string, least: number): Command {
  return command
    .addOption(flag("-c, --ctx <n>", `${description}; also --ctx-size`).argParser(integer(least)))
    .addOption(alias("--ctx-size <n>", "ctx").argParser(integer(least)));
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

/** A system error with the code that the engine would give; with `FILE_WRITE` where something was to be written. */
export function fileError(error: unknown, path: string, failed: "FILE_READ" | "FILE_WRITE" = "FILE_READ"): Error {
  const { code, message } = error as NodeJS.ErrnoException;
  const isAbsent = code === "ENOENT" && failed === "FILE_READ";
  const ours = isAbsent ? "FILE_NOT_FOUND" : failed;
  const what = isAbsent ? "there is no such file" : message;
  return Object.assign(new Error(`${path}: ${what}`, { cause: error }), { code: ours });
}

/** Fails where the file `path` could not be written, without making or changing it. */
export async function checkWritable(path: string): Promise<void> {
  try {
    const found = await stat(path).catch(() => undefined);
    if (found?.isDirectory()) throw new Error("this is a folder; give the name of a file");
    const folder = dirname(path);
    if (found === undefined && !(await stat(folder).catch(() => undefined))?.isDirectory()) {
      throw new Error(`there is no folder ${folder}; make it first`);
    }
    await access(found === undefined ? folder : path, constants.W_OK);
  } catch (error) {
    throw fileError(error, path, "FILE_WRITE");
  }
}

/** Without the one line end that editors and `echo` put at the end. */
export function withoutLastLineEnd(text: string): string {
  return text.replace(/\r?\n$/, "");
}

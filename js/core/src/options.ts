import { fileURLToPath } from "node:url";
import { ClutorError } from "./errors.js";

/** Checks one value and says what was expected, or gives undefined where it is right. */
type Check = (value: unknown) => string | undefined;

/**
 * A copy of `options` that holds nothing else than was checked: each value is read once, inherited ones too. Throws
 * unless `options` is an object with known names only, each with a value that its check accepts.
 */
export function checkOptions<Options extends object>(
  where: string,
  options: Options | undefined,
  checks: Record<string, Check>,
): Options {
  const checked: Record<string, unknown> = {};
  if (options === undefined) return checked as Options;
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw invalid(`${where}: options must be an object, not ${show(options)}`);
  }
  for (const name of Object.keys(options)) {
    if (!Object.hasOwn(checks, name)) {
      const near = nearest(name, Object.keys(checks));
      const hint = near === undefined ? `known are ${Object.keys(checks).join(", ")}` : `did you mean \`${near}\`?`;
      throw invalid(`${where}: there is no option \`${name}\`; ${hint}`);
    }
  }
  for (const [name, check] of Object.entries(checks)) {
    const value = (options as Record<string, unknown>)[name];
    if (value === undefined) continue;
    const expected = check(value);
    if (expected !== undefined) throw invalid(`${where}: \`${name}\` must be ${expected}, not ${show(value)}`);
    checked[name] = value;
  }
  return checked as Options;
}

export function invalid(message: string): ClutorError {
  return new ClutorError("INVALID_OPTION", message);
}

export const integer =
  (least: number, most: number): Check =>
  (value) =>
    Number.isInteger(value) && (value as number) >= least && (value as number) <= most
      ? undefined
      : `a whole number from ${least} to ${most}`;

/** A whole number, or an array of at least one. */
export const integers =
  (least: number, most: number): Check =>
  (value) => {
    const check = integer(least, most);
    const values: unknown[] = Array.isArray(value) ? value : [value];
    return values.length > 0 && values.every((one) => check(one) === undefined)
      ? undefined
      : `${check(undefined)}, or an array of such`;
  };

/** Largest number that the engine's 32-bit floats hold. */
export const f32Max = 3.4028234663852886e38;

export const number =
  (least: number, most: number, aboveLeast = false): Check =>
  (value) => {
    // What is above it by less than a 32-bit float can tell is not above it.
    const fits =
      typeof value === "number" && value <= most && (aboveLeast ? Math.fround(value) > least : value >= least);
    const from = aboveLeast ? `above ${least}` : `of at least ${least}`;
    return fits ? undefined : `a number ${from} and at most ${most < f32Max ? most : "3.4e38"}`;
  };

export const boolean: Check = (value) => (typeof value === "boolean" ? undefined : "true or false");

export const booleanOrPath: Check = (value) => {
  const isPath = typeof value === "string" && value !== "" && !value.includes("\0");
  return typeof value === "boolean" || isPath ? undefined : "true, false or the path of a folder";
};

export const oneOf =
  (...choices: string[]): Check =>
  (value) =>
    choices.includes(value as string) ? undefined : choices.map((choice) => `"${choice}"`).join(" or ");

export const text: Check = (value) => (typeof value === "string" && value !== "" ? undefined : "a text");

/** A path, or a `file:` URL; `checkPath` says more. */
export const path: Check = (value) =>
  value instanceof URL || (typeof value === "string" && value !== "") ? undefined : "the path of a file";

export const callback: Check = (value) => (typeof value === "function" ? undefined : "a function");

export const signal: Check = (value) => (value instanceof AbortSignal ? undefined : "an AbortSignal");

export const stopStrings: Check = (value) => {
  const strings: unknown[] = Array.isArray(value) ? value : [value];
  return strings.every((stop) => typeof stop === "string" && stop.length > 0)
    ? undefined
    : "a string of at least one character, or an array of such";
};

/** A path of the file system from a path or a `file:` URL. */
export function checkPath(where: string, path: unknown, what = "a .gguf file"): string {
  if (path instanceof URL) {
    if (path.protocol !== "file:") throw invalid(`${where}: the URL must start with file:, not ${path.protocol}`);
    return fileURLToPath(path);
  }
  if (typeof path !== "string" || path.length === 0) {
    throw invalid(`${where}: the path of ${what} is needed, not ${show(path)}`);
  }
  if (path.includes("\0")) throw invalid(`${where}: the path holds a zero byte`);
  return path;
}

/** Ids as the engine takes them. */
export function checkIds(where: string, ids: unknown): Uint32Array {
  if (ids instanceof Uint32Array) return ids;
  if (!Array.isArray(ids)) throw invalid(`${where}: token ids must be an array of numbers, not ${show(ids)}`);
  for (const [index, id] of ids.entries()) {
    if (!Number.isInteger(id) || id < 0 || id > 0xffff_ffff) {
      throw invalid(`${where}: the id at index ${index} is ${show(id)}; whole numbers from 0 on are expected`);
    }
  }
  return Uint32Array.from(ids as number[]);
}

export function checkText(where: string, text: unknown): string {
  if (typeof text !== "string") throw invalid(`${where}: the text must be a string, not ${show(text)}`);
  return text;
}

function show(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (typeof value === "number" || typeof value === "boolean" || value === null || value === undefined)
    return `${value}`;
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}

/** The name among `names` that is at most a third of its length away from `name` in edits, if there is one. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Infinity;
  for (const candidate of names) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance && distance <= Math.max(1, candidate.length / 3)) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/** Insertions, deletions and replacements that turn `a` into `b` (Levenshtein). */
function editDistance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let i = 1; i <= a.length; i += 1) {
    const next = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const replaced = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
}

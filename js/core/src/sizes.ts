import { ClutorError } from "./errors.js";
import { link } from "./link.js";

/**
 * A size of memory: a number of bytes; or text, `8G`, `8GB` or `8GiB` (all 8 · 2^30 bytes; also K, M and T, fractions,
 * small letters), or `50%` of the memory that this process may use, limits of control groups included.
 */
export type Size = number | string;

const factors: Record<string, number> = { k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };
const pattern = /^(?<number>\d+(?:\.\d+)?)\s*(?:(?<unit>[kmgt])(?:i?b?)|(?<byte>b)|(?<percent>%))?$/i;

/** Bytes, or the share of all that may be used; undefined for what is no size. */
function parse(size: unknown): { bytes: number } | { share: number } | undefined {
  if (typeof size === "number") return Number.isSafeInteger(size) && size >= 0 ? { bytes: size } : undefined;
  const parts = typeof size === "string" ? pattern.exec(size.trim())?.groups : undefined;
  if (parts === undefined) return undefined;
  const value = Number(parts["number"]);
  if (parts["percent"] !== undefined) return value > 0 && value <= 100 ? { share: value / 100 } : undefined;
  const bytes = Math.floor(value * (factors[parts["unit"]?.toLowerCase() ?? ""] ?? 1));
  return Number.isSafeInteger(bytes) ? { bytes } : undefined;
}

/** The check of an option that is a size. */
export function size(value: unknown): string | undefined {
  return parse(value) === undefined ? 'a size such as "8GB", "512M" or "50%", or a number of bytes' : undefined;
}

/** Bytes of a size that was checked. */
export function bytesOf(value: Size): number {
  const parsed = parse(value);
  if (parsed === undefined) throw new TypeError("a size is bytes only after its check");
  if ("bytes" in parsed) return parsed.bytes;
  const usable = link().usableMemory();
  if (usable === null) {
    throw new ClutorError("INVALID_OPTION", `the system does not tell how much memory there is to take ${value} of`);
  }
  return Math.floor(usable * parsed.share);
}

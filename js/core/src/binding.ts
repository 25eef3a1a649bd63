import { createRequire } from "node:module";
import type * as Native from "../../../index.js";
import { ClutorError } from "./errors.js";
import { version } from "./version.js";

type Addon = typeof Native;

const supported = "Linux x64 and arm64 (glibc or musl), macOS arm64 and x64, Windows x64";

/** The compiled engine: from the package for this platform, which npm installs as an optional dependency. */
export function loadAddon(): Addon {
  const require = createRequire(import.meta.url);
  let cause: unknown;
  for (const name of packageNames()) {
    let addon: Addon;
    try {
      addon = require(name) as Addon;
    } catch (error) {
      // A package that is there but does not load is a better reason than one that is absent.
      if (cause === undefined || !isAbsent(error)) cause = error;
      continue;
    }
    const found = addon.version();
    if (found !== version) {
      throw new ClutorError(
        "ADDON_VERSION",
        `@clutor/core is version ${version}, but ${name} is ${found}; install both again: npm install @clutor/core@${version}`,
      );
    }
    return addon;
  }
  throw new ClutorError("ADDON_MISSING", explain(cause), { cause });
}

/** Packages that may hold the engine for this platform. On Linux npm installs the one that fits the C library. */
function packageNames(): string[] {
  const platform = `${process.platform}-${process.arch}`;
  switch (platform) {
    case "linux-x64":
    case "linux-arm64":
      return [`@clutor/core-${platform}-gnu`, `@clutor/core-${platform}-musl`];
    case "darwin-arm64":
    case "darwin-x64":
      return [`@clutor/core-${platform}`];
    case "win32-x64":
      return [`@clutor/core-${platform}-msvc`];
    default:
      return [];
  }
}

function isAbsent(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "MODULE_NOT_FOUND";
}

function explain(cause: unknown): string {
  const libc = process.platform === "linux" ? (usesGlibc() ? " with glibc" : " with musl") : "";
  const here = `${process.platform}-${process.arch}${libc}, Node ${process.version}`;
  const names = packageNames();
  const name = names.length > 1 && !usesGlibc() ? names[1] : names[0];
  if (name === undefined) return `there is no compiled engine for ${here}; supported are ${supported}`;
  const reason = cause instanceof Error ? cause.message.split("\n", 1)[0] : String(cause);
  return (
    `cannot load the compiled engine for ${here}: ${reason}; ` +
    `install it with: npm install ${name}@${version} (and do not omit optional dependencies)`
  );
}

/** Asked only on the way to an error: the report takes a while. */
function usesGlibc(): boolean {
  const report = process.report?.getReport() as { header?: { glibcVersionRuntime?: string } } | undefined;
  return report?.header?.glibcVersionRuntime !== undefined;
}

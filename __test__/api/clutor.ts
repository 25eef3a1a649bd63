// Runs the command line as a user does: in a process of its own.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/** The command's script. */
export const clutor = join(
  dirname(createRequire(import.meta.url).resolve("@clutor/cli/package.json")),
  "bin",
  "clutor.js",
);

export interface Ended {
  code: number | null;
  out: string;
  err: string;
}

/** Runs `clutor` with `args` to its end. It leaves the user's home alone, unless `env` turns the warm start on. */
export async function run(
  args: string[],
  { input = "", env = {} }: { input?: string; env?: object } = {},
): Promise<Ended> {
  const child = spawn(process.execPath, [clutor, ...args], {
    env: { ...process.env, NO_COLOR: "1", CLUTOR_WARM_START: "off", ...env },
  });
  child.stdin.on("error", () => {}); // A command that takes no input may be gone already.
  child.stdin.end(input);
  const ended = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (text) => {
    ended.out += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text) => {
    ended.err += text;
  });
  const [code] = await once(child, "close");
  return { code: code as number | null, ...ended };
}

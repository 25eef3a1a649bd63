// What the operating system says of this process, and of others.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";

export const onLinux = process.platform === "linux";

/** Names of this process's threads that the engine started. */
export function engineThreads() {
  const names = [];
  for (const task of readdirSync("/proc/self/task")) {
    try {
      names.push(readFileSync(`/proc/self/task/${task}/comm`, "utf8").trim());
    } catch {
      // It ended between the two calls.
    }
  }
  return names.filter((name) => name.startsWith("clutor"));
}

/**
 * Names of the engine's threads that are still there. A thread that was joined has ended for this process, but the system
 * lists it until it has cleared up after it: a moment, which a busy machine makes longer. A thread that lives stays.
 */
export async function threadsLeft() {
  for (let i = 0; i < 100 && engineThreads().length > 0; i += 1) await wait(5);
  return engineThreads();
}

/** Bytes of memory that this process has, after everything that can be freed is. */
export async function settledMemory() {
  for (let i = 0; i < 3; i += 1) {
    globalThis.gc();
    await new Promise(setImmediate);
  }
  return process.memoryUsage().rss;
}

/** Processor time of all threads so far, in milliseconds. */
export function busyMs() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

export const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Runs `source` as a module in a new process, in this folder; gives its exit code and what it wrote to stderr. */
export async function runModule(source) {
  const child = spawn(process.execPath, ["--input-type=module", "--eval", source], {
    cwd: import.meta.dirname ?? new URL(".", import.meta.url).pathname,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let err = "";
  let out = "";
  child.stderr.on("data", (text) => {
    err += text;
  });
  child.stdout.on("data", (text) => {
    out += text;
  });
  const [code, signal] = await once(child, "close");
  return { code: code ?? signal, out, err };
}

// Runs a command and measures it from outside, the same way for every engine.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";

/**
 * @typedef {object} Measured
 * @property {number} firstMs from the start to the first text
 * @property {number} decodeMs from the first text to the last
 * @property {number} readBytes read from the drive between the two
 * @property {number} majorFaults of the process between the two
 * @property {number} pieces writes of text that were seen; slow engines make one for each token
 * @property {boolean} stopped whether the time was up
 * @property {string} stderr
 * @property {string | undefined} failure
 */

/**
 * @param {string} command
 * @param {string[]} args
 * @param {number} timeoutMs
 * @param {() => number} readBytes bytes that the drive has read so far
 * @returns {Promise<Measured>}
 */
export function measure(command, args, timeoutMs, readBytes) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "pipe"] });
    let first;
    let last;
    let stderr = "";
    let pieces = 0;
    let stopped = false;
    const timer = setTimeout(() => {
      stopped = true;
      child.kill("SIGKILL");
    }, timeoutMs);
    child.stdout.on("data", () => {
      last = { at: performance.now(), read: readBytes(), majorFaults: majorFaults(child.pid) };
      first ??= last;
      pieces += 1;
    });
    child.stderr.on("data", (text) => {
      stderr += text;
    });
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      const failed = !stopped && code !== 0;
      resolve({
        firstMs: (first?.at ?? performance.now()) - began,
        decodeMs: first === undefined ? 0 : last.at - first.at,
        readBytes: first === undefined ? 0 : last.read - first.read,
        majorFaults: first === undefined ? 0 : last.majorFaults - first.majorFaults,
        pieces,
        stopped,
        stderr,
        failure: failed ? (signal === null ? `exit code ${code}` : `killed by ${signal}`) : undefined,
      });
    });
  });
}

/** Faults of a process that had to wait for the drive. */
function majorFaults(pid) {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ")[9]);
  } catch {
    return 0; // It has ended.
  }
}

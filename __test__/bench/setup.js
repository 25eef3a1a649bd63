// What benchmarks beside other engines need first: a model, the peer, and what is to be said about the machine.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

export const PEER = "node-llama-cpp@3.21.1";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** Installs the peer into a temporary folder of its own, which the caller removes. */
export function installPeer(say) {
  const folder = mkdtempSync(path.join(os.tmpdir(), "clutor-peer-"));
  say(`installing ${PEER} into ${folder}`);
  execFileSync("npm", ["install", "--no-audit", "--no-fund", "--prefix", folder, PEER], { stdio: "ignore" });
  return folder;
}

/** A model of `shape` with random weights, made in target/bench where it is not there yet. */
export function synthesize(shape) {
  const file = path.join(root, `target/bench/${shape}.gguf`);
  if (!existsSync(file)) {
    mkdirSync(path.dirname(file), { recursive: true });
    const args = ["run", "--release", "--bin", "synthesize", "--", shape, file];
    execFileSync("cargo", args, { cwd: root, stdio: "inherit" });
  }
  return file;
}

/** The machine in a few words. */
export function machine() {
  const gib = os.totalmem() / 2 ** 30;
  return `${os.cpus()[0]?.model.trim()}, ${os.cpus().length} processors, ${gib.toFixed(0)} GiB`;
}

/** The commit that is checked out, with a plus sign where files differ from it. */
export function commit() {
  const git = (...args) => execFileSync("git", args, { cwd: root, encoding: "utf8" }).trim();
  return git("rev-parse", "--short", "HEAD") + (git("status", "--porcelain", "--untracked-files=no") === "" ? "" : "+");
}

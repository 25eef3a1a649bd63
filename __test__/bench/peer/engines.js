// The engines that are compared. Two ways to measure, for each engine is compared in its own terms:
//
// - `bench`: the model alone on random tokens, as llama.cpp's llama-bench does it and `clutor bench` too;
// - `text`: a prompt of random tokens and then text at temperature 1 through the package's own API, which is what a program
//   in Node.js gets, sampling from the whole vocabulary included.
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

/**
 * @typedef {{ model: string, prompt: number[], decode: number, threads: number }} Work
 * @typedef {{ prompt: number, decode: number, found?: import("@clutor/core").Benchmark }} Speeds tokens a second
 * @typedef {object} Engine
 * @property {string} name
 * @property {"bench" | "text"} way
 * @property {boolean} own whether it is this project, which the others of its way are compared with
 * @property {(work: Work) => [string, string[]]} command
 * @property {(output: string) => Speeds} read
 */

/** `clutor bench`. @returns {Engine} */
export function clutorBench() {
  const cli = path.join(
    path.dirname(createRequire(import.meta.url).resolve("@clutor/cli/package.json")),
    "bin/clutor.js",
  );
  return {
    name: "clutor bench",
    way: "bench",
    own: true,
    command: ({ model, prompt, decode, threads }) => [
      process.execPath,
      [cli, "bench", "-m", model, "-p", `${prompt.length}`, "-n", `${decode}`, "-t", `${threads}`, "-r", "1", "--json"],
    ],
    read: (output) => {
      const found = JSON.parse(output);
      const speed = (kind) => found.results.find((result) => result.kind === kind).tokensPerSecond;
      return { prompt: speed("prompt"), decode: speed("decode"), found };
    },
  };
}

/** llama.cpp's `llama-bench`, built by the user, with weights repacked for the processor or as they are. @returns {Engine} */
export function llamaBench(file, repack) {
  return {
    name: repack ? "llama-bench, repacked" : "llama-bench",
    way: "bench",
    own: false,
    command: ({ model, prompt, decode, threads }) => [
      file,
      ["-m", model, "-p", `${prompt.length}`, "-n", `${decode}`, "-t", `${threads}`, "-r", "1", "-o", "json"].concat(
        repack ? ["--repack", "1"] : ["--repack", "0"],
      ),
    ],
    read: (output) => {
      const tests = JSON.parse(output);
      const speed = (isWanted) => tests.find(isWanted).avg_ts;
      return { prompt: speed((test) => test.n_gen === 0), decode: speed((test) => test.n_prompt === 0) };
    },
  };
}

/** This project's package. @returns {Engine} */
export function clutorText() {
  return { name: "@clutor/core", own: true, ...text("run-clutor.js", {}) };
}

/** node-llama-cpp, from the folder that has it in `node_modules`. @returns {Engine} */
export function nodeLlama(folder) {
  return { name: "node-llama-cpp", own: false, ...text("run-node-llama.js", { folder }) };
}

function text(script, more) {
  return {
    way: "text",
    command: (work) => [process.execPath, [here(script), JSON.stringify({ ...work, ...more })]],
    read: (output) => JSON.parse(output),
  };
}

// The engines that are compared, and how each is made to do the same: read the prompt, then sample tokens at
// temperature 1 from the whole vocabulary. (Greedy text of a random model repeats itself, and then any cache looks good.)
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

/**
 * @typedef {{ model: string, prompt: string, tokens: number, threads: number, limit: number }} Work
 * @typedef {{ name: string, mapped: boolean, command(work: Work): [string, string[]] }} Engine
 */

/** This project, with a budget of the limit less `slack` bytes, which are the process's own. */
export function clutor(name, slack, cache) {
  return {
    name,
    mapped: false,
    command: (work) => [process.execPath, [here("run-clutor.js"), JSON.stringify({ ...work, slack, cache })]],
  };
}

/** node-llama-cpp, from the folder that has it in `node_modules`. */
export function nodeLlama(folder) {
  return {
    name: "node-llama-cpp",
    mapped: true,
    command: (work) => [process.execPath, [here("run-node-llama.js"), JSON.stringify({ ...work, folder })]],
  };
}

/** llama.cpp's `llama-completion`, built by the user; weights stay mapped, as repacked ones would not fit. */
export function llamaCompletion(file) {
  if (!existsSync(file)) throw new Error(`there is no ${file}`);
  const flags =
    "--temp 1 --top-k 0 --top-p 1 --min-p 0 --seed 1 --ignore-eos -no-cnv --no-warmup --no-display-prompt --no-repack";
  return {
    name: "llama.cpp",
    mapped: true,
    command: ({ model, prompt, tokens, threads }) => [
      file,
      ["-m", model, "-p", prompt, "-n", `${tokens}`, "-t", `${threads}`, "-c", "1024", ...flags.split(" ")],
    ],
  };
}

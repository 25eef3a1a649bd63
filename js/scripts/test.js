// `npm test`: every test, Rust's first. All parts run, also where one before has failed.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { fail, prepare, root, statusOf } from "./setup.js";

const visible = { stdio: ["ignore", "inherit", "inherit"] };
const node = { ...visible, shell: false };
const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
// In plain Node, one process per file: a test runner's own threads and memory would hide what these look for.
const lifeCycle = join("__test__", "api", "life-cycle");
const tests = readdirSync(join(root, lifeCycle)).filter((name) => name.endsWith(".test.js"));
const files = tests.map((name) => join(lifeCycle, name));

const parts = [
  ["the engine (cargo test)", "cargo", ["test", "--quiet"], visible],
  ["the packages and the command (vitest)", process.execPath, [vitest, "run"], node],
  [
    "threads, memory and the event loop (node --test)",
    process.execPath,
    ["--expose-gc", "--test", "--test-concurrency=1", ...files],
    node,
  ],
];

prepare();
process.stderr.write("cargo compiles the tests of the engine first, which takes minutes and says nothing\n");
const failed = [];
for (const [name, program, args, options] of parts) {
  process.stderr.write(`\ntesting ${name}\n`);
  if (statusOf(program, args, options) !== 0) failed.push(name);
}
if (failed.length > 0) fail(`tests failed: ${failed.join("; ")}`);

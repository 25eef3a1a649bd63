// `npm test`: every test, Rust's first.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { prepare, root, run } from "./setup.js";

const visible = { stdio: ["ignore", "inherit", "inherit"] };

prepare();
run("cargo", ["test", "--quiet"], visible);
const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
run(process.execPath, [vitest, "run"], { ...visible, shell: false });
// In plain Node, one process per file: a test runner's own threads and memory would hide what these look for.
const lifeCycle = join("__test__", "api", "life-cycle");
const tests = readdirSync(join(root, lifeCycle)).filter((name) => name.endsWith(".test.js"));
run(
  process.execPath,
  ["--expose-gc", "--test", "--test-concurrency=1", ...tests.map((name) => join(lifeCycle, name))],
  {
    ...visible,
    shell: false,
  },
);

// `npm run demo`: from a fresh clone to a story.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { fail, prepare, root } from "./setup.js";

const prompt = "Once upon a time there was a little fox";

prepare();
const { path, name } = await import("@clutor/tiny-stories-moe");
process.stderr.write(`clutor: the built-in ${name} tells a story\n`);
process.stdout.write(`\n${prompt}`);
const clutor = join(root, "js", "cli", "bin", "clutor.js");
const options = ["--model", path, "--tokens", "160", "--temp", "0.6", "--seed", "5", "--stats"];
// Its notes are kept until the story is told: both may go to the same place.
const { status, error, stderr } = spawnSync(process.execPath, [clutor, "generate", prompt, ...options], {
  cwd: root,
  stdio: ["ignore", "inherit", "pipe"],
});
if (error) fail(`cannot run ${process.execPath}: ${error.message}`);
process.stdout.write("\n\n");
process.stderr.write(stderr);
process.exitCode = status ?? 1;

// `npm run demo`: from a fresh clone to a story.
import { join } from "node:path";
import { prepare, root, run } from "./setup.js";

const prompt = "Once upon a time there was a little fox";

prepare();
process.stdout.write(`\n${prompt}`);
const clutor = join(root, "js", "cli", "bin", "clutor.js");
const options = ["--tokens", "160", "--temp", "0.6", "--seed", "5", "--stats"];
run(process.execPath, [clutor, "generate", prompt, ...options], {
  stdio: ["ignore", "inherit", "inherit"],
  shell: false,
});
process.stdout.write("\n");

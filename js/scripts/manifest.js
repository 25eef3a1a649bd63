// Around `npm pack` and `npm publish` of the root: in a checkout the platform packages are folders, on the registry they
// are versions. `pack` writes the versions into package.json, `restore` puts the checkout's file back.
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fail, root } from "./setup.js";

const manifest = join(root, "package.json");
const kept = join(root, "package.json.checkout");

if (process.argv[2] === "pack") {
  const text = readFileSync(manifest, "utf8");
  const packed = JSON.parse(text);
  const names = Object.keys(packed.optionalDependencies);
  for (const name of names) packed.optionalDependencies[name] = packed.version;
  for (const field of ["devDependencies", "workspaces", "scripts", "napi"]) delete packed[field];
  writeFileSync(kept, text);
  writeFileSync(manifest, `${JSON.stringify(packed, null, 2)}\n`);
} else if (process.argv[2] === "restore") {
  if (existsSync(kept)) renameSync(kept, manifest);
} else {
  fail("usage: node js/scripts/manifest.js pack|restore");
}

// What `npm run demo` and `npm test` need before they can start. Node's own modules only: nothing is installed yet.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url));

/** Ends the process with one line on stderr. */
export function fail(message) {
  process.stderr.write(`clutor: ${message}\n`);
  process.exit(1);
}

/** Runs a program in the checkout and ends with its exit code where that is not 0. Output goes to stderr or stays. */
export function run(program, args, options = {}) {
  const status = statusOf(program, args, options);
  if (status !== 0) process.exit(status);
}

/** Runs a program in the checkout and gives its exit code. */
export function statusOf(program, args, options = {}) {
  const { status, error, signal } = spawnSync(program, args, {
    cwd: root,
    // npm and napi are scripts (`npm.cmd`) on Windows, which only a shell starts.
    shell: process.platform === "win32",
    stdio: ["ignore", 2, 2],
    ...options,
  });
  if (error) fail(`cannot run ${program}: ${error.message}`);
  if (signal) process.kill(process.pid, signal);
  return status ?? 1;
}

/** Checks the tools, installs packages and builds, each only where something changed since the last time. */
export function prepare() {
  checkTools();
  install();
  build();
}

function checkTools() {
  const [major, minor] = process.versions.node.split(".").map(Number);
  if (major < 20 || (major === 20 && minor < 17)) {
    fail(`Node ${process.versions.node} is too old; install Node 20.17 or newer from https://nodejs.org`);
  }
  if (spawnSync("cargo", ["--version"], { shell: process.platform === "win32" }).status !== 0) {
    fail("`cargo` is not found; install Rust from https://rustup.rs, open a new terminal, and run this again");
  }
}

function install() {
  const installed = join(root, "node_modules", ".package-lock.json");
  const inputs = ["package.json", "package-lock.json", "js/cli/package.json"].map((path) => join(root, path));
  if (existsSync(installed) && newest(inputs) <= statSync(installed).mtimeMs) return;
  process.stderr.write("installing packages\n");
  // Some tools of the build ask for a newer Node than they need; that warning would only worry.
  run("npm", ["ci", "--loglevel=error"]);
  // npm keeps the time of an unchanged file; the next run compares with it.
  writeFileSync(installed, readFileSync(installed));
}

/** Compiles the engine and the TypeScript where sources are newer than what was built from them. */
export function build() {
  const addon = join(root, "npm", platform(), `clutor.${platform()}.node`);
  const rust = ["Cargo.toml", "Cargo.lock", ...files("src", "")].map((path) => join(root, path));
  if (!existsSync(addon) || newest(rust) > statSync(addon).mtimeMs) {
    process.stderr.write("building the engine\n");
    const output = ["--output-dir", dirname(addon), "--dts", join("..", "..", "index.d.ts")];
    const napi = join(root, "node_modules", "@napi-rs", "cli", "dist", "cli.js");
    run(
      process.execPath,
      [napi, "build", "--release", "--platform", "--features", "node", "--no-js", ...output, "--", "--lib"],
      {
        stdio: ["ignore", "ignore", 2],
      },
    );
    touch(addon);
  }
  const tsc = join(root, "node_modules", "typescript", "lib", "tsc.js");
  for (const [project, entry] of [
    ["js/core", "dist/index.js"],
    ["js/cli", "dist/main.js"],
  ]) {
    const built = join(root, project, entry);
    const sources = ["index.d.ts", ...files("js/core/src", ".ts"), ...files("js/cli/src", ".ts")];
    if (existsSync(built) && newest(sources.map((path) => join(root, path))) <= statSync(built).mtimeMs) continue;
    run(process.execPath, [tsc, "-p", project], { stdio: ["ignore", 2, 2] });
    touch(built);
  }
}

/** Name of the platform package, as napi has it. */
function platform() {
  const { platform: system, arch } = process;
  if (system === "darwin") return `darwin-${arch}`;
  if (system === "win32") return `win32-${arch}-msvc`;
  const glibc = process.report.getReport().header.glibcVersionRuntime;
  return `${system}-${arch}-${glibc ? "gnu" : "musl"}`;
}

function files(folder, extension) {
  const found = readdirSync(join(root, folder), { recursive: true });
  return found.filter((path) => path.endsWith(extension)).map((path) => join(folder, path));
}

function newest(paths) {
  return Math.max(...paths.map((path) => statSync(path).mtimeMs));
}

/** Compilers leave an unchanged output's time as it was; the next comparison needs the time of the build. */
function touch(path) {
  writeFileSync(path, readFileSync(path));
}

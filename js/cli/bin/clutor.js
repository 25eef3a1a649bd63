#!/usr/bin/env node
// First what handles Ctrl-C, which may come while the rest is loaded.
await import("../dist/terminal.js");
const { run } = await import("../dist/main.js");

await run(process.argv.slice(2));

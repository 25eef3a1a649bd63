import { percent } from "./format.js";

/** Why a command is to end early, and with which exit code. */
export class Interruption extends Error {
  constructor(readonly exitCode: number) {
    super("interrupted");
  }
}

/**
 * Aborted by Ctrl-C, a termination, or the end of whoever reads the output, so that models are disposed of and remember
 * what was hot. A second signal ends the process at once.
 */
export const interrupt = new AbortController();

for (const [signal, exitCode] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  process.once(signal, () => {
    process.once(signal, () => process.exit(exitCode));
    interrupt.abort(new Interruption(exitCode));
  });
}

/** Writes to stdout and waits while the reader is behind. Ctrl-C ends the wait, and rejects. */
export async function write(text: string): Promise<void> {
  if (text.length === 0 || process.stdout.write(text)) return;
  const { signal } = interrupt;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      process.stdout.off("drain", done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    process.stdout.on("drain", done);
    signal.addEventListener("abort", done);
    if (signal.aborted) done();
  });
  signal.throwIfAborted();
}

/** One line about a failure on stderr. */
export function writeError(code: string, message: string): void {
  const line = message.trim().replace(/\s*\n\s*/g, "; ");
  const name = process.stderr.isTTY && !noColor() ? `\u001b[31mclutor:\u001b[39m` : "clutor:";
  process.stderr.write(`${name} ${code}: ${line}\n`);
}

/** One line of news on stderr. */
export function note(message: string): void {
  process.stderr.write(`clutor: ${message}\n`);
}

const eraseLine = "\r\u001b[K";

/** How far a measurement has got. */
interface Shown {
  done: number;
  total: number;
  hitRate?: number;
}

/** Keeps one line on stderr up to date, with the speed of the last second or so, and the hit rate; only on a terminal. */
export function progressLine(unit: string): {
  show: ((progress: Shown) => void) | undefined;
  erase: () => void;
} {
  if (!process.stderr.isTTY) return { show: undefined, erase: () => {} };
  let from: { at: number; done: number } | undefined;
  let speed = "";
  const show = ({ done, total, hitRate }: Shown): void => {
    const at = performance.now();
    from ??= { at, done };
    if (at - from.at >= 1000) {
      speed = `, ${(((done - from.done) * 1000) / (at - from.at)).toFixed(1)} a second`;
      from = { at, done };
    }
    const hits = hitRate === undefined ? "" : `, hit rate ${percent(hitRate)}`;
    process.stderr.write(`${eraseLine}${done} of ${total} ${unit}${speed}${hits}`);
  };
  return { show, erase: () => void process.stderr.write(eraseLine) };
}

/** See no-color.org: any value but the empty one. */
function noColor(): boolean {
  return (process.env["NO_COLOR"] ?? "") !== "" || process.env["TERM"] === "dumb";
}

/** Standard input, which Ctrl-C ends. */
function stdin(): AsyncIterable<Buffer> {
  const { signal } = interrupt;
  signal.throwIfAborted();
  signal.addEventListener("abort", () => process.stdin.destroy(signal.reason));
  return process.stdin;
}

/** All of standard input as text. */
export async function readStdin(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stdin()) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

/** Lines of standard input, split at line feeds only: other separators may be part of a JSON text. */
export async function* stdinLines(): AsyncGenerator<string> {
  let rest: Buffer[] = [];
  for await (const chunk of stdin()) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      yield Buffer.concat([...rest, chunk.subarray(start, end)]).toString("utf8");
      rest = [];
      start = end + 1;
    }
    rest.push(chunk.subarray(start));
  }
  const last = Buffer.concat(rest).toString("utf8");
  if (last !== "") yield last;
}

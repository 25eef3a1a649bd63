import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { version } from "@clutor/core";
import { path as builtIn } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { clutor, run } from "./clutor.js";

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
});

afterAll(() => rmSync(folder, { recursive: true }));

const greedy = ["--temp", "0", "-n", "20", "-m", builtIn];

describe("clutor generate", () => {
  it("writes the text to stdout and nothing else", async () => {
    const { code, out, err } = await run(["generate", "Once upon a time", ...greedy]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out.length).toBeGreaterThan(10);
  });

  it("takes the prompt from the argument, a flag, a file, or standard input", async () => {
    const file = join(folder, "prompt.txt");
    writeFileSync(file, "Once upon a time\n");
    const { out } = await run(["generate", "Once upon a time", ...greedy]);
    expect((await run(["generate", "-p", "Once upon a time", ...greedy])).out).toBe(out);
    expect((await run(["generate", "-f", file, ...greedy])).out).toBe(out);
    expect((await run(["generate", ...greedy], { input: "Once upon a time\n" })).out).toBe(out);
  });

  it("gives one object with --json", async () => {
    const { out } = await run(["generate", "Once upon a time", ...greedy, "--json"]);
    const result = JSON.parse(out);
    expect(result).toMatchObject({ promptTokens: 4, tokens: 20, finishReason: "max-tokens" });
    expect(result.ids).toHaveLength(20);
    for (const name of ["promptMs", "decodeMs", "tokensPerSecond", "peakRssBytes"]) {
      expect(result[name], name).toBeGreaterThan(0);
    }
  });

  it("says in one line on stderr that it uses the built-in model where none is given", async () => {
    const { out, err } = await run(["generate", "Once upon a time", "--temp", "0", "-n", "20"]);
    expect(err).toMatch(/^clutor: no --model given.*tiny-stories-moe.*\n$/);
    expect(out).toBe((await run(["generate", "Once upon a time", ...greedy])).out);
  });

  it("takes every flag from the environment too, and a flag counts more", async () => {
    const env = { CLUTOR_MODEL: builtIn, CLUTOR_TEMP: "0", CLUTOR_TOKENS: "5", CLUTOR_JSON: "1" };
    const five = JSON.parse((await run(["generate", "Once upon a time"], { env })).out);
    expect(five.tokens).toBe(5);
    expect(JSON.parse((await run(["generate", "Once upon a time", "-n", "3"], { env })).out).tokens).toBe(3);
  });

  it("has its first text within half a second more than Node needs to start", async () => {
    const firstData = async (args: string[]): Promise<number> => {
      const start = performance.now();
      const child = spawn(process.execPath, args);
      await once(child.stdout, "data");
      const wait = performance.now() - start;
      await once(child, "close");
      return wait;
    };
    const waits: number[] = [];
    const starts: number[] = [];
    for (let i = 0; i < 8; i += 1) {
      starts.push(await firstData(["-e", "process.stdout.write('x')"]));
      waits.push(await firstData([clutor, "generate", "Once upon a time", ...greedy]));
    }
    // The least: this is about the program, not about what else the machine does.
    expect(Math.min(...waits) - Math.min(...starts)).toBeLessThan(500);
  });

  it("ends with 130 on Ctrl-C, at once and without a word", async () => {
    const child = spawn(process.execPath, [clutor, "generate", "Once", "--ignore-eos", "-m", builtIn]);
    await once(child.stdout, "data");
    child.stdout.pause();
    child.kill("SIGINT");
    child.stdout.resume();
    let err = "";
    child.stderr.on("data", (text) => {
      err += text;
    });
    const [code] = await once(child, "close");
    expect({ code, err }).toEqual({ code: 130, err: "" });
  });

  it.each([["generate"], ["tokenize", "--jsonl"]])(
    "ends with 130 on Ctrl-C while %s waits for its input",
    async (...args) => {
      // Says when Ctrl-C is handled, which is before anything else is loaded.
      const told = 'process.on("newListener", (name) => name === "SIGINT" && process.stderr.write("handled"));';
      const preload = ["--import", `data:text/javascript,${encodeURIComponent(told)}`];
      const child = spawn(process.execPath, [...preload, clutor, ...args, "-m", builtIn]);
      child.stdin.write('{"text": "a"}\n'); // Only the second answers it.
      if (args.length > 1) await once(child.stdout, "data");
      else await once(child.stderr, "data");
      child.kill("SIGINT");
      const [code] = await once(child, "close");
      expect(code).toBe(130);
    },
  );

  it("ends with 130 on Ctrl-C while nobody reads its output", async () => {
    const child = spawn(process.execPath, [clutor, "tokenize", "--jsonl", "-m", builtIn]);
    child.stdin.on("error", () => {}); // It ends before it has read all.
    const line = `${JSON.stringify({ text: "fox".repeat(30_000) })}\n`;
    for (let i = 0; i < 20; i += 1) child.stdin.write(line);
    await once(child.stdout, "readable");
    await new Promise((resolve) => setTimeout(resolve, 300)); // The pipe fills up meanwhile, or later.
    child.kill("SIGINT");
    const [code] = await once(child, "exit");
    expect(code).toBe(130);
    child.stdout.destroy();
  });

  it("takes several stop texts, and prompts after them", async () => {
    const { out } = await run(["generate", ...greedy, "Once upon a time"]);
    const stops = ["--stop", "no such text", "--stop", out.slice(8, 12)];
    const stopped = await run(["generate", ...greedy, ...stops, "Once upon a time"]);
    expect(stopped.out).toBe(out.slice(0, out.indexOf(out.slice(8, 12))));
  });

  it("ends quietly when its reader goes away", async () => {
    const child = spawn(process.execPath, [clutor, "generate", "Once", "--ignore-eos", "-m", builtIn]);
    await once(child.stdout, "data");
    child.stdout.destroy();
    let err = "";
    child.stderr.on("data", (text) => {
      err += text;
    });
    const [code] = await once(child, "close");
    expect({ code, err }).toEqual({ code: 0, err: "" });
  });
});

describe("output that cannot be written", () => {
  const full = "/dev/full";

  it.skipIf(!existsSync(full))("is a failure in one line where it is the answer", async () => {
    for (const args of [
      ["generate", "Once", ...greedy],
      ["inspect", builtIn],
    ]) {
      const out = openSync(full, "w");
      const child = spawn(process.execPath, [clutor, ...args], { stdio: ["ignore", out, "pipe"] });
      closeSync(out);
      let err = "";
      child.stderr?.on("data", (text) => {
        err += text;
      });
      const [code] = await once(child, "close");
      expect(code).toBe(1);
      expect(err).toMatch(/^clutor: FILE_WRITE: standard output: [^\n]*\n$/);
    }
  });

  it("changes nothing where it is a note", async () => {
    const { out } = await run(["generate", "Once", ...greedy]);
    for (const [args, expected] of [
      [["generate", "Once", ...greedy, "--stats"], { code: 0, out }],
      [["generate", "Once", "-m", join(folder, "absent.gguf")], { code: 1, out: "" }],
    ] as const) {
      const child = spawn(process.execPath, [clutor, ...args]);
      child.stderr.destroy();
      const read = { out: "" };
      child.stdout.on("data", (text) => {
        read.out += text;
      });
      const [code] = await once(child, "close");
      expect({ code, ...read }).toEqual(expected);
    }
  });
});

describe("the environment", () => {
  const once = ["generate", "Once", ...greedy];

  it("switches nothing on with 0, false, no, off or nothing", async () => {
    const { out } = await run(once);
    for (const value of ["0", "false", "No", "OFF", ""]) {
      const env = { CLUTOR_JSON: value, CLUTOR_STATS: value };
      expect(await run(once, { env })).toEqual({ code: 0, out, err: "" });
    }
    expect((await run(once, { env: { CLUTOR_CTX: "" } })).out).toBe(out);
  });

  it("gives way to prompts, files and ids on the command line", async () => {
    const { out } = await run(once);
    const env = { CLUTOR_PROMPT: "x", CLUTOR_FILE: "absent", CLUTOR_IDS_FILE: "absent", CLUTOR_JSONL: "1" };
    expect((await run(once, { env })).out).toBe(out);
    expect((await run(["generate", "-p", "Once", ...greedy], { env })).out).toBe(out);
    expect((await run(["tokenize", "fox", "-m", builtIn], { env })).code).toBe(0);
    expect((await run(["logits", "--ids", "1", "--out", join(folder, "env"), "-m", builtIn], { env })).code).toBe(0);
    expect((await run(["inspect", builtIn], { env: { CLUTOR_MODEL: "absent" } })).code).toBe(0);
  });

  it("chooses kernels for inspect too, instead of listing them", async () => {
    const { out } = await run(["inspect", builtIn], { env: { CLUTOR_KERNELS: "scalar" } });
    expect(out).toMatch(/^architecture +qwen3moe\n/);
  });
});

describe("clutor", () => {
  it("has a command help, of itself and of its commands", async () => {
    expect(await run(["help"])).toEqual(await run(["--help"]));
    expect(await run(["help", "generate"])).toEqual(await run(["generate", "--help"]));
  });

  it("takes llama.cpp's names, and - for standard input", async () => {
    const { out } = await run(["generate", "Once", "--temp", "0", "-m", builtIn, "-n", "3", "-c", "64"]);
    for (const name of ["--predict", "--n-predict"]) {
      const args = ["generate", "-", "--temp", "0", "-m", builtIn, name, "3", "--ctx-size", "64"];
      expect(await run([...args, "--repeat-last-n", "-1"], { input: "Once\n" })).toEqual({ code: 0, out, err: "" });
    }
  });

  it("says in one line on stderr where the model cannot have the context asked for", async () => {
    const { code, err } = await run(["generate", "Once", ...greedy, "--ctx", "1000"]);
    expect(code).toBe(0);
    expect(err).toMatch(/^clutor: a context of 1000 tokens was asked for, but the model can have 512[^\n]*\n$/);
  });

  it("names its commands with --help, and its version", async () => {
    const { code, out } = await run(["--help"]);
    expect(code).toBe(0);
    for (const name of ["generate", "inspect", "plan", "tokenize", "logits", "perplexity"])
      expect(out).toContain(`  ${name} `);
    expect((await run(["--version"])).out).toBe(`${version}\n`);
    expect((await run(["perplexity", "--help"])).out).toContain("all positions but each window's first");
  });

  it("shows its help and ends with 2 without a command", async () => {
    const { code, out, err } = await run([]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain("Usage: clutor");
  });
});

describe("a failure", () => {
  it("is one line with a code on stderr and exit code 1", async () => {
    const absent = join(folder, "absent.gguf");
    for (const args of [
      ["generate", "Once", "-m", absent],
      ["inspect", absent],
      ["tokenize", "Once", "-m", absent],
      ["logits", "--ids", "1", "--out", folder, "-m", absent],
      ["generate", "-f", absent],
    ]) {
      const { code, out, err } = await run(args);
      expect({ code, out }, args.join(" ")).toEqual({ code: 1, out: "" });
      expect(err.trimEnd()).toMatch(/^clutor: FILE_NOT_FOUND: [^\n]*absent\.gguf[^\n]*$/);
    }
  });

  it("shows where it came from with --verbose", async () => {
    const { err } = await run(["inspect", join(folder, "absent.gguf"), "--verbose"]);
    expect(err).toMatch(/^clutor: FILE_NOT_FOUND: .*\n(.*\n)+/);
  });

  it.each([
    ["an unknown command", ["generat"], "did you mean generate?"],
    ["an unknown flag", ["generate", "x", "--tmep", "1"], "did you mean --temp?"],
    ["a value that is none", ["generate", "x", "-n", "many"], "whole number"],
    ["a missing value", ["generate", "x", "--temp"], "argument missing"],
    ["a probability mass of nothing", ["generate", "x", "--top-p", "0"], "'--top-p <p>' argument '0'"],
    ["a penalty of nothing", ["generate", "x", "--repeat-penalty", "0"], "above 0"],
    ["a number too large", ["generate", "x", "--temp", "1e300"], "from 0 to 3.4e38"],
    ["an empty stop text", ["generate", "x", "--stop", ""], "'--stop <text>' argument ''"],
    ["an empty file name", ["generate", "x", "-m", ""], "'-m, --model <file>' argument ''"],
    ["a size that is none", ["generate", "x", "--memory", "8X"], "8G, 512M or 50%"],
    ["two budgets", ["generate", "x", "--memory", "8G", "--cache-mb", "2"], "give one of them"],
    ["two files", ["inspect", "x", "-m", "y"], "one file"],
    ["kernels of a file", ["inspect", "--kernels", "-m", "y"], "takes no file"],
    ["a choice that is none", ["generate", "x", "--cache-type", "f64"], "f16, f32, q8_0"],
    ["two prompts", ["generate", "x", "-p", "y"], "one prompt"],
    ["too many arguments", ["inspect", "x", "y"], "too many arguments"],
    ["no ids", ["logits", "--out", "x"], "--ids"],
    ["ids that are none", ["logits", "--out", "x", "--ids", "1,b"], "`b` is not a token id"],
    ["a way to prefetch that is none", ["generate", "x", "--prefetch", "all"], "off, prev, ahead, auto"],
    ["a smart route that is none", ["generate", "x", "--smart", "1,8"], "2,16,1.5"],
  ])("that is wrong usage is one line and exit code 2: %s", async (_, args, message) => {
    const { code, out, err } = await run(args);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toMatch(/^clutor: USAGE: [^\n]*\n$/);
    expect(err).toContain(message);
  });

  it("never colours where NO_COLOR is set or stderr is no terminal", async () => {
    expect((await run(["generat"], { env: { NO_COLOR: "" } })).err).not.toContain("\u001b");
  });
});

describe("clutor inspect", () => {
  it("gives one object with --json", async () => {
    const found = JSON.parse((await run(["inspect", builtIn, "--json"])).out);
    const names =
      "architecture name nLayers nExperts nExpertsUsed nHeads nKvHeads headDim embedDim expertDim vocabSize contextLength " +
      "fileBytes denseBytes expertBytes bytesPerExpert expertBytesPerToken tensorTypes";
    for (const name of names.split(" ")) expect(found, name).toHaveProperty(name);
  });

  it("lists the kernels of this processor, and CLUTOR_KERNELS chooses one without changing the text", async () => {
    const names = (await run(["inspect", "--kernels"])).out.trim().split("\n");
    expect(names).toContain("scalar");
    const texts = new Set<string>();
    for (const name of names) {
      const { code, out } = await run(["generate", "Once", ...greedy], { env: { CLUTOR_KERNELS: name } });
      expect(code).toBe(0);
      texts.add(out);
    }
    expect(texts.size).toBe(1);
    const { code, err } = await run(["generate", "Once", ...greedy], { env: { CLUTOR_KERNELS: "none" } });
    expect({ code, err: err.slice(0, 16) }).toEqual({ code: 1, err: "clutor: KERNELS:" });
  });
});

describe("clutor tokenize", () => {
  it("gives ids, and text with --decode", async () => {
    const ids = (await run(["tokenize", "a little fox", "-m", builtIn])).out;
    expect(ids).toMatch(/^\d+( \d+)*\n$/);
    expect((await run(["tokenize", ids, "--decode", "-m", builtIn])).out).toBe("a little fox");
    const { code, out, err } = await run(["tokenize", "4096", "--decode", "-m", builtIn]);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(err).toMatch(/^clutor: INVALID_PROMPT: token id 4096 is outside the vocabulary[^\n]*\n$/);
  });

  it("answers line by line with --jsonl", async () => {
    const lines = [
      { text: "a\u2028b<|endoftext|>", special: true },
      { hex: "66ff78" },
      { text: "" },
      { neither: 1 },
      { text: "fox".repeat(10_000) },
    ];
    const input = `${lines.map((line) => JSON.stringify(line)).join("\n")}\nno JSON`;
    const { code, out } = await run(["tokenize", "--jsonl", "-m", builtIn], { input });
    const answers = out
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(answers).toHaveLength(6);
    expect(answers[0].ids.at(-1)).toBe(4093);
    expect(answers[2]).toEqual({ ids: [] });
    expect(answers[3]).toHaveProperty("error");
    expect(answers[5]).toHaveProperty("error");
    expect(code).toBe(1);

    const back = await run(["tokenize", "--jsonl", "--decode", "-m", builtIn], {
      input: answers
        .filter(({ ids }) => ids)
        .map((answer) => JSON.stringify(answer))
        .join("\n"),
    });
    const texts = back.out
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(texts[0]).toMatchObject({ text: "a\u2028b<|endoftext|>" });
    expect(texts[1]).toEqual({ hex: "66efbfbd78", text: "f\ufffdx" });
    expect(texts[3].text).toBe("fox".repeat(10_000));
    expect(back.code).toBe(0);
  });
});

describe("clutor logits", () => {
  it("writes NumPy files of the stated types and shapes", async () => {
    const out = join(folder, "new", "logits");
    const { code } = await run(["logits", "-m", builtIn, "--ids", "100,200,300", "--out", out]);
    expect(code).toBe(0);
    const header = (name: string) => {
      const file = readFileSync(join(out, name));
      expect(file.subarray(0, 8).toString("latin1")).toBe("\x93NUMPY\x01\x00");
      const end = 10 + file.readUInt16LE(8);
      expect(end % 64).toBe(0);
      const text = file.subarray(10, end).toString("latin1");
      const values =
        /\((.*)\)/
          .exec(text)?.[1]
          ?.split(",")
          .filter((word) => word.trim() !== "") ?? [];
      expect(file.length - end).toBe(4 * values.reduce((product, n) => product * Number(n), 1));
      return text.trimEnd();
    };
    expect(header("logits.npy")).toBe("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4096), }");
    expect(header("tokens.npy")).toBe("{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }");
    expect(header("router_logits.npy")).toContain("'<f4', 'fortran_order': False, 'shape': (3, 4, 16)");
    expect(header("topk.npy")).toContain("'<i4', 'fortran_order': False, 'shape': (3, 4, 4)");
    expect(header("weights.npy")).toContain("'<f4', 'fortran_order': False, 'shape': (3, 4, 4)");
  });

  it("gives the same numbers from --ids-file and with any --batch", async () => {
    const ids = join(folder, "ids.txt");
    writeFileSync(ids, "100 200\n300\n");
    const [a, b] = [join(folder, "a"), join(folder, "b")];
    await run(["logits", "-m", builtIn, "--ids", "100,200,300", "--out", a]);
    await run(["logits", "-m", builtIn, "--ids-file", ids, "--batch", "1", "--out", b]);
    expect(readFileSync(join(b, "logits.npy")).equals(readFileSync(join(a, "logits.npy")))).toBe(true);
  });
});

describe("clutor perplexity", () => {
  it("gives nll, perplexity and the tokens scored", async () => {
    const text = join(folder, "text.txt");
    writeFileSync(text, "Once upon a time there was a little fox who lived in the wood with his mother.\n".repeat(20));
    const { out } = await run(["perplexity", "-m", builtIn, "--file", text, "--ctx", "64", "--json"]);
    const score = JSON.parse(out);
    expect(score.perplexity).toBeCloseTo(Math.exp(score.nll), 6);
    expect(score.tokens).toBeGreaterThan(300);
    const { code, err } = await run(["perplexity", "-m", builtIn, "--ctx", "700", "-f", text]);
    expect(code).toBe(0); // The text is shorter than the context.
    writeFileSync(text, "fox ".repeat(2000));
    const refused = await run(["perplexity", "-m", builtIn, "--ctx", "700", "-f", text]);
    expect(refused.err).toMatch(
      /^clutor: INVALID_OPTION: a window of 700 tokens is more than the context of 512[^\n]*\n$/,
    );
    expect({ err, code: refused.code }).toEqual({ err: "", code: 2 });
  });
});

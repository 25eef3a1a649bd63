import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { ClutorError, inspect, kernels, Model, Tokenizer, version } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import manifest from "../../package.json" with { type: "json" };

let folder: string;
let model: Model;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "clutor-test-"));
  model = await Model.load(path);
});

afterAll(async () => {
  await model.dispose();
  rmSync(folder, { recursive: true });
});

describe("loading", () => {
  it("tells what the model is", () => {
    expect(model.info).toMatchObject({
      architecture: "qwen3moe",
      nLayers: 4,
      nExperts: 16,
      nExpertsUsed: 4,
      nHeads: 4,
      nKvHeads: 2,
      headDim: 64,
      embedDim: 256,
      expertDim: 256,
      vocabSize: 4096,
      contextLength: 512,
      cacheType: "f16",
    });
    expect(kernels()).toContain(model.info.kernels);
  });

  it("reports progress up to the whole", async () => {
    const seen: number[] = [];
    let total = 0;
    const other = await Model.load(path, {
      onProgress: (progress) => {
        seen.push(progress.done);
        total = progress.total;
      },
    });
    await other.dispose();
    expect(seen).toEqual([...seen].sort((a, b) => a - b));
    expect(total).toBeGreaterThan(0);
  });

  it("takes threads, context length and cache type, and gives the same text with any number of threads", async () => {
    const one = await Model.load(path, { threads: 1, contextLength: 64, cacheType: "f32" });
    const two = await Model.load(path, { threads: 2, contextLength: 64, cacheType: "f32" });
    expect(one.info).toMatchObject({ threads: 1, contextLength: 64, cacheType: "f32" });
    const options = { temperature: 0, maxTokens: 30 };
    const texts = await Promise.all([one, two].map((each) => each.generate("The old king", options)));
    expect(texts[0]?.ids).toEqual(texts[1]?.ids);
    await Promise.all([one.dispose(), two.dispose()]);
  });

  it("keeps keys and values in bytes where asked to, in 34 of 128 parts of the memory of f32", async () => {
    const bytes = await Model.load(path, { contextLength: 64, cacheType: "q8_0" });
    const floats = await Model.load(path, { contextLength: 64, cacheType: "f32" });
    expect(bytes.info.cacheType).toBe("q8_0");
    expect(bytes.info.kvBytesPerToken * 128).toBe(floats.info.kvBytesPerToken * 34);
    expect(await bytes.generate("The old king", { maxTokens: 5 })).toMatchObject({ finishReason: "max-tokens" });
    await Promise.all([bytes.dispose(), floats.dispose()]);
  });

  it("finds odd but legal paths, links and file URLs", async () => {
    const odd = join(folder, "Žljko 模型 (1) #%&");
    mkdirSync(odd);
    const file = join(odd, "sha256-0123");
    copyFileSync(path, file);
    symlinkSync(file, join(folder, "link"));
    symlinkSync(join(folder, "link"), join(folder, "link to a link.gguf"));
    for (const each of [file, join(folder, "link"), join(folder, "link to a link.gguf"), pathToFileURL(file)]) {
      expect((await inspect(each)).architecture).toBe("qwen3moe");
      const tokenizer = await Tokenizer.load(each);
      await tokenizer.dispose();
    }
  });

  it("rejects with a code and a reason", async () => {
    const text = join(folder, "text.gguf");
    writeFileSync(text, "this is no model, but it is long enough to be read as the start of one");
    await expect(Model.load(join(folder, "absent.gguf"))).rejects.toMatchObject({ code: "FILE_NOT_FOUND" });
    await expect(Model.load(text)).rejects.toMatchObject({ code: "INVALID_FILE" });
    await expect(Model.load(folder)).rejects.toMatchObject({ code: "FILE_READ" });
    await expect(Model.load("")).rejects.toMatchObject({ code: "INVALID_OPTION" });
    await expect(Model.load(path, { threads: 0 })).rejects.toMatchObject({ code: "INVALID_OPTION" });
    await expect(Model.load(join(folder, "absent.gguf"))).rejects.toBeInstanceOf(ClutorError);
  });

  it("stops for a signal, and for an error in onProgress", async () => {
    await expect(Model.load(path, { signal: AbortSignal.abort("no") })).rejects.toBe("no");
    const mistake = new Error("a mistake of the caller");
    const load = Model.load(path, {
      onProgress: () => {
        throw mistake;
      },
    });
    await expect(load).rejects.toBe(mistake);
  });
});

describe("tokens", () => {
  it("become text again", async () => {
    const text = "Once upon a time, “quoted”, naïve 模型 🦊\n\n  indented";
    expect(model.detokenize(model.tokenize(text))).toBe(text);
    expect(await model.tokenizeAsync(text)).toEqual(model.tokenize(text));
  });

  it("are control tokens only where that is asked for", () => {
    expect(model.tokenize("<|endoftext|>", { special: true })).toEqual([4093]);
    expect(model.tokenize("<|endoftext|>").length).toBeGreaterThan(1);
    expect(model.detokenize([4093])).toBe("<|endoftext|>");
    expect(model.detokenize([4093], { special: false })).toBe("");
  });

  it("outside the vocabulary are an error", () => {
    expect(() => model.detokenize([100, 4096])).toThrow("token id 4096 is outside the vocabulary of 4096 tokens");
    expect(() => model.detokenizeBytes([4_000_000_000])).toThrow(expect.objectContaining({ code: "INVALID_PROMPT" }));
  });

  it("of bytes that are no UTF-8 are those of replacement characters", () => {
    expect(model.tokenize(Uint8Array.of(0x66, 0xff, 0x78))).toEqual(model.tokenize("f\ufffdx"));
  });

  it("can be had without loading the weights", async () => {
    const tokenizer = await Tokenizer.load(path);
    expect(tokenizer.tokenize("a little fox")).toEqual(model.tokenize("a little fox"));
    await tokenizer.dispose();
  });
});

describe("logits", () => {
  const ids = [100, 200, 300, 400, 500, 600, 700];

  it("come with their shapes and the routers' choices", async () => {
    const { logits, routerLogits, topk, weights } = await model.logits(ids);
    expect(logits.shape).toEqual([7, 4096]);
    expect(routerLogits.shape).toEqual([7, 4, 16]);
    expect(topk.shape).toEqual([7, 4, 4]);
    expect(weights.shape).toEqual([7, 4, 4]);
    expect(logits.values).toHaveLength(7 * 4096);
    const firstWeights = [...weights.values.slice(0, 4)];
    expect(firstWeights.reduce((sum, weight) => sum + weight)).toBeCloseTo(1, 5);
    expect(topk.values.every((expert) => expert >= 0 && expert < 16)).toBe(true);
  });

  it("are the same with any batch size, to the bit", async () => {
    const whole = await model.logits(ids);
    const byThree = await model.logits(ids, { batch: 3 });
    expect(Buffer.from(byThree.logits.values.buffer).equals(Buffer.from(whole.logits.values.buffer))).toBe(true);
  });

  it("stop for a signal", async () => {
    await expect(model.logits(ids, { signal: AbortSignal.abort("no") })).rejects.toBe("no");
    await expect(model.logits([])).rejects.toMatchObject({ code: "INVALID_PROMPT" });
  });
});

describe("perplexity", () => {
  it("is the exponential of the mean negative log-likelihood of every token but each window's first", async () => {
    const text = "Once upon a time there was a little fox. He lived in the wood with his mother.";
    const n = model.tokenize(text).length;
    const { nll, perplexity, tokens } = await model.perplexity(text, { window: 8 });
    expect(tokens).toBe(n - Math.ceil(n / 8));
    expect(perplexity).toBeCloseTo(Math.exp(nll), 6);
    expect(perplexity).toBeLessThan(300);
  });

  it("names window and context where the one does not fit in the other", async () => {
    const ids = Array.from({ length: 600 }, () => 100);
    const score = model.perplexity(ids, { window: 600 });
    await expect(score).rejects.toMatchObject({ code: "INVALID_OPTION" });
    await expect(score).rejects.toThrow("a window of 600 tokens is more than the context of 512");
    expect((await model.perplexity(ids.slice(0, 10), { window: 600 })).tokens).toBe(9);
  });
});

describe("inspecting", () => {
  it("names shapes, sizes and tensor types", async () => {
    const found = await inspect(path);
    expect(found).toMatchObject({ architecture: "qwen3moe", nExperts: 16, fileBytes: 9_146_880 });
    expect(found.expertBytesPerToken).toBe(4 * 4 * found.bytesPerExpert);
    expect(Object.keys(found.tensorTypes)).toContain("Q4_K");
  });
});

describe("the package", () => {
  it("has one version everywhere", () => {
    expect(version).toBe(manifest.version);
    const root = new URL("../../", import.meta.url);
    const folders = readdirSync(new URL("npm", root)).map((name) => `npm/${name}`);
    for (const folder of ["js/cli", ...folders]) {
      const other = JSON.parse(readFileSync(new URL(`${folder}/package.json`, root), "utf8"));
      expect(other.version, folder).toBe(version);
      for (const [name, wanted] of Object.entries(other.dependencies ?? {})) {
        if (name.startsWith("@clutor/")) expect(wanted, `${folder}: ${name}`).toBe(version);
      }
    }
    expect(readFileSync(new URL("Cargo.toml", root), "utf8")).toContain(`\nversion = "${version}"\n`);
  });
});

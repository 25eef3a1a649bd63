import { type GenerateOptions, Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

const prompt = "Once upon a time there was a little fox";
const greedy = { temperature: 0, maxTokens: 40 } satisfies GenerateOptions;
let model: Model;

beforeAll(async () => {
  model = await Model.load(path);
});

afterAll(() => model.dispose());

describe("a generation", () => {
  it("can be awaited for the whole text", async () => {
    const result = await model.generate(prompt, greedy);
    expect(result.tokens).toBe(40);
    expect(result.ids).toHaveLength(40);
    expect(result.finishReason).toBe("max-tokens");
    expect(result.promptTokens).toBe(model.tokenize(prompt).length);
    expect(result.text).toBe(model.detokenize(result.ids));
    expect(result.tokensPerSecond).toBeGreaterThan(0);
  });

  it("can be iterated for pieces, which add up to the whole text", async () => {
    const generation = model.generate(prompt, greedy);
    const pieces = [];
    for await (const piece of generation) pieces.push(piece);
    const result = await generation;
    expect(pieces.map(({ text }) => text).join("")).toBe(result.text);
    expect(pieces.flatMap(({ id }) => id ?? [])).toEqual(result.ids);
  });

  it("can be iterated again, and from the start, after it was awaited", async () => {
    const generation = model.generate(prompt, greedy);
    const { text } = await generation;
    let again = "";
    for await (const piece of generation) again += piece.text;
    expect(again).toBe(text);
  });

  it("takes token ids as a prompt", async () => {
    const fromText = await model.generate(prompt, greedy);
    expect((await model.generate(model.tokenize(prompt), greedy)).text).toBe(fromText.text);
    expect((await model.generate(Uint32Array.from(model.tokenize(prompt)), greedy)).text).toBe(fromText.text);
  });

  it("gives the same text for the same seed, and names a seed that it chose", async () => {
    const first = await model.generate(prompt, { maxTokens: 40 });
    const second = await model.generate(prompt, { maxTokens: 40, seed: first.seed });
    expect(second.text).toBe(first.text);
    const other = await model.generate(prompt, { maxTokens: 40, seed: first.seed + 1 });
    expect(other.text).not.toBe(first.text);
  });

  it("gives the same text alone and beside others", async () => {
    const prompts = [prompt, "The old king", "There was once a poor woman who lived in a wood"];
    const alone = [];
    for (const each of prompts) alone.push((await model.generate(each, greedy)).text);
    const together = await Promise.all(prompts.map((each) => model.generate(each, greedy)));
    expect(together.map(({ text }) => text)).toEqual(alone);
  });

  it("goes on to the end of the context where nothing else ends it", async () => {
    const small = await Model.load(path, { contextLength: 32 });
    const result = await small.generate(prompt, { temperature: 0, ignoreEos: true });
    expect(result.finishReason).toBe("context");
    expect(result.promptTokens + result.tokens).toBeLessThanOrEqual(33);
    await small.dispose();
  });

  it("makes no token for a maximum of 0, and one for 1", async () => {
    const none = await model.generate(prompt, { maxTokens: 0 });
    expect(none).toMatchObject({ text: "", tokens: 0, finishReason: "max-tokens" });
    expect((await model.generate(prompt, { maxTokens: 1 })).ids).toHaveLength(1);
  });
});

describe("a stop string", () => {
  it("ends the text right before it, at every place and over any number of tokens", async () => {
    const { text } = await model.generate(prompt, greedy);
    for (let start = 1; start + 12 < text.length; start += 7) {
      for (const length of [1, 3, 12]) {
        const stop = text.slice(start, start + length);
        const generation = model.generate(prompt, { ...greedy, stop });
        let streamed = "";
        for await (const piece of generation) {
          streamed += piece.text;
          expect(streamed, `a piece holds part of ${JSON.stringify(stop)}`).not.toContain(stop);
        }
        const result = await generation;
        expect(result.finishReason).toBe("stop");
        expect(result.text).toBe(text.slice(0, text.indexOf(stop)));
        expect(streamed).toBe(result.text);
      }
    }
  });

  it("that does not come leaves the text whole", async () => {
    const { text } = await model.generate(prompt, greedy);
    const result = await model.generate(prompt, { ...greedy, stop: [`${text.slice(-5)}#`, "no such text"] });
    expect(result).toMatchObject({ text, finishReason: "max-tokens" });
  });
});

describe("leaving and aborting", () => {
  it("ends the generation when the loop is left, and keeps the partial text", async () => {
    const generation = model.generate(prompt, { temperature: 0, ignoreEos: true });
    let read = "";
    for await (const piece of generation) {
      read += piece.text;
      if (read.length > 20) break;
    }
    expect(generation.finishReason).toBe("abort");
    const result = await generation;
    expect(result.finishReason).toBe("abort");
    expect(result.text.startsWith(read)).toBe(true);
    expect(result.tokens).toBeLessThan(200);
  });

  it("rejects with the signal's reason, and keeps the partial text", async () => {
    const controller = new AbortController();
    const generation = model.generate(prompt, { temperature: 0, ignoreEos: true, signal: controller.signal });
    const reason = new Error("enough");
    const reading = (async () => {
      for await (const _ of generation) if (generation.ids.length > 5) controller.abort(reason);
    })();
    await expect(reading).rejects.toBe(reason);
    await expect(generation).rejects.toBe(reason);
    expect(generation.finishReason).toBe("abort");
    expect(generation.text.length).toBeGreaterThan(0);
  });

  it("rejects with the signal's reason also where the engine has ended before anybody read", async () => {
    for (const reason of [new Error("enough"), null]) {
      const controller = new AbortController();
      const generation = model.generate(prompt, { ...greedy, maxTokens: 3, signal: controller.signal });
      await new Promise((resolve) => setTimeout(resolve, 200)); // Unread, the three tokens and the end wait meanwhile.
      controller.abort(reason);
      await expect(generation).rejects.toBe(reason);
      expect(generation.finishReason).toBe("abort");
      expect(generation.ids.length).toBeGreaterThan(0);
    }
  });

  it("rejects with the signal's reason while the engine stops, at any time", async () => {
    for (let i = 0; i < 20; i += 1) {
      const controller = new AbortController();
      const generation = model.generate(prompt, { temperature: 0, ignoreEos: true, signal: controller.signal });
      await new Promise((resolve) => setTimeout(resolve, 4 * i));
      controller.abort(i);
      await expect(generation).rejects.toBe(i);
    }
  });

  it("does not begin with a signal that is aborted already", async () => {
    const generation = model.generate(prompt, { signal: AbortSignal.abort() });
    await expect(generation).rejects.toMatchObject({ name: "AbortError" });
    expect(generation).toMatchObject({ finishReason: "abort", text: "" });
  });

  it("takes one signal for many generations, without a warning", async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error) => warnings.push(warning);
    process.on("warning", onWarning);
    const { signal } = new AbortController();
    for (let i = 0; i < 20; i += 1) await model.generate(prompt, { maxTokens: 1, signal });
    await new Promise(setImmediate);
    process.off("warning", onWarning);
    expect(warnings).toEqual([]);
  });

  it("can be cancelled by hand", async () => {
    const generation = model.generate(prompt, { ignoreEos: true });
    await generation.cancel();
    expect(generation.finishReason).toBe("abort");
  });
});

describe("an option", () => {
  it("may be inherited, or undefined", async () => {
    const result = await model.generate(prompt, Object.create({ ...greedy, maxTokens: 5 }));
    expect(result.tokens).toBe(5);
    expect((await model.generate(prompt, { ...greedy, topK: undefined, stop: undefined })).tokens).toBe(40);
  });

  it("of -1 lets the penalty see all tokens", async () => {
    const penalized = { ...greedy, repeatPenalty: 1.5 };
    const all = await model.generate(prompt, { ...penalized, repeatLastN: -1 });
    expect(all.ids).toEqual((await model.generate(prompt, { ...penalized, repeatLastN: 512 })).ids);
    expect(all.ids).not.toEqual((await model.generate(prompt, { ...penalized, repeatLastN: 1 })).ids);
  });
});

describe("tokensPerSecond", () => {
  it("counts the tokens that decodeMs covers: all but the first, which the prompt's pass gives", async () => {
    const { tokens, decodeMs, tokensPerSecond } = await model.generate(prompt, greedy);
    expect(tokensPerSecond).toBeCloseTo((1000 * (tokens - 1)) / decodeMs, 6);
    expect((await model.generate(prompt, { ...greedy, maxTokens: 1 })).tokensPerSecond).toBe(0);
  });
});

describe("a wrong prompt or option", () => {
  it.each<[string, unknown, string]>([
    ["a value that is inherited", Object.create({ temperature: -1 }), "`temperature` must be a number of at least 0"],
    ["a number that 32-bit floats do not hold", { temperature: 1e300 }, "`temperature` must be a number of at least 0"],
    ["an unknown name", { temprature: 1 }, "did you mean `temperature`?"],
    ["a value out of range", { temperature: -1 }, "`temperature` must be a number of at least 0"],
    ["a value of another type", { maxTokens: "5" }, "`maxTokens` must be a whole number"],
    ["an empty stop string", { stop: [""] }, "`stop` must be a string of at least one character"],
    ["something else than an object", 5, "options must be an object"],
  ])("rejects %s, without throwing", async (_, options, message) => {
    const generation = model.generate(prompt, options as GenerateOptions);
    await expect(generation).rejects.toMatchObject({ name: "ClutorError", code: "INVALID_OPTION" });
    await expect(generation).rejects.toThrow(message);
    expect(generation.finishReason).toBe("error");
  });

  it("rejects a prompt that is too long, with both counts, and works on after it", async () => {
    const ids = Array.from({ length: 600 }, () => 100);
    const generation = model.generate(ids);
    await expect(generation).rejects.toMatchObject({ code: "PROMPT_TOO_LONG" });
    await expect(generation).rejects.toThrow(/600 tokens.*512/);
    expect((await model.generate(prompt, greedy)).tokens).toBe(40);
  });

  it("rejects an empty prompt, an id outside the vocabulary and ids that are none", async () => {
    await expect(model.generate("")).rejects.toMatchObject({ code: "INVALID_PROMPT" });
    await expect(model.generate([])).rejects.toMatchObject({ code: "INVALID_PROMPT" });
    await expect(model.generate([1_000_000])).rejects.toMatchObject({ code: "INVALID_PROMPT" });
    await expect(model.generate([1.5])).rejects.toMatchObject({ code: "INVALID_OPTION" });
  });

  it("rejects where nobody listens without ending the process", async () => {
    model.generate(prompt, { maxTokens: -1 });
    await new Promise((resolve) => setTimeout(resolve, 20));
  });
});

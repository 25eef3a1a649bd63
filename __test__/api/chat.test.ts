import { ClutorError, Model } from "@clutor/core";
import { path } from "@clutor/tiny-stories-moe";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

let model: Model;

beforeAll(async () => {
  model = await Model.load(path);
});

afterAll(() => model.dispose());

const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "Hi" },
];

async function failure(promise: Promise<unknown>): Promise<ClutorError> {
  const error = await promise.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(ClutorError);
  return error as ClutorError;
}

describe("chat templates", () => {
  it("come from the architecture where the file has none, and say so", async () => {
    expect(model.chatTemplate?.name).toBe("chatml");
    expect(await model.applyChatTemplate(messages)).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(await model.applyChatTemplate(messages, { addGenerationPrompt: false })).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n",
    );
  });

  it("are given tools and variables, keys in their order", async () => {
    const template = "{{ tools | tojson }} {{ enable_thinking }} {{ messages[0].name }}";
    const text = await model.applyChatTemplate([{ role: "user", name: "Zoë" }], {
      template,
      tools: [{ type: "function", function: { name: "look", a: 1.5 } }],
      variables: { enable_thinking: false },
    });
    expect(text).toBe('[{"type": "function", "function": {"name": "look", "a": 1.5}}] False Zoë');
  });

  it("know the local date", async () => {
    const now = new Date();
    const text = await model.applyChatTemplate([], { template: "{{ strftime_now('%Y-%m-%d') }}" });
    const pad = (part: number): string => `${part}`.padStart(2, "0");
    const days = [now, new Date()].map(
      (day) => `${day.getFullYear()}-${pad(day.getMonth() + 1)}-${pad(day.getDate())}`,
    );
    expect(days).toContain(text);
  });

  it("fail with a code and their own words", async () => {
    const raised = await failure(model.applyChatTemplate(messages, { template: "{{ raise_exception('No system') }}" }));
    expect(raised.code).toBe("INVALID_MESSAGES");
    expect(raised.message).toContain("No system");
    const broken = await failure(model.applyChatTemplate(messages, { template: "\n{% if %}" }));
    expect(broken.code).toBe("CHAT_TEMPLATE");
    expect(broken.message).toContain("line 2");
    const endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    expect((await failure(model.applyChatTemplate(messages, { template: endless }))).code).toBe("CHAT_TEMPLATE");
  });

  it("are not asked with wrong arguments, nor when aborted or disposed of", async () => {
    expect((await failure(model.applyChatTemplate([{ content: "x" }] as never))).code).toBe("INVALID_OPTION");
    expect((await failure(model.applyChatTemplate(messages, { tool: [] } as never))).message).toContain("`tools`");
    const cyclic: Record<string, unknown> = { role: "user" };
    cyclic.content = cyclic;
    expect((await failure(model.applyChatTemplate([cyclic as never]))).code).toBe("INVALID_OPTION");
    const signal = AbortSignal.abort("enough");
    await expect(model.applyChatTemplate(messages, { signal })).rejects.toBe("enough");
    const other = await Model.load(path);
    await other.dispose();
    expect((await failure(other.applyChatTemplate(messages))).code).toBe("DISPOSED");
  });
});

import type * as Native from "../../../index.js";
import { boolean, checkOptions, invalid, signal, text } from "./options.js";

/** One message of a conversation, in OpenAI's shape. What else it holds is for the template to use. */
export interface ChatMessage {
  /** `system`, `user`, `assistant`, `tool`, or what else the model's template knows. */
  role: string;
  /** The text. Some templates also take lists of parts. */
  content?: unknown;
  [key: string]: unknown;
}

export interface ApplyChatTemplateOptions {
  /** Functions that the model may call, in OpenAI's shape. Default: none. */
  tools?: readonly object[] | undefined;
  /** Ends the text where the model's answer begins. Default: true. */
  addGenerationPrompt?: boolean | undefined;
  /** Further variables of the template, such as `{ enable_thinking: false }`. Default: none. */
  variables?: Readonly<Record<string, unknown>> | undefined;
  /** A template in Jinja to use instead of the model's. */
  template?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** A model's chat template. */
export interface ChatTemplate {
  /** `file` where the model's file brings it; otherwise the name of the architecture's own: `chatml` or `tulu`. */
  readonly name: string;
  /** The template, in Jinja. */
  readonly source: string;
}

const checks = {
  tools: (value: unknown) => (Array.isArray(value) ? undefined : "an array"),
  addGenerationPrompt: boolean,
  variables: (value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value) ? undefined : "an object",
  template: text,
  signal,
};

/** @internal What the engine is given for a conversation. */
export function checkConversation(
  where: string,
  messages: unknown,
  options: ApplyChatTemplateOptions | undefined,
): { json: string; native: Native.ChatOptions; signal: AbortSignal | undefined } {
  const { tools, addGenerationPrompt = true, variables = {}, template, signal } = checkOptions(where, options, checks);
  if (!Array.isArray(messages)) throw invalid(`${where}: the messages must be an array of objects`);
  for (const [index, message] of messages.entries()) {
    if (typeof message !== "object" || message === null || typeof message.role !== "string") {
      throw invalid(`${where}: the message at index ${index} must be an object with a \`role\``);
    }
  }
  const native: Native.ChatOptions = {
    addGenerationPrompt,
    variables: json(where, "variables", variables),
    nowSeconds: wallClock(new Date()),
  };
  if (tools !== undefined) native.tools = json(where, "tools", tools);
  if (template !== undefined) native.template = template;
  return { json: json(where, "messages", messages), native, signal };
}

/** Seconds that a clock on the wall shows since 1970: templates name the local date. */
function wallClock(now: Date): number {
  return Math.floor(now.getTime() / 1000) - 60 * now.getTimezoneOffset();
}

function json(where: string, what: string, value: unknown): string {
  try {
    return JSON.stringify(value);
  } catch (error) {
    throw invalid(`${where}: the ${what} cannot be written as JSON: ${(error as Error).message}`);
  }
}

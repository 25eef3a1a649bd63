// What a program sees of an engine's speed: when the tokens come.

/**
 * Tokens a second of a prompt of `prompt` tokens, up to the first token of the text, and of the `decode - 1` tokens after it.
 *
 * @param {AsyncIterable<unknown>} tokens
 */
export async function speeds(prompt, decode, tokens) {
  const began = performance.now();
  let [first, last, n] = [began, began, 0];
  for await (const _ of tokens) {
    last = performance.now();
    if (n === 0) first = last;
    n += 1;
    if (n === decode) break;
  }
  if (n < decode) throw new Error(`only ${n} of ${decode} tokens came`);
  return { prompt: (1e3 * prompt) / (first - began), decode: (1e3 * (decode - 1)) / (last - first) };
}

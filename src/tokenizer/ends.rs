//! Which tokens end an answer.

use crate::tokenizer::SpecialIds;
use crate::tokenizer::vocab::{Kind, Vocab};

/// Texts of control tokens that end an answer in the chat formats in use. Files often name only one of theirs as
/// `eos`, and it is not always the one that the model gives.
const END_TEXTS: [&str; 13] = [
    "<|im_end|>",            // ChatML: Qwen and others.
    "<|endoftext|>",         // GPT-2, Qwen, OLMo, gpt-oss.
    "<|end_of_text|>",       // Llama 3, Granite.
    "<|eot_id|>",            // Llama 3.
    "<|eom_id|>",            // Llama 3, before a tool answers.
    "<|eot|>",               // Llama 4.
    "<|eom|>",               // Llama 4, before a tool answers.
    "<|end|>",               // Phi 3.
    "<|return|>",            // gpt-oss.
    "<|call|>",              // gpt-oss, before a tool answers.
    "<end_of_turn>",         // Gemma.
    "</s>",                  // Llama 2, Mistral.
    "<｜end▁of▁sentence｜>", // DeepSeek.
];

/// The tokens that end an answer, in ascending order: those that the file names, and the well-known ones among the
/// control tokens.
pub(super) fn end_tokens(vocab: &Vocab, special: &SpecialIds) -> Vec<u32> {
    let mut ends: Vec<u32> = [special.eos, special.eot, special.eom].into_iter().flatten().collect();
    let control = vocab.iter().filter(|&(_, _, kind)| kind == Kind::Control);
    let known: Vec<(u32, &str)> = control
        .filter_map(|(id, bytes, _)| END_TEXTS.into_iter().find(|text| text.as_bytes() == bytes).map(|text| (id, text)))
        .collect();
    // In the harmony format `<|end|>` closes one message of several in an answer. Vocabularies with both of the
    // tokens that do end an answer there have this format.
    let is_harmony = ["<|return|>", "<|call|>"].iter().all(|&needed| known.iter().any(|&(_, text)| text == needed));
    ends.extend(known.iter().filter(|&&(_, text)| !(is_harmony && text == "<|end|>")).map(|&(id, _)| id));
    ends.sort_unstable();
    ends.dedup();
    ends
}

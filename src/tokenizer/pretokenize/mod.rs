//! Cuts text into the pieces within which merges happen.
//!
//! Models define the cuts with regular expressions. Those with lookahead and alternatives that overlap need
//! backtracking, which is slow and can fail on long runs, so each is written here as a scanner by hand that looks at
//! every character a fixed number of times. Each scanner cites its expression, and the tests compare it with a regex
//! engine. In all of them `\s` is Unicode's White_Space.

mod cl100k;
mod classes;
mod deepseek;
mod gpt2;
mod o200k;
mod scan;
#[cfg(test)]
mod tests;

use std::ops::Range;

use classes::Classes;
use scan::Scan;

/// How a model cuts text, by `tokenizer.ggml.pre`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreTokenizer {
    /// GPT-2's pattern.
    Gpt2,
    /// GPT-2's pattern, on text in Unicode's form NFC.
    Olmo,
    /// The pattern of cl100k with digits one by one, on text in NFC.
    Qwen2,
    /// The pattern of cl100k with digits by three.
    Llama3,
    /// The pattern of o200k.
    Gpt4o,
    /// Three cuts one after the other.
    DeepSeek3,
}

/// Names in files, as llama.cpp's converter writes them.
const NAMES: [(&str, PreTokenizer); 8] = [
    ("gpt-2", PreTokenizer::Gpt2),
    ("olmo", PreTokenizer::Olmo),
    ("qwen2", PreTokenizer::Qwen2),
    ("llama-bpe", PreTokenizer::Llama3),
    ("llama3", PreTokenizer::Llama3),
    ("llama-v3", PreTokenizer::Llama3),
    ("gpt-4o", PreTokenizer::Gpt4o),
    ("deepseek-v3", PreTokenizer::DeepSeek3),
];

impl PreTokenizer {
    /// The pre-tokenizer that files call `name`.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, pre)| pre)
    }

    /// The names that [`named`](Self::named) knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|&(name, _)| name)
    }

    /// Whether text is brought into NFC first. GGUF files do not say so; the `normalizer` in the tokenizer.json of
    /// OLMo and of Qwen does.
    pub fn is_nfc(self) -> bool {
        matches!(self, Self::Olmo | Self::Qwen2)
    }

    /// Whether a piece that is a token is taken as it is, without merges: `ignore_merges` in the tokenizer.json of
    /// Llama 3 and of gpt-oss.
    pub fn takes_whole_pieces(self) -> bool {
        matches!(self, Self::Llama3 | Self::Gpt4o)
    }

    /// Calls `visit` with the ranges of all pieces of `text`, in order. They are not empty and cover all of it.
    pub fn split(self, text: &str, visit: impl FnMut(Range<usize>)) {
        match self {
            Self::Gpt2 | Self::Olmo => Scan::new(text, Classes::unicode()).split(gpt2::piece_end, visit),
            Self::Qwen2 => Scan::new(text, Classes::unicode()).split(cl100k::piece_end::<1>, visit),
            Self::Llama3 => Scan::new(text, Classes::unicode()).split(cl100k::piece_end::<3>, visit),
            Self::Gpt4o => Scan::new(text, Classes::unicode()).split(o200k::piece_end, visit),
            Self::DeepSeek3 => deepseek::split(text, visit),
        }
    }
}

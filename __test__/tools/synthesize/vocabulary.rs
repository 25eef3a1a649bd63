//! An invented vocabulary for a byte-level tokenizer: every token is what its own text is cut into.
//!
//! After the 256 bytes come syllables of a consonant and a vowel, then words: two syllables with and without a space
//! before them, and three with a space. The merges of a word are listed before those that could break it from the
//! right, so the tokenizer finds it.

use super::SynthesizeError;

/// Tokens, types and merges, as GGUF has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// Texts by id, in the byte-level alphabet.
    pub tokens: Vec<String>,
    /// 1 for a normal token, 3 for a control token.
    pub types: Vec<i32>,
    /// `left right`, most important first.
    pub merges: Vec<String>,
}

/// The last ids, as Qwen's files have them.
pub const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
/// Most tokens that can be invented.
const MOST: usize = 1_000_000;
/// Syllables with and without a space.
const SYLLABLES: usize = 2 * 21 * 5;
const NORMAL: i32 = 1;
const CONTROL_TYPE: i32 = 3;

impl Vocabulary {
    /// A vocabulary of `size` tokens, control tokens included.
    pub fn new(size: usize) -> Result<Self, SynthesizeError> {
        let least = 256 + SYLLABLES + CONTROL.len();
        if !(least..=MOST).contains(&size) {
            return Err(SynthesizeError::Shape {
                why: format!("a vocabulary of {size} tokens cannot be made, only of {least} to {MOST}"),
                options: "--vocab",
            });
        }
        let mut vocabulary = Self { tokens: alphabet(), types: Vec::new(), merges: Vec::new() };
        let room = size - CONTROL.len();
        for (left, right) in merges().take(room - vocabulary.tokens.len()) {
            vocabulary.tokens.push(format!("{left}{right}"));
            vocabulary.merges.push(format!("{left} {right}"));
        }
        vocabulary.types = vec![NORMAL; room];
        vocabulary.tokens.extend(CONTROL.map(String::from));
        vocabulary.types.extend([CONTROL_TYPE; CONTROL.len()]);
        Ok(vocabulary)
    }

    /// Id of the control token `text`.
    pub fn control(&self, text: &str) -> u32 {
        let place = CONTROL.iter().position(|control| *control == text).expect("one of the control tokens");
        (self.tokens.len() - CONTROL.len() + place) as u32
    }
}

/// The 256 bytes as letters, in the order of GPT-2: those that stand for themselves, then the others from U+0100.
fn alphabet() -> Vec<String> {
    let shown = (0x21..=0x7e).chain(0xa1..=0xac).chain(0xae..=0xff);
    let shifted = 0x100..0x100 + 68;
    shown.chain(shifted).filter_map(char::from_u32).map(String::from).collect()
}

/// Pairs that merge, most important first.
fn merges() -> impl Iterator<Item = (String, String)> {
    let syllables: Vec<String> =
        "aeiou".chars().flat_map(|vowel| "bcdfghjklmnpqrstvwxyz".chars().map(move |c| format!("{c}{vowel}"))).collect();
    let spaced: Vec<String> = syllables.iter().map(|syllable| format!("Ġ{syllable}")).collect();
    let starts =
        "aeiou".chars().flat_map(|vowel| "bcdfghjklmnpqrstvwxyz".chars().map(move |c| (c.into(), vowel.into())));
    let spaces = syllables.clone().into_iter().map(|syllable| ("Ġ".into(), syllable));
    // The right half varies slowest, so that a short vocabulary has words with any beginning.
    let spaced_words = pairs(spaced, syllables.clone());
    let longer: Vec<String> = spaced_words.iter().map(|(left, right)| format!("{left}{right}")).collect();
    let words = pairs(syllables.clone(), syllables.clone());
    let three =
        syllables.into_iter().flat_map(move |right| longer.clone().into_iter().map(move |left| (left, right.clone())));
    starts.chain(spaces).chain(spaced_words).chain(words).chain(three)
}

fn pairs(left: Vec<String>, right: Vec<String>) -> Vec<(String, String)> {
    right.iter().flat_map(|right| left.iter().map(move |left| (left.clone(), right.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clutor::tokenizer::{SpecialIds, Tables, Tokenizer};
    use std::collections::HashSet;

    #[test]
    fn every_token_is_what_its_text_is_cut_into() {
        let vocabulary = Vocabulary::new(60_000).unwrap();
        assert_eq!(vocabulary.tokens.iter().collect::<HashSet<_>>().len(), 60_000);
        let tokenizer = Tokenizer::new(Tables {
            model: "gpt2",
            pre: "qwen2",
            tokens: vocabulary.tokens.iter().map(String::as_bytes).collect(),
            token_types: vocabulary.types.clone(),
            merges: vocabulary.merges.iter().map(String::as_bytes).collect(),
            special: SpecialIds::default(),
        })
        .unwrap();
        // The bytes before are no text of their own above 127.
        for id in (256..60_000u32).step_by(7).chain([59_997, 59_998, 59_999]) {
            let text = tokenizer.decode_text(&[id], true);
            assert_eq!(tokenizer.encode(&text, true), [id], "{text:?}");
        }
        let text = "Any text, 12 äöü 字, comes back.";
        assert_eq!(tokenizer.decode_text(&tokenizer.encode(text, false), false), text);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        assert!(Vocabulary::new(300).unwrap_err().to_string().contains("--vocab"));
        assert!(Vocabulary::new(MOST + 1).is_err());
        assert_eq!(Vocabulary::new(469).unwrap().merges.len(), SYLLABLES);
    }
}

//! Thinking, which models write between tags before their answer, told apart from the answer.

use std::borrow::Cow;

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// What a part of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// Thinking, without its tags.
    Reasoning,
    /// The answer.
    Text,
}

/// A part of an answer; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Its text.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Only whitespace so far: a block may open. `after_block` where one was closed before.
    Start { after_block: bool },
    /// In a block. `is_fresh` until its first character that is not a line break.
    Reasoning { is_fresh: bool },
    /// In the answer, where tags are text: an answer may speak of them.
    Text,
}

/// Parts streamed text into thinking and answer, however the tags are cut.
///
/// Blocks count at the beginning of an answer, one or several. Line breaks around their content and after them belong
/// to the tags and are dropped, as the templates drop them.
#[derive(Clone, Debug)]
pub struct ReasoningSplitter {
    place: Place,
    /// What may become a tag, or line breaks that may turn out to belong to one.
    held: String,
}

impl ReasoningSplitter {
    /// For an answer that begins within a block where `is_open`: the prompt ended with an opening tag.
    pub fn new(is_open: bool) -> Self {
        let place = if is_open { Place::Reasoning { is_fresh: true } } else { Place::Start { after_block: false } };
        Self { place, held: String::new() }
    }

    /// Takes the next piece; gives what is certain by then.
    pub fn push(&mut self, piece: &str) -> Vec<Part> {
        self.held.push_str(piece);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// Ends the answer; gives what was held back. An open block ends with it.
    pub fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Start { after_block: true } => emit(&mut parts, PartKind::Text, held.trim_start_matches('\n')),
            Place::Start { after_block: false } | Place::Text => emit(&mut parts, PartKind::Text, &held),
            Place::Reasoning { .. } => emit(&mut parts, PartKind::Reasoning, held.trim_end_matches('\n')),
        }
        parts
    }

    /// One move; whether another may follow.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match self.place {
            Place::Text => {
                emit(parts, PartKind::Text, &std::mem::take(&mut self.held));
                false
            }
            Place::Start { after_block } => {
                let rest = self.held.trim_start();
                if let Some(inside) = rest.strip_prefix(OPEN) {
                    self.held = inside.to_owned();
                    self.place = Place::Reasoning { is_fresh: true };
                    return true;
                }
                if OPEN.starts_with(rest) {
                    return false; // Nothing yet, or the beginning of a tag.
                }
                if after_block {
                    self.held = self.held.trim_start_matches('\n').to_owned();
                }
                self.place = Place::Text;
                true
            }
            Place::Reasoning { is_fresh } => {
                if is_fresh {
                    self.held = self.held.trim_start_matches('\n').to_owned();
                    if self.held.is_empty() {
                        return false;
                    }
                    self.place = Place::Reasoning { is_fresh: false };
                }
                if let Some(at) = self.held.find(CLOSE) {
                    emit(parts, PartKind::Reasoning, self.held[..at].trim_end_matches('\n'));
                    self.held = self.held[at + CLOSE.len()..].to_owned();
                    self.place = Place::Start { after_block: true };
                    return true;
                }
                // What may be the beginning of the closing tag, and the line breaks before it, wait.
                let begun = (1..CLOSE.len()).rev().find(|&len| self.held.ends_with(&CLOSE[..len])).unwrap_or(0);
                let sure = self.held[..self.held.len() - begun].trim_end_matches('\n').len();
                let rest = self.held.split_off(sure);
                emit(parts, PartKind::Reasoning, &std::mem::replace(&mut self.held, rest));
                false
            }
        }
    }
}

fn emit(parts: &mut Vec<Part>, kind: PartKind, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(last) if last.kind == kind => last.text.push_str(text),
        _ => parts.push(Part { kind, text: text.to_owned() }),
    }
}

/// Whether an answer to `prompt` begins within a block, which the template opened.
pub fn opens_reasoning(prompt: &str) -> bool {
    prompt.trim_end().ends_with(OPEN)
}

/// `answer` without its thinking, as it goes into the history of a conversation.
pub fn without_reasoning(answer: &str) -> Cow<'_, str> {
    if !answer.trim_start().starts_with(OPEN) {
        return Cow::Borrowed(answer);
    }
    let mut splitter = ReasoningSplitter::new(false);
    let mut parts = splitter.push(answer);
    parts.append(&mut splitter.finish());
    parts.into_iter().filter(|part| part.kind == PartKind::Text).map(|part| part.text).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reasoning and text of `answer`, given in pieces that end at `cuts`.
    fn split(answer: &str, is_open: bool, pieces: &[&str]) -> (String, String) {
        assert_eq!(pieces.concat(), answer);
        let mut splitter = ReasoningSplitter::new(is_open);
        let mut parts: Vec<Part> = pieces.iter().flat_map(|piece| splitter.push(piece)).collect();
        parts.append(&mut splitter.finish());
        assert!(parts.iter().all(|part| !part.text.is_empty()));
        let of = |kind| parts.iter().filter(|part| part.kind == kind).map(|part| part.text.as_str()).collect();
        (of(PartKind::Reasoning), of(PartKind::Text))
    }

    #[test]
    fn thinking_is_parted_from_the_answer_however_the_text_is_cut() {
        let cases = [
            ("<think>\nhm\n</think>\n\nyes", false, "hm", "yes"),
            ("<think>\n\n</think>\n\nyes", false, "", "yes"),
            ("\n <think>a\n\nb</think>c", false, "a\n\nb", "c"),
            ("a </thin b</think>c", true, "a </thin b", "c"),
            ("<think>x</think>\n<think>y</think>\nz\n", false, "xy", "z\n"),
            ("plain", false, "", "plain"),
            ("\n plain", false, "", "\n plain"),
            ("say <think>no</think>", false, "", "say <think>no</think>"),
            ("<thin", false, "", "<thin"),
            ("<thinking>", false, "", "<thinking>"),
            ("<think>never closed\n", false, "never closed", ""),
            ("<think>é</think>日本", false, "é", "日本"),
            ("<think>a</think", false, "a</think", ""),
            ("", false, "", ""),
        ];
        for (answer, is_open, reasoning, text) in cases {
            let expected = (reasoning.to_owned(), text.to_owned());
            assert_eq!(split(answer, is_open, &[answer]), expected, "{answer:?} at once");
            let chars: Vec<String> = answer.chars().map(String::from).collect();
            let chars: Vec<&str> = chars.iter().map(String::as_str).collect();
            assert_eq!(split(answer, is_open, &chars), expected, "{answer:?} by characters");
            for (cut, _) in answer.char_indices() {
                let (first, second) = answer.split_at(cut);
                assert_eq!(split(answer, is_open, &[first, second]), expected, "{answer:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn text_that_cannot_become_a_tag_is_given_at_once() {
        let mut splitter = ReasoningSplitter::new(false);
        assert_eq!(splitter.push("<think>ab"), [Part { kind: PartKind::Reasoning, text: "ab".to_owned() }]);
        assert_eq!(splitter.push("c</"), [Part { kind: PartKind::Reasoning, text: "c".to_owned() }]);
        assert_eq!(splitter.push("b>"), [Part { kind: PartKind::Reasoning, text: "</b>".to_owned() }]);
    }

    #[test]
    fn history_keeps_the_answer_alone() {
        assert_eq!(without_reasoning("<think>\nhm\n</think>\n\nyes"), "yes");
        assert_eq!(without_reasoning("\n yes"), "\n yes");
        assert_eq!(without_reasoning("<think>cut off"), "");
    }

    #[test]
    fn a_prompt_that_ends_with_the_opening_tag_begins_the_answer_within_a_block() {
        assert!(opens_reasoning("<|Assistant|><think>\n"));
        assert!(!opens_reasoning("<think>\n\n</think>\n\n"));
    }
}

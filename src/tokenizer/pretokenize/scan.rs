//! Walks over text by character class; what the patterns have in common.

use std::ops::Range;

use super::classes::{Classes, SPACE};

/// A text and the classes of its characters. Positions are in bytes, at the beginning of a character or the end.
pub(super) struct Scan<'t> {
    text: &'t str,
    classes: &'static Classes,
}

impl<'t> Scan<'t> {
    pub fn new(text: &'t str, classes: &'static Classes) -> Self {
        Self { text, classes }
    }

    /// Calls `visit` with each piece; `piece_end` finds where the piece that begins at a position ends, beyond it.
    pub fn split(&self, piece_end: impl Fn(&Self, usize) -> usize, mut visit: impl FnMut(Range<usize>)) {
        let mut start = 0;
        while start < self.text.len() {
            let end = piece_end(self, start);
            visit(start..end);
            start = end;
        }
    }

    /// Whether the text ends at `at`.
    pub fn is_end(&self, at: usize) -> bool {
        at == self.text.len()
    }

    /// The byte at `at`; 0 at the end, which no pattern asks for.
    pub fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    /// Whether a carriage return or line feed stands at `at`.
    pub fn is_newline(&self, at: usize) -> bool {
        matches!(self.byte(at), b'\r' | b'\n')
    }

    /// The classes of the character at `at`, and the position after it. No classes at the end.
    pub fn step(&self, at: usize) -> (u8, usize) {
        match self.text.as_bytes().get(at) {
            None => (0, at),
            Some(&byte) if byte.is_ascii() => (self.classes.of_ascii(byte), at + 1),
            Some(_) => {
                let character = self.text[at..].chars().next().unwrap_or_default();
                (self.classes.of(character), at + character.len_utf8())
            }
        }
    }

    /// The end of the run of characters with any of the classes `wanted` that begins at `at`.
    pub fn run(&self, wanted: u8, mut at: usize) -> usize {
        loop {
            let (class, after) = self.step(at);
            if class & wanted == 0 {
                return at;
            }
            at = after;
        }
    }

    /// The end of at most `max` characters with any of the classes `wanted`.
    pub fn run_up_to(&self, max: usize, wanted: u8, mut at: usize) -> usize {
        for _ in 0..max {
            let (class, after) = self.step(at);
            if class & wanted == 0 {
                break;
            }
            at = after;
        }
        at
    }

    /// The end of the run of those ASCII bytes that `wanted` accepts.
    pub fn run_of_bytes(&self, wanted: impl Fn(u8) -> bool, at: usize) -> usize {
        let rest = &self.text.as_bytes()[at..];
        at + rest.iter().position(|&byte| !wanted(byte)).unwrap_or(rest.len())
    }

    /// `(?:'s|'t|'re|'ve|'m|'ll|'d)` at `at`: the end, if it matches. With `any_case`, `(?i:…)`.
    pub fn contraction(&self, at: usize, any_case: bool) -> Option<usize> {
        if self.byte(at) != b'\'' {
            return None;
        }
        let letter = |at| {
            let byte = self.byte(at);
            if any_case { byte.to_ascii_lowercase() } else { byte }
        };
        match (letter(at + 1), letter(at + 2)) {
            (b's' | b't' | b'm' | b'd', _) => Some(at + 2),
            (b'r', b'e') | (b'v', b'e') | (b'l', b'l') => Some(at + 3),
            // The long s (U+017F) is an s to patterns that ignore case.
            (0xc5, 0xbf) if any_case => Some(at + 3),
            _ => None,
        }
    }

    /// `\s*[\r\n]+` at `at`: the end, if it matches. It takes white space up to the last newline of the run.
    pub fn through_last_newline(&self, at: usize) -> Option<usize> {
        let run = &self.text.as_bytes()[at..self.run(SPACE, at)];
        run.iter().rposition(|byte| matches!(byte, b'\r' | b'\n')).map(|newline| at + newline + 1)
    }

    /// `\s+(?!\S)|\s+` at `at`, where white space stands: all of the run if nothing follows, else all but its last
    /// character, else that.
    pub fn spaces(&self, at: usize) -> usize {
        let end = self.run(SPACE, at);
        if self.is_end(end) {
            return end;
        }
        let last = self.text[at..end].chars().next_back().map_or(0, char::len_utf8);
        if at + last < end { end - last } else { end }
    }
}

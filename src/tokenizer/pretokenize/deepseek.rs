//! The cuts of DeepSeek V3.

use std::ops::Range;

use super::classes::{Classes, LETTER, MARK, NUMBER, SIGN, SPACE};
use super::scan::Scan;

/// Calls `visit` with all pieces of `text`. Three expressions cut, each what the one before left, matches included:
///
/// ```text
/// \p{N}{1,3}
/// [一-龥぀-ゟ゠-ヿ]+
/// [!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+
/// ```
///
/// What lies between two matches is a piece too. Source: tokenizer.json of DeepSeek V3.
pub(super) fn split(text: &str, mut visit: impl FnMut(Range<usize>)) {
    let classes = Classes::unicode();
    let mut start = 0;
    while let Some(first) = text[start..].chars().next() {
        let stretch = Stretch::of(first, classes);
        let end = if stretch == Stretch::Number {
            // The third expression matches nothing in numbers.
            let end = Scan::new(text, classes).run_up_to(3, NUMBER, start);
            visit(start..end);
            end
        } else {
            let next = text[start..].char_indices().find(|&(_, character)| Stretch::of(character, classes) != stretch);
            let end = next.map_or(text.len(), |(len, _)| start + len);
            Scan::new(&text[start..end], classes)
                .split(piece_end, |piece| visit(start + piece.start..start + piece.end));
            end
        };
        start = end;
    }
}

/// What the first two expressions tell apart. The third never looks beyond a stretch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stretch {
    Number,
    Cjk,
    Rest,
}

impl Stretch {
    fn of(character: char, classes: &Classes) -> Self {
        match character {
            '一'..='龥' | '\u{3040}'..='ゟ' | '゠'..='ヿ' => Self::Cjk,
            _ if classes.of(character) & NUMBER != 0 => Self::Number,
            _ => Self::Rest,
        }
    }
}

/// The end of the piece at `start` of a stretch without numbers: a match of the third expression, or what lies between
/// two matches.
fn piece_end(scan: &Scan, start: usize) -> usize {
    if let Some(end) = match_end(scan, start) {
        return end;
    }
    // Controls and unassigned characters, up to where something matches again.
    let (_, mut at) = scan.step(start);
    while !scan.is_end(at) && match_end(scan, at).is_none() {
        (_, at) = scan.step(at);
    }
    at
}

/// The end of a match of the third expression that begins at `start`, if there is one.
fn match_end(scan: &Scan, start: usize) -> Option<usize> {
    let (class, second) = scan.step(start);
    let (second_class, third) = scan.step(second);
    if scan.byte(start).is_ascii_punctuation() && scan.byte(second).is_ascii_alphabetic() {
        return Some(scan.run_of_bytes(|byte| byte.is_ascii_alphabetic(), second));
    }
    if class & (LETTER | MARK) != 0 {
        return Some(scan.run(LETTER | MARK, second));
    }
    if second_class & (LETTER | MARK) != 0 && class & SIGN == 0 && !scan.is_newline(start) {
        return Some(scan.run(LETTER | MARK, third));
    }
    let signs = if scan.byte(start) == b' ' { second } else { start };
    let signs_end = scan.run(SIGN, signs);
    if signs_end > signs {
        return Some(scan.run_of_bytes(|byte| matches!(byte, b'\r' | b'\n'), signs_end));
    }
    if class & SPACE != 0 {
        return Some(scan.through_last_newline(start).unwrap_or_else(|| scan.spaces(start)));
    }
    None
}

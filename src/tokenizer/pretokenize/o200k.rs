//! The pattern of o200k, which GPT-4o and gpt-oss use.

use super::cl100k::signs_or_space;
use super::classes::{HEAD, LETTER, NUMBER, TAIL};
use super::scan::Scan;

/// The end of the piece at `start`:
///
/// ```text
/// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
/// [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|
/// \p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
/// ```
///
/// Source: tokenizer.json of gpt-oss; `o200k_base` in tiktoken.
pub(super) fn piece_end(scan: &Scan, start: usize) -> usize {
    let (class, second) = scan.step(start);
    if class & NUMBER != 0 {
        return scan.run_up_to(3, NUMBER, start);
    }
    // The first character can be taken by `[^\r\n\p{L}\p{N}]?` or be left out; the pattern tries to take it first.
    // A mark can be either.
    let with_prefix = (class & LETTER == 0 && !scan.is_newline(start)).then_some(second);
    let without_prefix = (class & (HEAD | TAIL) != 0).then_some(start);
    let words = [with_prefix, without_prefix];
    let word_end = words.into_iter().flatten().find_map(|word| lowercase_word_end(scan, word));
    let word_end = word_end.or_else(|| words.into_iter().flatten().find_map(|word| uppercase_word_end(scan, word)));
    match word_end {
        Some(end) => scan.contraction(end, true).unwrap_or(end),
        None => signs_or_space(scan, start, |byte| matches!(byte, b'\r' | b'\n' | b'/')),
    }
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` at `start`: the end, if it matches.
fn lowercase_word_end(scan: &Scan, start: usize) -> Option<usize> {
    let mut at = start;
    // Where the last character of the heads ends that can be a tail too: there the match ends if no tail follows the
    // heads, since the first part then gives back just as much as the second needs.
    let mut last_tail_end = None;
    loop {
        let (class, after) = scan.step(at);
        if class & HEAD == 0 {
            return if class & TAIL != 0 { Some(scan.run(TAIL, after)) } else { last_tail_end };
        }
        if class & TAIL != 0 {
            last_tail_end = Some(after);
        }
        at = after;
    }
}

/// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*` at `start`: the end, if it matches.
fn uppercase_word_end(scan: &Scan, start: usize) -> Option<usize> {
    let heads_end = scan.run(HEAD, start);
    (heads_end > start).then(|| scan.run(TAIL, heads_end))
}

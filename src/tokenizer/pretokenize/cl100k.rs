//! The pattern of cl100k, which Llama 3 and Qwen use with small changes.

use super::classes::{LETTER, NUMBER, OTHER};
use super::scan::Scan;

/// The end of the piece at `start`, with `{1,DIGITS}` characters in a number:
///
/// ```text
/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
/// \s*[\r\n]+|\s+(?!\S)|\s+
/// ```
///
/// Source: tokenizer.json of Llama 3 (`DIGITS` 3) and of Qwen 2 and 3 (1).
pub(super) fn piece_end<const DIGITS: usize>(scan: &Scan, start: usize) -> usize {
    if let Some(end) = scan.contraction(start, true) {
        return end;
    }
    let (class, second) = scan.step(start);
    if class & LETTER != 0 {
        return scan.run(LETTER, second);
    }
    if class & NUMBER != 0 {
        return scan.run_up_to(DIGITS, NUMBER, start);
    }
    let (second_class, _) = scan.step(second);
    if second_class & LETTER != 0 && !scan.is_newline(start) {
        return scan.run(LETTER, second);
    }
    signs_or_space(scan, start, is_newline)
}

fn is_newline(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// The end of ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+` at `start`, where neither a letter nor a number
/// stands; `closing` says which bytes `[\r\n]*` takes.
pub(super) fn signs_or_space(scan: &Scan, start: usize, closing: impl Fn(u8) -> bool) -> usize {
    let first = if scan.byte(start) == b' ' { start + 1 } else { start };
    let (class, _) = scan.step(first);
    if class & OTHER != 0 {
        return scan.run_of_bytes(closing, scan.run(OTHER, first));
    }
    scan.through_last_newline(start).unwrap_or_else(|| scan.spaces(start))
}

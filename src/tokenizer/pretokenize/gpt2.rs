//! The pattern of GPT-2.

use super::classes::{LETTER, NUMBER, OTHER};
use super::scan::Scan;

/// The end of the piece at `start`:
///
/// ```text
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
/// ```
///
/// Source: `encoder.py` of GPT-2; the tokenizer.json of OLMo uses it through its `ByteLevel` pre-tokenizer.
pub(super) fn piece_end(scan: &Scan, start: usize) -> usize {
    if let Some(end) = scan.contraction(start, false) {
        return end;
    }
    let first = if scan.byte(start) == b' ' { start + 1 } else { start };
    let (class, _) = scan.step(first);
    for run in [LETTER, NUMBER, OTHER] {
        if class & run != 0 {
            return scan.run(run, first);
        }
    }
    scan.spaces(start)
}

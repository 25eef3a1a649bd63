//! Remembers the tokens of pieces that were seen before in the same text.

use std::ops::Range;

use crate::tokenizer::token_index::hash;

/// Where the tokens of recent pieces stand in the output.
///
/// Direct-mapped: a piece takes the place of another with the same slot. It holds no bytes of its own, only places
/// in the text and in the output, so it is of use for one text alone.
pub(super) struct PieceCache {
    slots: Box<[Entry]>,
}

/// One piece: `text[start..start + len]` became `ids[first_id..first_id + n_ids]`.
#[derive(Clone, Copy, Default)]
struct Entry {
    start: usize,
    first_id: usize,
    /// 0 in a free slot: pieces are not empty.
    len: u8,
    n_ids: u8,
}

/// Slots, a power of two: 96 KiB, which stays in the second-level cache.
const SLOTS: usize = 4096;

/// Texts shorter than this do without: few pieces come twice, and clearing the slots is not free.
const WORTHWHILE: usize = 4096;

impl PieceCache {
    /// The longest piece that is remembered, in bytes.
    pub const MAX_PIECE: usize = 32;

    /// An empty cache, or `None` if it would not pay for a text of this many bytes.
    pub fn for_text(text_bytes: usize) -> Option<Self> {
        (text_bytes >= WORTHWHILE).then(|| Self { slots: vec![Entry::default(); SLOTS].into_boxed_slice() })
    }

    /// Appends to `ids` the tokens of the piece `text[piece]`, copied from an earlier equal piece or made by `encode`.
    ///
    /// `text` and `ids` must be the same in all calls, but for what is appended.
    pub fn encode(&mut self, text: &[u8], piece: Range<usize>, ids: &mut Vec<u32>, encode: impl FnOnce(&mut Vec<u32>)) {
        let bytes = &text[piece.clone()];
        let slot = &mut self.slots[(hash(bytes) >> 32) as usize % SLOTS];
        let len = usize::from(slot.len);
        if len == bytes.len() && text[slot.start..slot.start + len] == *bytes {
            ids.extend_from_within(slot.first_id..slot.first_id + usize::from(slot.n_ids));
            return;
        }
        let first_id = ids.len();
        encode(ids);
        // A piece has no more tokens than bytes, so both counts fit.
        if bytes.len() <= Self::MAX_PIECE {
            *slot = Entry { start: piece.start, first_id, len: bytes.len() as u8, n_ids: (ids.len() - first_id) as u8 };
        }
    }
}

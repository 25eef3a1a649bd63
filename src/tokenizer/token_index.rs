//! From the bytes of a token to its id.

use std::hash::Hasher;

use rustc_hash::FxHasher;

use crate::tokenizer::vocab::{Kind, Vocab};

/// A hash table of the tokens that merges can take or give; the bytes stay in the [`Vocab`].
///
/// Open addressing with linear probing, at most three quarters full. A slot holds the upper half of the hash and
/// the id.
#[derive(Debug)]
pub(super) struct TokenIndex {
    slots: Box<[(u32, u32)]>,
}

/// Marks a free slot: [`Vocab`] has no such id.
const FREE: u32 = u32::MAX;

impl TokenIndex {
    /// Enters the tokens of `vocab`. Of tokens with the same bytes the first counts, normal ones before added ones.
    pub fn new(vocab: &Vocab) -> Self {
        let n_slots = (vocab.len() + vocab.len() / 3 + 1).next_power_of_two();
        let mut index = Self { slots: vec![(0, FREE); n_slots].into_boxed_slice() };
        // Some files mark tokens that merges make as user-defined or control; the normal ones have precedence.
        let normal = vocab.iter().filter(|&(_, _, kind)| kind == Kind::Normal);
        let added = vocab.iter().filter(|&(_, _, kind)| matches!(kind, Kind::Control | Kind::UserDefined));
        for (id, bytes, _) in normal.chain(added) {
            if let Err((slot, tag)) = index.find(vocab, bytes) {
                index.slots[slot] = (tag, id);
            }
        }
        index
    }

    /// The id of the token with these bytes. `vocab` is the one that the index was made from.
    pub fn get(&self, vocab: &Vocab, bytes: &[u8]) -> Option<u32> {
        self.find(vocab, bytes).ok()
    }

    /// The id, or the free slot and the tag with which `bytes` would be entered.
    fn find(&self, vocab: &Vocab, bytes: &[u8]) -> Result<u32, (usize, u32)> {
        let hash = hash(bytes);
        let tag = (hash >> 32) as u32;
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            match self.slots[slot] {
                (_, FREE) => return Err((slot, tag)),
                (found, id) if found == tag && vocab.bytes(id) == Some(bytes) => return Ok(id),
                _ => slot = (slot + 1) & mask,
            }
        }
    }
}

/// Hash of a short byte string. The keys come from the model file, never from its user.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

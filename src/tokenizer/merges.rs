//! Byte-pair encoding of one piece of text.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use crate::tokenizer::token_index::TokenIndex;
use crate::tokenizer::vocab::Vocab;
use crate::tokenizer::{TokenizerError, byte_level};

/// The merges of a model: which pair of tokens becomes which, and which comes first.
#[derive(Debug)]
pub(super) struct Merges {
    /// By `left << 32 | right`.
    by_pair: FxHashMap<u64, Merge>,
    /// The token of each single byte; [`NO_TOKEN`] where the vocabulary has none.
    byte_tokens: [u32; 256],
}

/// A merge, as `rank << 32 | id of the result`, so that the smaller number is the merge to do first.
type Merge = u64;

/// Stands for "this pair does not merge". No merge is that large, since no id is.
const NO_MERGE: Merge = u64::MAX;

/// Stands for a byte that the vocabulary lacks. It merges with nothing.
const NO_TOKEN: u32 = u32::MAX;

/// Pieces up to this many bytes are merged by looking at all pairs for each merge, longer ones with a queue. Nearly all
/// words are shorter.
const SHORT: usize = 48;

impl Merges {
    /// Reads the merges, `left right` in the byte-level alphabet, most important first.
    pub fn new(merges: &[&[u8]], vocab: &Vocab, index: &TokenIndex) -> Result<Self, TokenizerError> {
        if merges.is_empty() {
            return Err(TokenizerError::NoMerges);
        }
        let mut by_pair = FxHashMap::with_capacity_and_hasher(merges.len(), Default::default());
        let mut joined = Vec::new();
        for (rank, merge) in merges.iter().enumerate() {
            let text = || String::from_utf8_lossy(merge).into_owned();
            // A token is never empty, so the separating space is not the first byte.
            let space = merge.iter().skip(1).position(|&byte| byte == b' ').map(|place| place + 1);
            let Some((left, right)) =
                space.map(|at| (&merge[..at], &merge[at + 1..])).filter(|pair| !pair.1.is_empty())
            else {
                return Err(TokenizerError::MalformedMerge { index: rank, merge: text() });
            };
            joined.clear();
            byte_level::undo(left, &mut joined);
            let left_len = joined.len();
            byte_level::undo(right, &mut joined);
            let token = |bytes: &[u8]| {
                index.get(vocab, bytes).ok_or_else(|| TokenizerError::MergeOfUnknownToken {
                    index: rank,
                    merge: text(),
                    missing: String::from_utf8_lossy(bytes).into_owned(),
                })
            };
            let (left, right) = (token(&joined[..left_len])?, token(&joined[left_len..])?);
            let result = token(&joined)?;
            // Where a pair is listed twice, the first counts.
            by_pair.entry(pair_key(left, right)).or_insert((rank as u64) << 32 | u64::from(result));
        }
        let byte_tokens = std::array::from_fn(|byte| index.get(vocab, &[byte as u8]).unwrap_or(NO_TOKEN));
        Ok(Self { by_pair, byte_tokens })
    }

    /// Appends the tokens of `piece` to `ids`: of all pairs, the one with the lowest rank merges first, of equal ones
    /// the leftmost, until no pair merges.
    ///
    /// A byte that the vocabulary lacks gives `unk`, or nothing where there is none, as in the reference tokenizers.
    /// Takes time in proportion to the length of the piece, `n log n` at worst.
    ///
    /// # Panics
    /// If `piece` has 4 GiB or more.
    pub fn encode(&self, piece: &[u8], unk: Option<u32>, ids: &mut Vec<u32>) {
        let first_new = ids.len();
        if piece.len() <= SHORT {
            self.encode_short(piece, ids);
        } else {
            self.encode_long(piece, ids);
        }
        if ids[first_new..].contains(&NO_TOKEN) {
            let kept: Vec<u32> =
                ids.drain(first_new..).filter_map(|id| if id == NO_TOKEN { unk } else { Some(id) }).collect();
            ids.extend(kept);
        }
    }

    fn encode_short(&self, piece: &[u8], ids: &mut Vec<u32>) {
        let mut tokens = [NO_TOKEN; SHORT];
        // merges[i] is that of tokens[i] and tokens[i + 1].
        let mut merges = [NO_MERGE; SHORT];
        let mut n = piece.len();
        for (token, &byte) in tokens.iter_mut().zip(piece) {
            *token = self.byte_tokens[usize::from(byte)];
        }
        for i in 1..n {
            merges[i - 1] = self.merge_of(tokens[i - 1], tokens[i]);
        }
        loop {
            let (mut at, mut best) = (0, NO_MERGE);
            for (i, &merge) in merges[..n.saturating_sub(1)].iter().enumerate() {
                if merge < best {
                    (at, best) = (i, merge);
                }
            }
            if best == NO_MERGE {
                break;
            }
            tokens[at] = best as u32;
            tokens.copy_within(at + 2..n, at + 1);
            // The pair that began with the right half goes; the last place becomes free.
            merges.copy_within(at + 1..n - 1, at);
            n -= 1;
            merges[n - 1] = NO_MERGE;
            if at + 1 < n {
                merges[at] = self.merge_of(tokens[at], tokens[at + 1]);
            }
            if at > 0 {
                merges[at - 1] = self.merge_of(tokens[at - 1], tokens[at]);
            }
        }
        ids.extend_from_slice(&tokens[..n]);
    }

    fn encode_long(&self, piece: &[u8], ids: &mut Vec<u32>) {
        let n = u32::try_from(piece.len()).expect("a piece of text is shorter than 4 GiB");
        let mut tokens: Vec<u32> = piece.iter().map(|&byte| self.byte_tokens[usize::from(byte)]).collect();
        // A doubly linked list of the tokens that are left. Token 0 always is; `n` is the end.
        let mut next: Vec<u32> = (1..=n).collect();
        let mut previous: Vec<u32> = (0..n).map(|i| i.saturating_sub(1)).collect();
        // merges[i] is that of token i and its next one.
        let mut merges: Vec<Merge> = tokens.windows(2).map(|pair| self.merge_of(pair[0], pair[1])).collect();
        merges.push(NO_MERGE);
        let mut queue = MergeQueue::default();
        for (place, &merge) in (0..n).zip(&merges) {
            queue.push(merge, place);
        }

        while let Some((rank, place)) = queue.pop() {
            let at = place as usize;
            let merge = merges[at];
            if rank_of(merge) != rank {
                // The pair has changed since it was queued.
                continue;
            }
            let right = next[at] as usize;
            let after = next[right];
            tokens[at] = merge as u32;
            next[at] = after;
            merges[right] = NO_MERGE;
            merges[at] = NO_MERGE;
            if after < n {
                previous[after as usize] = place;
                merges[at] = self.merge_of(tokens[at], tokens[after as usize]);
                queue.push(merges[at], place);
            }
            if place > 0 {
                let before = previous[at];
                merges[before as usize] = self.merge_of(tokens[before as usize], tokens[at]);
                queue.push(merges[before as usize], before);
            }
        }

        let mut place = 0;
        while place < n {
            ids.push(tokens[place as usize]);
            place = next[place as usize];
        }
    }

    fn merge_of(&self, left: u32, right: u32) -> Merge {
        self.by_pair.get(&pair_key(left, right)).copied().unwrap_or(NO_MERGE)
    }
}

/// The rank of a merge; `u32::MAX` for [`NO_MERGE`].
fn rank_of(merge: Merge) -> u32 {
    (merge >> 32) as u32
}

fn pair_key(left: u32, right: u32) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

/// The merges to do in a long piece: the lowest rank first, and within a rank from left to right.
///
/// Few ranks occur in a piece, and the places of one are found mostly from left to right. So there is a heap of ranks
/// alone, and a list of places for each: about constant time per merge, and logarithmic at worst.
#[derive(Default)]
struct MergeQueue {
    /// Each rank in `places`, once.
    ranks: BinaryHeap<Reverse<u32>>,
    places: FxHashMap<u32, Places>,
}

/// Places in the piece, handed out from left to right.
#[derive(Default)]
struct Places {
    /// Those that came in ascending order, of which `n_taken` are gone.
    ascending: Vec<u32>,
    n_taken: usize,
    /// Those that came later, but lie further left.
    others: BinaryHeap<Reverse<u32>>,
}

impl MergeQueue {
    /// Enters a merge at `place`; [`NO_MERGE`] is left out.
    fn push(&mut self, merge: Merge, place: u32) {
        if merge == NO_MERGE {
            return;
        }
        let places = self.places.entry(rank_of(merge)).or_insert_with_key(|&rank| {
            self.ranks.push(Reverse(rank));
            Places::default()
        });
        match places.ascending.last() {
            Some(&last) if place < last => places.others.push(Reverse(place)),
            _ => places.ascending.push(place),
        }
    }

    /// Takes out the first merge, as rank and place. It may be out of date.
    fn pop(&mut self) -> Option<(u32, u32)> {
        loop {
            let &Reverse(rank) = self.ranks.peek()?;
            match self.places.get_mut(&rank).and_then(Places::pop) {
                Some(place) => return Some((rank, place)),
                None => {
                    self.places.remove(&rank);
                    self.ranks.pop();
                }
            }
        }
    }
}

impl Places {
    fn pop(&mut self) -> Option<u32> {
        let ascending = self.ascending.get(self.n_taken).copied();
        let other = self.others.peek().map(|&Reverse(place)| place);
        match (ascending, other) {
            (Some(place), other) if other.is_none_or(|other| place <= other) => {
                self.n_taken += 1;
                Some(place)
            }
            _ => self.others.pop().map(|Reverse(place)| place),
        }
    }
}

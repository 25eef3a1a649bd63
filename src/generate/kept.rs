//! Key/value caches of texts that ended, for the next one that begins alike.

use crate::model::Sequence;

/// Caches that are kept: a conversation and a side question.
const KEPT: usize = 2;

/// Caches of ended texts, the latest last, each with the tokens that it holds.
#[derive(Debug, Default)]
pub(super) struct Kept {
    caches: Vec<(Vec<u32>, Sequence)>,
}

impl Kept {
    /// Positions whose memory they take.
    pub fn held(&self) -> usize {
        self.caches.iter().map(|(_, sequence)| sequence.held()).sum()
    }

    /// Keeps the cache of a text: the latest few, of together no more tokens than a context of `n_ctx`.
    pub fn keep(&mut self, tokens: Vec<u32>, sequence: Sequence, n_ctx: usize) {
        if tokens.is_empty() {
            return;
        }
        self.caches.push((tokens, sequence));
        while self.caches.len() > KEPT || (self.caches.len() > 1 && self.held() > n_ctx) {
            self.caches.remove(0);
        }
    }

    /// Lets go of the oldest; false where there is none.
    pub fn drop_oldest(&mut self) -> bool {
        let any = !self.caches.is_empty();
        if any {
            self.caches.remove(0);
        }
        any
    }

    /// A cache with as much of `prompt`'s beginning as a kept one has; `None` where none has any of it.
    ///
    /// At least the last token is left to be run, for its logits are wanted. A kept cache of which little serves, such
    /// as a conversation's whose first words a side question shares, stays for its own text; what serves is copied, if
    /// there is `room` for so many positions more.
    pub fn take(&mut self, prompt: &[u32], room: usize) -> Option<Sequence> {
        let common = |held: &[u32]| held.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(prompt.len() - 1);
        let best = (0..self.caches.len()).max_by_key(|&i| common(&self.caches[i].0))?;
        let n = common(&self.caches[best].0);
        if n > 0 && 2 * n >= self.caches[best].0.len() {
            let (_, mut sequence) = self.caches.remove(best);
            sequence.truncate(n);
            return Some(sequence);
        }
        (n > 0 && n <= room).then(|| self.caches[best].1.prefix(n))
    }
}

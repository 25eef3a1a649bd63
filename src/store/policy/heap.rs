//! A binary heap over small integers whose ranks may change.

const ABSENT: u32 = u32::MAX;

/// What the heap orders by: a value, then the number of the last request, so that ties go to the least recently used.
pub(super) type Rank = (f64, u64);

/// The least item is on top.
#[derive(Debug)]
pub(super) struct Heap {
    /// Items with their ranks, each no less than its parent (entry `(i - 1) / 2`).
    entries: Vec<(Rank, u32)>,
    /// Where each item is in `entries`.
    at: Vec<u32>,
}

impl Heap {
    /// A heap for items below `n_items`.
    pub(super) fn new(n_items: usize) -> Self {
        Self { entries: Vec::new(), at: vec![ABSENT; n_items] }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, item: u32) -> bool {
        self.at[item as usize] != ABSENT
    }

    pub(super) fn first(&self) -> Option<(Rank, u32)> {
        self.entries.first().copied()
    }

    /// Adds an item, or changes its rank.
    pub(super) fn set(&mut self, item: u32, rank: Rank) {
        let at = match self.at[item as usize] {
            ABSENT => {
                self.entries.push((rank, item));
                self.entries.len() - 1
            }
            at => {
                self.entries[at as usize].0 = rank;
                at as usize
            }
        };
        self.settle(at);
    }

    /// Takes an item out; nothing happens if it is absent.
    pub(super) fn remove(&mut self, item: u32) {
        let at = std::mem::replace(&mut self.at[item as usize], ABSENT);
        if at == ABSENT {
            return;
        }
        self.entries.swap_remove(at as usize);
        if (at as usize) < self.entries.len() {
            self.settle(at as usize);
        }
    }

    /// Gives every item a new rank.
    pub(super) fn rerank(&mut self, rank: impl Fn(u32) -> Rank) {
        for entry in &mut self.entries {
            entry.0 = rank(entry.1);
        }
        for at in (0..self.entries.len()).rev() {
            self.sift_down(at);
        }
        for (at, entry) in self.entries.iter().enumerate() {
            self.at[entry.1 as usize] = at as u32;
        }
    }

    /// Takes out the least item of which `is_free` holds. `aside` is scratch.
    pub(super) fn pop_where(&mut self, aside: &mut Vec<(Rank, u32)>, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        aside.clear();
        let mut found = None;
        while let Some((rank, item)) = self.first() {
            self.remove(item);
            if is_free(item) {
                found = Some(item);
                break;
            }
            aside.push((rank, item));
        }
        for &(rank, item) in aside.iter() {
            self.set(item, rank);
        }
        found
    }

    /// Brings the entry at `at` to where it belongs.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.is_less(at, (at - 1) / 2) {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        self.at[self.entries[at].1 as usize] = at as u32;
        self.sift_down(at);
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.entries.len() {
                return;
            }
            let least = if right < self.entries.len() && self.is_less(right, left) { right } else { left };
            if !self.is_less(least, at) {
                return;
            }
            self.swap(least, at);
            at = least;
        }
    }

    fn is_less(&self, a: usize, b: usize) -> bool {
        let ((a, a_at), (b, b_at)) = (self.entries[a].0, self.entries[b].0);
        a < b || (a == b && a_at < b_at)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.entries.swap(a, b);
        self.at[self.entries[a].1 as usize] = a as u32;
        self.at[self.entries[b].1 as usize] = b as u32;
    }
}

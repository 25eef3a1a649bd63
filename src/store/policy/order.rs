//! What a policy is to the cache: an order in which cached keys make way.

/// Sizes that an order is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) n_layers: usize,
    pub(super) n_experts: usize,
    pub(super) n_slots: usize,
}

impl Shape {
    pub(super) fn n_keys(self) -> usize {
        self.n_layers * self.n_experts
    }
}

/// One key is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) key: u32,
    /// Tokens of the pass that chose it.
    pub(super) n_choices: u32,
    /// Number of the request, rising from 1.
    pub(super) at: u64,
}

/// Pins of every key. A pinned key never makes way.
pub(super) type Pins = [u32];

/// The order in which cached keys make way. The cache says what happens; the order keeps its own books.
pub(super) trait Order: Send {
    /// A layer's turn begins, in a pass over `n_tokens` tokens.
    fn begin_visit(&mut self, _layer: usize, _n_tokens: u32) {}

    /// A key is asked for, cached or not. Comes before `hit`, `victim` and `insert`.
    fn request(&mut self, _request: Request) {}

    /// The key asked for is cached.
    fn hit(&mut self, request: Request);

    /// A key enters the cache.
    fn insert(&mut self, key: u32, at: u64);

    /// A key leaves the cache without being a victim.
    fn remove(&mut self, key: u32);

    /// Takes out the key that makes way for `incoming`. `None` if all are pinned.
    fn victim(&mut self, incoming: u32, pins: &Pins) -> Option<u32>;

    /// Tells what an earlier run knew: the key counts as used so many times.
    fn warm(&mut self, _key: u32, _weight: f32) {}

    /// Keys so far that were sent away for being used too seldom to be admitted.
    fn rejected(&self) -> u64 {
        0
    }
}

//! Least frequently used, with ageing.

use super::heap::{Heap, Rank};
use super::order::{Order, Pins, Request, Shape};

/// Counts are halved after as many requests as this times the slots, as TinyLFU does (arXiv 1512.00727, section 3.3).
pub(super) const REQUESTS_PER_SLOT: usize = 10;

pub(super) struct Lfu {
    /// Uses of every key, cached or not: a count that eviction resets would never let a new key in.
    counts: Vec<u32>,
    last_request: Vec<u64>,
    cached: Heap,
    period: usize,
    n_requests: usize,
    aside: Vec<(Rank, u32)>,
}

impl Lfu {
    pub(super) fn new(shape: Shape) -> Self {
        Self {
            counts: vec![0; shape.n_keys()],
            last_request: vec![0; shape.n_keys()],
            cached: Heap::new(shape.n_keys()),
            period: REQUESTS_PER_SLOT * shape.n_slots.max(1),
            n_requests: 0,
            aside: Vec::new(),
        }
    }

    fn rank(&self, key: u32) -> Rank {
        (self.counts[key as usize].into(), self.last_request[key as usize])
    }
}

impl Order for Lfu {
    fn request(&mut self, request: Request) {
        let count = &mut self.counts[request.key as usize];
        *count = count.saturating_add(request.n_choices);
        self.last_request[request.key as usize] = request.at;
        self.n_requests += 1;
        if self.n_requests == self.period {
            self.n_requests = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.cached.rerank(|key| (self.counts[key as usize].into(), self.last_request[key as usize]));
        }
    }

    fn hit(&mut self, request: Request) {
        let rank = self.rank(request.key);
        self.cached.set(request.key, rank);
    }

    fn insert(&mut self, key: u32, at: u64) {
        self.last_request[key as usize] = at;
        let rank = self.rank(key);
        self.cached.set(key, rank);
    }

    fn remove(&mut self, key: u32) {
        self.cached.remove(key);
    }

    fn victim(&mut self, _incoming: u32, pins: &Pins) -> Option<u32> {
        self.cached.pop_where(&mut self.aside, |key| pins[key as usize] == 0)
    }

    fn warm(&mut self, key: u32, weight: f32) {
        self.counts[key as usize] = weight.ceil() as u32;
    }
}

//! Least recently used.

use super::list::{Links, List};
use super::order::{Order, Pins, Request, Shape};

pub(super) struct Lru {
    links: Links,
    list: List,
}

impl Lru {
    pub(super) fn new(shape: Shape) -> Self {
        Self { links: Links::new(shape.n_keys()), list: List::new() }
    }
}

impl Order for Lru {
    fn hit(&mut self, request: Request) {
        self.list.renew(&mut self.links, request.key);
    }

    fn insert(&mut self, key: u32, _at: u64) {
        self.list.push(&mut self.links, key);
    }

    fn remove(&mut self, key: u32) {
        self.list.remove(&mut self.links, key);
    }

    fn victim(&mut self, _incoming: u32, pins: &Pins) -> Option<u32> {
        let key = self.list.oldest_where(&self.links, |key| pins[key as usize] == 0)?;
        self.list.remove(&mut self.links, key);
        Some(key)
    }
}

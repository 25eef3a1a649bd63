//! Doubly linked lists over small integers, without allocation after construction.

const NONE: u32 = u32::MAX;

/// Links of all lists over the same items: an item is in one list at most.
#[derive(Debug)]
pub(super) struct Links {
    newer: Vec<u32>,
    older: Vec<u32>,
}

/// One list, from newest to oldest.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    newest: u32,
    oldest: u32,
    len: usize,
}

impl Links {
    pub(super) fn new(n_items: usize) -> Self {
        Self { newer: vec![NONE; n_items], older: vec![NONE; n_items] }
    }
}

impl List {
    pub(super) fn new() -> Self {
        Self { newest: NONE, oldest: NONE, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Adds an item that is in no list.
    pub(super) fn push(&mut self, links: &mut Links, item: u32) {
        links.newer[item as usize] = NONE;
        links.older[item as usize] = self.newest;
        match self.newest {
            NONE => self.oldest = item,
            newest => links.newer[newest as usize] = item,
        }
        self.newest = item;
        self.len += 1;
    }

    /// Takes out an item of this list.
    pub(super) fn remove(&mut self, links: &mut Links, item: u32) {
        let (newer, older) = (links.newer[item as usize], links.older[item as usize]);
        match newer {
            NONE => self.newest = older,
            newer => links.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => links.newer[older as usize] = newer,
        }
        self.len -= 1;
    }

    /// Makes an item of this list the newest.
    pub(super) fn renew(&mut self, links: &mut Links, item: u32) {
        if self.newest != item {
            self.remove(links, item);
            self.push(links, item);
        }
    }

    /// The oldest item of which `is_free` holds.
    pub(super) fn oldest_where(&self, links: &Links, is_free: impl Fn(u32) -> bool) -> Option<u32> {
        let mut item = self.oldest()?;
        while !is_free(item) {
            item = links.newer[item as usize];
            if item == NONE {
                return None;
            }
        }
        Some(item)
    }
}

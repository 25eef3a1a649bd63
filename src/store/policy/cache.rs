//! Slots, their roles, and what all policies share.

use super::frequency::Counts;
use super::kind::PolicyKind;
use super::list::{Links, List};
use super::order::{Order, Request, Shape};

/// No slot, or no key.
const NONE: u32 = u32::MAX;
/// Half-life of the counts behind [`Cache::hot`], in tokens: about one answer, so that a single topic does not decide.
const HOT_HALF_LIFE: f32 = 256.0;

/// What a request finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The key is in the cache.
    Hit(usize),
    /// The key was staged; its slot is the cache's from now on, unless all others of the cache are pinned.
    Staged(usize),
    /// The key is absent and has this slot of the cache now.
    Miss {
        /// The slot to read into.
        slot: usize,
        /// The key that made way.
        evicted: Option<u32>,
    },
    /// The key is absent, and every slot of the cache is pinned.
    Bypass,
}

/// Counts since the cache was made.
///
/// `accesses = hits + staging_hits + misses + bypasses`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Requests.
    pub accesses: u64,
    /// Requests for a key of the cache.
    pub hits: u64,
    /// Requests for a staged key.
    pub staging_hits: u64,
    /// Requests for an absent key that got a slot.
    pub misses: u64,
    /// Requests for an absent key that got none, because all were pinned.
    pub bypasses: u64,
    /// Keys that were staged.
    pub staged: u64,
    /// Staged keys that made way for others without ever being requested.
    pub wasted: u64,
    /// Keys that made way because they were used too seldom to be admitted (W-TinyLFU and adaptive). Part of `evicted`.
    pub rejected: u64,
    /// Keys of the cache that made way.
    pub evicted: u64,
    /// Keys taken out because their read failed or was taken back.
    pub discarded: u64,
}

/// Which key is in which slot, and which goes next.
///
/// Keys are `layer * n_experts + expert`. Slots are numbered from 0 to `n_slots + n_staging - 1`, one pool: a slot is
/// free, the cache's or staging's, and a staged key that is requested stays where it is while its slot changes role. At
/// most `n_slots` are the cache's and `n_staging` staging's.
///
/// Time is counted in visits: a layer's requests up to the next layer's, or up to [`Cache::end_token`].
pub struct Cache {
    shape: Shape,
    n_staging: usize,
    order: Box<dyn Order>,
    slot_of: Box<[u32]>,
    key_of: Box<[u32]>,
    role_of: Box<[Role]>,
    free: Vec<u32>,
    n_cached: usize,
    /// Pins of every key.
    pins: Box<[u32]>,
    staged: List,
    links: Links,
    /// Layer of the present visit.
    visited: Option<usize>,
    n_pass_tokens: u32,
    hot: Counts,
    statistics: Statistics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Free,
    Cached,
    Staged,
    /// In staging, but requested: the cache had no room for it.
    Wanted,
}

impl Cache {
    /// An empty cache.
    ///
    /// # Panics
    /// If there are 2^32 - 1 keys or slots, or more, or no layers or experts, or a parameter of the policy is not above 0.
    pub fn new(kind: PolicyKind, n_layers: usize, n_experts: usize, n_slots: usize, n_staging: usize) -> Self {
        let shape = Shape { n_layers, n_experts, n_slots };
        let (n_keys, n_pool) = (shape.n_keys(), n_slots + n_staging);
        assert!(n_keys > 0 && n_keys < NONE as usize && n_pool < NONE as usize, "too many or no experts, or slots");
        Self {
            shape,
            n_staging,
            order: kind.order(shape),
            slot_of: vec![NONE; n_keys].into(),
            key_of: vec![NONE; n_pool].into(),
            role_of: vec![Role::Free; n_pool].into(),
            free: (0..n_pool as u32).rev().collect(),
            n_cached: 0,
            pins: vec![0; n_keys].into(),
            staged: List::new(),
            links: Links::new(n_keys),
            visited: None,
            n_pass_tokens: 1,
            hot: Counts::new(shape, HOT_HALF_LIFE),
            statistics: Statistics::default(),
        }
    }

    /// Requests a key that one token chose.
    ///
    /// # Panics
    /// If the key is not below `n_layers * n_experts`.
    pub fn access(&mut self, key: u32) -> Access {
        self.access_for(key, 1)
    }

    /// Requests a key that `n_choices` tokens of the pass chose (see [`Cache::begin_pass`]).
    ///
    /// # Panics
    /// If the key is not below `n_layers * n_experts`.
    pub fn access_for(&mut self, key: u32, n_choices: u32) -> Access {
        let layer = key as usize / self.shape.n_experts;
        if self.visited != Some(layer) {
            self.visited = Some(layer);
            self.hot.age(layer, self.n_pass_tokens);
            self.order.begin_visit(layer, self.n_pass_tokens);
        }
        self.statistics.accesses += 1;
        let request = Request { key, n_choices, at: self.statistics.accesses };
        self.hot.add(key, n_choices);
        self.order.request(request);
        let slot = self.slot_of[key as usize];
        if slot == NONE {
            return match self.make_room(key) {
                Some(evicted) => {
                    self.statistics.misses += 1;
                    let slot = self.take_free(key, Role::Cached);
                    self.n_cached += 1;
                    self.order.insert(key, request.at);
                    Access::Miss { slot, evicted }
                }
                None => {
                    self.statistics.bypasses += 1;
                    Access::Bypass
                }
            };
        }
        let slot = slot as usize;
        if self.role_of[slot] == Role::Cached {
            self.statistics.hits += 1;
            self.order.hit(request);
            return Access::Hit(slot);
        }
        self.statistics.staging_hits += 1;
        if self.make_room(key).is_some() {
            self.staged.remove(&mut self.links, key);
            self.role_of[slot] = Role::Cached;
            self.n_cached += 1;
            self.order.insert(key, request.at);
        } else {
            self.role_of[slot] = Role::Wanted;
        }
        Access::Staged(slot)
    }

    /// Gives an absent key a slot of staging, before it is requested.
    ///
    /// Where staging is full, the key staged longest ago makes way, unless it is pinned. `None` if the key has a slot
    /// already, or all of staging is pinned. Never touches the cache.
    pub fn stage(&mut self, key: u32) -> Option<usize> {
        if self.slot_of[key as usize] != NONE || self.n_staging == 0 {
            return None;
        }
        if self.staged.len() == self.n_staging {
            let oldest = self.staged.oldest_where(&self.links, |key| self.pins[key as usize] == 0)?;
            let slot = self.slot_of[oldest as usize] as usize;
            self.statistics.wasted += u64::from(self.role_of[slot] == Role::Staged);
            self.staged.remove(&mut self.links, oldest);
            self.release(oldest);
        }
        self.statistics.staged += 1;
        self.staged.push(&mut self.links, key);
        Some(self.take_free(key, Role::Staged))
    }

    /// The slot that a key has, in the cache or in staging.
    pub fn find(&self, key: u32) -> Option<usize> {
        let slot = self.slot_of[key as usize];
        (slot != NONE).then_some(slot as usize)
    }

    /// Keeps what is in a slot there until it is unpinned as often as it was pinned.
    ///
    /// # Panics
    /// If the slot is free.
    pub fn pin(&mut self, slot: usize) {
        self.pins[self.key_in(slot)] += 1;
    }

    /// Takes back one pin.
    ///
    /// # Panics
    /// If the slot is free or not pinned.
    pub fn unpin(&mut self, slot: usize) {
        let pins = &mut self.pins[self.key_in(slot)];
        *pins = pins.checked_sub(1).expect("a slot is unpinned at most as often as it was pinned");
    }

    /// Takes a key out, because its bytes could not be read. Nothing happens if it is absent.
    ///
    /// # Panics
    /// If it is pinned.
    pub fn discard(&mut self, key: u32) {
        let Some(slot) = self.find(key) else { return };
        assert_eq!(self.pins[key as usize], 0, "a key is unpinned before it is discarded");
        self.statistics.discarded += 1;
        match self.role_of[slot] {
            Role::Cached => {
                self.order.remove(key);
                self.n_cached -= 1;
            }
            _ => self.staged.remove(&mut self.links, key),
        }
        self.release(key);
    }

    /// Says that the coming requests are for `n_tokens` tokens at once, up to [`Cache::end_token`]: counts age by as many,
    /// and [`Cache::access_for`] tells how many chose a key.
    ///
    /// # Panics
    /// If there are no tokens.
    pub fn begin_pass(&mut self, n_tokens: u32) {
        assert!(n_tokens > 0, "a pass has tokens");
        self.n_pass_tokens = n_tokens;
    }

    /// Ends a pass through the layers. The next is over one token unless [`Cache::begin_pass`] says otherwise.
    pub fn end_token(&mut self) {
        self.visited = None;
        self.n_pass_tokens = 1;
    }

    /// Keys by falling use, with how often they were used lately: what [`Cache::warm`] takes at the next start.
    pub fn hot(&self) -> Vec<(u32, f32)> {
        let mut hot: Vec<(u32, f32)> = (0..self.shape.n_keys() as u32)
            .map(|key| (key, self.hot.uses(key) as f32))
            .filter(|(_, uses)| *uses > 0.0)
            .collect();
        hot.sort_by(|(a_key, a), (b_key, b)| b.total_cmp(a).then(a_key.cmp(b_key)));
        hot
    }

    /// Tells what an earlier run knew of a key, and gives it a free slot of the cache to read it into.
    ///
    /// `None` if the key has a slot already or the cache is full: nothing makes way. Not counted as a request.
    ///
    /// # Panics
    /// If the weight is negative or not finite.
    pub fn warm(&mut self, key: u32, weight: f32) -> Option<usize> {
        assert!(weight >= 0.0 && weight.is_finite(), "a key's weight counts its uses");
        if self.slot_of[key as usize] != NONE {
            return None;
        }
        self.hot.set(key, weight);
        self.order.warm(key, weight);
        if self.n_cached == self.shape.n_slots {
            return None;
        }
        self.n_cached += 1;
        self.order.insert(key, 0);
        Some(self.take_free(key, Role::Cached))
    }

    /// Counts so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { rejected: self.order.rejected(), ..self.statistics }
    }

    /// Makes sure that the cache may take one key more. `None` if it may not; else the key that made way, if any.
    fn make_room(&mut self, incoming: u32) -> Option<Option<u32>> {
        if self.n_cached < self.shape.n_slots {
            return Some(None);
        }
        let victim = self.order.victim(incoming, &self.pins)?;
        self.statistics.evicted += 1;
        self.n_cached -= 1;
        self.release(victim);
        Some(Some(victim))
    }

    fn take_free(&mut self, key: u32, role: Role) -> usize {
        // The pool has as many slots as cache and staging together, and the caller has made sure of room.
        let slot = self.free.pop().expect("a role below its limit leaves a slot free");
        self.slot_of[key as usize] = slot;
        self.key_of[slot as usize] = key;
        self.role_of[slot as usize] = role;
        slot as usize
    }

    fn release(&mut self, key: u32) {
        let slot = std::mem::replace(&mut self.slot_of[key as usize], NONE);
        self.key_of[slot as usize] = NONE;
        self.role_of[slot as usize] = Role::Free;
        self.free.push(slot);
    }

    fn key_in(&self, slot: usize) -> usize {
        assert_ne!(self.role_of[slot], Role::Free, "slot {slot} is free");
        self.key_of[slot] as usize
    }
}

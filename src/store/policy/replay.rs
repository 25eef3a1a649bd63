//! Choices of experts without a model: how well a policy would have done, and the best that could be done.

use super::cache::{Access, Cache};
use super::heap::Heap;
use super::kind::PolicyKind;

/// The experts that a model chose, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Layers of the model.
    pub n_layers: usize,
    /// Experts of a layer.
    pub n_experts: usize,
    /// Chosen keys (`layer * n_experts + expert`), visit by visit.
    pub keys: Vec<u32>,
    /// One entry for each layer and token, in the order of the keys.
    pub visits: Vec<Visit>,
    /// How many of `keys` belong to the prompt; those come first.
    pub n_prompt_keys: usize,
}

/// The experts that one token chose in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Number of the token.
    pub token: u32,
    /// Where its keys end; they begin where the visit before ends.
    pub end: usize,
}

/// What a replay found, prompt and generation apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitRates {
    /// Requests of the prompt.
    pub prompt_accesses: u64,
    /// Those of them that found their key in the cache.
    pub prompt_hits: u64,
    /// Requests of the generation.
    pub accesses: u64,
    /// Those of them that found their key in the cache.
    pub hits: u64,
}

impl HitRates {
    /// Share of the generation's requests that were hits, 0 to 1; 0 if there were none.
    pub fn rate(&self) -> f64 {
        if self.accesses == 0 { 0.0 } else { self.hits as f64 / self.accesses as f64 }
    }

    fn count(&mut self, is_prompt: bool, is_hit: bool) {
        let (accesses, hits) = match is_prompt {
            true => (&mut self.prompt_accesses, &mut self.prompt_hits),
            false => (&mut self.accesses, &mut self.hits),
        };
        *accesses += 1;
        *hits += u64::from(is_hit);
    }
}

/// Runs a trace through an empty cache, as the store would: within a visit, what is cached is requested first, and all
/// is pinned until the visit ends.
///
/// # Panics
/// If a key is not below `n_layers * n_experts`, or a visit ends after the keys do.
pub fn replay(trace: &Trace, kind: PolicyKind, n_slots: usize) -> HitRates {
    let mut cache = Cache::new(kind, trace.n_layers, trace.n_experts, n_slots, 0);
    let mut rates = HitRates::default();
    let (mut absent, mut pinned) = (Vec::new(), Vec::new());
    let (mut start, mut token) = (0, None);
    for visit in &trace.visits {
        if token.replace(visit.token).is_some_and(|token| token != visit.token) {
            cache.end_token();
        }
        let is_prompt = start < trace.n_prompt_keys;
        absent.clear();
        for &key in &trace.keys[start..visit.end] {
            if cache.find(key).is_none() {
                absent.push(key);
                continue;
            }
            request(&mut cache, key, is_prompt, &mut rates, &mut pinned);
        }
        for &key in &absent {
            request(&mut cache, key, is_prompt, &mut rates, &mut pinned);
        }
        pinned.drain(..).for_each(|slot| cache.unpin(slot));
        start = visit.end;
    }
    rates
}

fn request(cache: &mut Cache, key: u32, is_prompt: bool, rates: &mut HitRates, pinned: &mut Vec<usize>) {
    let access = cache.access(key);
    rates.count(is_prompt, matches!(access, Access::Hit(_)));
    match access {
        Access::Hit(slot) | Access::Staged(slot) | Access::Miss { slot, .. } => {
            cache.pin(slot);
            pinned.push(slot);
        }
        Access::Bypass => {}
    }
}

/// The hit rate of who knows the future: of the keys cached and the one asked for, the one whose next use is furthest
/// away is not kept.
///
/// Source: Belady 1966, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), with
/// the choice not to keep what is asked for.
///
/// # Panics
/// If a key is not below `n_layers * n_experts`.
pub fn belady(trace: &Trace, n_slots: usize) -> HitRates {
    let n_keys = trace.n_layers * trace.n_experts;
    let mut next_of_key = vec![usize::MAX; n_keys];
    let mut next_use = vec![0; trace.keys.len()];
    for (i, &key) in trace.keys.iter().enumerate().rev() {
        next_use[i] = std::mem::replace(&mut next_of_key[key as usize], i);
    }
    let mut cached = Heap::new(n_keys);
    let mut rates = HitRates::default();
    for (i, &key) in trace.keys.iter().enumerate() {
        rates.count(i < trace.n_prompt_keys, cached.contains(key));
        // The heap has its least on top: the furthest use is the least of the negated ones.
        cached.set(key, (-(next_use[i] as f64), 0));
        if cached.len() > n_slots
            && let Some((_, furthest)) = cached.first()
        {
            cached.remove(furthest);
        }
    }
    rates
}

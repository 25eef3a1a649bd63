use proptest::prelude::*;

use super::*;

const N_LAYERS: usize = 3;
const N_EXPERTS: usize = 8;

fn key(layer: usize, expert: usize) -> u32 {
    (layer * N_EXPERTS + expert) as u32
}

/// A cache over 3 layers of 8 experts.
fn cache(kind: PolicyKind, n_slots: usize, n_staging: usize) -> Cache {
    Cache::new(kind, N_LAYERS, N_EXPERTS, n_slots, n_staging)
}

fn slot_of_miss(access: Access) -> usize {
    match access {
        Access::Miss { slot, .. } => slot,
        other => panic!("expected a miss, found {other:?}"),
    }
}

fn evicted_by(access: Access) -> Option<u32> {
    match access {
        Access::Miss { evicted, .. } => evicted,
        other => panic!("expected a miss, found {other:?}"),
    }
}

/// Lets one token choose these experts of layer 0; what is cached first, as the store asks.
fn token(cache: &mut Cache, experts: &[usize]) {
    let (present, absent): (Vec<u32>, Vec<u32>) =
        experts.iter().map(|expert| key(0, *expert)).partition(|key| cache.find(*key).is_some());
    present.into_iter().chain(absent).for_each(|key| _ = cache.access(key));
    cache.end_token();
}

#[test]
fn a_key_stays_in_its_slot_and_is_found_there() {
    for kind in PolicyKind::ALL {
        let mut cache = cache(kind, 4, 2);
        let slot = slot_of_miss(cache.access(key(1, 3)));
        assert_eq!(cache.find(key(1, 3)), Some(slot), "{kind}");
        assert_eq!(cache.access(key(1, 3)), Access::Hit(slot), "{kind}");
        assert_eq!(cache.find(key(1, 4)), None, "{kind}");
    }
}

#[test]
fn a_request_for_a_staged_expert_moves_it_into_the_cache() {
    for kind in PolicyKind::ALL {
        let mut cache = cache(kind, 1, 1);
        cache.access(key(0, 0));
        let slot = cache.stage(key(0, 1)).unwrap();
        assert_eq!(cache.access(key(0, 1)), Access::Staged(slot), "{kind}");
        assert_eq!(cache.find(key(0, 0)), None, "it made way, {kind}");
        assert_eq!(cache.access(key(0, 1)), Access::Hit(slot), "{kind}");
        assert!(cache.stage(key(0, 2)).is_some(), "staging has room again, {kind}");
        let Statistics { staging_hits, staged, wasted, evicted, .. } = cache.statistics();
        assert_eq!((staging_hits, staged, wasted, evicted), (1, 2, 0, 1), "{kind}");
    }
}

#[test]
fn a_staged_expert_never_takes_the_place_of_a_cached_one() {
    for kind in PolicyKind::ALL {
        let mut cache = cache(kind, 2, 2);
        cache.access(key(0, 0));
        cache.access(key(0, 1));
        for expert in 2..8 {
            assert!(cache.stage(key(0, expert)).is_some(), "{kind}");
        }
        assert!(cache.find(key(0, 0)).is_some() && cache.find(key(0, 1)).is_some(), "{kind}");
        let Statistics { staged, wasted, evicted, .. } = cache.statistics();
        assert_eq!((staged, wasted, evicted), (6, 4, 0), "the oldest of the staged made way, {kind}");
        assert!(cache.find(key(0, 5)).is_none() && cache.find(key(0, 6)).is_some(), "{kind}");
    }
}

#[test]
fn staging_refuses_what_is_present_and_what_has_no_room() {
    let mut cache = cache(PolicyKind::default(), 1, 1);
    cache.access(key(0, 0));
    assert_eq!(cache.stage(key(0, 0)), None, "cached already");
    let slot = cache.stage(key(0, 1)).unwrap();
    assert_eq!(cache.stage(key(0, 1)), None, "staged already");
    cache.pin(slot);
    assert_eq!(cache.stage(key(0, 2)), None, "all of staging is pinned");
    cache.unpin(slot);
    assert_eq!(cache.stage(key(0, 2)), Some(slot));
}

#[test]
fn what_is_pinned_stays_and_a_request_without_room_is_a_bypass() {
    for kind in PolicyKind::ALL {
        let mut cache = cache(kind, 2, 1);
        for expert in 0..2 {
            let slot = slot_of_miss(cache.access(key(0, expert)));
            cache.pin(slot);
        }
        assert_eq!(cache.access(key(0, 2)), Access::Bypass, "{kind}");
        assert_eq!(cache.find(key(0, 2)), None, "{kind}");
        let staged = cache.stage(key(0, 3)).unwrap();
        assert_eq!(cache.access(key(0, 3)), Access::Staged(staged), "served where it is, {kind}");
        let slot = cache.find(key(0, 0)).unwrap();
        cache.unpin(slot);
        assert_eq!(cache.access(key(0, 3)), Access::Staged(staged), "now it moves, {kind}");
        assert_eq!(cache.access(key(0, 3)), Access::Hit(staged), "{kind}");
        assert_eq!(cache.find(key(0, 0)), None, "{kind}");
        assert!(cache.find(key(0, 1)).is_some(), "{kind}");
        assert_eq!(cache.statistics().bypasses, 1, "{kind}");
    }
}

#[test]
fn a_requested_expert_that_had_to_stay_in_staging_is_not_wasted() {
    let mut cache = cache(PolicyKind::Lru, 1, 1);
    let slot = slot_of_miss(cache.access(key(0, 0)));
    cache.pin(slot);
    cache.stage(key(0, 1)).unwrap();
    cache.access(key(0, 1));
    cache.stage(key(0, 2)).unwrap();
    assert_eq!(cache.statistics().wasted, 0);
}

#[test]
fn a_discarded_key_is_gone_and_its_slot_is_free() {
    for kind in PolicyKind::ALL {
        let mut cache = cache(kind, 1, 1);
        let slot = slot_of_miss(cache.access(key(0, 0)));
        cache.discard(key(0, 0));
        cache.discard(key(0, 0));
        assert_eq!(cache.find(key(0, 0)), None, "{kind}");
        assert_eq!(cache.access(key(0, 1)), Access::Miss { slot, evicted: None }, "{kind}");
        let staged = cache.stage(key(0, 2)).unwrap();
        cache.discard(key(0, 2));
        assert_eq!(cache.stage(key(0, 3)), Some(staged), "{kind}");
        let Statistics { discarded, wasted, evicted, .. } = cache.statistics();
        assert_eq!((discarded, wasted, evicted), (2, 0, 0), "{kind}");
    }
}

#[test]
fn a_cache_without_slots_bypasses_everything() {
    for kind in PolicyKind::ALL {
        let mut cache = cache(kind, 0, 0);
        assert_eq!(cache.access(key(2, 7)), Access::Bypass, "{kind}");
        assert_eq!(cache.stage(key(0, 0)), None, "{kind}");
    }
}

#[test]
fn lru_evicts_what_was_used_longest_ago() {
    let mut cache = cache(PolicyKind::Lru, 3, 0);
    [0, 1, 2, 0].iter().for_each(|expert| _ = cache.access(key(0, *expert)));
    assert_eq!(evicted_by(cache.access(key(0, 3))), Some(key(0, 1)));
    assert_eq!(evicted_by(cache.access(key(0, 4))), Some(key(0, 2)));
}

#[test]
fn lfu_evicts_what_was_used_least_and_remembers_counts_after_eviction() {
    let mut cache = cache(PolicyKind::Lfu, 2, 0);
    [0, 0, 0, 1, 1].iter().for_each(|expert| _ = cache.access(key(0, *expert)));
    assert_eq!(evicted_by(cache.access(key(0, 2))), Some(key(0, 1)));
    assert_eq!(evicted_by(cache.access(key(0, 1))), Some(key(0, 2)), "1 comes back with the uses that it had");
    assert_eq!(evicted_by(cache.access(key(0, 2))), Some(key(0, 0)), "3 uses each, and 0 was used longest ago");
}

#[test]
fn lfu_forgets_old_uses() {
    let mut cache = cache(PolicyKind::Lfu, 2, 0);
    (0..9).for_each(|_| _ = cache.access(key(0, 0)));
    // Counts are halved after 20 requests, at every time: 9 uses of long ago are worth less than a few of now.
    (0..60).for_each(|i| _ = cache.access(key(0, 1 + i % 2)));
    assert_eq!(cache.find(key(0, 0)), None);
}

#[test]
fn w_tinylfu_sends_the_seldom_used_away_from_its_window() {
    let mut cache = cache(PolicyKind::WTinyLfu { window: 0.0 }, 4, 0);
    for _ in 0..3 {
        (0..4).for_each(|expert| _ = cache.access(key(0, expert)));
    }
    // The window holds one key. Those used once pass through it and are not admitted.
    cache.access(key(1, 0));
    for expert in 1..5 {
        assert_eq!(evicted_by(cache.access(key(1, expert))), Some(key(1, expert - 1)));
    }
    assert_eq!(cache.statistics().rejected, 5, "first 3, the last of the four, was in the window");
}

#[test]
fn decayed_frequency_keeps_layers_to_their_shares() {
    let mut cache = cache(PolicyKind::DecayedFrequency { half_life_tokens: 32.0 }, 6, 0);
    for layer in [0, 1, 2, 0] {
        (0..8).for_each(|expert| _ = cache.access(key(layer, expert)));
    }
    for layer in 0..N_LAYERS {
        let cached = (0..8).filter(|expert| cache.find(key(layer, *expert)).is_some()).count();
        assert_eq!(cached, 2, "layer {layer}");
    }
}

#[test]
fn decayed_frequency_takes_from_its_own_layer_also_when_the_least_used_are_pinned() {
    let mut cache = cache(PolicyKind::DecayedFrequency { half_life_tokens: 32.0 }, 6, 0);
    for layer in [0, 1, 2] {
        (0..2).for_each(|expert| _ = cache.access(key(layer, expert)));
    }
    cache.access(key(0, 1));
    let slot = cache.find(key(0, 0)).unwrap();
    cache.pin(slot);
    assert_eq!(evicted_by(cache.access(key(0, 2))), Some(key(0, 1)));
}

#[test]
fn decayed_frequency_remembers_counts_after_eviction() {
    let mut cache = Cache::new(PolicyKind::DecayedFrequency { half_life_tokens: 32.0 }, 1, 8, 2, 0);
    (0..4).for_each(|_| token(&mut cache, &[0]));
    (0..8).for_each(|_| token(&mut cache, &[1]));
    (0..6).for_each(|_| token(&mut cache, &[2]));
    assert_eq!(cache.find(key(0, 0)), None, "fewest uses");
    token(&mut cache, &[0]);
    token(&mut cache, &[3]);
    assert_eq!(cache.find(key(0, 0)), None, "5 uses are the fewest of those cached");
    (0..3).for_each(|_| token(&mut cache, &[0]));
    token(&mut cache, &[3]);
    assert!(cache.find(key(0, 0)).is_some(), "8 uses are not");
}

#[test]
fn uses_count_half_after_the_half_life() {
    let kind = PolicyKind::LayerAware { half_life_tokens: 4.0, last_set_bonus: 0.0 };
    let mut cache = Cache::new(kind, 1, 8, 2, 0);
    // 0 is used 8 times and left alone for 16 tokens, four half-lives: less than the one use of a moment ago.
    (0..8).for_each(|_| token(&mut cache, &[0]));
    (0..16).for_each(|_| token(&mut cache, &[1]));
    token(&mut cache, &[2]);
    assert!(cache.find(key(0, 0)).is_none() && cache.find(key(0, 1)).is_some());
    token(&mut cache, &[3]);
    assert!(cache.find(key(0, 2)).is_none() && cache.find(key(0, 3)).is_some());
}

#[test]
fn the_default_keeps_what_a_layer_chose_last_until_its_next_turn() {
    let mut cache = cache(PolicyKind::default(), 4, 0);
    for _ in 0..4 {
        [key(0, 0), key(0, 1), key(1, 0)].iter().for_each(|key| _ = cache.access(*key));
        cache.end_token();
    }
    cache.access(key(0, 0));
    cache.access(key(1, 5));
    cache.end_token();
    // Expert 5 of layer 1 has one use, expert 1 of layer 0 has four; but layer 1 has just chosen 5.
    assert_eq!(evicted_by(cache.access(key(0, 2))), Some(key(0, 1)));
    // Layer 1 has its turn and does not choose 5 again.
    cache.access(key(1, 0));
    assert_eq!(evicted_by(cache.access(key(2, 0))), Some(key(1, 5)));
}

#[test]
fn a_pass_over_many_tokens_counts_like_the_tokens_one_by_one() {
    let uses = |cache: &Cache, key: u32| cache.hot().iter().find(|(hot, _)| *hot == key).unwrap().1;
    let (mut one_by_one, mut at_once) = (cache(PolicyKind::default(), 4, 0), cache(PolicyKind::default(), 4, 0));
    for _ in 0..500 {
        one_by_one.access(key(0, 0));
        one_by_one.end_token();
    }
    at_once.begin_pass(500);
    at_once.access_for(key(0, 0), 500);
    at_once.end_token();
    let (one_by_one, at_once) = (uses(&one_by_one, key(0, 0)), uses(&at_once, key(0, 0)));
    assert!((one_by_one - at_once).abs() < 1e-3 * one_by_one, "{one_by_one} {at_once}");
    assert!(at_once < 300.0, "the first of 500 count less: {at_once}");
}

#[test]
fn counts_survive_very_long_runs_and_very_long_passes() {
    // The unit of counts doubles with every token here: it starts anew about every 232 tokens.
    for kind in [
        PolicyKind::LayerAware { half_life_tokens: 1.0, last_set_bonus: 6.0 },
        PolicyKind::DecayedFrequency { half_life_tokens: 1.0 },
    ] {
        let mut cache = Cache::new(kind, 1, 8, 2, 0);
        for i in 0..5000 {
            token(&mut cache, &[0, 1 + i % 7]);
            assert!(cache.find(key(0, 0)).is_some(), "used for every token, {kind}, token {i}");
        }
        cache.begin_pass(u32::MAX);
        cache.access_for(key(0, 7), u32::MAX);
        cache.end_token();
        token(&mut cache, &[6]);
        assert!(cache.find(key(0, 7)).is_some(), "{kind}");
    }
}

#[test]
fn what_was_hot_is_warm_at_the_next_start() {
    for kind in PolicyKind::ALL {
        let mut before = cache(kind, 2, 0);
        for (key, n) in [(key(0, 1), 3), (key(1, 2), 5), (key(2, 3), 1)] {
            (0..n).for_each(|_| _ = before.access(key));
            before.end_token();
        }
        let hot = before.hot();
        assert_eq!(hot.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [key(1, 2), key(0, 1), key(2, 3)]);
        let mut after = cache(kind, 2, 0);
        let given: Vec<bool> = hot.iter().map(|(key, weight)| after.warm(*key, *weight).is_some()).collect();
        assert_eq!(given, [true, true, false], "there are two slots, {kind}");
        assert!(matches!(after.access(key(1, 2)), Access::Hit(_)), "{kind}");
        assert_eq!(after.statistics(), Statistics { accesses: 1, hits: 1, ..Statistics::default() }, "{kind}");
    }
}

#[test]
fn names_are_read_as_they_are_written_and_take_parameters() {
    for kind in PolicyKind::ALL {
        assert_eq!(kind.name().parse(), Ok(kind));
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    assert_eq!("w-tinylfu:0.01".parse(), Ok(PolicyKind::WTinyLfu { window: 0.01 }));
    assert_eq!("decayed-lfu:16".parse(), Ok(PolicyKind::DecayedFrequency { half_life_tokens: 16.0 }));
    for wrong in ["", "fifo", "LRU", "lru:1", "w-tinylfu:2", "w-tinylfu:nan", "decayed-lfu:0", "layer-aware:x"] {
        let error = wrong.parse::<PolicyKind>().unwrap_err();
        assert!(error.to_string().starts_with(&format!("no cache policy `{wrong}`; choose lru")), "{error}");
    }
}

#[test]
fn belady_keeps_what_is_used_next() {
    // One layer, one key per visit, two slots: 0 and 1 come back, 2 and 3 do not and are not kept.
    let keys = vec![0, 1, 2, 0, 3, 1, 0];
    let visits = (0..keys.len()).map(|i| Visit { token: i as u32, end: i + 1 }).collect();
    let trace = Trace { n_layers: 1, n_experts: 4, keys, visits, n_prompt_keys: 2 };
    assert_eq!(belady(&trace, 2), HitRates { prompt_accesses: 2, prompt_hits: 0, accesses: 5, hits: 3 });
    assert_eq!(belady(&trace, 0).hits, 0);
    let lru = replay(&trace, PolicyKind::Lru, 2);
    assert_eq!(lru, HitRates { prompt_accesses: 2, prompt_hits: 0, accesses: 5, hits: 0 });
    assert_eq!(HitRates::default().rate(), 0.0);
}

#[derive(Clone, Debug)]
enum Call {
    Access(u32),
    Stage(u32),
    Pin(u32),
    Unpin(u32),
    Discard(u32),
    Warm(u32),
    EndToken,
    BeginPass(u32),
}

fn call() -> impl Strategy<Value = Call> {
    let key = || 0..(N_LAYERS * N_EXPERTS) as u32;
    prop_oneof![
        8 => key().prop_map(Call::Access),
        3 => key().prop_map(Call::Stage),
        3 => key().prop_map(Call::Pin),
        3 => key().prop_map(Call::Unpin),
        1 => key().prop_map(Call::Discard),
        1 => key().prop_map(Call::Warm),
        1 => Just(Call::EndToken),
        1 => (1u32..300).prop_map(Call::BeginPass),
    ]
}

/// What any cache must hold to, written as plainly as possible: which keys are where, and how often they are pinned.
#[derive(Default)]
struct Model {
    cached: Vec<u32>,
    staged: Vec<u32>,
    pins: std::collections::HashMap<u32, u32>,
    slots: std::collections::HashMap<u32, usize>,
}

impl Model {
    fn is_pinned(&self, key: u32) -> bool {
        self.pins.get(&key).is_some_and(|pins| *pins > 0)
    }

    fn forget(&mut self, key: u32) {
        self.cached.retain(|other| *other != key);
        self.staged.retain(|other| *other != key);
        self.slots.remove(&key);
    }
}

proptest! {
    #[test]
    fn every_policy_keeps_to_a_naive_model(
        n_slots in 0usize..10,
        n_staging in 0usize..4,
        half_life in 0.5f32..40.0,
        calls in prop::collection::vec(call(), 1..300),
    ) {
        let shared = PolicyKind::LayerAware { half_life_tokens: half_life, last_set_bonus: 2.0 };
        let per_layer = PolicyKind::DecayedFrequency { half_life_tokens: half_life };
        for kind in PolicyKind::ALL.into_iter().chain([shared, per_layer, PolicyKind::WTinyLfu { window: 1.0 }]) {
            follow(&mut cache(kind, n_slots, n_staging), n_slots, n_staging, &calls);
        }
    }
}

/// Makes the calls on the cache and on the model, and compares after each.
fn follow(cache: &mut Cache, n_slots: usize, n_staging: usize, calls: &[Call]) {
    let mut model = Model::default();
    for call in calls {
        match *call {
            Call::Access(key) => {
                let access = cache.access(key);
                let has_room = model.cached.len() < n_slots;
                let has_victim = model.cached.iter().any(|key| !model.is_pinned(*key));
                let gone: Vec<u32> = model.cached.iter().filter(|key| cache.find(**key).is_none()).copied().collect();
                assert!(gone.len() <= 1 && gone.iter().all(|key| !model.is_pinned(*key)));
                assert!(gone.is_empty() || !has_room, "nothing makes way while there is room");
                gone.iter().for_each(|key| model.forget(*key));
                match access {
                    Access::Hit(slot) => {
                        assert!(model.cached.contains(&key));
                        assert_eq!(model.slots[&key], slot);
                        assert!(gone.is_empty());
                    }
                    Access::Staged(slot) => {
                        assert!(model.staged.contains(&key));
                        assert_eq!(model.slots[&key], slot, "a staged key stays where it is");
                        if has_room || has_victim {
                            model.staged.retain(|other| *other != key);
                            model.cached.push(key);
                        }
                    }
                    Access::Miss { slot, evicted } => {
                        assert!(!model.slots.contains_key(&key));
                        assert_eq!(evicted.as_slice(), gone);
                        model.cached.push(key);
                        model.slots.insert(key, slot);
                    }
                    Access::Bypass => assert!(!model.slots.contains_key(&key) && !has_room && !has_victim),
                }
            }
            Call::Stage(key) => {
                let was_absent = !model.slots.contains_key(&key);
                let oldest = model.staged.iter().find(|key| !model.is_pinned(**key)).copied();
                let is_full = model.staged.len() == n_staging;
                let slot = cache.stage(key);
                assert_eq!(slot.is_some(), was_absent && n_staging > 0 && (!is_full || oldest.is_some()));
                if let Some(slot) = slot {
                    if is_full {
                        model.forget(oldest.unwrap());
                    }
                    model.staged.push(key);
                    model.slots.insert(key, slot);
                }
            }
            Call::Pin(key) => {
                if let Some(slot) = model.slots.get(&key) {
                    cache.pin(*slot);
                    *model.pins.entry(key).or_default() += 1;
                }
            }
            Call::Unpin(key) => {
                if model.is_pinned(key) {
                    cache.unpin(model.slots[&key]);
                    *model.pins.get_mut(&key).unwrap() -= 1;
                }
            }
            Call::Discard(key) => {
                if !model.is_pinned(key) {
                    cache.discard(key);
                    model.forget(key);
                }
            }
            Call::Warm(key) => {
                let fits = !model.slots.contains_key(&key) && model.cached.len() < n_slots;
                let slot = cache.warm(key, 3.5);
                assert_eq!(slot.is_some(), fits);
                if let Some(slot) = slot {
                    model.cached.push(key);
                    model.slots.insert(key, slot);
                }
            }
            Call::EndToken => cache.end_token(),
            Call::BeginPass(n_tokens) => cache.begin_pass(n_tokens),
        }
        for key in 0..(N_LAYERS * N_EXPERTS) as u32 {
            assert_eq!(cache.find(key), model.slots.get(&key).copied());
        }
        let mut slots: Vec<usize> = model.slots.values().copied().collect();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), model.slots.len(), "two keys hold one slot");
        assert!(slots.last().is_none_or(|slot| *slot < n_slots + n_staging));
        assert!(model.cached.len() <= n_slots && model.staged.len() <= n_staging);
        let Statistics { accesses, hits, staging_hits, misses, bypasses, evicted, rejected, .. } = cache.statistics();
        assert_eq!(accesses, hits + staging_hits + misses + bypasses);
        assert!(evicted <= misses + staging_hits && rejected <= evicted);
    }
}

/// Decayed counts by their definition, all in a list: what the heaps must agree with.
#[test]
fn the_default_evicts_as_its_definition_says() {
    let (half_life, bonus, n_slots) = (5.0f64, 2.0f64, 7);
    let kind = PolicyKind::LayerAware { half_life_tokens: 5.0, last_set_bonus: 2.0 };
    let mut cache = cache(kind, n_slots, 0);
    let mut counts = [0.0f64; N_LAYERS * N_EXPERTS];
    let mut last = [0; N_LAYERS * N_EXPERTS];
    let mut last_sets: Vec<Vec<u32>> = vec![Vec::new(); N_LAYERS];
    let mut cached: Vec<u32> = Vec::new();
    let mut state = 7u64;
    let mut n_evicted = 0;
    for at in 0..6000 {
        // A linear congruential generator (Knuth's MMIX constants); two choices per layer, skewed to low ids.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (a, b) = ((state >> 33) as usize % N_EXPERTS, (state >> 45) as usize % N_EXPERTS);
        let layer = at / 2 % N_LAYERS;
        let chosen = key(layer, a.min(b));
        if at % 2 == 0 {
            let of_layer = layer * N_EXPERTS..(layer + 1) * N_EXPERTS;
            counts[of_layer].iter_mut().for_each(|count| *count *= (-1.0 / half_life).exp2());
            last_sets[layer].clear();
        }
        counts[chosen as usize] += 1.0;
        last[chosen as usize] = at;
        last_sets[layer].push(chosen);
        let worth = |key: u32| {
            let in_last_set = last_sets[key as usize / N_EXPERTS].contains(&key);
            counts[key as usize] + if in_last_set { bonus } else { 0.0 }
        };
        match cache.access(chosen) {
            Access::Hit(_) => assert!(cached.contains(&chosen)),
            Access::Miss { evicted, .. } => {
                assert_eq!(evicted.is_some(), cached.len() == n_slots);
                if let Some(evicted) = evicted {
                    n_evicted += 1;
                    let least = cached.iter().map(|key| worth(*key)).fold(f64::INFINITY, f64::min);
                    assert!(worth(evicted) <= least * (1.0 + 1e-9), "request {at}: {} {least}", worth(evicted));
                    cached.retain(|key| *key != evicted);
                }
                cached.push(chosen);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(n_evicted > 500, "{n_evicted}");
}

//! Choices of experts that no model made: uneven, with topics that drift, the same for the same seed.
//!
//! Each layer has its own popularity: the expert of rank r weighs `1 / (r + 1)^skew`, ranks in a random order. On top of
//! that it has favourites, the topic of the text, each of which gives way to a random other one now and then. A token's
//! experts are drawn without replacement, by weight.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::ops::Range;

use crate::store::policy::{Trace, Visit};

/// What the choices are like. The defaults are fitted to recorded choices of Qwen3-30B-A3B: with the default policy, hit
/// rates from 5 to 50 % of experts cached are within four points of those.
#[derive(Clone, Debug, PartialEq)]
pub struct SyntheticRouting {
    /// Same seed, same choices.
    pub seed: u64,
    /// Exponent of the popularity; 0 makes all experts alike.
    pub skew: f64,
    /// Tokens that an expert stays one of its layer's favourites, on average; 0: there are no favourites.
    pub drift_tokens: f64,
    /// Tokens whose experts are chosen without any structure: all alike, as if the text were noise. The choices of the
    /// other tokens do not depend on it.
    pub burst: Option<Range<usize>>,
}

impl Default for SyntheticRouting {
    fn default() -> Self {
        Self { seed: 0, skew: 1.0, drift_tokens: 48.0, burst: None }
    }
}

/// The layers that choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoutingShape {
    /// Layers.
    pub n_layers: usize,
    /// Experts of a layer.
    pub n_experts: usize,
    /// Experts that a token uses in a layer.
    pub n_used: usize,
}

/// Favourites of a layer, for each expert that a token uses.
const FAVOURITES_PER_USED: usize = 3;
/// How many times more a favourite weighs than by its rank alone.
const FAVOUR: f64 = 40.0;

impl SyntheticRouting {
    /// The choices of `n_tokens` tokens.
    ///
    /// # Panics
    /// If a layer has fewer experts than a token uses, or there are more than `u32::MAX` tokens or experts.
    pub fn trace(&self, shape: RoutingShape, n_tokens: usize) -> Trace {
        match self.trace_while(shape, n_tokens, &|| false) {
            Some(trace) => trace,
            None => unreachable!("nobody cancels it"),
        }
    }

    /// As [`trace`](Self::trace); `None` if `cancelled` says so, which is asked for each token.
    ///
    /// # Panics
    /// As [`trace`](Self::trace).
    pub fn trace_while(&self, shape: RoutingShape, n_tokens: usize, cancelled: &dyn Fn() -> bool) -> Option<Trace> {
        let RoutingShape { n_layers, n_experts, n_used } = shape;
        assert!(n_used <= n_experts, "{n_used} of {n_experts} experts");
        assert!(u32::try_from(n_layers * n_experts).is_ok() && u32::try_from(n_tokens).is_ok(), "32 bits are enough");
        let mut layers: Vec<Layer> = (0..n_layers).map(|layer| Layer::new(self, shape, layer)).collect();
        let mut trace = Trace {
            n_layers,
            n_experts,
            keys: Vec::with_capacity(n_tokens * n_layers * n_used),
            visits: Vec::with_capacity(n_tokens * n_layers),
            n_prompt_keys: 0,
        };
        for token in 0..n_tokens {
            if cancelled() {
                return None;
            }
            let structured = !self.burst.as_ref().is_some_and(|burst| burst.contains(&token));
            for (layer, state) in layers.iter_mut().enumerate() {
                let chosen = state.choose(n_used, structured);
                trace.keys.extend(chosen.map(|expert| (layer * n_experts + expert) as u32));
                trace.visits.push(Visit { token: token as u32, end: trace.keys.len() });
                state.drift(self.drift_tokens);
            }
        }
        Some(trace)
    }
}

/// A layer's popularity, and its topic now.
struct Layer {
    /// Weight of each expert by its rank.
    popularity: Vec<f64>,
    favourites: Vec<usize>,
    /// Which experts are favourites, `[n_experts]`.
    favoured: Vec<bool>,
    /// One number for each expert and token, whatever the weights, so that a burst does not shift what comes after it.
    draws: Random,
    drifts: Random,
    /// Scores of the present token, kept for their memory.
    times: Vec<(f64, usize)>,
}

impl Layer {
    fn new(routing: &SyntheticRouting, shape: RoutingShape, layer: usize) -> Self {
        let mut drifts = Random::of(routing.seed, 2 * layer as u64 + 1);
        let mut ranks: Vec<usize> = (0..shape.n_experts).collect();
        shuffle(&mut ranks, &mut drifts);
        let popularity = ranks.iter().map(|rank| libm::pow((rank + 1) as f64, -routing.skew)).collect();
        let mut experts: Vec<usize> = (0..shape.n_experts).collect();
        shuffle(&mut experts, &mut drifts);
        let n_favourites = match routing.drift_tokens > 0.0 {
            true => (FAVOURITES_PER_USED * shape.n_used).min(shape.n_experts / 2),
            false => 0,
        };
        experts.truncate(n_favourites);
        let mut favoured = vec![false; shape.n_experts];
        experts.iter().for_each(|&expert| favoured[expert] = true);
        let draws = Random::of(routing.seed, 2 * layer as u64);
        Self { popularity, favourites: experts, favoured, draws, drifts, times: Vec::new() }
    }

    /// Experts of one token, the likeliest of them first: each comes after a time that is exponentially distributed,
    /// the sooner the more it weighs, and the first ones are taken.
    ///
    /// Source: Efraimidis and Spirakis 2006, Weighted random sampling with a reservoir, doi 10.1016/j.ipl.2005.11.003.
    fn choose(&mut self, n_used: usize, structured: bool) -> impl Iterator<Item = usize> {
        self.times.clear();
        for (expert, (popularity, favoured)) in self.popularity.iter().zip(&self.favoured).enumerate() {
            let weight = match (structured, favoured) {
                (false, _) => 1.0,
                (true, false) => *popularity,
                (true, true) => popularity * FAVOUR,
            };
            self.times.push((-libm::log(self.draws.unit()) / weight, expert));
        }
        let by_time = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0);
        if n_used < self.times.len() {
            self.times.select_nth_unstable_by(n_used, by_time);
        }
        self.times.truncate(n_used);
        self.times.sort_by(by_time);
        self.times.iter().map(|(_, expert)| *expert)
    }

    /// Lets each favourite give way with a chance of one in `tokens`.
    fn drift(&mut self, tokens: f64) {
        for favourite in &mut self.favourites {
            if self.drifts.unit() * tokens >= 1.0 {
                continue;
            }
            // At least half of the experts are none, so this ends soon.
            let next = loop {
                let expert = self.drifts.below(self.favoured.len());
                if !self.favoured[expert] {
                    break expert;
                }
            };
            self.favoured[std::mem::replace(favourite, next)] = false;
            self.favoured[next] = true;
        }
    }
}

/// Guesses at choices before they are made, as a router applied one layer early would: right with a stated chance.
pub struct Guesser {
    accuracy: f64,
    random: Random,
    /// Recent choices of each layer: what a wrong guess is likely to be.
    recent: Vec<Vec<u32>>,
}

/// Tokens whose choices wrong guesses come from.
const RECENT_TOKENS: usize = 32;

impl Guesser {
    /// Guesses for `n_layers` layers; each choice is guessed with the chance `accuracy`, 0 to 1.
    pub fn new(seed: u64, accuracy: f64, n_layers: usize) -> Self {
        // A stream that no layer has.
        Self { accuracy, random: Random::of(seed, u64::MAX), recent: vec![Vec::new(); n_layers] }
    }

    /// `n` guesses, or as many as there are experts, at what `layer` is about to choose, which is `chosen`.
    pub fn guess(&mut self, layer: usize, chosen: &[u32], n_experts: usize, n: usize) -> Vec<u32> {
        let mut guess: Vec<u32> = Vec::with_capacity(n);
        let mut n_wrong = n.saturating_sub(chosen.len());
        for &expert in chosen.iter().take(n) {
            match self.random.unit() < self.accuracy {
                true => guess.push(expert),
                false => n_wrong += 1,
            }
        }
        for _ in 0..n_wrong.min(n_experts.saturating_sub(chosen.len())) {
            let wrong = self.wrong(layer, n_experts, |expert| chosen.contains(&expert) || guess.contains(&expert));
            guess.push(wrong);
        }
        let recent = &mut self.recent[layer];
        recent.extend_from_slice(chosen);
        if recent.len() > RECENT_TOKENS * chosen.len() {
            recent.drain(..recent.len() - RECENT_TOKENS * chosen.len());
        }
        guess
    }

    /// An expert that is not `taken`, of which there is one: mostly one that was chosen lately.
    fn wrong(&mut self, layer: usize, n_experts: usize, taken: impl Fn(u32) -> bool) -> u32 {
        const TRIES: usize = 8;
        for _ in 0..TRIES.min(self.recent[layer].len()) {
            let expert = self.recent[layer][self.random.below(self.recent[layer].len())];
            if !taken(expert) {
                return expert;
            }
        }
        loop {
            let expert = self.random.below(n_experts) as u32;
            if !taken(expert) {
                return expert;
            }
        }
    }
}

fn shuffle(items: &mut [usize], random: &mut Random) {
    for i in (1..items.len()).rev() {
        items.swap(i, random.below(i + 1));
    }
}

/// A stream of a seed's random numbers.
struct Random(ChaCha8Rng);

impl Random {
    fn of(seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Self(rng)
    }

    /// Evenly spread between 0 and 1, never either.
    fn unit(&mut self) -> f64 {
        (f64::from(self.0.next_u32()) + 0.5) / (f64::from(u32::MAX) + 1.0)
    }

    /// A whole number below `n`, which is above 0.
    fn below(&mut self, n: usize) -> usize {
        // `unit` is below 1; the product could still be rounded up to `n`.
        ((self.unit() * n as f64) as usize).min(n - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::policy::{PolicyKind, replay};

    const SHAPE: RoutingShape = RoutingShape { n_layers: 6, n_experts: 128, n_used: 6 };

    /// Layer, token and experts of each visit.
    fn visits(trace: &Trace) -> Vec<Vec<u32>> {
        let mut start = 0;
        trace
            .visits
            .iter()
            .map(|visit| trace.keys[std::mem::replace(&mut start, visit.end)..visit.end].to_vec())
            .collect()
    }

    /// Share of a visit's experts that its layer also chose for the token before.
    fn returning(trace: &Trace) -> f64 {
        let visits = visits(trace);
        let pairs = visits.iter().zip(&visits[trace.n_layers..]);
        let (mut same, mut all) = (0, 0);
        for (before, now) in pairs {
            same += now.iter().filter(|key| before.contains(key)).count();
            all += now.len();
        }
        f64::from(same as u32) / f64::from(all as u32)
    }

    #[test]
    fn a_seed_gives_the_same_choices_for_ever() {
        let routing = SyntheticRouting { seed: 7, ..Default::default() };
        let trace = routing.trace(SHAPE, 20);
        assert_eq!(trace, routing.trace(SHAPE, 20));
        assert_ne!(trace.keys, SyntheticRouting { seed: 8, ..routing.clone() }.trace(SHAPE, 20).keys);
        let longer = routing.trace(SHAPE, 30);
        assert_eq!(longer.keys[..trace.keys.len()], trace.keys);
        assert_eq!(trace.keys[..6], [106, 34, 4, 51, 59, 124]);
    }

    #[test]
    fn each_visit_chooses_distinct_experts_of_its_layer() {
        let trace = SyntheticRouting::default().trace(SHAPE, 10);
        assert_eq!(trace.visits.len(), 60);
        for (i, mut keys) in visits(&trace).into_iter().enumerate() {
            let layer = i % SHAPE.n_layers;
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), SHAPE.n_used);
            assert!(keys.iter().all(|key| *key as usize / SHAPE.n_experts == layer), "{keys:?} in layer {layer}");
        }
        let all = SyntheticRouting::default().trace(RoutingShape { n_layers: 1, n_experts: 3, n_used: 3 }, 2);
        assert_eq!(all.keys.len(), 6);
    }

    #[test]
    fn skew_makes_some_experts_popular() {
        let share_of_top_tenth = |skew| {
            let routing = SyntheticRouting { skew, drift_tokens: 0.0, ..Default::default() };
            let trace = routing.trace(SHAPE, 400);
            let mut counts = vec![0u32; SHAPE.n_layers * SHAPE.n_experts];
            trace.keys.iter().for_each(|key| counts[*key as usize] += 1);
            let top: u32 = counts
                .chunks_mut(SHAPE.n_experts)
                .map(|layer| {
                    layer.sort_unstable_by(|a, b| b.cmp(a));
                    layer[..SHAPE.n_experts / 10].iter().sum::<u32>()
                })
                .sum();
            f64::from(top) / trace.keys.len() as f64
        };
        let [even, some, strong] = [0.0, 0.6, 1.5].map(share_of_top_tenth);
        assert!(even < 0.2 && some > even + 0.1 && strong > some + 0.2, "{even} {some} {strong}");
    }

    #[test]
    fn favourites_make_experts_return_and_drift_lets_them_go() {
        let of = |drift_tokens| SyntheticRouting { skew: 0.0, drift_tokens, ..Default::default() }.trace(SHAPE, 300);
        let [none, slow] = [0.0, 200.0].map(|drift| returning(&of(drift)));
        assert!(none < 0.1 && slow > none + 0.1, "{none} {slow}");
        let slots = 10 * SHAPE.n_layers * SHAPE.n_used / 6;
        let rates = [200.0, 4.0].map(|drift| replay(&of(drift), PolicyKind::Lru, slots).rate());
        assert!(rates[0] > rates[1] + 0.05, "{rates:?}");
    }

    #[test]
    fn a_burst_has_no_structure_and_changes_nothing_else() {
        let calm = SyntheticRouting::default();
        let burst = SyntheticRouting { burst: Some(100..200), ..calm.clone() };
        let [calm, burst] = [calm, burst].map(|routing| visits(&routing.trace(SHAPE, 300)));
        let n = SHAPE.n_layers;
        assert_eq!((&calm[..100 * n], &calm[200 * n..]), (&burst[..100 * n], &burst[200 * n..]));
        let part = |visits: &[Vec<u32>]| {
            let keys: Vec<u32> = visits[100 * n..200 * n].concat();
            returning(&Trace {
                visits: (1..=100 * n).map(|i| Visit { token: (i / n) as u32, end: i * SHAPE.n_used }).collect(),
                n_layers: n,
                n_experts: SHAPE.n_experts,
                keys,
                n_prompt_keys: 0,
            })
        };
        let by_chance = SHAPE.n_used as f64 / SHAPE.n_experts as f64;
        assert!((part(&burst) - by_chance).abs() < 0.02 && part(&calm) > 3.0 * by_chance);
    }

    #[test]
    fn guesses_are_right_as_often_as_stated_and_never_twice_the_same() {
        for (accuracy, n) in [(0.0, 6), (0.85, 6), (1.0, 6), (0.85, 3), (0.85, 12)] {
            let mut guesser = Guesser::new(1, accuracy, SHAPE.n_layers);
            let trace = SyntheticRouting::default().trace(SHAPE, 200);
            let (mut right, mut possible) = (0, 0);
            for (i, keys) in visits(&trace).into_iter().enumerate() {
                let chosen: Vec<u32> = keys.iter().map(|key| key % SHAPE.n_experts as u32).collect();
                let mut guess = guesser.guess(i % SHAPE.n_layers, &chosen, SHAPE.n_experts, n);
                assert_eq!(guess.len(), n);
                right += guess.iter().filter(|expert| chosen.contains(expert)).count();
                possible += n.min(chosen.len());
                guess.sort_unstable();
                guess.dedup();
                assert_eq!(guess.len(), n);
            }
            let share = right as f64 / possible as f64;
            assert!((share - accuracy).abs() < 0.02, "{share} for {accuracy}, {n} guesses");
        }
        assert_eq!(Guesser::new(1, 0.0, 1).guess(0, &[0, 1], 3, 5), [2]);
    }
}

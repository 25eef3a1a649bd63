//! Decayed frequency: the policies that know of layers and tokens.
//!
//! A use counts half after `half_life` tokens of its layer. Instead of shrinking all counts of a layer at every token,
//! the unit in which new uses are counted grows (by `2^(1 / half_life)`): then only the keys of the request move in the
//! layer's heap. Across layers, the least count of each layer, in the layer's present unit, is in a heap of layers.

use super::heap::{Heap, Rank};
use super::order::{Order, Pins, Request, Shape};

/// Counts are brought back to a unit of 1 once it has grown past this: far from the end of f64's range (2^1024).
const MAX_UNIT: f64 = 1e70;
/// A pass over as many half-lives as this leaves nothing of older counts (2^-200).
const FORGOTTEN: f64 = 200.0;

/// Who may take a slot from whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Budget {
    /// The least count of all layers makes way.
    Shared,
    /// The least count of the same layer makes way, once the layer has its share.
    PerLayer,
}

pub(super) struct Frequency {
    n_experts: usize,
    counts: Counts,
    last_request: Vec<u64>,
    /// Uses that having been chosen for the layer's last token is worth.
    bonus: f64,
    layers: Vec<Layer>,
    /// Layers that have cached keys, by their least count in the present unit.
    least: Heap,
    budget: Option<Vec<usize>>,
    aside: Vec<(usize, Rank, u32)>,
}

struct Layer {
    /// Experts that are cached, by count and bonus.
    cached: Heap,
    /// Experts of the present or last visit, each once. They have the bonus.
    last_set: Vec<u32>,
    is_in_last_set: Vec<bool>,
}

impl Layer {
    fn new(n_experts: usize) -> Self {
        Self { cached: Heap::new(n_experts), last_set: Vec::new(), is_in_last_set: vec![false; n_experts] }
    }
}

/// Decayed uses of every key, cached or not.
pub(super) struct Counts {
    n_experts: usize,
    half_life: f64,
    counts: Vec<f64>,
    /// What a use adds now, per layer.
    units: Vec<f64>,
    /// What a choice within the present pass is worth in units: less than 1 where the pass has many tokens, as its first
    /// ones are old by its end.
    per_choice: f64,
}

impl Counts {
    pub(super) fn new(shape: Shape, half_life: f32) -> Self {
        assert!(half_life > 0.0, "the half-life of a count must be above 0");
        Self {
            n_experts: shape.n_experts,
            half_life: half_life.into(),
            counts: vec![0.0; shape.n_keys()],
            units: vec![1.0; shape.n_layers],
            per_choice: 1.0,
        }
    }

    /// Lets a layer's counts grow old by `n_tokens`. Says whether the counts have changed their unit.
    pub(super) fn age(&mut self, layer: usize, n_tokens: u32) -> bool {
        let half_lives = f64::from(n_tokens) / self.half_life;
        // Choices spread evenly over the pass: the mean of 2^(-i / half_life) for i below n_tokens.
        let decay = (-half_lives / f64::from(n_tokens)).exp2();
        self.per_choice =
            if n_tokens == 1 { 1.0 } else { (1.0 - (-half_lives).exp2()) / (1.0 - decay) / f64::from(n_tokens) };
        let of_layer = layer * self.n_experts..(layer + 1) * self.n_experts;
        if half_lives > FORGOTTEN {
            self.counts[of_layer].fill(0.0);
            self.units[layer] = 1.0;
            return true;
        }
        self.units[layer] *= half_lives.exp2();
        if self.units[layer] <= MAX_UNIT {
            return false;
        }
        let scale = 1.0 / self.units[layer];
        self.counts[of_layer].iter_mut().for_each(|count| *count *= scale);
        self.units[layer] = 1.0;
        true
    }

    pub(super) fn add(&mut self, key: u32, n_choices: u32) {
        let unit = self.units[key as usize / self.n_experts];
        self.counts[key as usize] += f64::from(n_choices) * self.per_choice * unit;
    }

    pub(super) fn set(&mut self, key: u32, uses: f32) {
        self.counts[key as usize] = f64::from(uses) * self.units[key as usize / self.n_experts];
    }

    /// Uses of a key, as old ones count now.
    pub(super) fn uses(&self, key: u32) -> f64 {
        self.counts[key as usize] / self.units[key as usize / self.n_experts]
    }
}

impl Frequency {
    pub(super) fn new(shape: Shape, half_life: f32, bonus: f32, budget: Budget) -> Self {
        let Shape { n_layers, n_experts, n_slots } = shape;
        // Where slots are left over, layers spread evenly over the model get one more.
        let share = |layer: usize| (layer + 1) * n_slots / n_layers - layer * n_slots / n_layers;
        Self {
            n_experts,
            counts: Counts::new(shape, half_life),
            last_request: vec![0; shape.n_keys()],
            bonus: bonus.into(),
            layers: (0..n_layers).map(|_| Layer::new(n_experts)).collect(),
            least: Heap::new(n_layers),
            budget: (budget == Budget::PerLayer).then(|| (0..n_layers).map(share).collect()),
            aside: Vec::new(),
        }
    }

    fn place(&self, key: u32) -> (usize, u32) {
        (key as usize / self.n_experts, key % self.n_experts as u32)
    }

    /// Puts a cached key where its count says, in its layer's heap; `bonus` in uses.
    fn rank(&mut self, key: u32, bonus: f64) {
        let (layer, expert) = self.place(key);
        let value = self.counts.counts[key as usize] + bonus * self.counts.units[layer];
        self.layers[layer].cached.set(expert, (value, self.last_request[key as usize]));
    }

    /// Puts a layer where its least count says.
    fn rank_layer(&mut self, layer: usize) {
        match self.layers[layer].cached.first() {
            Some(((value, at), _)) => self.least.set(layer as u32, (value / self.counts.units[layer], at)),
            None => self.least.remove(layer as u32),
        }
    }

    /// The layer from which a key makes way.
    fn victim_layer(&self, incoming: usize) -> Option<usize> {
        let Some(budget) = &self.budget else { return self.least.first().map(|(_, layer)| layer as usize) };
        let len = |layer: usize| self.layers[layer].cached.len();
        if len(incoming) > 0 && len(incoming) >= budget[incoming] {
            return Some(incoming);
        }
        // Others hold what this layer lacks: the slots were free when they took them.
        (0..self.layers.len())
            .filter(|layer| len(*layer) > 0)
            .max_by_key(|layer| len(*layer) as isize - budget[*layer] as isize)
    }
}

impl Order for Frequency {
    fn begin_visit(&mut self, layer: usize, n_tokens: u32) {
        let has_new_unit = self.counts.age(layer, n_tokens);
        let mut last_set = std::mem::take(&mut self.layers[layer].last_set);
        let first_key = (layer * self.n_experts) as u32;
        if has_new_unit {
            let (counts, last_request) = (&self.counts.counts, &self.last_request);
            self.layers[layer].cached.rerank(|expert| {
                let key = (first_key + expert) as usize;
                (counts[key], last_request[key])
            });
        } else if self.bonus != 0.0 {
            for &expert in &last_set {
                if self.layers[layer].cached.contains(expert) {
                    self.rank(first_key + expert, 0.0);
                }
            }
        }
        last_set.drain(..).for_each(|expert| self.layers[layer].is_in_last_set[expert as usize] = false);
        self.layers[layer].last_set = last_set;
        self.rank_layer(layer);
    }

    fn request(&mut self, request: Request) {
        self.counts.add(request.key, request.n_choices);
        self.last_request[request.key as usize] = request.at;
        let (layer, expert) = self.place(request.key);
        let layer = &mut self.layers[layer];
        if !std::mem::replace(&mut layer.is_in_last_set[expert as usize], true) {
            layer.last_set.push(expert);
        }
    }

    fn hit(&mut self, request: Request) {
        self.rank(request.key, self.bonus);
        self.rank_layer(request.key as usize / self.n_experts);
    }

    fn insert(&mut self, key: u32, at: u64) {
        // A key that enters without a request has no bonus.
        let is_requested = self.last_request[key as usize] == at && at != 0;
        self.rank(key, if is_requested { self.bonus } else { 0.0 });
        self.rank_layer(key as usize / self.n_experts);
    }

    fn remove(&mut self, key: u32) {
        let (layer, expert) = self.place(key);
        self.layers[layer].cached.remove(expert);
        self.rank_layer(layer);
    }

    fn victim(&mut self, incoming: u32, pins: &Pins) -> Option<u32> {
        let incoming = incoming as usize / self.n_experts;
        let mut aside = std::mem::take(&mut self.aside);
        let mut victim = None;
        while let Some(layer) = self.victim_layer(incoming) {
            let Some((rank, expert)) = self.layers[layer].cached.first() else { break };
            let key = (layer * self.n_experts) as u32 + expert;
            self.remove(key);
            if pins[key as usize] == 0 {
                victim = Some(key);
                break;
            }
            aside.push((layer, rank, expert));
        }
        for (layer, rank, expert) in aside.drain(..) {
            self.layers[layer].cached.set(expert, rank);
            self.rank_layer(layer);
        }
        self.aside = aside;
        victim
    }

    fn warm(&mut self, key: u32, weight: f32) {
        self.counts.set(key, weight);
    }
}

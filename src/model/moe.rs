//! The experts' block: router, choice, and every chosen expert multiplied with all of its tokens.

use super::dense::Bytes;
use super::linear::{Compute, Product};
use super::weights::Layer;
use super::workspace::{MoeBuffers, QuantizedSet, resize};
use super::{Config, ForwardError, RoutingObserver};
use crate::experts::{Expert, ExpertSource};
use crate::kernels::OutColumns;
use crate::quant::{ActivationFormat, TensorType};
use crate::routing::{SmartRoute, Substitutions, choose};
use std::sync::{Mutex, PoisonError};

/// The layer that is computed.
pub(super) struct MoeLayer<'a> {
    pub compute: Compute<'a>,
    pub config: &'a Config,
    /// The layer's dense tensors.
    pub dense: Bytes<'a>,
    pub experts: &'a dyn ExpertSource,
    pub layer: usize,
    pub weights: &'a Layer,
    /// Routing that prefers experts in memory, and what it counts.
    pub smart: Option<(SmartRoute, &'a Mutex<Substitutions>)>,
    pub cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl MoeLayer<'_> {
    /// Adds the experts' output to `x`.
    ///
    /// `x` and `normed` are `[batch, embed_dim]`. Experts are computed as they come into memory; each token's outputs
    /// are added up in the order of its choices all the same, from the likeliest on, and the sum is added to `x`.
    ///
    /// # Errors
    /// Where an expert cannot be had.
    pub fn add(
        &self,
        normed: &[f32],
        x: &mut [f32],
        quantized: &mut QuantizedSet,
        buffers: &mut MoeBuffers,
        observer: Option<&mut dyn RoutingObserver>,
    ) -> Result<(), ForwardError> {
        let n_tokens = x.len() / self.config.embed_dim;
        self.route(normed, n_tokens, quantized, buffers);
        if let Some(observer) = observer {
            observer.routed(self.layer, &buffers.router_logits, &buffers.choices);
        }
        let groups = Groups::of(&buffers.choices, self.config.routing.n_used);
        for format in self.experts.types(self.layer)[..2].iter().map(|ty| format(*ty)) {
            self.compute.quantize(format, normed, self.config.embed_dim, quantized);
        }
        resize(&mut buffers.down, groups.n_pairs() * self.config.embed_dim);
        let mut fetch = self.experts.fetch(self.layer, &groups.ids(), self.cancelled);
        loop {
            let ready = fetch.ready()?;
            if ready.is_empty() {
                break;
            }
            let wave: Vec<_> = ready.iter().map(|(i, expert)| (&groups.experts[*i], *expert)).collect();
            self.expand(&wave, &groups, quantized, buffers);
            self.contract(&wave, buffers);
        }
        self.combine(&groups, buffers, x);
        Ok(())
    }

    /// Router logits and choices of every token.
    fn route(&self, normed: &[f32], n_tokens: usize, quantized: &mut QuantizedSet, buffers: &mut MoeBuffers) {
        let (n_experts, router) = (self.config.n_experts, &self.weights.ffn_gate_inp);
        self.compute.matrices(self.dense, &[router], normed, n_tokens, quantized, &mut [&mut buffers.router_logits]);
        buffers.choices.clear();
        let probs = resize(&mut buffers.probs, n_experts);
        let (rule, chosen) = (self.config.routing, &mut buffers.chosen);
        let mut smart = self.smart.map(|(smart, counts)| {
            let mut resident = vec![false; n_experts];
            self.experts.residents(self.layer, &mut resident);
            (smart, resident, counts.lock().unwrap_or_else(PoisonError::into_inner))
        });
        for logits in buffers.router_logits.chunks_exact(n_experts) {
            match &mut smart {
                None => choose(logits, rule, probs, chosen),
                Some((smart, resident, counts)) => smart.choose(logits, rule, resident, probs, chosen, counts),
            }
            buffers.choices.extend_from_slice(chosen);
        }
    }

    /// Gate and up of every pair of the experts in `wave`, joined by `silu(gate) · up`: one hand-off for all products.
    fn expand(&self, wave: &Wave<'_>, groups: &Groups, quantized: &QuantizedSet, buffers: &mut MoeBuffers) {
        let expert_dim = self.config.expert_dim;
        let n_pairs: usize = wave.iter().map(|(group, _)| group.n).sum();
        let gates = resize(&mut buffers.gate, n_pairs * expert_dim);
        let ups = resize(&mut buffers.up, n_pairs * expert_dim);
        let (mut gates_left, mut ups_left) = (&mut *gates, &mut *ups);
        let mut products = Vec::with_capacity(2 * wave.len());
        for (group, expert) in wave {
            let columns = groups.tokens(group);
            let gate = split(&mut gates_left, columns.len() * expert_dim);
            let up = split(&mut ups_left, columns.len() * expert_dim);
            for (weights, out) in [(expert.gate, gate), (expert.up, up)] {
                let x = quantized.get(format(weights.ty()));
                products.push(Product { weights, x, columns, out: OutColumns::new(out, expert_dim) });
            }
        }
        self.compute.multiply(&products);
        let pairs = gates.chunks_exact_mut(expert_dim).zip(ups.chunks_exact(expert_dim)).collect();
        self.compute.pool.for_each(pairs, |_, (gate, up)| self.compute.kernels.silu_mul(gate, up));
    }

    /// Down of every pair of the experts in `wave`, each to the pair's place: one hand-off again.
    fn contract(&self, wave: &Wave<'_>, buffers: &mut MoeBuffers) {
        let embed_dim = self.config.embed_dim;
        let [_, _, down_format] = self.experts.types(self.layer).map(format);
        buffers.hidden.clear();
        self.compute.quantize(down_format, &buffers.gate, self.config.expert_dim, &mut buffers.hidden);
        let x = buffers.hidden.get(down_format);
        let columns: Vec<u32> = (0..x.n() as u32).collect();
        let (mut columns, mut left, mut passed) = (&columns[..], &mut buffers.down[..], 0);
        let mut products = Vec::with_capacity(wave.len());
        for (group, expert) in wave {
            // A wave is in the order of the groups, and the groups are in the order of their pairs.
            split(&mut left, (group.first - passed) * embed_dim);
            passed = group.first + group.n;
            let out = OutColumns::new(split(&mut left, group.n * embed_dim), embed_dim);
            let (own, rest) = columns.split_at(group.n);
            columns = rest;
            products.push(Product { weights: expert.down, x, columns: own, out });
        }
        self.compute.multiply(&products);
    }

    fn combine(&self, groups: &Groups, buffers: &MoeBuffers, x: &mut [f32]) {
        let (embed_dim, n_used) = (self.config.embed_dim, self.config.routing.n_used);
        let add = |token: usize, x: &mut [f32]| {
            let mut sum = vec![0.0; embed_dim];
            for choice in token * n_used..(token + 1) * n_used {
                let (pair, weight) = (groups.pair_of_choice[choice] as usize, buffers.choices[choice].weight);
                let down = &buffers.down[pair * embed_dim..(pair + 1) * embed_dim];
                // Rounded after the product and after the sum, as in llama.cpp, whose graph has two nodes here.
                sum.iter_mut().zip(down).for_each(|(sum, down)| *sum += weight * down);
            }
            x.iter_mut().zip(&sum).for_each(|(x, sum)| *x += sum);
        };
        self.compute.pool.for_each(x.chunks_exact_mut(embed_dim).collect(), add);
    }
}

/// Experts that are in memory now, with their pairs, in the order of the groups.
type Wave<'a> = [(&'a Group, Expert<'a>)];

/// The pairs of token and expert of a layer, sorted by expert: each expert is fetched once for all its tokens.
struct Groups {
    experts: Vec<Group>,
    /// Token of each pair, in the order of the pairs.
    tokens: Vec<u32>,
    /// Pair of each choice, `[batch, n_used]`.
    pair_of_choice: Vec<u32>,
}

/// The pairs `first..first + n` of one expert.
struct Group {
    expert: u32,
    first: usize,
    n: usize,
}

impl Groups {
    fn of(choices: &[crate::routing::Choice], n_used: usize) -> Self {
        let mut order: Vec<u32> = (0..choices.len() as u32).collect();
        // Stable: an expert's tokens stay in the order of the batch.
        order.sort_by_key(|&choice| choices[choice as usize].expert);
        let mut groups = Self { experts: Vec::new(), tokens: Vec::new(), pair_of_choice: vec![0; choices.len()] };
        for (pair, &choice) in order.iter().enumerate() {
            groups.tokens.push(choice / n_used as u32);
            groups.pair_of_choice[choice as usize] = pair as u32;
            let expert = choices[choice as usize].expert;
            match groups.experts.last_mut() {
                Some(group) if group.expert == expert => group.n += 1,
                _ => groups.experts.push(Group { expert, first: pair, n: 1 }),
            }
        }
        groups
    }

    /// Ids of the experts, in order.
    fn ids(&self) -> Vec<u32> {
        self.experts.iter().map(|group| group.expert).collect()
    }

    fn n_pairs(&self) -> usize {
        self.tokens.len()
    }

    fn tokens(&self, group: &Group) -> &[u32] {
        &self.tokens[group.first..group.first + group.n]
    }
}

/// Cuts the first `n` elements off.
fn split<'a>(left: &mut &'a mut [f32], n: usize) -> &'a mut [f32] {
    let (first, rest) = std::mem::take(left).split_at_mut(n);
    *left = rest;
    first
}

fn format(ty: TensorType) -> ActivationFormat {
    ty.activation_format().expect("loading checked that every type can be multiplied with")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Choice;

    #[test]
    fn pairs_are_grouped_by_expert_and_keep_the_order_of_the_tokens() {
        let choices = [7, 2, 2, 5].map(|expert| Choice { expert, weight: 1.0 });
        let groups = Groups::of(&choices, 2);
        let shape: Vec<_> = groups.experts.iter().map(|g| (g.expert, groups.tokens(g).to_vec())).collect();
        assert_eq!(shape, [(2, vec![0, 1]), (5, vec![1]), (7, vec![0])]);
        assert_eq!(groups.pair_of_choice, [3, 0, 1, 2]);
    }
}

//! The weights that a pass reads, counted from the sizes in the file and the experts that the routers choose.

use crate::gguf::{Gguf, Layout};
use crate::model::{BatchToken, RoutingObserver};
use crate::routing::Choice;

/// Bytes of a model's weights, by when they are read.
pub(super) struct WeightBytes {
    /// In every pass: all dense tensors of the layers, and the last norm.
    dense: u64,
    /// The output matrix, in every pass that gives logits.
    output: u64,
    /// A row of the embedding, for every token.
    embedding_row: u64,
    /// One expert, by layer; the mean where those of a layer differ.
    experts: Vec<u64>,
}

impl WeightBytes {
    /// Those of `gguf`, of which `n_layers` layers are computed.
    pub fn of(gguf: &Gguf, n_layers: usize) -> Self {
        let layout = Layout::of(gguf);
        let bytes = |name: &str| gguf.tensor(name).map(|tensor| tensor.bytes);
        let embedding = gguf.tensor("token_embd.weight");
        let n_rows = embedding.and_then(|tensor| tensor.shape.first()).map_or(1, |&rows| rows.max(1) as u64);
        let embedding = embedding.map_or(0, |tensor| tensor.bytes);
        let layers = (0..n_layers).filter_map(|layer| layout.layer(layer));
        let mean = |layer: &crate::gguf::Layer| {
            let experts = layer.experts.as_deref()?;
            experts.bytes().checked_div(experts.n_experts() as u64)
        };
        Self {
            dense: layers.clone().map(|layer| layer.dense_bytes).sum::<u64>()
                + bytes("output_norm.weight").unwrap_or(0),
            // A file without an output matrix has the embedding in its place.
            output: bytes("output.weight").unwrap_or(embedding),
            embedding_row: embedding / n_rows,
            experts: layers.map(|layer| mean(layer).unwrap_or(0)).collect(),
        }
    }
}

/// Adds up what passes read.
pub(super) struct WeightCounter<'a> {
    weights: &'a WeightBytes,
    bytes: u64,
    /// Whether an expert was seen, in the layer that is on; kept to save the allocation.
    seen: Vec<bool>,
}

impl<'a> WeightCounter<'a> {
    pub fn new(weights: &'a WeightBytes) -> Self {
        Self { weights, bytes: 0, seen: Vec::new() }
    }

    /// Counts a pass over `batch`, but for its experts, which it is told as an observer.
    pub fn begin_pass(&mut self, batch: &[BatchToken]) {
        let WeightBytes { dense, output, embedding_row, .. } = self.weights;
        let output = if batch.iter().any(|token| token.wants_logits) { *output } else { 0 };
        self.bytes += dense + output + batch.len() as u64 * embedding_row;
    }

    /// Bytes of all passes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl RoutingObserver for WeightCounter<'_> {
    fn routed(&mut self, layer: usize, _router_logits: &[f32], choices: &[Choice]) {
        self.seen.clear();
        let mut distinct = 0;
        for choice in choices {
            let expert = choice.expert as usize;
            if self.seen.len() <= expert {
                self.seen.resize(expert + 1, false);
            }
            distinct += u64::from(!self.seen[expert]);
            self.seen[expert] = true;
        }
        self.bytes += distinct * self.weights.experts.get(layer).copied().unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(experts: &[u32]) -> Vec<Choice> {
        experts.iter().map(|&expert| Choice { expert, weight: 0.5 }).collect()
    }

    #[test]
    fn an_expert_that_several_tokens_choose_is_read_once_in_a_pass_and_again_in_the_next() {
        let weights = WeightBytes { dense: 1000, output: 500, embedding_row: 7, experts: vec![10, 30] };
        let mut counter = WeightCounter::new(&weights);
        let token = |wants_logits| BatchToken { sequence: 0, pos: 0, id: 0, wants_logits };
        counter.begin_pass(&[token(false), token(true)]);
        counter.routed(0, &[], &choices(&[3, 5, 5, 0]));
        counter.routed(1, &[], &choices(&[5, 3, 3, 5]));
        assert_eq!(counter.bytes(), 1000 + 500 + 2 * 7 + 3 * 10 + 2 * 30);
        counter.begin_pass(&[token(false)]);
        counter.routed(0, &[], &choices(&[3, 5]));
        assert_eq!(counter.bytes(), 1604 + 1000 + 7 + 2 * 10);
    }
}

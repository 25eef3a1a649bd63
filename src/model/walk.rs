//! A token's way through the weights without its arithmetic: for measuring how fast they come.

use super::{ForwardError, Model};
use crate::experts::Expert;
use crate::quant::WeightRows;
use std::sync::atomic::Ordering;

/// What happens at the stations of the way.
pub trait Walk: Send {
    /// Takes the dense matrices of a layer, or rows of the output.
    fn dense(&mut self, matrices: &[WeightRows<'_>]);

    /// At most `n` experts that `layer` may choose: a guess, asked for where the experts would be prefetched.
    fn guess(&mut self, layer: usize, n: usize) -> Vec<u32>;

    /// The experts that `layer` chooses, each named once; none where it is passed by.
    fn choose(&mut self, layer: usize) -> Vec<u32>;

    /// Takes experts that came into memory, of those that were chosen last.
    fn experts(&mut self, experts: &[Expert<'_>]);
}

impl Model {
    /// Goes the way of one token as [`forward`](Self::forward) does: the same weights in the same order, from where they
    /// are kept, with the same reading ahead. What is chosen, and what is done with the weights, is up to `walk`.
    ///
    /// # Errors
    /// Where weights cannot be read, or `cancelled` says so.
    ///
    /// # Panics
    /// If an expert is chosen that does not exist.
    pub fn walk(&self, walk: &mut dyn Walk, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<(), ForwardError> {
        let mut turn = self.dense.turn();
        let mut dense = turn.pass(true);
        self.pool.enter(|| {
            for layer in 0..self.config.n_layers {
                if cancelled() {
                    return Err(ForwardError::Cancelled);
                }
                dense.enter_layer(layer, cancelled)?;
                let weights = &self.weights.layers[layer];
                let bytes = dense.bytes();
                let matrices =
                    [&weights.attn_q, &weights.attn_k, &weights.attn_v, &weights.attn_output, &weights.ffn_gate_inp];
                walk.dense(&matrices.map(|matrix| matrix.rows(bytes)));
                // As in a forward pass, which needs the next layer's router for its guess.
                if layer + 1 < self.config.n_layers
                    && dense.bytes_ahead().is_some()
                    && let Some(n) = self.experts.looks_ahead()
                {
                    self.experts.expect(layer + 1, walk.guess(layer + 1, n));
                }
                let chosen = walk.choose(layer);
                if chosen.is_empty() {
                    continue;
                }
                let mut fetch = self.experts.fetch(layer, &chosen, cancelled);
                loop {
                    let ready = fetch.ready()?;
                    if ready.is_empty() {
                        break;
                    }
                    walk.experts(&ready.into_iter().map(|(_, expert)| expert).collect::<Vec<_>>());
                }
            }
            let output = &self.weights.output;
            for chunk in 0..dense.n_output_chunks() {
                let rows = dense.enter_output(chunk, output.n_rows(), cancelled)?;
                walk.dense(&[output.chunk(rows).rows(dense.bytes())]);
            }
            Ok(())
        })?;
        self.experts.end_pass();
        self.n_tokens.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

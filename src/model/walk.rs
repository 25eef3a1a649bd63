//! A token's way through the weights without its arithmetic: for measuring how fast they come.

use super::dense::{Bytes, DensePass};
use super::forward::Stations;
use super::{ForwardError, Model};
use crate::experts::Expert;
use crate::quant::WeightRows;
use std::ops::Range;

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
        self.pass(&mut Walking { model: self, walk, cancelled }, 1, true, cancelled)
    }
}

struct Walking<'a> {
    model: &'a Model,
    walk: &'a mut dyn Walk,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Stations for Walking<'_> {
    fn embed(&mut self, _dense: &DensePass<'_>) -> Result<(), ForwardError> {
        // One row of a large matrix: nothing beside what follows.
        Ok(())
    }

    fn attention(&mut self, layer: usize, dense: Bytes<'_>) {
        let layer = &self.model.weights.layers[layer];
        let matrices = [&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output, &layer.ffn_gate_inp];
        self.walk.dense(&matrices.map(|matrix| matrix.rows(dense)));
    }

    fn guess(&mut self, layer: usize, n: usize, _dense: Bytes<'_>) -> Vec<u32> {
        self.walk.guess(layer, n)
    }

    fn experts(&mut self, layer: usize, _dense: Bytes<'_>) -> Result<(), ForwardError> {
        let chosen = self.walk.choose(layer);
        if chosen.is_empty() {
            return Ok(());
        }
        let wanted: Vec<(u32, u32)> = chosen.iter().map(|&expert| (expert, 1)).collect();
        let mut fetch = self.model.experts.fetch(layer, &wanted, self.cancelled);
        loop {
            let ready = fetch.ready()?;
            if ready.is_empty() {
                return Ok(());
            }
            self.walk.experts(&ready.into_iter().map(|(_, expert)| expert).collect::<Vec<_>>());
        }
    }

    fn output(&mut self, _time: usize, rows: Range<usize>, dense: Bytes<'_>) {
        self.walk.dense(&[self.model.weights.output.chunk(rows).rows(dense)]);
    }
}

//! Buffers of a forward pass, kept from pass to pass.

use super::attention::AttentionBuffers;
use crate::quant::{ActivationFormat, Activations};
use crate::routing::Choice;

/// Buffers of a forward pass. One serves any number of passes, one after another.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Residual stream, `[batch, embed_dim]`.
    pub(super) x: Vec<f32>,
    /// Normed residual stream, `[batch, embed_dim]`.
    pub(super) normed: Vec<f32>,
    /// `[batch, n_heads · head_dim]`.
    pub(super) q: Vec<f32>,
    /// `[batch, n_kv_heads · head_dim]`.
    pub(super) k: Vec<f32>,
    /// `[batch, n_kv_heads · head_dim]`.
    pub(super) v: Vec<f32>,
    /// Buffers of attention.
    pub(super) attention: AttentionBuffers,
    /// Output of the heads, `[batch, n_heads · head_dim]`.
    pub(super) heads: Vec<f32>,
    /// Output of a matrix that is added to `x`, `[batch, embed_dim]`.
    pub(super) delta: Vec<f32>,
    /// Cosines and sines of each token's position, `[batch, head_dim]`.
    pub(super) turns: Vec<f32>,
    /// Activations in each format that a product of this batch needs.
    pub(super) quantized: QuantizedSet,
    /// Buffers of the experts' block.
    pub(super) moe: MoeBuffers,
    /// Logits of the tokens that asked for them, `[asking, vocab_size]`.
    pub(super) logits: Vec<f32>,
}

/// Buffers of the experts' block.
#[derive(Debug, Default)]
pub(super) struct MoeBuffers {
    /// `[batch, n_experts]`.
    pub router_logits: Vec<f32>,
    /// `[n_experts]`.
    pub probs: Vec<f32>,
    /// Choices of one token.
    pub chosen: Vec<Choice>,
    /// Choices of all tokens, `[batch, n_used]`.
    pub choices: Vec<Choice>,
    /// Gate, then the gated hidden vector, of each pair of token and expert, `[pairs, expert_dim]`.
    pub gate: Vec<f32>,
    /// `[pairs, expert_dim]`.
    pub up: Vec<f32>,
    /// Activations of the gated hidden vectors, `[pairs, expert_dim]`.
    pub hidden: QuantizedSet,
    /// `[pairs, embed_dim]`.
    pub down: Vec<f32>,
}

impl Workspace {
    /// Empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Logits of the last pass's tokens that asked for them, `[asking, vocab_size]`, in the order of the batch.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }
}

/// The same batch in several activation formats, at most one batch for each.
#[derive(Debug, Default)]
pub(super) struct QuantizedSet {
    batches: Vec<Activations>,
    /// How many of `batches` hold the current columns.
    current: usize,
}

impl QuantizedSet {
    /// Forgets all columns, for new ones.
    pub fn clear(&mut self) {
        self.current = 0;
    }

    /// Room for `n` columns of `cols` elements in `format`; `None` where the set has them already.
    pub fn room(&mut self, format: ActivationFormat, cols: usize, n: usize) -> Option<&mut Activations> {
        if self.batches[..self.current].iter().any(|batch| batch.format() == format) {
            return None;
        }
        if self.current == self.batches.len() {
            self.batches.push(Activations::new());
        }
        let batch = &mut self.batches[self.current];
        self.current += 1;
        batch.resize(format, cols, n);
        Some(batch)
    }

    /// The columns in `format`.
    ///
    /// # Panics
    /// If they were not made.
    pub fn get(&self, format: ActivationFormat) -> &Activations {
        let batch = self.batches[..self.current].iter().find(|batch| batch.format() == format);
        batch.expect("the columns were quantized in this format")
    }
}

/// Makes `buffer` `len` long; what it holds afterwards is unspecified.
pub(super) fn resize(buffer: &mut Vec<f32>, len: usize) -> &mut [f32] {
    buffer.resize(len, 0.0);
    buffer
}

//! One forward pass over a batch of tokens: the path of a token, top to bottom.

use super::attention::{attend, store};
use super::dense::{Bytes, DensePass};
use super::kv_cache::Sequence;
use super::linear::Compute;
use super::moe::MoeLayer;
use super::workspace::{Workspace, resize};
use super::{ForwardError, Model};
use crate::math::rotate;
use crate::quant::dequantize_row;
use crate::routing::{Choice, likeliest};
use std::sync::atomic::Ordering;

/// One token of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchToken {
    /// Which of the pass's sequences it belongs to.
    pub sequence: usize,
    /// Its position there; a sequence's tokens follow each other without a gap.
    pub pos: usize,
    /// Its id.
    pub id: u32,
    /// Whether its logits are wanted.
    pub wants_logits: bool,
}

/// Sees the router at work.
pub trait RoutingObserver {
    /// Router logits, `[batch, n_experts]`, and choices, `[batch, n_used]`, of `layer`.
    fn routed(&mut self, layer: usize, router_logits: &[f32], choices: &[Choice]);
}

impl Model {
    /// Runs `batch` through the model, appends its keys and values to `sequences`, and leaves the logits that it wants
    /// in `workspace`.
    ///
    /// The logits of a token depend on the tokens before it in its sequence and on nothing else: not on the rest of the
    /// batch, the number of threads or the instruction set. `cancelled` is asked before each layer; a pass that is
    /// cancelled, or fails, leaves the sequences as they were.
    ///
    /// # Errors
    /// Where a token id is unknown, the context or the memory is full, weights cannot be read, or the pass is cancelled.
    ///
    /// # Panics
    /// If a token's position does not follow its sequence.
    pub fn forward(
        &self,
        workspace: &mut Workspace,
        sequences: &mut [&mut Sequence],
        batch: &[BatchToken],
        mut observer: Option<&mut (dyn RoutingObserver + Send)>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        self.check(sequences, batch)?;
        let added = |i: usize| batch.iter().filter(|token| token.sequence == i).count();
        for (i, sequence) in sequences.iter_mut().enumerate() {
            let n_tokens = sequence.len() + added(i);
            sequence.reserve(added(i)).map_err(|_| ForwardError::Memory { n_tokens })?;
        }
        let mut turn = self.dense.turn();
        let mut dense = turn.pass(batch.iter().any(|token| token.wants_logits));
        self.experts.begin_pass(batch.len() as u32);
        self.pool.enter(|| {
            self.embed(&dense, workspace, batch)?;
            for layer in 0..self.config.n_layers {
                if cancelled() {
                    return Err(ForwardError::Cancelled);
                }
                dense.enter_layer(layer, cancelled)?;
                self.attention(dense.bytes(), workspace, sequences, batch, layer);
                self.look_ahead(dense.bytes_ahead(), workspace, batch, layer + 1);
                let observer = observer.as_deref_mut().map(|o| o as &mut dyn RoutingObserver);
                self.experts(dense.bytes(), workspace, layer, observer, cancelled)?;
            }
            self.output(&mut dense, workspace, batch, cancelled)
        })?;
        self.experts.end_pass();
        self.n_tokens.fetch_add(batch.len() as u64, Ordering::Relaxed);
        sequences.iter_mut().enumerate().for_each(|(i, sequence)| sequence.commit(added(i)));
        Ok(())
    }

    fn check(&self, sequences: &[&mut Sequence], batch: &[BatchToken]) -> Result<(), ForwardError> {
        let mut next: Vec<usize> = sequences.iter().map(|sequence| sequence.len()).collect();
        for token in batch {
            assert_eq!(token.pos, next[token.sequence], "a token's position follows its sequence");
            next[token.sequence] += 1;
            if token.id as usize >= self.weights.vocab_size {
                return Err(ForwardError::TokenId { id: token.id, vocab_size: self.weights.vocab_size });
            }
            if token.pos >= self.n_ctx {
                return Err(ForwardError::ContextFull { pos: token.pos, n_ctx: self.n_ctx });
            }
        }
        Ok(())
    }

    /// `x` = rows of the embedding; turns = cosines and sines of the positions.
    fn embed(
        &self,
        dense: &DensePass<'_>,
        workspace: &mut Workspace,
        batch: &[BatchToken],
    ) -> Result<(), ForwardError> {
        let (embed_dim, head_dim) = (self.config.embed_dim, self.config.head_dim);
        let (table, mut scratch) = (&self.weights.token_embd, Vec::new());
        let x = resize(&mut workspace.x, batch.len() * embed_dim);
        let turns = resize(&mut workspace.turns, batch.len() * head_dim);
        for ((token, x), turn) in batch.iter().zip(x.chunks_exact_mut(embed_dim)).zip(turns.chunks_exact_mut(head_dim))
        {
            dequantize_row(table.ty(), dense.row(table, token.id as usize, &mut scratch)?, x);
            self.rope.turn(token.pos, turn);
        }
        Ok(())
    }

    /// `x += attn_output · attention(norm(x))`.
    fn attention(
        &self,
        dense: Bytes<'_>,
        workspace: &mut Workspace,
        sequences: &mut [&mut Sequence],
        batch: &[BatchToken],
        layer: usize,
    ) {
        let (compute, weights, config) = (self.compute(), &self.weights.layers[layer], &self.config);
        let Workspace { x, normed, q, k, v, heads, delta, turns, quantized, attention, .. } = workspace;

        compute.norm(x, &weights.attn_norm, config.norm_eps, normed, quantized);
        let qkv = [&weights.attn_q, &weights.attn_k, &weights.attn_v];
        compute.matrices(dense, &qkv, normed, batch.len(), quantized, &mut [q, k, v]);
        self.norm_and_rotate(q, &weights.attn_q_norm, turns);
        self.norm_and_rotate(k, &weights.attn_k_norm, turns);

        store(config.heads(), &compute, layer, sequences, batch, k, v);
        resize(heads, q.len());
        attend(config.heads(), &compute, layer, sequences, batch, q, attention, heads);

        quantized.clear();
        compute.matrices(dense, &[&weights.attn_output], heads, batch.len(), quantized, &mut [delta]);
        add(x, delta);
    }

    /// Norm of queries or keys, then their rotation. `x` is `[batch, heads, head_dim]`.
    fn norm_and_rotate(&self, x: &mut [f32], norm: &[f32], turns: &[f32]) {
        let (kernels, eps, head_dim) = (self.kernels, self.config.norm_eps, self.config.head_dim);
        let width = x.len() / (turns.len() / head_dim);
        let rows = x.chunks_exact_mut(width).zip(turns.chunks_exact(head_dim)).collect();
        self.pool.for_each(rows, |_, (x, turn): (&mut [f32], &[f32])| {
            // olmoe norms the whole projection, qwen3moe each head: the weight's width says which.
            let mut normed = vec![0.0; norm.len()];
            for part in x.chunks_exact_mut(norm.len()) {
                kernels.rms_norm(part, norm, eps, &mut normed);
                part.copy_from_slice(&normed);
            }
            rotate(x, turn);
        });
    }

    /// Guesses what `layer`, the next one, will choose: its router, applied to the residual stream as it is now, picks
    /// mostly what it will pick then, for the stream changes slowly. Only where experts are read, and for few tokens: many
    /// take most experts anyway. `dense` has the layer's tensors, where they are in memory.
    fn look_ahead(&self, dense: Option<Bytes<'_>>, workspace: &mut Workspace, batch: &[BatchToken], layer: usize) {
        let Some(weights) = self.weights.layers.get(layer).filter(|_| batch.len() == 1) else { return };
        let (Some(dense), Some(n)) = (dense, self.experts.looks_ahead()) else { return };
        let (compute, Workspace { x, normed, quantized, moe, .. }) = (self.compute(), workspace);
        compute.norm(x, &weights.ffn_norm, self.config.norm_eps, normed, quantized);
        compute.matrices(dense, &[&weights.ffn_gate_inp], normed, 1, quantized, &mut [&mut moe.router_logits]);
        likeliest(&moe.router_logits, n.min(self.config.n_experts), &mut moe.chosen);
        self.experts.expect(layer, moe.chosen.iter().map(|choice| choice.expert).collect());
    }

    /// `x += experts(norm(x))`.
    fn experts(
        &self,
        dense: Bytes<'_>,
        workspace: &mut Workspace,
        layer: usize,
        observer: Option<&mut dyn RoutingObserver>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        let (compute, weights, config) = (self.compute(), &self.weights.layers[layer], &self.config);
        let Workspace { x, normed, quantized, moe, .. } = workspace;
        compute.norm(x, &weights.ffn_norm, config.norm_eps, normed, quantized);
        let smart = self.smart.map(|smart| (smart, &self.substitutions));
        let experts = &*self.experts;
        let block = MoeLayer { compute, config, dense, experts, layer, weights, smart, cancelled };
        block.add(normed, x, quantized, moe, observer)
    }

    /// Logits of the tokens that want them: rows of the output by the piece, where it comes in pieces.
    fn output(
        &self,
        dense: &mut DensePass<'_>,
        workspace: &mut Workspace,
        batch: &[BatchToken],
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        let (compute, output, embed_dim) = (self.compute(), &self.weights.output, self.config.embed_dim);
        let Workspace { x, normed, delta, quantized, logits, .. } = workspace;
        delta.clear();
        for (_, x) in batch.iter().zip(x.chunks_exact(embed_dim)).filter(|(token, _)| token.wants_logits) {
            delta.extend_from_slice(x);
        }
        let n = delta.len() / embed_dim;
        logits.clear();
        if n == 0 {
            return Ok(());
        }
        compute.norm(delta, &self.weights.output_norm, self.config.norm_eps, normed, quantized);
        for chunk in 0..dense.n_output_chunks() {
            let rows = dense.enter_output(chunk, output.n_rows(), cancelled)?;
            let (bytes, piece) = (dense.bytes(), output.chunk(rows.clone()));
            if rows.len() == output.n_rows() {
                compute.matrices(bytes, &[&piece], normed, n, quantized, &mut [logits]);
                continue;
            }
            compute.matrices(bytes, &[&piece], normed, n, quantized, &mut [delta]);
            let columns = resize(logits, n * output.n_rows()).chunks_exact_mut(output.n_rows());
            for (column, part) in columns.zip(delta.chunks_exact(rows.len())) {
                column[rows.clone()].copy_from_slice(part);
            }
        }
        Ok(())
    }

    fn compute(&self) -> Compute<'_> {
        Compute { pool: &self.pool, kernels: self.kernels }
    }
}

fn add(x: &mut [f32], delta: &[f32]) {
    x.iter_mut().zip(delta).for_each(|(x, delta)| *x += delta);
}

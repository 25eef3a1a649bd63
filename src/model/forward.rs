//! One forward pass over a batch of tokens: the path of a token, top to bottom.

use super::attention::attend;
use super::dense::{Bytes, DensePass};
use super::kv_cache::Sequence;
use super::linear::Compute;
use super::moe::MoeLayer;
use super::workspace::{Workspace, resize};
use super::{ForwardError, Model};
use crate::math::rotate;
use crate::quant::dequantize_row;
use crate::routing::{Choice, likeliest};
use std::ops::Range;
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

/// Tokens whose logits are in memory at once, where those of a whole text are wanted: enough that each row of the output
/// serves several, few beside everything else.
pub const LOGIT_TOKENS: usize = 8;

/// Takes the logits of some tokens, `[tokens, vocab_size]`.
type Take<'a> = dyn FnMut(&[f32]) + Send + 'a;

/// Sees the router at work.
pub trait RoutingObserver {
    /// Router logits, `[batch, n_experts]`, and choices, `[batch, n_used]`, of `layer`.
    fn routed(&mut self, layer: usize, router_logits: &[f32], choices: &[Choice]);
}

/// What is done with the weights on the way through a model: each is called where its weights are in memory.
pub(super) trait Stations: Send {
    /// Takes the tokens in. Rows of the embedding come from `dense`.
    fn embed(&mut self, dense: &DensePass<'_>) -> Result<(), ForwardError>;

    /// Attention of `layer`.
    fn attention(&mut self, layer: usize, dense: Bytes<'_>);

    /// At most `n` experts that `layer`, the next one, may choose; `dense` has its router.
    fn guess(&mut self, layer: usize, n: usize, dense: Bytes<'_>) -> Vec<u32>;

    /// Router and experts of `layer`.
    fn experts(&mut self, layer: usize, dense: Bytes<'_>) -> Result<(), ForwardError>;

    /// The last norm, before the output; not called where no logits are wanted. Gives how often the output is to be gone
    /// through.
    fn output_norm(&mut self) -> usize {
        1
    }

    /// `rows` of the output, which come in order, the `time`-th time.
    fn output(&mut self, time: usize, rows: Range<usize>, dense: Bytes<'_>);
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
        observer: Option<&mut (dyn RoutingObserver + Send)>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        self.forward_with(workspace, sequences, batch, observer, None, cancelled)
    }

    /// As [`forward`](Self::forward), but hands the logits over to `take`, [`LOGIT_TOKENS`] tokens' at a time, `[tokens,
    /// vocab_size]` in the order of the batch: those of a whole text may be larger than the model's other buffers together.
    ///
    /// # Errors
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn forward_in_pieces(
        &self,
        workspace: &mut Workspace,
        sequences: &mut [&mut Sequence],
        batch: &[BatchToken],
        observer: Option<&mut (dyn RoutingObserver + Send)>,
        take: &mut (dyn FnMut(&[f32]) + Send),
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        self.forward_with(workspace, sequences, batch, observer, Some(take), cancelled)
    }

    fn forward_with<'t>(
        &self,
        workspace: &mut Workspace,
        sequences: &mut [&mut Sequence],
        batch: &[BatchToken],
        observer: Option<&mut (dyn RoutingObserver + Send)>,
        take: Option<&'t mut Take<'t>>,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        self.check(sequences, batch)?;
        let added = |i: usize| batch.iter().filter(|token| token.sequence == i).count();
        for (i, sequence) in sequences.iter_mut().enumerate() {
            let n_tokens = sequence.len() + added(i);
            sequence.reserve(added(i)).map_err(|_| ForwardError::Memory { n_tokens })?;
        }
        workspace.logits.clear();
        let wants_logits = batch.iter().any(|token| token.wants_logits);
        let mut forward = Forward { model: self, workspace, sequences, batch, observer, take, cancelled };
        self.pass(&mut forward, batch.len(), wants_logits, cancelled)?;
        sequences.iter_mut().enumerate().for_each(|(i, sequence)| sequence.commit(added(i)));
        Ok(())
    }

    /// The way of `n_tokens` tokens past the weights, with the reading ahead that belongs to it: the order of everything.
    pub(super) fn pass(
        &self,
        stations: &mut dyn Stations,
        n_tokens: usize,
        wants_logits: bool,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), ForwardError> {
        let mut turn = self.dense.turn();
        let mut dense = turn.pass(wants_logits);
        self.experts.begin_pass(n_tokens as u32);
        self.pool.enter(|| {
            stations.embed(&dense)?;
            for layer in 0..self.config.n_layers {
                if cancelled() {
                    return Err(ForwardError::Cancelled);
                }
                dense.enter_layer(layer, cancelled)?;
                stations.attention(layer, dense.bytes());
                // Many tokens take most experts anyway.
                if n_tokens == 1
                    && layer + 1 < self.config.n_layers
                    && let Some(n) = self.experts.looks_ahead()
                    && let Some(ahead) = dense.bytes_ahead()
                {
                    self.experts.expect(layer + 1, stations.guess(layer + 1, n, ahead));
                }
                stations.experts(layer, dense.bytes())?;
            }
            if wants_logits {
                for time in 0..stations.output_norm() {
                    for chunk in 0..dense.n_output_chunks() {
                        let rows = dense.enter_output(chunk, self.weights.output.n_rows(), cancelled)?;
                        stations.output(time, rows, dense.bytes());
                    }
                }
            }
            Ok(())
        })?;
        self.experts.end_pass();
        self.n_tokens.fetch_add(n_tokens as u64, Ordering::Relaxed);
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

    fn compute(&self) -> Compute<'_> {
        Compute { pool: &self.pool, kernels: self.kernels }
    }
}

/// The arithmetic of a pass.
struct Forward<'a, 's, 'o, 't> {
    model: &'a Model,
    workspace: &'a mut Workspace,
    sequences: &'a mut [&'s mut Sequence],
    batch: &'a [BatchToken],
    observer: Option<&'o mut (dyn RoutingObserver + Send)>,
    /// Takes logits by the piece, or they stay in the workspace.
    take: Option<&'t mut Take<'t>>,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Stations for Forward<'_, '_, '_, '_> {
    /// `x` = rows of the embedding; turns = cosines and sines of the positions.
    fn embed(&mut self, dense: &DensePass<'_>) -> Result<(), ForwardError> {
        let (embed_dim, head_dim) = (self.model.config.embed_dim, self.model.config.head_dim);
        let (table, mut scratch) = (&self.model.weights.token_embd, Vec::new());
        let x = resize(&mut self.workspace.x, self.batch.len() * embed_dim);
        let turns = resize(&mut self.workspace.turns, self.batch.len() * head_dim);
        let rows = x.chunks_exact_mut(embed_dim).zip(turns.chunks_exact_mut(head_dim));
        for (token, (x, turn)) in self.batch.iter().zip(rows) {
            dequantize_row(table.ty(), dense.row(table, token.id as usize, &mut scratch)?, x);
            self.model.rope.turn(token.pos, turn);
        }
        Ok(())
    }

    /// `x += attn_output · attention(norm(x))`.
    fn attention(&mut self, layer: usize, dense: Bytes<'_>) {
        let (model, batch, sequences) = (self.model, self.batch, &mut *self.sequences);
        let (compute, weights, config) = (model.compute(), &model.weights.layers[layer], &model.config);
        let Workspace { x, normed, q, k, v, heads, delta, turns, quantized, .. } = &mut *self.workspace;

        compute.norm(x, &weights.attn_norm, config.norm_eps, normed, quantized);
        let qkv = [&weights.attn_q, &weights.attn_k, &weights.attn_v];
        compute.matrices(dense, &qkv, normed, batch.len(), quantized, &mut [q, k, v]);
        model.norm_and_rotate(q, &weights.attn_q_norm, turns);
        model.norm_and_rotate(k, &weights.attn_k_norm, turns);

        let kv_dim = config.kv_dim();
        for ((token, key), value) in batch.iter().zip(k.chunks_exact(kv_dim)).zip(v.chunks_exact(kv_dim)) {
            sequences[token.sequence].write(layer, token.pos, key, value);
        }
        resize(heads, q.len());
        attend(config, compute.kernels, compute.pool, layer, sequences, batch, q, heads);

        quantized.clear();
        compute.matrices(dense, &[&weights.attn_output], heads, batch.len(), quantized, &mut [delta]);
        add(x, delta);
    }

    /// The router, applied to the residual stream as it is now, picks mostly what it will pick then: the stream changes
    /// slowly.
    fn guess(&mut self, layer: usize, n: usize, dense: Bytes<'_>) -> Vec<u32> {
        let (compute, weights, config) = (self.model.compute(), &self.model.weights.layers[layer], &self.model.config);
        let Workspace { x, normed, quantized, moe, .. } = &mut *self.workspace;
        compute.norm(x, &weights.ffn_norm, config.norm_eps, normed, quantized);
        let router = [&weights.ffn_gate_inp];
        compute.matrices(dense, &router, normed, self.batch.len(), quantized, &mut [&mut moe.router_logits]);
        likeliest(&moe.router_logits, n.min(config.n_experts), &mut moe.chosen);
        moe.chosen.iter().map(|choice| choice.expert).collect()
    }

    /// `x += experts(norm(x))`.
    fn experts(&mut self, layer: usize, dense: Bytes<'_>) -> Result<(), ForwardError> {
        let model = self.model;
        let (compute, weights, config) = (model.compute(), &model.weights.layers[layer], &model.config);
        let Workspace { x, normed, quantized, moe, .. } = &mut *self.workspace;
        compute.norm(x, &weights.ffn_norm, config.norm_eps, normed, quantized);
        let (experts, cancelled) = (&*model.experts, self.cancelled);
        let smart = model.smart.map(|smart| (smart, &model.substitutions));
        let observer = self.observer.as_deref_mut().map(|o| o as &mut dyn RoutingObserver);
        let block = MoeLayer { compute, config, dense, experts, layer, weights, smart, cancelled };
        block.add(normed, x, quantized, moe, observer)
    }

    /// Norm of the tokens whose logits are wanted, and in how many pieces they are.
    fn output_norm(&mut self) -> usize {
        let (model, embed_dim) = (self.model, self.model.config.embed_dim);
        let Workspace { x, normed, delta, quantized, .. } = &mut *self.workspace;
        delta.clear();
        for (_, x) in self.batch.iter().zip(x.chunks_exact(embed_dim)).filter(|(token, _)| token.wants_logits) {
            delta.extend_from_slice(x);
        }
        model.compute().norm(delta, &model.weights.output_norm, model.config.norm_eps, normed, quantized);
        if self.take.is_some() { (delta.len() / embed_dim).div_ceil(LOGIT_TOKENS) } else { 1 }
    }

    /// `logits = output · x`, of all tokens or of one piece of them.
    fn output(&mut self, time: usize, rows: Range<usize>, dense: Bytes<'_>) {
        let (compute, output) = (self.model.compute(), &self.model.weights.output);
        let (embed_dim, vocab_size) = (self.model.config.embed_dim, output.n_rows());
        let Workspace { normed, delta, quantized, logits, .. } = &mut *self.workspace;
        let x = match self.take {
            Some(_) => normed.chunks(LOGIT_TOKENS * embed_dim).nth(time).unwrap_or_default(),
            None => normed,
        };
        if rows.start == 0 {
            quantized.clear();
        }
        let (matrix, n) = (output.chunk(rows.clone()), x.len() / embed_dim);
        if rows.len() == vocab_size {
            compute.matrices(dense, &[&matrix], x, n, quantized, &mut [logits]);
        } else {
            compute.matrices(dense, &[&matrix], x, n, quantized, &mut [delta]);
            let columns = resize(logits, n * vocab_size).chunks_exact_mut(vocab_size);
            for (column, part) in columns.zip(delta.chunks_exact(rows.len())) {
                column[rows.clone()].copy_from_slice(part);
            }
        }
        if rows.end == vocab_size
            && let Some(take) = &mut self.take
        {
            take(logits);
        }
    }
}

fn add(x: &mut [f32], delta: &[f32]) {
    x.iter_mut().zip(delta).for_each(|(x, delta)| *x += delta);
}

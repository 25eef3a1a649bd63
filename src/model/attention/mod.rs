//! Attention of a batch of queries over their sequences' key/value caches.
//!
//! The positions before a query are taken in blocks that start at multiples of [`BLOCK`], whatever the batch. A block gives
//! each query a part: the attention over it alone, each element one chain of operations in the order of positions, and its
//! weight. Parts are merged in the order of blocks. So a query's result is a function of its position and the cache alone:
//! not of the queries that share its keys, nor of the thread that has a block.
//!
//! Source: Milakov and Gimelshein 2018, arXiv 1805.02867 (softmax in parts); Dao et al. 2022, arXiv 2205.14135.

mod part;

pub use part::BLOCK;

use super::BatchToken;
use super::kv_cache::{LayerCache, Sequence};
use super::linear::Compute;
use crate::kernels::Kernels;
use crate::parallel::Pool;
use part::{Queries, Scratch};
use std::cmp::Reverse;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Multiply-adds below which a hand-off costs more than it saves.
const SERIAL_WORK: usize = 1 << 15;
/// Queries of a task at most, each head one: so many share the widening of a tile, and their scores stay in the
/// second-level cache.
const ROWS: usize = 64;
/// Tasks for each thread at least, where there is work: long ones and short ones even out.
const TASKS_PER_THREAD: usize = 4;

/// Heads of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadShape {
    /// Query heads: `n_heads / n_kv_heads` neighbouring ones share keys and values.
    pub n_heads: usize,
    /// Key/value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl HeadShape {
    /// Query heads that share a key/value head.
    fn group(self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// Floats of the scratch of `n_threads` threads at most.
    pub fn scratch_floats(self, n_threads: usize) -> usize {
        n_threads * Scratch::floats(ROWS.max(self.group()), self.head_dim)
    }

    /// Floats of the parts of a block that threads share, for the tokens that are few enough for it: at most. There are as
    /// many more for every [`BLOCK`] positions of the context.
    pub fn shared_floats(self, n_threads: usize, batch_tokens: usize) -> usize {
        let tokens = batch_tokens.min((TASKS_PER_THREAD * n_threads).div_ceil(self.n_kv_heads));
        tokens * part::floats(self.n_heads, self.head_dim)
    }
}

/// Buffers of attention, kept from pass to pass.
#[derive(Debug, Default)]
pub struct AttentionBuffers {
    /// One for each thread that was ever in a task at the same time as the others.
    scratches: Mutex<Vec<Scratch>>,
    /// Parts of blocks that several threads have.
    parts: Vec<f32>,
}

/// Writes the batch's keys and values, `[batch, n_kv_heads, head_dim]`, into the caches of their sequences, which have room
/// for them.
pub fn store(
    shape: HeadShape,
    compute: &Compute<'_>,
    layer: usize,
    sequences: &mut [&mut Sequence],
    batch: &[BatchToken],
    keys: &[f32],
    values: &[f32],
) {
    let width = shape.n_kv_heads * shape.head_dim;
    for (i, sequence) in sequences.iter_mut().enumerate() {
        let tokens: Vec<usize> = (0..batch.len()).filter(|token| batch[*token].sequence == i).collect();
        let Some(first) = tokens.first() else { continue };
        let at = |token: &usize| token * width..(token + 1) * width;
        let keys: Vec<&[f32]> = tokens.iter().map(|token| &keys[at(token)]).collect();
        let values: Vec<&[f32]> = tokens.iter().map(|token| &values[at(token)]).collect();
        sequence.write(compute, layer, batch[*first].pos, &keys, &values);
    }
}

/// Writes each query's attention over positions `0..=pos` of its own sequence to `out`.
///
/// `q` and `out` are `[batch, n_heads, head_dim]`; scores are scaled by `1 / sqrt(head_dim)`. The caches hold the batch's
/// own positions already, and a sequence's tokens are in order of position.
///
/// Source: Vaswani et al. 2017, arXiv 1706.03762; Ainslie et al. 2023, GQA, arXiv 2305.13245.
#[allow(clippy::too_many_arguments)] // One per symbol of the formula.
pub fn attend(
    shape: HeadShape,
    compute: &Compute<'_>,
    layer: usize,
    sequences: &[&mut Sequence],
    batch: &[BatchToken],
    q: &[f32],
    buffers: &mut AttentionBuffers,
    out: &mut [f32],
) {
    let n_threads = match batch.iter().map(|token| (token.pos + 1) * shape.n_heads * shape.head_dim).sum::<usize>() {
        ..=SERIAL_WORK => 1,
        _ => compute.pool.n_threads(),
    };
    let wanted = if n_threads == 1 { 1 } else { TASKS_PER_THREAD * n_threads };
    let caches: Vec<&LayerCache> = sequences.iter().map(|sequence| sequence.layer(layer)).collect();
    // A text's tokens may lie anywhere in the batch.
    let mut texts: Vec<Vec<usize>> = vec![Vec::new(); caches.len()];
    batch.iter().enumerate().for_each(|(i, token)| texts[token.sequence].push(i));
    let most = (batch.len() * shape.n_kv_heads / wanted).clamp(1, (ROWS / shape.group()).max(1));
    let mut runs: Vec<&[usize]> = texts.iter().flat_map(|tokens| tokens.chunks(most)).collect();
    // Those with most positions first, so that short ones fill the end.
    runs.sort_by_key(|run| Reverse(run.iter().map(|token| batch[*token].pos).max()));
    let pass = Pass { shape, kernels: compute.kernels, caches: &caches, batch, q, scratches: &buffers.scratches };
    let tasks = pass.tasks(&runs, out);
    let n_blocks = tasks.iter().map(|task| task.queries.n_blocks()).max().unwrap_or(0);
    if n_threads == 1 {
        tasks.into_iter().for_each(|task| pass.attend(task));
    } else if tasks.len() >= wanted || n_blocks == 1 {
        compute.pool.for_each(tasks, |_, task| pass.attend(task));
    } else {
        pass.attend_in_blocks(compute.pool, tasks, &mut buffers.parts);
    }
}

/// What all tasks of a pass share.
struct Pass<'a> {
    shape: HeadShape,
    kernels: &'a dyn Kernels,
    /// Of each sequence.
    caches: &'a [&'a LayerCache],
    batch: &'a [BatchToken],
    q: &'a [f32],
    scratches: &'a Mutex<Vec<Scratch>>,
}

/// Neighbouring tokens of one sequence, and one key/value head.
struct Task<'a> {
    queries: Queries<'a>,
    /// Numbers in the batch, in order of position.
    tokens: &'a [usize],
    /// Output of each token's heads, `[group, head_dim]`.
    outs: Vec<&'a mut [f32]>,
}

impl<'a> Pass<'a> {
    /// A task for each key/value head and run of tokens. A head's tasks follow each other, so that its keys and values stay
    /// in the processor's cache.
    fn tasks<'b>(&self, runs: &'b [&'b [usize]], out: &'b mut [f32]) -> Vec<Task<'b>>
    where
        'a: 'b,
    {
        let HeadShape { n_kv_heads, head_dim, .. } = self.shape;
        let group = self.shape.group();
        let mut run_of = vec![0; self.batch.len()];
        runs.iter().enumerate().for_each(|(i, run)| run.iter().for_each(|token| run_of[*token] = i));

        let mut tasks = Vec::with_capacity(n_kv_heads * runs.len());
        for kv_head in 0..n_kv_heads {
            for &tokens in runs {
                let queries = Queries {
                    shape: self.shape,
                    kernels: self.kernels,
                    cache: self.caches[self.batch[tokens[0]].sequence],
                    kv_head,
                    positions: tokens.iter().map(|token| self.batch[*token].pos).collect(),
                };
                tasks.push(Task { queries, tokens, outs: Vec::with_capacity(tokens.len()) });
            }
        }
        for (i, out) in out.chunks_exact_mut(group * head_dim).enumerate() {
            let (token, kv_head) = (i / n_kv_heads, i % n_kv_heads);
            tasks[kv_head * runs.len() + run_of[token]].outs.push(out);
        }
        tasks
    }

    /// All blocks of a task, one after another.
    fn attend(&self, task: Task<'_>) {
        let (queries, mut outs) = (task.queries, task.outs);
        let mut scratch = self.scratch();
        self.gather(&queries, task.tokens, &mut scratch.q);
        let mut total = std::mem::take(&mut scratch.total);
        let mut part = std::mem::take(&mut scratch.part);
        total.resize(queries.part_len(), 0.0);
        part.resize(queries.part_len(), 0.0);
        queries.attend(0, &mut scratch, &mut total);
        for block in 1..queries.n_blocks() {
            queries.attend(block, &mut scratch, &mut part);
            queries.merge(block, &mut total, &part);
        }
        queries.write(&total, &mut outs);
        (scratch.total, scratch.part) = (total, part);
        lock(self.scratches).push(scratch);
    }

    /// The tasks of few queries, such as the one of decoding: threads share the blocks of each.
    fn attend_in_blocks(&self, pool: &Pool, mut tasks: Vec<Task<'_>>, buffer: &mut Vec<f32>) {
        let len = |task: &Task<'_>| task.queries.n_blocks() * task.queries.part_len();
        let all = tasks.iter().map(len).sum();
        if buffer.len() < all {
            buffer.resize(all, 0.0);
        }
        let mut rest = &mut buffer[..all];
        let mut parts = Vec::new();
        for task in &tasks {
            let (own, after) = std::mem::take(&mut rest).split_at_mut(len(task));
            rest = after;
            let own = own.chunks_exact_mut(task.queries.part_len()).enumerate();
            parts.extend(own.map(|(block, part)| (&task.queries, task.tokens, block, part)));
        }
        pool.for_each(parts, |_, (queries, tokens, block, part)| {
            let mut scratch = self.scratch();
            self.gather(queries, tokens, &mut scratch.q);
            queries.attend(block, &mut scratch, part);
            lock(self.scratches).push(scratch);
        });
        let mut rest = &mut buffer[..all];
        for task in &mut tasks {
            let (own, after) = std::mem::take(&mut rest).split_at_mut(len(task));
            rest = after;
            let (total, parts) = own.split_at_mut(task.queries.part_len());
            for (i, part) in parts.chunks_exact(total.len()).enumerate() {
                task.queries.merge(i + 1, total, part);
            }
            task.queries.write(total, &mut task.outs);
        }
    }

    /// Copies the task's queries to `rows`, `[tokens, group, head_dim]`.
    fn gather(&self, queries: &Queries<'_>, tokens: &[usize], rows: &mut Vec<f32>) {
        let HeadShape { n_kv_heads, head_dim, .. } = self.shape;
        let width = self.shape.group() * head_dim;
        rows.clear();
        for token in tokens {
            let first = (token * n_kv_heads + queries.kv_head) * width;
            rows.extend_from_slice(&self.q[first..first + width]);
        }
    }

    fn scratch(&self) -> Scratch {
        lock(self.scratches).pop().unwrap_or_default()
    }
}

fn lock(scratches: &Mutex<Vec<Scratch>>) -> MutexGuard<'_, Vec<Scratch>> {
    scratches.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

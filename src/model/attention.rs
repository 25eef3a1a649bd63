//! Attention of a batch of queries over their sequences' key/value caches.

use super::kv_cache::{Sequence, Vectors};
use super::{BatchToken, Config};
use crate::kernels::Kernels;
use crate::parallel::Pool;

/// Multiply-adds below which a hand-off costs more than it saves.
const SERIAL_WORK: usize = 1 << 15;

/// Writes each query's attention over positions `0..=pos` of its own sequence to `out`.
///
/// `q` and `out` are `[batch, n_heads, head_dim]`; scores are scaled by `1 / sqrt(head_dim)`, and `n_heads /
/// n_kv_heads` neighbouring query heads share a key/value head. The caches hold the batch's own positions already.
///
/// Source: Vaswani et al. 2017, arXiv 1706.03762; Ainslie et al. 2023, GQA, arXiv 2305.13245.
#[allow(clippy::too_many_arguments)] // One per symbol of the formula.
pub fn attend(
    config: &Config,
    kernels: &dyn Kernels,
    pool: &Pool,
    layer: usize,
    sequences: &[&mut Sequence],
    batch: &[BatchToken],
    q: &[f32],
    out: &mut [f32],
) {
    let group = config.n_heads / config.n_kv_heads * config.head_dim;
    let work: usize = batch.iter().map(|token| (token.pos + 1) * config.q_dim()).sum();
    let head = |i: usize, out: &mut [f32]| {
        let token = batch[i / config.n_kv_heads];
        let cache = sequences[token.sequence].layer(layer);
        let heads =
            Heads { kernels, kv_dim: config.kv_dim(), head_dim: config.head_dim, kv_head: i % config.n_kv_heads };
        let q = &q[i * group..(i + 1) * group];
        heads.attend(&cache.keys, &cache.values, token.pos + 1, q, out);
    };
    let outs = out.chunks_exact_mut(group);
    if work <= SERIAL_WORK {
        outs.enumerate().for_each(|(i, out)| head(i, out));
    } else {
        pool.for_each(outs.collect(), head);
    }
}

/// The query heads that share one key/value head.
struct Heads<'a> {
    kernels: &'a dyn Kernels,
    kv_dim: usize,
    head_dim: usize,
    kv_head: usize,
}

impl Heads<'_> {
    /// `q` and `out` are `[heads of the group, head_dim]`; `n` positions are looked at.
    fn attend(&self, keys: &Vectors, values: &Vectors, n: usize, q: &[f32], out: &mut [f32]) {
        let scale = 1.0 / (self.head_dim as f32).sqrt();
        let n_heads = q.len() / self.head_dim;
        let mut scores = vec![0.0; n_heads * n];
        // Position by position, so that a key is read once for all heads of the group.
        for pos in 0..n {
            for (head, q) in q.chunks_exact(self.head_dim).enumerate() {
                let dot = match keys {
                    Vectors::F16(keys) => self.kernels.dot_f16(&keys[self.at(pos)], q),
                    Vectors::F32(keys) => self.kernels.dot_f32(&keys[self.at(pos)], q),
                };
                scores[head * n + pos] = dot * scale;
            }
        }
        scores.chunks_exact_mut(n).for_each(|scores| self.kernels.softmax(scores));
        out.fill(0.0);
        for pos in 0..n {
            for (head, out) in out.chunks_exact_mut(self.head_dim).enumerate() {
                let prob = scores[head * n + pos];
                match values {
                    Vectors::F16(values) => self.kernels.axpy_f16(prob, &values[self.at(pos)], out),
                    Vectors::F32(values) => self.kernels.axpy_f32(prob, &values[self.at(pos)], out),
                }
            }
        }
    }

    /// This head's elements of the vector at `pos`.
    fn at(&self, pos: usize) -> std::ops::Range<usize> {
        let first = pos * self.kv_dim + self.kv_head * self.head_dim;
        first..first + self.head_dim
    }
}

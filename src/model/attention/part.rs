//! One block of positions: what it adds to the attention of several queries.
//!
//! A part is `[rows, head_dim + 2]` floats. A row is one head of one token: the attention over the block alone, then the
//! largest score and the sum of the exponentials, which tell its weight beside other blocks.

use super::HeadShape;
use crate::kernels::{ByteScales, FloatProduct, Kernels};
use crate::math::exp;
use crate::model::kv_cache::{LayerCache, Q8_BLOCK, TILE, Tile};

/// Positions of a block. Larger ones have fewer parts to merge, smaller ones give threads that share a text's positions more
/// to share.
pub const BLOCK: usize = 256;
const _: () = assert!(BLOCK.is_multiple_of(TILE));

/// Buffers of a task, kept from task to task.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Queries, `[rows, head_dim]`.
    pub q: Vec<f32>,
    /// Merged parts of the blocks so far.
    pub total: Vec<f32>,
    /// The block's part.
    pub part: Vec<f32>,
    /// Scores, then the softmax of those seen, `[rows, BLOCK]`.
    scores: Vec<f32>,
    widened: Widened,
}

/// A tile as f32.
#[derive(Debug, Default)]
struct Widened {
    numbers: Vec<f32>,
    scales: Vec<f32>,
}

impl Scratch {
    /// Its floats for tasks of `rows`.
    pub fn floats(rows: usize, head_dim: usize) -> usize {
        rows * (head_dim + BLOCK) + 2 * floats(rows, head_dim) + TILE * (head_dim + head_dim / Q8_BLOCK)
    }
}

/// Floats of a part.
pub fn floats(rows: usize, head_dim: usize) -> usize {
    rows * (head_dim + 2)
}

/// Query heads of one key/value head, of tokens of one sequence.
pub struct Queries<'a> {
    pub shape: HeadShape,
    pub kernels: &'a dyn Kernels,
    pub cache: &'a LayerCache,
    pub kv_head: usize,
    /// Of each token, ascending.
    pub positions: Vec<usize>,
}

impl Queries<'_> {
    /// Floats of a part.
    pub fn part_len(&self) -> usize {
        floats(self.positions.len() * self.shape.group(), self.shape.head_dim)
    }

    /// Blocks that the last token looks at.
    pub fn n_blocks(&self) -> usize {
        self.positions.last().map_or(0, |pos| pos / BLOCK + 1)
    }

    /// Writes the part of `block` to `part`, for the tokens that look at any of its positions; the rows of others, which are
    /// the first ones, are left alone.
    pub fn attend(&self, block: usize, scratch: &mut Scratch, part: &mut [f32]) {
        let HeadShape { n_kv_heads, head_dim, .. } = self.shape;
        let (group, stride) = (self.shape.group(), head_dim + 2);
        let scale = 1.0 / (head_dim as f32).sqrt();
        // Positions of the block that a token looks at, and the first row of those that look at `n` or more.
        let seen = |token: usize| (self.positions[token] + 1).saturating_sub(block * BLOCK).min(BLOCK);
        let rows = self.positions.len() * group;
        let first_row = |n: usize| group * self.positions.partition_point(|pos| pos + 1 < block * BLOCK + n);
        let n_tiles = seen(self.positions.len() - 1).div_ceil(TILE);

        let Scratch { q, scores, widened, .. } = scratch;
        scores.resize(rows * BLOCK, 0.0);
        let tile_of = |tile: usize| (block * (BLOCK / TILE) + tile) * n_kv_heads + self.kv_head;
        for tile in 0..n_tiles {
            let first = first_row(tile * TILE + 1);
            self.kernels.scores(FloatProduct {
                rows: rows - first,
                inner: head_dim,
                width: TILE,
                a: &q[first * head_dim..],
                a_stride: head_dim,
                b: widened.keys(self.kernels, self.cache.keys.tile(tile_of(tile))),
                out: &mut scores[first * BLOCK + tile * TILE..],
                out_stride: BLOCK,
            });
        }
        for row in first_row(1)..rows {
            // What lies behind the seen ones is products with keys of later positions, or of none.
            let seen = &mut scores[row * BLOCK..][..seen(row / group)];
            let (max, sum) = self.kernels.softmax_part(seen, scale);
            let row = &mut part[row * stride..][..stride];
            row[..head_dim].fill(0.0);
            (row[head_dim], row[head_dim + 1]) = (max, sum);
        }
        for tile in 0..n_tiles {
            let values = widened.values(self.kernels, self.cache.values.tile(tile_of(tile)));
            let mut add = |first: usize, end: usize, inner: usize| {
                self.kernels.add_product(FloatProduct {
                    rows: end - first,
                    inner,
                    width: head_dim,
                    a: &scores[first * BLOCK + tile * TILE..],
                    a_stride: BLOCK,
                    b: values,
                    out: &mut part[first * stride..],
                    out_stride: stride,
                });
            };
            // A token that sees part of the tile must not add zero times the rest, which may be anything.
            let (some, all) = (first_row(tile * TILE + 1), first_row((tile + 1) * TILE));
            for first in (some..all).step_by(group) {
                add(first, first + group, seen(first / group) - tile * TILE);
            }
            if all < rows {
                add(all, rows, TILE);
            }
        }
    }

    /// Merges the part of `block`, which is the next one, into `total`.
    pub fn merge(&self, block: usize, total: &mut [f32], part: &[f32]) {
        let (head_dim, stride) = (self.shape.head_dim, self.shape.head_dim + 2);
        let first = self.shape.group() * self.positions.partition_point(|pos| pos / BLOCK < block) * stride;
        for (total, part) in total[first..].chunks_exact_mut(stride).zip(part[first..].chunks_exact(stride)) {
            let (max, part_max) = (total[head_dim], part[head_dim]);
            let new_max = if part_max > max { part_max } else { max };
            let sum = total[head_dim + 1] * exp(max - new_max);
            let part_sum = part[head_dim + 1] * exp(part_max - new_max);
            let new_sum = sum + part_sum;
            let (weight, part_weight) = (sum / new_sum, part_sum / new_sum);
            for (total, part) in total[..head_dim].iter_mut().zip(part) {
                *total = *total * weight + part * part_weight;
            }
            (total[head_dim], total[head_dim + 1]) = (new_max, new_sum);
        }
    }

    /// Writes the attention that `total` amounts to: each token's `[group, head_dim]`.
    pub fn write(&self, total: &[f32], outs: &mut [&mut [f32]]) {
        let head_dim = self.shape.head_dim;
        let rows = outs.iter_mut().flat_map(|out| out.chunks_exact_mut(head_dim));
        for (out, total) in rows.zip(total.chunks_exact(head_dim + 2)) {
            out.copy_from_slice(&total[..head_dim]);
        }
    }
}

impl Widened {
    /// A tile of keys, `[head_dim, TILE]`.
    fn keys<'a>(&'a mut self, kernels: &dyn Kernels, tile: Tile<'a>) -> &'a [f32] {
        self.widen(kernels, tile, |scales| ByteScales::Across { scales, width: TILE })
    }

    /// A tile of values, `[TILE, head_dim]`.
    fn values<'a>(&'a mut self, kernels: &dyn Kernels, tile: Tile<'a>) -> &'a [f32] {
        self.widen(kernels, tile, |scales| ByteScales::Along(scales))
    }

    fn widen<'a>(
        &'a mut self,
        kernels: &dyn Kernels,
        tile: Tile<'a>,
        order: impl Fn(&[f32]) -> ByteScales<'_>,
    ) -> &'a [f32] {
        match tile {
            Tile::F32(numbers) => numbers,
            Tile::F16(halves) => {
                self.numbers.resize(halves.len(), 0.0);
                kernels.widen_f16(halves, &mut self.numbers);
                &self.numbers
            }
            Tile::Q8_0 { quants, scales } => {
                self.scales.resize(scales.len(), 0.0);
                self.numbers.resize(quants.len(), 0.0);
                kernels.widen_f16(scales, &mut self.scales);
                kernels.widen_bytes(quants, order(&self.scales), &mut self.numbers);
                &self.numbers
            }
        }
    }
}

//! Products of the types with blocks of 32, eight rows at once: one float lane a row.

use super::super::rows::blocks_32::{Blocks, ROWS, Totals, row_values};
use super::super::rows::reduce::transpose;
use super::super::unpack::{Unpack32, prefetch};
use super::super::{eight_sums, rows};
use super::Product;
use super::reduce::{InPairs, scaled_sum};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

/// Blocks of eight rows that are unpacked at once for many columns: 20 KiB.
const TILE_BLOCKS: usize = 64;
/// Columns that share an unpacked tile; their sums lie on the stack.
const TILE_COLUMNS: usize = 64;
/// Columns that are multiplied at once.
const COLUMNS: usize = 4;

/// One block of eight rows, unpacked and turned: a vector holds four quants of each row.
#[derive(Clone, Copy)]
struct Tile {
    quads: [__m256i; 8],
    scales: (__m256, __m256),
}

/// Products of eight rows and several columns: blocks are unpacked once for up to [`TILE_COLUMNS`], and no lanes have to
/// be summed, as each is a row (see `blocks_256.rs`). For one column see [`rows`](super::super::rows).
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    if B::EIGHT_SUMS {
        // SAFETY: this function has the features.
        return unsafe { eight_sums::blocks_32::matmul::<InPairs, B>(product, rows) };
    }
    if let [x] = product.columns {
        // SAFETY: this function has the features.
        return unsafe { rows::blocks_32::matmul::<InPairs, B>(product, rows, x) };
    }
    let n_blocks = product.w.cols() / 32;
    let zero = (_mm256_setzero_ps(), _mm256_setzero_ps());
    let mut tiles = [Tile { quads: [_mm256_setzero_si256(); 8], scales: zero }; TILE_BLOCKS];
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        for (chunk, columns) in product.columns.chunks(TILE_COLUMNS).enumerate() {
            let mut totals = [zero; TILE_COLUMNS];
            for start in (0..n_blocks).step_by(TILE_BLOCKS) {
                let tiles = &mut tiles[..TILE_BLOCKS.min(n_blocks - start)];
                for (i, tile) in tiles.iter_mut().enumerate() {
                    let blocks = group.map(|row| &row[start + i]);
                    for block in blocks {
                        prefetch(block, ROWS * n_blocks * size_of::<B>());
                    }
                    // SAFETY: this function has the features.
                    unsafe { unpack(blocks, tile) };
                }
                let (several, rest) = columns.as_chunks::<COLUMNS>();
                let (several_totals, rest_totals) = totals[..columns.len()].as_chunks_mut::<COLUMNS>();
                for (x, totals) in several.iter().zip(several_totals) {
                    add_tiles::<B, COLUMNS>(tiles, start, n_blocks, x, totals);
                }
                for (x, totals) in rest.iter().zip(rest_totals) {
                    add_tiles::<B, 1>(tiles, start, n_blocks, std::array::from_ref(x), std::array::from_mut(totals));
                }
            }
            for (j, totals) in totals[..columns.len()].iter().enumerate() {
                // SAFETY: this function has the features.
                let values = unsafe { row_values::<B>(*totals) };
                product.store(chunk * TILE_COLUMNS + j, first, rows.end, &values);
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack<B: Unpack32>(blocks: [&B; ROWS], tile: &mut Tile) {
    // SAFETY: the caller has AVX2 and F16C.
    unsafe {
        tile.quads = transpose([
            blocks[0].quants(),
            blocks[1].quants(),
            blocks[2].quants(),
            blocks[3].quants(),
            blocks[4].quants(),
            blocks[5].quants(),
            blocks[6].quants(),
            blocks[7].quants(),
        ]);
        tile.scales = B::scales_and_mins(blocks);
    }
}

/// Adds the products of unpacked blocks, the first of which is block `start`, and `C` columns.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_tiles<B: Unpack32, const C: usize>(
    tiles: &[Tile],
    start: usize,
    n_blocks: usize,
    x: &[Column<'_>; C],
    totals: &mut [Totals; C],
) {
    assert!(start + tiles.len() <= n_blocks);
    let x: [Blocks<'_>; C] = std::array::from_fn(|c| Blocks::new::<B>(&x[c], n_blocks));
    let one = _mm256_set1_epi16(1);
    for (i, tile) in tiles.iter().enumerate() {
        let [q0, q1, q2, q3, q4, q5, q6, q7] = tile.quads;
        for c in 0..C {
            // SAFETY: block `start + i` is below `n_blocks`, and this function has the features.
            unsafe {
                let at = x[c].quants(start + i);
                let low = scaled_sum(B::QUANTS, [q0, q1, q2, q3], at, one);
                let high = scaled_sum(B::QUANTS, [q4, q5, q6, q7], at.add(16), one);
                totals[c] =
                    x[c].add_block::<InPairs, B>(totals[c], _mm256_add_epi32(low, high), tile.scales, start + i);
            }
        }
    }
}

//! Products of the K-quants and the other types with blocks of 256.
//!
//! For one column see [`rows`](super::super::rows). For several, eight rows are unpacked and turned, so that each lane is
//! a row. A vector of a tile holds four neighbouring quants of each of eight rows. It is multiplied with the four activations that
//! belong to them, the same for all rows; so no lanes have to be summed at the end of a block:
//!
//! ```text
//! quants       r0: q0 q1 q2 q3 | r1: q0 q1 q2 q3 | .. | r7: q0 q1 q2 q3
//! activations      x0 x1 x2 x3 |     x0 x1 x2 x3 | .. |     x0 x1 x2 x3
//! ```

use super::super::rows::reduce::transpose;
use super::super::unpack::{Quants, Unpack256, even_odd, prefetch};
use super::super::{eight_sums, rows};
use super::Product;
use super::reduce::{InPairs, scaled_sum};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

const ROWS: usize = 8;
/// Blocks that are unpacked at once: 23 KiB, so that they stay in the first-level cache.
const TILE_BLOCKS: usize = 8;
/// Columns that share an unpacked tile; their sums lie on the stack.
const TILE_COLUMNS: usize = 64;
/// Columns that are multiplied at once, their sums in registers.
const COLUMNS: usize = 4;

/// Float sums of eight rows: of products and of minimums.
type Totals = (__m256, __m256);

/// One block of eight rows; each 32-bit lane is a row.
#[derive(Clone, Copy)]
struct Tile {
    /// `[8 groups, 8]` vectors of four quants a row.
    quads: [[__m256i; 8]; 8],
    /// `[8 groups, 2 halves]` scales, twice in the 16-bit lanes of a row.
    scales: [[__m256i; 2]; 8],
    /// Two factors a row, for two sums of 16 activations.
    sum_factors: [__m256i; 8],
    /// Float factors of the products and of the minimums.
    factors: (__m256, __m256),
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    if B::EIGHT_SUMS {
        // SAFETY: this function has the features.
        return unsafe { eight_sums::blocks_256::matmul::<InPairs, B>(product, rows) };
    }
    if let [x] = product.columns {
        // SAFETY: this function has the features.
        return unsafe { rows::blocks_256::matmul::<InPairs, B>(product, rows, x) };
    }
    let zero = _mm256_setzero_si256();
    let no_floats = (_mm256_setzero_ps(), _mm256_setzero_ps());
    let empty = Tile { quads: [[zero; 8]; 8], scales: [[zero; 2]; 8], sum_factors: [zero; 8], factors: no_floats };
    let mut tiles = [empty; TILE_BLOCKS];
    let n_blocks = product.w.cols() / 256;
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        for (chunk, columns) in product.columns.chunks(TILE_COLUMNS).enumerate() {
            let mut totals = [no_floats; TILE_COLUMNS];
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
                    add_tiles::<B, COLUMNS>(tiles, start, x, totals);
                }
                for (x, totals) in rest.iter().zip(rest_totals) {
                    add_tiles::<B, 1>(tiles, start, std::array::from_ref(x), std::array::from_mut(totals));
                }
            }
            for (j, (total, min_total)) in totals[..columns.len()].iter().enumerate() {
                let values = if B::HAS_MIN { _mm256_sub_ps(*total, *min_total) } else { *total };
                let mut lanes = [0.0f32; ROWS];
                // SAFETY: the array is 32 bytes.
                unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), values) };
                product.store(chunk * TILE_COLUMNS + j, first, rows.end, &lanes);
            }
        }
    }
}

#[inline(always)]
unsafe fn unpack<B: Unpack256>(blocks: [&B; ROWS], tile: &mut Tile) {
    // SAFETY: the caller has AVX2 and F16C.
    unsafe {
        tile.quads[0] = quads::<B, 0>(blocks);
        tile.quads[1] = quads::<B, 1>(blocks);
        tile.quads[2] = quads::<B, 2>(blocks);
        tile.quads[3] = quads::<B, 3>(blocks);
        tile.quads[4] = quads::<B, 4>(blocks);
        tile.quads[5] = quads::<B, 5>(blocks);
        tile.quads[6] = quads::<B, 6>(blocks);
        tile.quads[7] = quads::<B, 7>(blocks);
        let ([a, b, c, d], factors) = B::scales([blocks[0], blocks[1], blocks[2], blocks[3]]);
        let ([e, f, g, h], more) = B::scales([blocks[4], blocks[5], blocks[6], blocks[7]]);
        tile.sum_factors = transpose([
            a.sum_factors,
            b.sum_factors,
            c.sum_factors,
            d.sum_factors,
            e.sum_factors,
            f.sum_factors,
            g.sum_factors,
            h.sum_factors,
        ]);
        let (a, b, c, d) = (a.twice(), b.twice(), c.twice(), d.twice());
        let (e, f, g, h) = (e.twice(), f.twice(), g.twice(), h.twice());
        // The even halves of four groups, then their odd halves.
        let low = transpose([a.low, b.low, c.low, d.low, e.low, f.low, g.low, h.low]);
        let high = transpose([a.high, b.high, c.high, d.high, e.high, f.high, g.high, h.high]);
        for j in 0..4 {
            tile.scales[j] = [low[j], low[j + 4]];
            tile.scales[j + 4] = [high[j], high[j + 4]];
        }
        tile.factors = if B::HAS_MIN {
            // d0 m0 d1 m1 | d2 m2 d3 m3 and the same of rows 4 to 7: even lanes and odd ones, put in order.
            let order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
            let even = _mm256_shuffle_ps::<0b10_00_10_00>(factors, more);
            let odd = _mm256_shuffle_ps::<0b11_01_11_01>(factors, more);
            (_mm256_permutevar8x32_ps(even, order), _mm256_permutevar8x32_ps(odd, order))
        } else {
            (_mm256_blend_ps::<0b1111_0000>(factors, more), _mm256_setzero_ps())
        };
    }
}

#[inline(always)]
unsafe fn quads<B: Unpack256, const J: usize>(blocks: [&B; ROWS]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2.
    unsafe {
        transpose([
            blocks[0].group::<J>(),
            blocks[1].group::<J>(),
            blocks[2].group::<J>(),
            blocks[3].group::<J>(),
            blocks[4].group::<J>(),
            blocks[5].group::<J>(),
            blocks[6].group::<J>(),
            blocks[7].group::<J>(),
        ])
    }
}

/// Adds the products of unpacked blocks, the first of which is block `start`, and `C` columns.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_tiles<B: Unpack256, const C: usize>(
    tiles: &[Tile],
    start: usize,
    x: &[Column<'_>; C],
    totals: &mut [Totals; C],
) {
    for (i, tile) in tiles.iter().enumerate() {
        let i = start + i;
        let quants: [&[i8; 256]; C] = std::array::from_fn(|c| &x[c].quants.as_chunks().0[i]);
        let mut products = [_mm256_setzero_si256(); C];
        for (j, (quads, scales)) in tile.quads.iter().zip(&tile.scales).enumerate() {
            for half in 0..2 {
                let quads = [quads[4 * half], quads[4 * half + 1], quads[4 * half + 2], quads[4 * half + 3]];
                for c in 0..C {
                    // SAFETY: 16 activations from `32 j + 16 half` on lie within the 256; this function has AVX2.
                    unsafe {
                        let at = quants[c].as_ptr().add(32 * j + 16 * half);
                        let sum = scaled_sum(B::QUANTS, quads, at, scales[half]);
                        products[c] = _mm256_add_epi32(products[c], sum);
                    }
                }
            }
        }
        for c in 0..C {
            let mut x_sums = [0i32; 8];
            // SAFETY: the array is 32 bytes, and this function has AVX2.
            unsafe {
                _mm256_storeu_si256(x_sums.as_mut_ptr().cast(), even_odd(&x[c].sums.as_chunks().0[i]));
            }
            let mut of_sums = _mm256_setzero_si256();
            if B::QUANTS != Quants::Signed {
                for (factors, x_sums) in tile.sum_factors.iter().zip(x_sums) {
                    let product = _mm256_madd_epi16(*factors, _mm256_set1_epi32(x_sums));
                    of_sums = _mm256_add_epi32(of_sums, product);
                }
            }
            let scale = _mm256_set1_ps(x[c].scales[i]);
            let (total, min_total) = totals[c];
            let (products, mins) = match B::HAS_MIN {
                true => (products[c], of_sums),
                false => (_mm256_add_epi32(products[c], of_sums), of_sums),
            };
            let total = _mm256_fmadd_ps(_mm256_mul_ps(tile.factors.0, scale), _mm256_cvtepi32_ps(products), total);
            let min_total = match B::HAS_MIN {
                true => _mm256_fmadd_ps(_mm256_mul_ps(tile.factors.1, scale), _mm256_cvtepi32_ps(mins), min_total),
                false => min_total,
            };
            totals[c] = (total, min_total);
        }
    }
}

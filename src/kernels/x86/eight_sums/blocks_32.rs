//! Blocks of 32.

use super::super::Product;
use super::super::rows::reduce::pairs;
use super::super::rows::{AHEAD, Multiply};
use super::super::unpack::{Unpack32, prefetch};
use super::{Sums, TILE_COLUMNS};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

/// Neighbouring blocks of a row that are unpacked at once: the scales of eight share instructions.
const BLOCKS: usize = 8;

/// Neighbouring blocks of a row.
struct Tile {
    /// Quants, in order.
    quants: [__m256i; BLOCKS],
    scales: [f32; BLOCKS],
    /// Added minimums.
    mins: [f32; BLOCKS],
}

/// A row's blocks are unpacked once for up to [`TILE_COLUMNS`].
///
/// # Safety
/// The processor has AVX2, FMA, F16C and what `M` needs.
#[inline(always)]
pub(in super::super) unsafe fn matmul<M: Multiply, B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    assert!(B::HAS_MIN, "all such types have minimums");
    // SAFETY: the caller has the features.
    unsafe {
        let zero = _mm256_setzero_si256();
        let mut tile = Tile { quants: [zero; BLOCKS], scales: [0.0; BLOCKS], mins: [0.0; BLOCKS] };
        for row in rows {
            let blocks: &[B] = product.blocks(row..row + 1);
            // One column reads on in memory; for several, what is unpacked next is the next row.
            let ahead = if product.columns.len() == 1 { AHEAD } else { size_of_val(blocks) };
            for (chunk, x) in product.columns.chunks(TILE_COLUMNS).enumerate() {
                let mut sums = [Sums::zero(); TILE_COLUMNS];
                for (first, part) in (0..).step_by(BLOCKS).zip(blocks.chunks(BLOCKS)) {
                    unpack(part, ahead, &mut tile);
                    for (x, sums) in x.iter().zip(&mut sums) {
                        add_tile::<M, B>(&tile, x, first..first + part.len(), sums);
                    }
                }
                for (j, sums) in sums[..x.len()].iter().enumerate() {
                    product.out.write(chunk * TILE_COLUMNS + j, row, sums.product() + sums.mins);
                }
            }
        }
    }
}

/// Unpacks up to [`BLOCKS`] blocks.
#[inline(always)]
unsafe fn unpack<B: Unpack32>(blocks: &[B], ahead: usize, tile: &mut Tile) {
    let eight: [&B; BLOCKS] = std::array::from_fn(|k| &blocks[k.min(blocks.len() - 1)]);
    // SAFETY: the arrays are 32 bytes; the caller has the features.
    unsafe {
        for (quants, block) in tile.quants.iter_mut().zip(eight) {
            prefetch(block, ahead);
            *quants = block.quants();
        }
        let (scales, mins) = B::scales_and_mins(eight);
        _mm256_storeu_ps(tile.scales.as_mut_ptr(), scales);
        _mm256_storeu_ps(tile.mins.as_mut_ptr(), mins);
    }
}

/// Adds the products of `tile` and the `blocks` of `x`.
#[inline(always)]
unsafe fn add_tile<M: Multiply, B: Unpack32>(tile: &Tile, x: &Column<'_>, blocks: Range<usize>, sums: &mut Sums) {
    let quants = &x.quants.as_chunks::<32>().0[blocks.clone()];
    let (scales, scaled_sums) = (&x.scales[blocks.clone()], &x.scaled_sums[blocks]);
    for (k, ((quants, scale), scaled_sum)) in quants.iter().zip(scales).zip(scaled_sums).enumerate() {
        // SAFETY: 32 activations are read; the caller has the features.
        unsafe {
            let x = _mm256_loadu_si256(quants.as_ptr().cast());
            let pairs = pairs(B::QUANTS, tile.quants[k], x);
            let products = M::add_pairs(_mm256_setzero_si256(), pairs, _mm256_set1_epi16(1));
            sums.add(tile.scales[k] * scale, products, tile.mins[k], *scaled_sum);
        }
    }
}

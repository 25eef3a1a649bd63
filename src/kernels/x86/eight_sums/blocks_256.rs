//! Blocks of 256.

use super::super::Product;
use super::super::rows::blocks_256::{Activations256, block_product};
use super::super::rows::reduce::{pairs, sums_of_four};
use super::super::rows::{AHEAD, Multiply};
use super::super::unpack::{Quants, Scales, Unpack256, prefetch};
use super::{Sums, TILE_COLUMNS};
use std::arch::x86_64::*;
use std::ops::Range;

/// Neighbouring blocks of a row that are unpacked at once: the scales of four share instructions.
const BLOCKS: usize = 4;

/// # Safety
/// The processor has AVX2, FMA, F16C and what `M` needs.
#[inline(always)]
pub(in super::super) unsafe fn matmul<M: Multiply, B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    assert!(B::HAS_MIN, "all such types have minimums");
    let n_blocks = product.w.cols() / 256;
    // SAFETY: the caller has the features.
    unsafe {
        let x: Vec<_> = product.columns.iter().map(|column| Activations256::new(column, n_blocks)).collect();
        match &x[..] {
            [x] => matmul_one::<M, B>(product, rows, x),
            _ => matmul_several::<M, B>(product, rows, &x),
        }
    }
}

/// Decoding reads each weight once: blocks are taken in the order of memory, whatever rows they are of.
#[inline(always)]
unsafe fn matmul_one<M: Multiply, B: Unpack256>(product: Product<'_>, rows: Range<usize>, x: &Activations256<'_>) {
    let blocks: &[B] = product.blocks(rows.clone());
    let last = blocks.len().saturating_sub(1);
    // SAFETY: indices of blocks are at most `last`, those of the column below `n_blocks`; the caller has the features.
    unsafe {
        let (mut row, mut column, mut sums) = (rows.start, 0, Sums::zero());
        if x.n_blocks == 0 {
            rows.for_each(|row| product.out.write(0, row, 0.0));
        }
        for first in (0..blocks.len()).step_by(BLOCKS) {
            // The last ones may be short: the last block stands in.
            let four: [&B; BLOCKS] = std::array::from_fn(|k| blocks.get_unchecked((first + k).min(last)));
            let columns: [usize; BLOCKS] = std::array::from_fn(|k| (column + k) % x.n_blocks);
            for block in four {
                prefetch(block, AHEAD);
            }
            let (scales, factors) = B::scales(four);
            let [(p0, m0), (p1, m1), (p2, m2), (p3, m3)] = [
                block_product::<M, B>(four[0], &scales[0], x, columns[0]),
                block_product::<M, B>(four[1], &scales[1], x, columns[1]),
                block_product::<M, B>(four[2], &scales[2], x, columns[2]),
                block_product::<M, B>(four[3], &scales[3], x, columns[3]),
            ];
            let min_products = four_floats(sums_of_four([m0, m1, m2, m3]));
            let factors = to_array(factors);
            for (k, products) in [p0, p1, p2, p3].into_iter().enumerate().take(blocks.len() - first) {
                let scale = *x.scales.get_unchecked(column);
                sums.add(factors[2 * k] * scale, products, factors[2 * k + 1] * scale, min_products[k]);
                column += 1;
                if column == x.n_blocks {
                    product.out.write(0, row, sums.product() - sums.mins);
                    (row, column, sums) = (row + 1, 0, Sums::zero());
                }
            }
        }
    }
}

/// Neighbouring blocks of a row.
struct Tile {
    /// `[BLOCKS, 8 groups]` quants, in order.
    quants: [[__m256i; 8]; BLOCKS],
    /// `[BLOCKS, 8 groups]` integer scales of their 16-bit lanes.
    scales: [[__m256i; 8]; BLOCKS],
    /// Integer minimums, in the order of [`Scales`].
    mins: [__m256i; BLOCKS],
    /// Float factors of the products and of the minimums, in turns.
    factors: [f32; 2 * BLOCKS],
}

/// A row's blocks are unpacked once for up to [`TILE_COLUMNS`].
#[inline(always)]
unsafe fn matmul_several<M: Multiply, B: Unpack256>(
    product: Product<'_>,
    rows: Range<usize>,
    x: &[Activations256<'_>],
) {
    // SAFETY: indices of blocks are below `n_blocks`; the caller has the features.
    unsafe {
        let zero = _mm256_setzero_si256();
        let mut tile = Tile {
            quants: [[zero; 8]; BLOCKS],
            scales: [[zero; 8]; BLOCKS],
            mins: [zero; BLOCKS],
            factors: [0.0; 2 * BLOCKS],
        };
        for row in rows {
            let blocks: &[B] = product.blocks(row..row + 1);
            for (chunk, x) in x.chunks(TILE_COLUMNS).enumerate() {
                let mut sums = [Sums::zero(); TILE_COLUMNS];
                for (first, part) in (0..).step_by(BLOCKS).zip(blocks.chunks(BLOCKS)) {
                    unpack(part, blocks.len(), &mut tile);
                    for (x, sums) in x.iter().zip(&mut sums) {
                        match part.len() {
                            BLOCKS => add_tile::<M, BLOCKS>(&tile, x, first, sums),
                            3 => add_tile::<M, 3>(&tile, x, first, sums),
                            2 => add_tile::<M, 2>(&tile, x, first, sums),
                            _ => add_tile::<M, 1>(&tile, x, first, sums),
                        }
                    }
                }
                for (j, sums) in sums[..x.len()].iter().enumerate() {
                    product.out.write(chunk * TILE_COLUMNS + j, row, sums.product() - sums.mins);
                }
            }
        }
    }
}

/// Unpacks up to [`BLOCKS`] blocks of a row of `n_blocks`.
#[inline(always)]
unsafe fn unpack<B: Unpack256>(blocks: &[B], n_blocks: usize, tile: &mut Tile) {
    let four: [&B; BLOCKS] = std::array::from_fn(|k| &blocks[k.min(blocks.len() - 1)]);
    // SAFETY: the caller has the features.
    unsafe {
        let (scales, factors): ([Scales; BLOCKS], _) = B::scales(four);
        tile.factors = to_array(factors);
        for k in 0..blocks.len() {
            let block = four[k];
            prefetch(block, n_blocks * size_of::<B>());
            tile.quants[k] = [
                block.group::<0>(),
                block.group::<1>(),
                block.group::<2>(),
                block.group::<3>(),
                block.group::<4>(),
                block.group::<5>(),
                block.group::<6>(),
                block.group::<7>(),
            ];
            let twice = scales[k].twice();
            tile.scales[k] = [
                twice.group::<0>(),
                twice.group::<1>(),
                twice.group::<2>(),
                twice.group::<3>(),
                twice.group::<4>(),
                twice.group::<5>(),
                twice.group::<6>(),
                twice.group::<7>(),
            ];
            tile.mins[k] = scales[k].sum_factors;
        }
    }
}

/// Adds the products of the first `N` blocks of `tile` and those of `x` from block `first` on.
#[inline(always)]
unsafe fn add_tile<M: Multiply, const N: usize>(tile: &Tile, x: &Activations256<'_>, first: usize, sums: &mut Sums) {
    let (quants, x_sums, x_scales) = (&x.quants[first..][..N], &x.sums[first..][..N], &x.scales[first..][..N]);
    // SAFETY: groups of 32 lie within a block of 256; the caller has the features.
    unsafe {
        let zero = _mm256_setzero_si256();
        let (mut products, mut mins) = ([zero; BLOCKS], [zero; BLOCKS]);
        for k in 0..N {
            // Two chains, as one instruction's result is not ready for the next but after several cycles.
            let mut chains = [zero; 2];
            for (j, (w, scales)) in tile.quants[k].iter().zip(&tile.scales[k]).enumerate() {
                let x = _mm256_loadu_si256(quants[k].as_ptr().add(32 * j).cast());
                chains[j % 2] = M::add_pairs(chains[j % 2], pairs(Quants::Above(0), *w, x), *scales);
            }
            products[k] = _mm256_add_epi32(chains[0], chains[1]);
            mins[k] = M::add_pairs(zero, tile.mins[k], x_sums[k]);
        }
        let min_products = four_floats(sums_of_four(mins));
        for k in 0..N {
            let scale = x_scales[k];
            sums.add(tile.factors[2 * k] * scale, products[k], tile.factors[2 * k + 1] * scale, min_products[k]);
        }
    }
}

/// The lower four of eight integers, as floats.
#[inline(always)]
unsafe fn four_floats(integers: __m256i) -> [f32; 4] {
    let mut floats = [0.0; 4];
    // SAFETY: the array is 16 bytes; the caller has AVX2.
    unsafe { _mm_storeu_ps(floats.as_mut_ptr(), _mm_cvtepi32_ps(_mm256_castsi256_si128(integers))) };
    floats
}

#[inline(always)]
unsafe fn to_array(x: __m256) -> [f32; 8] {
    let mut lanes = [0.0; 8];
    // SAFETY: the array is 32 bytes; the caller has AVX2.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), x) };
    lanes
}

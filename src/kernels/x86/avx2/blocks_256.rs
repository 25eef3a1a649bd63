//! Products of the K-quants and the other types with blocks of 256.
//!
//! Four rows are multiplied at once, so that the sums of their lanes and their float factors share instructions.

use super::super::unpack::{Quants, Scales, Unpack256, even_odd, prefetch};
use super::Product;
use super::reduce::{pairs, sums_of_four, sums_of_four_and_four};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

const ROWS: usize = 4;
/// Blocks of four rows that are unpacked at once for many columns: 17 KiB, so that they stay in the first-level cache.
const TILE_BLOCKS: usize = 8;
/// Columns that share an unpacked tile; their sums lie on the stack.
const TILE_COLUMNS: usize = 64;
/// From this many columns on, unpacking to memory pays.
const UNPACK_FROM: usize = 3;

/// The sum of 16-bit lane products of one row, and of its minimums.
type Sums = [__m256i; ROWS];

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    let n_blocks = product.w.cols() / 256;
    let mut first = rows.start;
    while first < rows.end {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        if product.columns.len() < UNPACK_FROM {
            for (j, x) in product.columns.iter().enumerate() {
                let sums = one_column(&group, n_blocks, x);
                product.store(j, first, rows.end, &row_values::<B>(sums));
            }
        } else {
            many_columns(product, &group, n_blocks, first, rows.end);
        }
        first += ROWS;
    }
}

/// Float sums of four rows and one column, unpacking on the way.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one_column<B: Unpack256>(rows: &[&[B]; ROWS], n_blocks: usize, x: &Column<'_>) -> __m256 {
    let quants = x.quants.as_chunks::<256>().0;
    let sums = x.sums.as_chunks::<16>().0;
    assert!(rows.iter().all(|row| row.len() == n_blocks) && quants.len() == n_blocks);
    assert!(sums.len() == n_blocks && x.scales.len() == n_blocks);
    let mut total = _mm256_setzero_ps();
    for i in 0..n_blocks {
        // SAFETY: all slices are `n_blocks` long, and this function has the features.
        unsafe {
            let blocks = [
                rows[0].get_unchecked(i),
                rows[1].get_unchecked(i),
                rows[2].get_unchecked(i),
                rows[3].get_unchecked(i),
            ];
            for block in blocks {
                prefetch(block, ROWS * n_blocks * size_of::<B>());
            }
            let (scales, factors) = B::scales(blocks);
            let x_sums = even_odd(sums.get_unchecked(i));
            let quants = quants.get_unchecked(i);
            // Written out, as the compiler keeps a loop over rows a loop, and its vectors in memory.
            let (p0, m0) = block_product(blocks[0], &scales[0], quants, x_sums);
            let (p1, m1) = block_product(blocks[1], &scales[1], quants, x_sums);
            let (p2, m2) = block_product(blocks[2], &scales[2], quants, x_sums);
            let (p3, m3) = block_product(blocks[3], &scales[3], quants, x_sums);
            let (products, mins) = ([p0, p1, p2, p3], [m0, m1, m2, m3]);
            total = add_block::<B>(total, products, mins, factors, *x.scales.get_unchecked(i));
        }
    }
    total
}

/// Lanes whose sums are the integer product of a block and 256 activations, and that of its minimums.
#[inline(always)]
unsafe fn block_product<B: Unpack256>(
    block: &B,
    scales: &Scales,
    x: &[i8; 256],
    x_sums: __m256i,
) -> (__m256i, __m256i) {
    // SAFETY: the caller has AVX2.
    unsafe {
        let mut even = group_product::<B, 0>(block, scales, x);
        let mut odd = group_product::<B, 1>(block, scales, x);
        even = _mm256_add_epi32(even, group_product::<B, 2>(block, scales, x));
        odd = _mm256_add_epi32(odd, group_product::<B, 3>(block, scales, x));
        even = _mm256_add_epi32(even, group_product::<B, 4>(block, scales, x));
        odd = _mm256_add_epi32(odd, group_product::<B, 5>(block, scales, x));
        even = _mm256_add_epi32(even, group_product::<B, 6>(block, scales, x));
        odd = _mm256_add_epi32(odd, group_product::<B, 7>(block, scales, x));
        let (mut products, mut mins) = (_mm256_add_epi32(even, odd), _mm256_setzero_si256());
        add_sums::<B>(&mut products, &mut mins, scales.sum_factors, x_sums);
        (products, mins)
    }
}

#[inline(always)]
unsafe fn group_product<B: Unpack256, const J: usize>(block: &B, scales: &Scales, x: &[i8; 256]) -> __m256i {
    // SAFETY: the 32 activations lie within the array; the caller has AVX2.
    unsafe {
        let x = _mm256_loadu_si256(x.as_ptr().add(32 * J).cast());
        let products = pairs(B::QUANTS, block.group::<J>(), x);
        _mm256_madd_epi16(products, scales.group::<J>())
    }
}

/// Adds what the sums of activations give: to the minimums of a type that has them, else to the products.
#[inline(always)]
unsafe fn add_sums<B: Unpack256>(products: &mut __m256i, mins: &mut __m256i, factors: __m256i, x_sums: __m256i) {
    // SAFETY: the caller has AVX2.
    unsafe {
        if B::HAS_MIN {
            *mins = _mm256_madd_epi16(factors, x_sums);
        } else if B::QUANTS != Quants::Signed {
            *products = _mm256_add_epi32(*products, _mm256_madd_epi16(factors, x_sums));
        }
    }
}

/// Adds a block's products, and minimums, of four rows to their float sums.
#[inline(always)]
unsafe fn add_block<B: Unpack256>(total: __m256, products: Sums, mins: Sums, factors: __m256, x_scale: f32) -> __m256 {
    // SAFETY: the caller has AVX2 and FMA.
    unsafe {
        let integers = if B::HAS_MIN { sums_of_four_and_four(products, mins) } else { sums_of_four(products) };
        let factors = _mm256_mul_ps(factors, _mm256_set1_ps(x_scale));
        _mm256_fmadd_ps(factors, _mm256_cvtepi32_ps(integers), total)
    }
}

/// The results of four rows from their float sums.
#[inline]
#[target_feature(enable = "avx2")]
fn row_values<B: Unpack256>(sums: __m256) -> [f32; ROWS] {
    let mut lanes = [0.0f32; 8];
    // SAFETY: the array is 32 bytes.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums) };
    std::array::from_fn(|r| if B::HAS_MIN { lanes[2 * r] - lanes[2 * r + 1] } else { lanes[r] })
}

/// One block of four rows, unpacked.
#[derive(Clone, Copy)]
struct Tile {
    /// `[8 groups, 4 rows]`: quants of a group, and the scales of its 16-bit lanes.
    groups: [[(__m256i, __m256i); ROWS]; 8],
    sum_factors: [__m256i; ROWS],
    factors: __m256,
}

/// Products of four rows and any number of columns: blocks are unpacked once for up to [`TILE_COLUMNS`].
#[target_feature(enable = "avx2,fma,f16c")]
fn many_columns<B: Unpack256>(product: Product<'_>, rows: &[&[B]; ROWS], n_blocks: usize, first: usize, end: usize) {
    let zero = _mm256_setzero_si256();
    let empty = Tile { groups: [[(zero, zero); ROWS]; 8], sum_factors: [zero; ROWS], factors: _mm256_setzero_ps() };
    let mut tiles = [empty; TILE_BLOCKS];
    for (chunk, columns) in product.columns.chunks(TILE_COLUMNS).enumerate() {
        let mut totals = [_mm256_setzero_ps(); TILE_COLUMNS];
        for start in (0..n_blocks).step_by(TILE_BLOCKS) {
            let tiles = &mut tiles[..TILE_BLOCKS.min(n_blocks - start)];
            for (i, tile) in tiles.iter_mut().enumerate() {
                let blocks = rows.map(|row| &row[start + i]);
                for block in blocks {
                    prefetch(block, ROWS * n_blocks * size_of::<B>());
                }
                // SAFETY: this function has the features.
                unsafe { unpack_tile(blocks, tile) };
            }
            let (two, one) = columns.as_chunks::<2>();
            let (two_totals, one_total) = totals[..columns.len()].as_chunks_mut::<2>();
            for (x, totals) in two.iter().zip(two_totals) {
                add_tiles::<B, 2>(tiles, start, x, totals);
            }
            for (x, total) in one.iter().zip(one_total) {
                add_tiles::<B, 1>(tiles, start, std::array::from_ref(x), std::array::from_mut(total));
            }
        }
        for (j, total) in totals[..columns.len()].iter().enumerate() {
            product.store(chunk * TILE_COLUMNS + j, first, end, &row_values::<B>(*total));
        }
    }
}

#[inline(always)]
unsafe fn unpack_tile<B: Unpack256>(blocks: [&B; ROWS], tile: &mut Tile) {
    // SAFETY: the caller has AVX2 and F16C.
    unsafe {
        let (scales, factors) = B::scales(blocks);
        tile.factors = factors;
        for r in 0..ROWS {
            let (block, scales) = (blocks[r], &scales[r]);
            tile.sum_factors[r] = scales.sum_factors;
            tile.groups[0][r] = (block.group::<0>(), scales.group::<0>());
            tile.groups[1][r] = (block.group::<1>(), scales.group::<1>());
            tile.groups[2][r] = (block.group::<2>(), scales.group::<2>());
            tile.groups[3][r] = (block.group::<3>(), scales.group::<3>());
            tile.groups[4][r] = (block.group::<4>(), scales.group::<4>());
            tile.groups[5][r] = (block.group::<5>(), scales.group::<5>());
            tile.groups[6][r] = (block.group::<6>(), scales.group::<6>());
            tile.groups[7][r] = (block.group::<7>(), scales.group::<7>());
        }
    }
}

/// Adds the products of unpacked blocks, the first of which is block `start`, and `C` columns: `4 C` integer sums are
/// kept in registers.
#[target_feature(enable = "avx2,fma,f16c")]
fn add_tiles<B: Unpack256, const C: usize>(
    tiles: &[Tile],
    start: usize,
    x: &[Column<'_>; C],
    totals: &mut [__m256; C],
) {
    for (i, tile) in tiles.iter().enumerate() {
        let i = start + i;
        let quants: [&[i8; 256]; C] = std::array::from_fn(|c| &x[c].quants.as_chunks().0[i]);
        let mut products = [[_mm256_setzero_si256(); ROWS]; C];
        for (j, group) in tile.groups.iter().enumerate() {
            for c in 0..C {
                // SAFETY: group `j` of 8 lies within the 256 quants.
                let x = unsafe { _mm256_loadu_si256(quants[c].as_ptr().add(32 * j).cast()) };
                for r in 0..ROWS {
                    // SAFETY: this function has AVX2.
                    let pairs = unsafe { pairs(B::QUANTS, group[r].0, x) };
                    products[c][r] = _mm256_add_epi32(products[c][r], _mm256_madd_epi16(pairs, group[r].1));
                }
            }
        }
        for c in 0..C {
            // SAFETY: this function has the features.
            unsafe {
                let x_sums = even_odd(&x[c].sums.as_chunks().0[i]);
                let mut mins = [_mm256_setzero_si256(); ROWS];
                for r in 0..ROWS {
                    add_sums::<B>(&mut products[c][r], &mut mins[r], tile.sum_factors[r], x_sums);
                }
                totals[c] = add_block::<B>(totals[c], products[c], mins, tile.factors, x[c].scales[i]);
            }
        }
    }
}

//! Products of the types with blocks of 32, eight rows at once: one float lane a row.

use super::super::unpack::{Quants, Unpack32, prefetch};
use super::Product;
use super::reduce::{pairs, scaled_sum, sums_of_eight, transpose};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

const ROWS: usize = 8;
/// Blocks of eight rows that are unpacked at once for many columns: 20 KiB.
const TILE_BLOCKS: usize = 64;
/// Columns that share an unpacked tile; their sums lie on the stack.
const TILE_COLUMNS: usize = 64;
/// Columns that are multiplied at once.
const COLUMNS: usize = 4;

/// Float sums of eight rows: of products and of minimums.
type Totals = (__m256, __m256);

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    let [x] = product.columns else {
        return many_columns::<B>(product, rows);
    };
    for first in rows.clone().step_by(ROWS) {
        let totals = one_column(&product.rows::<B, ROWS>(first, rows.end), product.w.cols() / 32, x);
        product.store(0, first, rows.end, &row_values::<B>(totals));
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one_column<B: Unpack32>(rows: &[&[B]; ROWS], n_blocks: usize, x: &Column<'_>) -> Totals {
    assert!(rows.iter().all(|row| row.len() == n_blocks));
    let x = Blocks::new::<B>(x, n_blocks);
    let mut totals = (_mm256_setzero_ps(), _mm256_setzero_ps());
    for i in 0..n_blocks {
        // SAFETY: rows have `n_blocks` blocks, and this function has the features.
        unsafe {
            let blocks: [&B; ROWS] = [
                rows[0].get_unchecked(i),
                rows[1].get_unchecked(i),
                rows[2].get_unchecked(i),
                rows[3].get_unchecked(i),
                rows[4].get_unchecked(i),
                rows[5].get_unchecked(i),
                rows[6].get_unchecked(i),
                rows[7].get_unchecked(i),
            ];
            for block in blocks {
                prefetch(block, ROWS * n_blocks * size_of::<B>());
            }
            let activations = x.quants(i);
            let mut products = [_mm256_setzero_si256(); ROWS];
            for r in 0..ROWS {
                products[r] = pairs(B::QUANTS, blocks[r].quants(), activations);
            }
            let integers = sums_of_eight(products, B::QUANTS != Quants::Signed);
            totals = x.add_block::<B>(totals, integers, B::scales_and_mins(blocks), i);
        }
    }
    totals
}

/// A column whose fields have been checked to hold a number of blocks.
struct Blocks<'a> {
    column: &'a Column<'a>,
}

impl<'a> Blocks<'a> {
    fn new<B: Unpack32>(column: &'a Column<'a>, n_blocks: usize) -> Self {
        assert!(column.quants.len() == 32 * n_blocks && column.scales.len() == n_blocks);
        assert!(column.sums.len() == 2 * n_blocks && (!B::HAS_MIN || column.scaled_sums.len() == n_blocks));
        Self { column }
    }

    /// The quants of block `i`, which must exist.
    #[inline(always)]
    unsafe fn quants(&self, i: usize) -> __m256i {
        // SAFETY: block `i` exists, by the caller; the caller has AVX2.
        unsafe { _mm256_loadu_si256(self.column.quants.as_ptr().add(32 * i).cast()) }
    }

    /// Adds the integer products of eight rows and block `i`, which must exist, to their float sums.
    #[inline(always)]
    unsafe fn add_block<B: Unpack32>(
        &self,
        (total, min_total): Totals,
        mut integers: __m256i,
        (scales, mins): (__m256, __m256),
        i: usize,
    ) -> Totals {
        // SAFETY: block `i` exists, by the caller; the caller has AVX2 and FMA.
        unsafe {
            if let Quants::Above(offset) = B::QUANTS
                && offset != 0
            {
                let sums = self.column.sums;
                let sum = i32::from(*sums.get_unchecked(2 * i)) + i32::from(*sums.get_unchecked(2 * i + 1));
                integers = _mm256_sub_epi32(integers, _mm256_set1_epi32(i32::from(offset) * sum));
            }
            let factors = _mm256_mul_ps(scales, _mm256_set1_ps(*self.column.scales.get_unchecked(i)));
            let total = _mm256_fmadd_ps(factors, _mm256_cvtepi32_ps(integers), total);
            if !B::HAS_MIN {
                return (total, min_total);
            }
            let sum = _mm256_set1_ps(*self.column.scaled_sums.get_unchecked(i));
            (total, _mm256_fmadd_ps(mins, sum, min_total))
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn row_values<B: Unpack32>((total, min_total): Totals) -> [f32; ROWS] {
    let total = if B::HAS_MIN { _mm256_add_ps(total, min_total) } else { total };
    let mut lanes = [0.0; ROWS];
    // SAFETY: the array is 32 bytes.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), total) };
    lanes
}

/// One block of eight rows, unpacked and turned: a vector holds four quants of each row.
#[derive(Clone, Copy)]
struct Tile {
    quads: [__m256i; 8],
    scales: (__m256, __m256),
}

/// Products of eight rows and several columns: blocks are unpacked once for up to [`TILE_COLUMNS`], and no lanes have to
/// be summed, as each is a row (see `tiles_256.rs`).
#[target_feature(enable = "avx2,fma,f16c")]
fn many_columns<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
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
                product.store(chunk * TILE_COLUMNS + j, first, rows.end, &row_values::<B>(*totals));
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
                let at = x[c].column.quants.as_ptr().add(32 * (start + i));
                let low = scaled_sum(B::QUANTS, [q0, q1, q2, q3], at, one);
                let high = scaled_sum(B::QUANTS, [q4, q5, q6, q7], at.add(16), one);
                totals[c] = x[c].add_block::<B>(totals[c], _mm256_add_epi32(low, high), tile.scales, start + i);
            }
        }
    }
}

//! Rows of blocks of 32, in the order of memory.

use super::super::Product;
use super::super::unpack::{Unpack32, prefetch};
use super::reduce::transpose;
use super::{AHEAD, Multiply};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows that are multiplied at once.
pub(in super::super) const ROWS: usize = 8;

/// Float sums of eight rows: of products and of minimums.
pub(in super::super) type Totals = (__m256, __m256);

/// Products of `rows` and the column `x`, the only one of `product`.
///
/// # Safety
/// The processor has AVX2, FMA, F16C and what `M` needs.
#[inline(always)]
pub(in super::super) unsafe fn matmul<M: Multiply, B: Unpack32>(
    product: Product<'_>,
    rows: Range<usize>,
    x: &Column<'_>,
) {
    let n_blocks = product.w.cols() / 32;
    let x = Blocks::new::<B>(x, n_blocks);
    let mut kept = Kept::new(n_blocks);
    for first in rows.clone().step_by(ROWS) {
        // SAFETY: the caller has the features.
        unsafe {
            for (r, row) in (first..rows.end.min(first + ROWS)).enumerate() {
                multiply_row::<M, B>(product.blocks(row..row + 1), &x, &mut kept, r);
            }
            product.store(0, first, rows.end, &row_values::<B>(add_up::<M, B>(&x, &kept)));
        }
    }
}

/// What is kept of the blocks of [`ROWS`] rows until they are added up: `[ROWS, whole eights of blocks]`.
struct Kept {
    integers: Vec<[i32; 8]>,
    scales: Vec<[f32; 8]>,
    mins: Vec<[f32; 8]>,
    /// Eights of a row.
    eights: usize,
}

impl Kept {
    fn new(n_blocks: usize) -> Self {
        let eights = n_blocks.div_ceil(8);
        let floats = vec![[0.0; 8]; ROWS * eights];
        Self { integers: vec![[0; 8]; ROWS * eights], scales: floats.clone(), mins: floats, eights }
    }
}

/// Multiplies the blocks of row `r` of the group.
#[inline(always)]
unsafe fn multiply_row<M: Multiply, B: Unpack32>(row: &[B], x: &Blocks<'_>, kept: &mut Kept, r: usize) {
    assert!(row.len() == x.n_blocks && r < ROWS);
    let range = r * kept.eights..(r + 1) * kept.eights;
    let integers = &mut kept.integers[range.clone()];
    let (scales, mins) = (&mut kept.scales[range.clone()], &mut kept.mins[range]);
    let (mut padded, mut padded_x);
    for (i, ((integers, scales), mins)) in integers.iter_mut().zip(scales).zip(mins).enumerate() {
        let left = &row[8 * i..];
        let (blocks, x): (&[B; 8], *const i8) = match left.first_chunk() {
            // SAFETY: the row has the block, so the column has it.
            Some(blocks) => (blocks, unsafe { x.quants(8 * i) }),
            None => {
                padded = std::array::from_fn(|k| left[k.min(left.len() - 1)]);
                padded_x = [0i8; 256];
                padded_x[..32 * left.len()].copy_from_slice(&x.column.quants[256 * i..]);
                (&padded, padded_x.as_ptr())
            }
        };
        // SAFETY: 256 activations can be read; the caller has the features.
        unsafe {
            prefetch(blocks, AHEAD);
            let [a, b, c, d, e, f, g, h] = blocks.each_ref();
            let quants =
                [a.quants(), b.quants(), c.quants(), d.quants(), e.quants(), f.quants(), g.quants(), h.quants()];
            let x = std::array::from_fn(|k| _mm256_loadu_si256(x.add(32 * k).cast()));
            let sums = M::sums_of_products(B::QUANTS, quants, x);
            _mm256_storeu_si256(integers.as_mut_ptr().cast(), sums);
            let (block_scales, block_mins) = B::scales_and_mins(blocks.each_ref());
            _mm256_storeu_ps(scales.as_mut_ptr(), block_scales);
            if B::HAS_MIN {
                _mm256_storeu_ps(mins.as_mut_ptr(), block_mins);
            }
        }
    }
}

/// Float sums of eight rows.
#[inline(always)]
unsafe fn add_up<M: Multiply, B: Unpack32>(x: &Blocks<'_>, kept: &Kept) -> Totals {
    // SAFETY: block `i` is below `n_blocks`; the caller has AVX2 and FMA.
    unsafe {
        let mut totals = (_mm256_setzero_ps(), _mm256_setzero_ps());
        for first in 0..kept.eights {
            let integers = eight_columns(bytemuck::cast_slice(&kept.integers), kept.eights, first);
            let scales = eight_columns(&kept.scales, kept.eights, first);
            let mins = if B::HAS_MIN { eight_columns(&kept.mins, kept.eights, first) } else { scales };
            for (k, i) in (8 * first..x.n_blocks.min(8 * first + 8)).enumerate() {
                totals = x.add_block::<M, B>(totals, _mm256_castps_si256(integers[k]), (scales[k], mins[k]), i);
            }
        }
        totals
    }
}

/// What is kept of the eight blocks with number `first` of each of eight rows: a vector for each block, a row a lane.
#[inline(always)]
unsafe fn eight_columns(kept: &[[f32; 8]], eights: usize, first: usize) -> [__m256; 8] {
    // SAFETY: a vector is as long as eight floats; the caller has AVX2.
    unsafe {
        let row = |r: usize| _mm256_castps_si256(_mm256_loadu_ps(kept[r * eights + first].as_ptr()));
        let columns = transpose([row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)]);
        columns.map(|column| _mm256_castsi256_ps(column))
    }
}

/// A column whose fields have been checked to hold a number of blocks.
pub(in super::super) struct Blocks<'a> {
    column: &'a Column<'a>,
    n_blocks: usize,
}

impl<'a> Blocks<'a> {
    pub fn new<B: Unpack32>(column: &'a Column<'a>, n_blocks: usize) -> Self {
        assert!(column.quants.len() == 32 * n_blocks && column.scales.len() == n_blocks);
        assert!(column.sums.len() == 2 * n_blocks && (!B::HAS_MIN || column.scaled_sums.len() == n_blocks));
        Self { column, n_blocks }
    }

    /// Where the quants of block `i` begin, which must exist.
    #[inline(always)]
    pub unsafe fn quants(&self, i: usize) -> *const i8 {
        // SAFETY: block `i` exists, by the caller.
        unsafe { self.column.quants.as_ptr().add(32 * i) }
    }

    /// Adds the integer products, as `M` leaves them, of eight rows and block `i`, which must exist, to their float sums.
    #[inline(always)]
    pub unsafe fn add_block<M: Multiply, B: Unpack32>(
        &self,
        (total, min_total): Totals,
        mut integers: __m256i,
        (scales, mins): (__m256, __m256),
        i: usize,
    ) -> Totals {
        // SAFETY: block `i` exists, by the caller; the caller has AVX2 and FMA.
        unsafe {
            let offset = M::offset(B::QUANTS);
            if offset != 0 {
                let sums = self.column.sums;
                let sum = i32::from(*sums.get_unchecked(2 * i)) + i32::from(*sums.get_unchecked(2 * i + 1));
                integers = _mm256_sub_epi32(integers, _mm256_set1_epi32(offset * sum));
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

/// The results of eight rows from their float sums.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
pub(in super::super) unsafe fn row_values<B: Unpack32>((total, min_total): Totals) -> [f32; ROWS] {
    let mut lanes = [0.0; ROWS];
    // SAFETY: the array is 32 bytes; the caller has AVX2.
    unsafe {
        let total = if B::HAS_MIN { _mm256_add_ps(total, min_total) } else { total };
        _mm256_storeu_ps(lanes.as_mut_ptr(), total);
    }
    lanes
}

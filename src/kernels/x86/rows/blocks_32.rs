//! Eight rows of blocks of 32: one float lane a row.

use super::super::Product;
use super::super::unpack::{Unpack32, prefetch};
use super::Multiply;
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
    for first in rows.clone().step_by(ROWS) {
        let group = product.rows::<B, ROWS>(first, rows.end);
        // SAFETY: the caller has the features.
        let values = unsafe { row_values::<B>(eight_rows::<M, B>(&group, product.w.cols() / 32, x)) };
        product.store(0, first, rows.end, &values);
    }
}

#[inline(always)]
unsafe fn eight_rows<M: Multiply, B: Unpack32>(rows: &[&[B]; ROWS], n_blocks: usize, x: &Column<'_>) -> Totals {
    assert!(rows.iter().all(|row| row.len() == n_blocks));
    let x = Blocks::new::<B>(x, n_blocks);
    // SAFETY: the caller has AVX2.
    let mut totals = unsafe { (_mm256_setzero_ps(), _mm256_setzero_ps()) };
    for i in 0..n_blocks {
        // SAFETY: rows have `n_blocks` blocks; the caller has the features.
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
            let quants = [
                blocks[0].quants(),
                blocks[1].quants(),
                blocks[2].quants(),
                blocks[3].quants(),
                blocks[4].quants(),
                blocks[5].quants(),
                blocks[6].quants(),
                blocks[7].quants(),
            ];
            let integers = M::sums_of_products(B::QUANTS, quants, _mm256_loadu_si256(x.quants(i).cast()));
            totals = x.add_block::<M, B>(totals, integers, B::scales_and_mins(blocks), i);
        }
    }
    totals
}

/// A column whose fields have been checked to hold a number of blocks.
pub(in super::super) struct Blocks<'a> {
    column: &'a Column<'a>,
}

impl<'a> Blocks<'a> {
    pub fn new<B: Unpack32>(column: &'a Column<'a>, n_blocks: usize) -> Self {
        assert!(column.quants.len() == 32 * n_blocks && column.scales.len() == n_blocks);
        assert!(column.sums.len() == 2 * n_blocks && (!B::HAS_MIN || column.scaled_sums.len() == n_blocks));
        Self { column }
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

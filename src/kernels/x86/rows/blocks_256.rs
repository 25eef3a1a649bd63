//! Four rows of blocks of 256.

use super::super::Product;
use super::super::unpack::{Quants, Scales, TwiceScales, Unpack256, even_odd, prefetch};
use super::Multiply;
use super::reduce::{pairs, sums_of_four, sums_of_four_and_four};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

const ROWS: usize = 4;

/// A vector for each row.
type Sums = [__m256i; ROWS];

/// Products of `rows` and the column `x`, the only one of `product`.
///
/// # Safety
/// The processor has AVX2, FMA, F16C and what `M` needs.
#[inline(always)]
pub(in super::super) unsafe fn matmul<M: Multiply, B: Unpack256>(
    product: Product<'_>,
    rows: Range<usize>,
    x: &Column<'_>,
) {
    for first in rows.clone().step_by(ROWS) {
        let group = product.rows::<B, ROWS>(first, rows.end);
        // SAFETY: the caller has the features.
        let sums = unsafe { four_rows::<M, B>(&group, product.w.cols() / 256, x) };
        product.store(0, first, rows.end, &row_values::<B>(sums));
    }
}

/// Float sums of four rows, unpacked on the way.
#[inline(always)]
unsafe fn four_rows<M: Multiply, B: Unpack256>(rows: &[&[B]; ROWS], n_blocks: usize, x: &Column<'_>) -> __m256 {
    let quants = x.quants.as_chunks::<256>().0;
    let sums = x.sums.as_chunks::<16>().0;
    assert!(rows.iter().all(|row| row.len() == n_blocks) && quants.len() == n_blocks);
    assert!(sums.len() == n_blocks && x.scales.len() == n_blocks);
    // SAFETY: the caller has AVX2.
    let mut total = unsafe { _mm256_setzero_ps() };
    for i in 0..n_blocks {
        // SAFETY: all slices are `n_blocks` long; the caller has the features.
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
            let (p0, m0) = block_product::<M, B>(blocks[0], &scales[0], quants, x_sums);
            let (p1, m1) = block_product::<M, B>(blocks[1], &scales[1], quants, x_sums);
            let (p2, m2) = block_product::<M, B>(blocks[2], &scales[2], quants, x_sums);
            let (p3, m3) = block_product::<M, B>(blocks[3], &scales[3], quants, x_sums);
            let (products, mins) = ([p0, p1, p2, p3], [m0, m1, m2, m3]);
            total = add_block::<B>(total, products, mins, factors, *x.scales.get_unchecked(i));
        }
    }
    total
}

/// Lanes whose sums are the integer product of a block and 256 activations, and that of its minimums.
#[inline(always)]
unsafe fn block_product<M: Multiply, B: Unpack256>(
    block: &B,
    scales: &Scales,
    x: &[i8; 256],
    x_sums: __m256i,
) -> (__m256i, __m256i) {
    // SAFETY: the caller has AVX2.
    unsafe {
        // Two chains, as one instruction's result is not ready for the next but after several cycles.
        let (twice, zero) = (scales.twice(), _mm256_setzero_si256());
        let mut even = add_group::<M, B, 0>(zero, block, &twice, x);
        let mut odd = add_group::<M, B, 1>(zero, block, &twice, x);
        even = add_group::<M, B, 2>(even, block, &twice, x);
        odd = add_group::<M, B, 3>(odd, block, &twice, x);
        even = add_group::<M, B, 4>(even, block, &twice, x);
        odd = add_group::<M, B, 5>(odd, block, &twice, x);
        even = add_group::<M, B, 6>(even, block, &twice, x);
        odd = add_group::<M, B, 7>(odd, block, &twice, x);
        if B::HAS_MIN {
            return (_mm256_add_epi32(even, odd), M::add_pairs(zero, scales.sum_factors, x_sums));
        }
        if B::QUANTS != Quants::Signed {
            even = M::add_pairs(even, scales.sum_factors, x_sums);
        }
        (_mm256_add_epi32(even, odd), zero)
    }
}

/// Adds the products of group `J` of 32 quants to `sum`.
#[inline(always)]
unsafe fn add_group<M: Multiply, B: Unpack256, const J: usize>(
    sum: __m256i,
    block: &B,
    scales: &TwiceScales,
    x: &[i8; 256],
) -> __m256i {
    // SAFETY: the 32 activations lie within the array; the caller has the features.
    unsafe {
        let x = _mm256_loadu_si256(x.as_ptr().add(32 * J).cast());
        M::add_pairs(sum, pairs(B::QUANTS, block.group::<J>(), x), scales.group::<J>())
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
#[inline(always)]
fn row_values<B: Unpack256>(sums: __m256) -> [f32; ROWS] {
    let mut lanes = [0.0f32; 8];
    // SAFETY: the array is as long as the vector.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums) };
    std::array::from_fn(|r| if B::HAS_MIN { lanes[2 * r] - lanes[2 * r + 1] } else { lanes[r] })
}

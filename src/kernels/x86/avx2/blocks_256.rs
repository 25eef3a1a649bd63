//! Products of the K-quants and the other types with blocks of 256.
//!
//! For one column, four rows are multiplied at once, so that the sums of their lanes and their float factors share
//! instructions. For several, see [`tiles`].

use super::super::unpack::{Quants, Scales, Unpack256, even_odd, prefetch};
use super::reduce::{pairs, sums_of_four, sums_of_four_and_four};
use super::{Product, tiles_256 as tiles};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

const ROWS: usize = 4;

/// A vector for each row.
type Sums = [__m256i; ROWS];

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn matmul<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    let [x] = product.columns else {
        return tiles::matmul::<B>(product, rows);
    };
    for first in rows.clone().step_by(ROWS) {
        let sums = one_column(&product.rows::<B, ROWS>(first, rows.end), product.w.cols() / 256, x);
        product.store(0, first, rows.end, &row_values::<B>(sums));
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

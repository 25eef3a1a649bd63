//! Rows of blocks of 256, in the order of memory.

use super::super::Product;
use super::super::unpack::{Quants, Scales, TwiceScales, Unpack256, even_odd, prefetch};
use super::reduce::{pairs, sums_of_four, sums_of_four_and_four};
use super::{AHEAD, Multiply};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

const ROWS: usize = 4;

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
    // SAFETY: the caller has AVX2.
    let x = unsafe { Activations256::new(x, product.w.cols() / 256) };
    let mut kept = Kept::new::<B>(x.n_blocks);
    for first in rows.clone().step_by(ROWS) {
        let blocks = product.blocks::<B>(first..rows.end.min(first + ROWS));
        // SAFETY: the caller has the features.
        unsafe {
            multiply_blocks::<M, B>(blocks, &x, &mut kept);
            product.store(0, first, rows.end, &row_values::<B>(add_up::<B>(&x, &kept)));
        }
    }
}

/// A column, as blocks of 256.
pub(in super::super) struct Activations256<'a> {
    pub quants: &'a [[i8; 256]],
    pub scales: &'a [f32],
    /// Sums of 16, in the order of [`even_odd`].
    pub sums: Vec<__m256i>,
    pub n_blocks: usize,
}

impl<'a> Activations256<'a> {
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    pub unsafe fn new(x: &'a Column<'_>, n_blocks: usize) -> Self {
        let quants = x.quants.as_chunks::<256>().0;
        // SAFETY: the caller has AVX2.
        let sums: Vec<_> = x.sums.as_chunks::<16>().0.iter().map(|sums| unsafe { even_odd(sums) }).collect();
        assert!(quants.len() == n_blocks && sums.len() == n_blocks && x.scales.len() == n_blocks);
        Self { quants, scales: x.scales, sums, n_blocks }
    }
}

/// What is kept of the blocks of [`ROWS`] rows until they are added up: for each block its integer product and, where the
/// format has minimums, that of the minimums, and a factor for each.
struct Kept {
    integers: Vec<i32>,
    factors: Vec<f32>,
}

/// Numbers kept for a block.
const fn kept_per_block<B: Unpack256>() -> usize {
    if B::HAS_MIN { 2 } else { 1 }
}

impl Kept {
    fn new<B: Unpack256>(n_blocks: usize) -> Self {
        let n = ROWS * n_blocks * kept_per_block::<B>();
        Self { integers: vec![0; n], factors: vec![0.0; n] }
    }
}

/// Multiplies the blocks of at most [`ROWS`] rows, which lie behind each other.
#[inline(always)]
unsafe fn multiply_blocks<M: Multiply, B: Unpack256>(blocks: &[B], x: &Activations256<'_>, kept: &mut Kept) {
    assert!(blocks.len() <= ROWS * x.n_blocks && blocks.len().is_multiple_of(x.n_blocks));
    let last = blocks.len().saturating_sub(1);
    // Block of the column that the next block is multiplied with.
    let mut next = 0;
    for first in (0..blocks.len()).step_by(4) {
        // SAFETY: indices are at most `last`, those of the column below `n_blocks`; `kept` has room for whole fours, as
        // ROWS is four; the caller has the features.
        unsafe {
            // The last four may be short of rows: the last block stands in.
            let four: [&B; 4] = std::array::from_fn(|k| blocks.get_unchecked((first + k).min(last)));
            let columns: [usize; 4] = std::array::from_fn(|_| {
                let column = next;
                next = if next + 1 == x.n_blocks { 0 } else { next + 1 };
                column
            });
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
            let (products, mins) = ([p0, p1, p2, p3], [m0, m1, m2, m3]);
            let at = first * kept_per_block::<B>();
            let (integers, kept_factors) = (kept.integers.as_mut_ptr().add(at), kept.factors.as_mut_ptr().add(at));
            if B::HAS_MIN {
                _mm256_storeu_si256(integers.cast(), sums_of_four_and_four(products, mins));
                _mm256_storeu_ps(kept_factors, factors);
            } else {
                _mm_storeu_si128(integers.cast(), _mm256_castsi256_si128(sums_of_four(products)));
                _mm_storeu_ps(kept_factors, _mm256_castps256_ps128(factors));
            }
        }
    }
}

/// Float sums of four rows: `s0 m0 s1 m1 ..` where the format has minimums, else `s0 s1 s2 s3` in the lower half.
#[inline(always)]
unsafe fn add_up<B: Unpack256>(x: &Activations256<'_>, kept: &Kept) -> __m256 {
    let n = x.n_blocks;
    assert!(kept.integers.len() == ROWS * n * kept_per_block::<B>() && kept.factors.len() == kept.integers.len());
    // SAFETY: `kept` holds ROWS times `n` blocks; the caller has AVX2 and FMA.
    unsafe {
        let mut total = _mm256_setzero_ps();
        for (i, scale) in x.scales.iter().enumerate() {
            let integers = column_of::<B>(kept.integers.as_ptr().cast(), n, i);
            let factors = column_of::<B>(kept.factors.as_ptr(), n, i);
            let factors = _mm256_mul_ps(factors, _mm256_set1_ps(*scale));
            total = _mm256_fmadd_ps(factors, _mm256_cvtepi32_ps(_mm256_castps_si256(integers)), total);
        }
        total
    }
}

/// What is kept of block `i` of each of four rows of `n` blocks.
#[inline(always)]
unsafe fn column_of<B: Unpack256>(kept: *const f32, n: usize, i: usize) -> __m256 {
    // SAFETY: the caller has AVX2, and blocks up to `3 n + i` are there.
    unsafe {
        if B::HAS_MIN {
            let pair = |r: usize| kept.add(2 * (r * n + i)).cast::<f64>();
            let low = _mm_loadh_pd(_mm_load_sd(pair(0)), pair(1));
            let high = _mm_loadh_pd(_mm_load_sd(pair(2)), pair(3));
            _mm256_castpd_ps(_mm256_set_m128d(high, low))
        } else {
            let one = |r: usize| *kept.add(r * n + i);
            _mm256_castps128_ps256(_mm_setr_ps(one(0), one(1), one(2), one(3)))
        }
    }
}

/// Lanes whose sums are the integer product of a block and 256 activations, and that of its minimums. Where the format has
/// minimums, lane `j` of the product is that of elements `4 j .. 4 j + 4` of every 32.
#[inline(always)]
pub(in super::super) unsafe fn block_product<M: Multiply, B: Unpack256>(
    block: &B,
    scales: &Scales,
    x: &Activations256<'_>,
    column: usize,
) -> (__m256i, __m256i) {
    // SAFETY: the column has that block, by the caller, who has AVX2.
    unsafe {
        let (x, x_sums) = (x.quants.get_unchecked(column), *x.sums.get_unchecked(column));
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

/// The results of four rows from their float sums.
#[inline(always)]
fn row_values<B: Unpack256>(sums: __m256) -> [f32; ROWS] {
    let mut lanes = [0.0f32; 8];
    // SAFETY: the array is as long as the vector.
    unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sums) };
    std::array::from_fn(|r| if B::HAS_MIN { lanes[2 * r] - lanes[2 * r + 1] } else { lanes[r] })
}

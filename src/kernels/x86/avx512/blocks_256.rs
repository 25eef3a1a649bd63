//! Products of the K-quants and the other types with blocks of 256.

use super::super::unpack::{Unpack256, prefetch};
use super::Product;
use super::lanes::{ROWS, add_products, offset, to_array, transpose, unsigned, widen_halves};
use crate::quant::Column;
use crate::quant::blocks::*;
use std::arch::x86_64::*;
use std::ops::Range;

/// Columns that share an unpacked group; their sums lie on the stack.
const COLUMNS: usize = 64;

/// The scales of a block, in the order of its elements.
pub(super) trait Scaled: Unpack256 {
    /// True where each 16 elements have a scale of their own, false where 32 share one.
    const BY_16: bool;

    /// Integer scale of each 16 elements.
    fn scales(&self) -> [i8; 16];

    /// Integer minimum of each 16 elements, subtracted; only asked for where the format has them.
    fn mins(&self) -> [u8; 16] {
        [0; 16]
    }

    /// Scale of the scales and scale of the minimums, f16.
    fn factors(&self) -> ([u8; 2], [u8; 2]);
}

impl Scaled for BlockQ2K {
    const BY_16: bool = true;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        self.scales.map(|byte| (byte & 0x0f) as i8)
    }

    #[inline(always)]
    fn mins(&self) -> [u8; 16] {
        self.scales.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, self.dmin)
    }
}

impl Scaled for BlockQ3K {
    const BY_16: bool = true;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        self.raw_scales().map(|scale| scale as i8 - 32)
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, [0; 2])
    }
}

impl Scaled for BlockQ4K {
    const BY_16: bool = false;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        twice(scales_and_mins(&self.scales).0).map(|scale| scale as i8)
    }

    #[inline(always)]
    fn mins(&self) -> [u8; 16] {
        twice(scales_and_mins(&self.scales).1)
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, self.dmin)
    }
}

impl Scaled for BlockQ5K {
    const BY_16: bool = false;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        twice(scales_and_mins(&self.scales).0).map(|scale| scale as i8)
    }

    #[inline(always)]
    fn mins(&self) -> [u8; 16] {
        twice(scales_and_mins(&self.scales).1)
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, self.dmin)
    }
}

impl Scaled for BlockQ6K {
    const BY_16: bool = true;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        self.scales
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, [0; 2])
    }
}

impl Scaled for BlockIq4Xs {
    const BY_16: bool = false;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        twice(self.unpacked_scales())
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, [0; 2])
    }
}

impl Scaled for BlockIq3S {
    const BY_16: bool = false;

    #[inline(always)]
    fn scales(&self) -> [i8; 16] {
        twice(self.unpacked_scales())
    }

    #[inline(always)]
    fn factors(&self) -> ([u8; 2], [u8; 2]) {
        (self.d, [0; 2])
    }
}

/// Each of eight numbers for two runs of 16.
#[inline(always)]
fn twice<T: Copy>(x: [T; 8]) -> [T; 16] {
    std::array::from_fn(|i| x[i / 2])
}

/// Sums of 16 rows and one column.
#[derive(Clone, Copy)]
struct Sums {
    /// Integer product of the block at hand.
    integers: __m512i,
    total: __m512,
    min_total: __m512,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<B: Scaled>(product: Product<'_>, rows: Range<usize>) {
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        for start in (0..product.columns.len()).step_by(COLUMNS) {
            add_columns(product, &group, start, first, rows.end);
        }
    }
}

/// Products of 16 rows and up to [`COLUMNS`] columns from `start` on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_columns<B: Scaled>(product: Product<'_>, rows: &[&[B]; ROWS], start: usize, first: usize, end: usize) {
    let n_blocks = product.w.cols() / 256;
    let columns = &product.columns[start..product.columns.len().min(start + COLUMNS)];
    let zero = _mm512_setzero_ps();
    let mut sums = [Sums { integers: _mm512_setzero_si512(), total: zero, min_total: zero }; COLUMNS];
    let sums = &mut sums[..columns.len()];
    for i in 0..n_blocks {
        let blocks = rows.map(|row| &row[i]);
        for block in blocks {
            prefetch(block, ROWS * n_blocks * size_of::<B>());
        }
        let scales = pairs_of_scales(&blocks);
        add_group::<B, 0>(&blocks, scales[0], columns, i, sums);
        add_group::<B, 1>(&blocks, scales[1], columns, i, sums);
        add_group::<B, 2>(&blocks, scales[2], columns, i, sums);
        add_group::<B, 3>(&blocks, scales[3], columns, i, sums);
        add_group::<B, 4>(&blocks, scales[4], columns, i, sums);
        add_group::<B, 5>(&blocks, scales[5], columns, i, sums);
        add_group::<B, 6>(&blocks, scales[6], columns, i, sums);
        add_group::<B, 7>(&blocks, scales[7], columns, i, sums);
        add_floats(&blocks, columns, i, sums);
    }
    for (j, sums) in sums.iter().enumerate() {
        let values = if B::HAS_MIN { _mm512_sub_ps(sums.total, sums.min_total) } else { sums.total };
        product.store(start + j, first, end, &to_array(values));
    }
}

/// Adds the integer products of group `J` of 32 elements of block `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_group<B: Scaled, const J: usize>(
    blocks: &[&B; ROWS],
    scales: __m512i,
    columns: &[Column<'_>],
    i: usize,
    sums: &mut [Sums],
) {
    let mut quants = [_mm256_setzero_si256(); ROWS];
    for (quants, block) in quants.iter_mut().zip(blocks) {
        // SAFETY: this function has AVX2.
        *quants = unsigned(B::QUANTS, unsafe { block.group::<J>() });
    }
    let quants = transpose(&quants);
    // The two 16-bit halves of a lane, with their signs: the scales of the first and of the last 16 elements.
    let (low, high) = (_mm512_srai_epi32::<16>(_mm512_slli_epi32::<16>(scales)), _mm512_srai_epi32::<16>(scales));
    for (x, sums) in columns.iter().zip(sums) {
        let activations: &[[u8; 4]; 8] = bytemuck::cast_ref(&x.quants.as_chunks::<32>().0[8 * i + J]);
        let [a, b] = x.sums.as_chunks::<2>().0[8 * i + J].map(|sum| -offset(B::QUANTS) * i32::from(sum));
        let products = if B::BY_16 {
            let [first, second] = halves(&quants);
            let [x_first, x_second] = halves(activations);
            _mm512_add_epi32(
                _mm512_mullo_epi32(low, add_products(a, first, x_first)),
                _mm512_mullo_epi32(high, add_products(b, second, x_second)),
            )
        } else {
            _mm512_mullo_epi32(high, add_products(a + b, &quants, activations))
        };
        sums.integers = _mm512_add_epi32(sums.integers, products);
    }
}

#[inline(always)]
fn halves<T>(x: &[T; 8]) -> [&[T; 4]; 2] {
    let (first, second) = x.split_at(4);
    [first, second].map(|half| half.first_chunk().expect("half of eight is four"))
}

/// Adds block `i`, whose integers have been summed, to the float sums, and begins the next block's integers at zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_floats<B: Scaled>(blocks: &[&B; ROWS], columns: &[Column<'_>], i: usize, sums: &mut [Sums]) {
    // Loops, as the closure of a `map` is not inlined into a function with features of its own.
    let mut factors = [[[0; 2]; ROWS]; 2];
    for (r, block) in blocks.iter().enumerate() {
        (factors[0][r], factors[1][r]) = block.factors();
    }
    let [scales, min_scales] = [widen_halves(&factors[0]), widen_halves(&factors[1])];
    let mins = if B::HAS_MIN { pairs_of_mins(blocks) } else { [_mm512_setzero_si512(); 8] };
    for (x, sums) in columns.iter().zip(sums) {
        let x_scale = _mm512_set1_ps(x.scales[i]);
        let factors = _mm512_mul_ps(scales, x_scale);
        sums.total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(sums.integers), sums.total);
        sums.integers = _mm512_setzero_si512();
        if B::HAS_MIN {
            let mut integers = _mm512_setzero_si512();
            for (mins, x_sums) in mins.iter().zip(&x.sums.as_chunks::<2>().0[8 * i..8 * (i + 1)]) {
                let [low, high] = x_sums.map(|sum| sum as u16);
                let x_sums = _mm512_set1_epi32((u32::from(low) | u32::from(high) << 16) as i32);
                integers = _mm512_dpwssd_epi32(integers, *mins, x_sums);
            }
            let factors = _mm512_mul_ps(min_scales, x_scale);
            sums.min_total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(integers), sums.min_total);
        }
    }
}

/// Scales of 16 rows as pairs of 16-bit lanes: vector `j` holds those of group `j` of 32 elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn pairs_of_scales<B: Scaled>(blocks: &[&B; ROWS]) -> [__m512i; 8] {
    let mut rows = [_mm256_setzero_si256(); ROWS];
    for (row, block) in rows.iter_mut().zip(blocks) {
        // SAFETY: the array is 16 bytes.
        *row = _mm256_cvtepi8_epi16(unsafe { _mm_loadu_si128(block.scales().as_ptr().cast()) });
    }
    transpose(&rows)
}

/// As [`pairs_of_scales`], of minimums.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn pairs_of_mins<B: Scaled>(blocks: &[&B; ROWS]) -> [__m512i; 8] {
    let mut rows = [_mm256_setzero_si256(); ROWS];
    for (row, block) in rows.iter_mut().zip(blocks) {
        // SAFETY: the array is 16 bytes.
        *row = _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(block.mins().as_ptr().cast()) });
    }
    transpose(&rows)
}

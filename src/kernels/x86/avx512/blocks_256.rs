//! Products of the K-quants and the other types with blocks of 256.

use super::super::rows;
use super::super::unpack::{Unpack256, even_odd, prefetch};
use super::Product;
use super::lanes::{ROWS, add_products, offset, to_array, transpose, unsigned};
use super::multiply::Vnni;
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

/// Columns that share an unpacked group; their sums lie on the stack.
const COLUMNS: usize = 64;

/// Sums of 16 rows and one column.
#[derive(Clone, Copy)]
struct Sums {
    /// Integer product of the block at hand.
    integers: __m512i,
    total: __m512,
    min_total: __m512,
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    if let [x] = product.columns {
        // SAFETY: this function has the features.
        return unsafe { rows::blocks_256::matmul::<Vnni, B>(product, rows, x) };
    }
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        for start in (0..product.columns.len()).step_by(COLUMNS) {
            add_columns(product, &group, start, first, rows.end);
        }
    }
}

/// Products of 16 rows and up to [`COLUMNS`] columns from `start` on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_columns<B: Unpack256>(product: Product<'_>, rows: &[&[B]; ROWS], start: usize, first: usize, end: usize) {
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
        let scales = Scales::new(&blocks);
        add_group::<B, 0>(&blocks, &scales, columns, i, sums);
        add_group::<B, 1>(&blocks, &scales, columns, i, sums);
        add_group::<B, 2>(&blocks, &scales, columns, i, sums);
        add_group::<B, 3>(&blocks, &scales, columns, i, sums);
        add_group::<B, 4>(&blocks, &scales, columns, i, sums);
        add_group::<B, 5>(&blocks, &scales, columns, i, sums);
        add_group::<B, 6>(&blocks, &scales, columns, i, sums);
        add_group::<B, 7>(&blocks, &scales, columns, i, sums);
        add_floats::<B>(&scales, columns, i, sums);
    }
    for (j, sums) in sums.iter().enumerate() {
        let values = if B::HAS_MIN { _mm512_sub_ps(sums.total, sums.min_total) } else { sums.total };
        product.store(start + j, first, end, &to_array(values));
    }
}

/// Adds the integer products of group `J` of 32 elements of block `i`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_group<B: Unpack256, const J: usize>(
    blocks: &[&B; ROWS],
    scales: &Scales,
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
    let (first_scale, second_scale) = (half::<J>(scales.integers[J / 2]), half::<J>(scales.integers[4 + J / 2]));
    for (x, sums) in columns.iter().zip(sums) {
        let activations: &[[u8; 4]; 8] = bytemuck::cast_ref(&x.quants.as_chunks::<32>().0[8 * i + J]);
        let [a, b] = x.sums.as_chunks::<2>().0[8 * i + J].map(|sum| -offset(B::QUANTS) * i32::from(sum));
        let products = if B::SCALE_BY_16 {
            let [first, second] = halves(&quants);
            let [x_first, x_second] = halves(activations);
            _mm512_add_epi32(
                _mm512_mullo_epi32(first_scale, add_products(a, first, x_first)),
                _mm512_mullo_epi32(second_scale, add_products(b, second, x_second)),
            )
        } else {
            _mm512_mullo_epi32(first_scale, add_products(a + b, &quants, activations))
        };
        sums.integers = _mm512_add_epi32(sums.integers, products);
    }
}

#[inline(always)]
fn halves<T>(x: &[T; 8]) -> [&[T; 4]; 2] {
    let (first, second) = x.split_at(4);
    [first, second].map(|half| half.first_chunk().expect("half of eight is four"))
}

/// The even 16-bit half of each lane where `J` is even, else the odd one, with its sign.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn half<const J: usize>(pairs: __m512i) -> __m512i {
    let upper = if J.is_multiple_of(2) { _mm512_slli_epi32::<16>(pairs) } else { pairs };
    _mm512_srai_epi32::<16>(upper)
}

/// Adds block `i`, whose integers have been summed, to the float sums, and begins the next block's integers at zero.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_floats<B: Unpack256>(scales: &Scales, columns: &[Column<'_>], i: usize, sums: &mut [Sums]) {
    for (x, sums) in columns.iter().zip(sums) {
        let x_scale = _mm512_set1_ps(x.scales[i]);
        let factors = _mm512_mul_ps(scales.factors, x_scale);
        sums.total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(sums.integers), sums.total);
        sums.integers = _mm512_setzero_si512();
        if B::HAS_MIN {
            let mut x_sums = [0i32; 8];
            // SAFETY: the array is as long as the vector, and this function has AVX2.
            unsafe { _mm256_storeu_si256(x_sums.as_mut_ptr().cast(), even_odd(&x.sums.as_chunks().0[i])) };
            let mut integers = _mm512_setzero_si512();
            for (mins, x_sums) in scales.mins.iter().zip(x_sums) {
                integers = _mm512_dpwssd_epi32(integers, *mins, _mm512_set1_epi32(x_sums));
            }
            let factors = _mm512_mul_ps(scales.min_factors, x_scale);
            sums.min_total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(integers), sums.min_total);
        }
    }
}

/// Scales of a block of 16 rows, a lane each.
struct Scales {
    /// Pairs of 16-bit scales in the order of [`Scales`](super::super::unpack::Scales): vector `k` holds scales `4 k` and `4 k + 2`, vector
    /// `4 + k` those after them.
    integers: [__m512i; 8],
    /// Minimums in the same order, where the format has them.
    mins: [__m512i; 8],
    factors: __m512,
    min_factors: __m512,
}

impl Scales {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    fn new<B: Unpack256>(blocks: &[&B; ROWS]) -> Self {
        let mut integers = [_mm256_setzero_si256(); ROWS];
        let mut mins = integers;
        let mut fours = [_mm256_setzero_ps(); 4];
        for (i, blocks) in blocks.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: this function has AVX2 and F16C.
            let (scales, factors) = unsafe { B::scales(*blocks) };
            fours[i] = factors;
            for (r, scales) in scales.iter().enumerate() {
                integers[4 * i + r] = scales.scales;
                mins[4 * i + r] = scales.sum_factors;
            }
        }
        let join = _mm512_castps256_ps512;
        let (low, high) =
            (_mm512_insertf32x8::<1>(join(fours[0]), fours[1]), _mm512_insertf32x8::<1>(join(fours[2]), fours[3]));
        let zero = _mm512_setzero_si512();
        if B::HAS_MIN {
            // Scales and those of the minimums take turns.
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            Self {
                integers: transpose(&integers),
                mins: transpose(&mins),
                factors: _mm512_permutex2var_ps(low, even, high),
                min_factors: _mm512_permutex2var_ps(low, odd, high),
            }
        } else {
            // Each four lanes come twice.
            Self {
                integers: transpose(&integers),
                mins: [zero; 8],
                factors: _mm512_shuffle_f32x4::<0b10_00_10_00>(low, high),
                min_factors: _mm512_castsi512_ps(zero),
            }
        }
    }
}

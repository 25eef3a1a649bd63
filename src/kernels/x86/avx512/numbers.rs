//! Products of plain numbers: the 64 lanes of a float sum are four registers.

use super::Product;
use crate::math;
use std::arch::x86_64::*;
use std::ops::Range;

/// A type of plain numbers that widens to f32 exactly.
pub(super) trait Number {
    const BYTES: usize;

    /// The numbers from `at` on whose bits are set in `mask`, as f32; zero in the other lanes.
    ///
    /// # Safety
    /// Those numbers can be read, and the processor has AVX-512 F, BW and VL.
    unsafe fn load(at: *const u8, mask: __mmask16) -> __m512;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Number for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load(at: *const u8, mask: __mmask16) -> __m512 {
        // SAFETY: the masked numbers can be read, by the caller.
        unsafe { _mm512_maskz_loadu_ps(mask, at.cast()) }
    }
}

impl Number for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(at: *const u8, mask: __mmask16) -> __m512 {
        // SAFETY: the masked numbers can be read, by the caller.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at.cast())) }
    }
}

impl Number for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(at: *const u8, mask: __mmask16) -> __m512 {
        // SAFETY: the masked numbers can be read, by the caller.
        unsafe {
            let words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, at.cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<N: Number>(product: Product<'_>, rows: Range<usize>) {
    let x: Vec<&[f32]> = product.columns.iter().map(|column| column.floats).collect();
    // One column: four rows share its loads. Several: two rows and three columns share each other's.
    if let [x] = x[..] {
        for first in rows.clone().step_by(4) {
            store(product, 0, first, rows.end, &dots::<N, 4, 1>(&product.rows(first, rows.end), &[x]));
        }
        return;
    }
    for first in rows.clone().step_by(2) {
        let group: [&[u8]; 2] = product.rows(first, rows.end);
        let (three, rest) = x.as_chunks::<3>();
        for (j, x) in three.iter().enumerate() {
            store(product, 3 * j, first, rows.end, &dots::<N, 2, 3>(&group, x));
        }
        for (j, x) in rest.iter().enumerate() {
            store(product, 3 * three.len() + j, first, rows.end, &dots::<N, 2, 1>(&group, &[x]));
        }
    }
}

fn store<const R: usize, const C: usize>(
    product: Product<'_>,
    j: usize,
    first: usize,
    end: usize,
    values: &[[f32; R]; C],
) {
    for (c, values) in values.iter().enumerate() {
        product.store(j + c, first, end, values);
    }
}

/// Registers of lanes of a sum.
const QUARTERS: usize = math::WIDE_LANES / math::LANES;

/// Dot products of `R` rows and `C` columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn dots<N: Number, const R: usize, const C: usize>(rows: &[&[u8]; R], x: &[&[f32]; C]) -> [[f32; R]; C] {
    let n = x[0].len();
    assert!(x.iter().all(|x| x.len() == n) && rows.iter().all(|row| row.len() == n * N::BYTES));
    let mut lanes = [[[_mm512_setzero_ps(); QUARTERS]; R]; C];
    let whole = n / math::WIDE_LANES * math::WIDE_LANES;
    for i in (0..whole).step_by(math::WIDE_LANES) {
        for q in 0..QUARTERS {
            // SAFETY: elements `i` to `i + 64` lie within every row and column.
            unsafe { add::<N, R, C>(rows, x, i + math::LANES * q, !0, q, &mut lanes) };
        }
    }
    for q in 0..(n - whole).div_ceil(math::LANES) {
        let i = whole + math::LANES * q;
        let mask = ((1u32 << (n - i).min(math::LANES)) - 1) as __mmask16;
        // SAFETY: the mask names the elements from `i` on that lie below `n`.
        unsafe { add::<N, R, C>(rows, x, i, mask, q, &mut lanes) };
    }
    let mut values = [[0.0; R]; C];
    for c in 0..C {
        for r in 0..R {
            let quarters = lanes[c][r];
            let even = _mm512_add_ps(quarters[0], quarters[2]);
            values[c][r] = sum_lanes(_mm512_add_ps(even, _mm512_add_ps(quarters[1], quarters[3])));
        }
    }
    values
}

/// Adds the products of the 16 elements from `i` on that `mask` names to quarter `q` of the lanes; the other lanes keep
/// their values.
///
/// # Safety
/// Those elements can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
unsafe fn add<N: Number, const R: usize, const C: usize>(
    rows: &[&[u8]; R],
    x: &[&[f32]; C],
    i: usize,
    mask: __mmask16,
    q: usize,
    lanes: &mut [[[__m512; QUARTERS]; R]; C],
) {
    let mut w = [_mm512_setzero_ps(); R];
    for r in 0..R {
        // SAFETY: the elements can be read, by the caller; this function has the features.
        w[r] = unsafe { N::load(rows[r].as_ptr().add(i * N::BYTES), mask) };
    }
    for c in 0..C {
        // SAFETY: as above.
        let x = unsafe { _mm512_maskz_loadu_ps(mask, x[c].as_ptr().add(i)) };
        for r in 0..R {
            lanes[c][r][q] = _mm512_mask3_fmadd_ps(w[r], x, lanes[c][r][q], mask);
        }
    }
}

/// As [`math::sum_lanes`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn sum_lanes(lanes: __m512) -> f32 {
    let eight = _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps::<1>(lanes));
    let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

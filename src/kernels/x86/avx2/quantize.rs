//! Rounding of activations, 32 elements at a time.

use crate::quant::{self, ActivationFormat, ColumnMut};
use std::arch::x86_64::*;

/// As [`quant::quantize`].
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn quantize(x: &[f32], column: ColumnMut<'_>) {
    match column.format {
        ActivationFormat::Q8_0 | ActivationFormat::Q8_1 => quantize_q8_0(x, column),
        ActivationFormat::Q8_K => quantize_q8_k(x, column),
        ActivationFormat::F16 => round_to_f16(x, column.floats),
        // Integer arithmetic that the compiler makes vectors of, or a copy.
        ActivationFormat::BF16 | ActivationFormat::F32 => quant::quantize(x, column),
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize_q8_0(x: &[f32], column: ColumnMut<'_>) {
    assert_eq!(x.len(), column.quants.len());
    let blocks = x.as_chunks::<32>().0.iter().zip(column.quants.as_chunks_mut::<32>().0);
    let sums = column.sums.as_chunks_mut::<2>().0;
    for (i, ((x, quants), sums)) in blocks.zip(sums).enumerate() {
        let x = load(x);
        let largest = largest_lane(largest_magnitudes(_mm256_setzero_ps(), x));
        let scale = largest / 127.0;
        let inverse = if largest != 0.0 { 127.0 / largest } else { 0.0 };
        *sums = round(x, inverse, quants);
        column.scales[i] = through_f16(scale);
        if column.format == ActivationFormat::Q8_1 {
            column.scaled_sums[i] = through_f16(scale * f32::from(sums[0] + sums[1]));
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn quantize_q8_k(x: &[f32], column: ColumnMut<'_>) {
    assert_eq!(x.len(), column.quants.len());
    let blocks = x.as_chunks::<256>().0.iter().zip(column.quants.as_chunks_mut::<256>().0);
    let sums = column.sums.as_chunks_mut::<16>().0;
    for (((x, quants), sums), scale) in blocks.zip(sums).zip(column.scales) {
        let parts = x.as_chunks::<32>().0;
        let mut largest = _mm256_setzero_ps();
        for part in parts {
            largest = largest_magnitudes(largest, load(part));
        }
        let largest = largest_lane(largest);
        if largest == 0.0 {
            quants.fill(0);
            sums.fill(0);
            *scale = 0.0;
            continue;
        }
        let inverse = -127.0 / largest.copysign(first_of_magnitude(x, largest));
        let quants = quants.as_chunks_mut::<32>().0.iter_mut().zip(sums.as_chunks_mut::<2>().0);
        for (part, (quants, sums)) in parts.iter().zip(quants) {
            *sums = round(load(part), inverse, quants);
        }
        *scale = 1.0 / inverse;
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn round_to_f16(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let (x, x_tail) = x.as_chunks::<8>();
    let (out, out_tail) = out.as_chunks_mut::<8>();
    for (x, out) in x.iter().zip(out) {
        // SAFETY: both arrays have eight elements.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
            _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
    }
    for (x, out) in x_tail.iter().zip(out_tail) {
        *out = through_f16(*x);
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn through_f16(x: f32) -> f32 {
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(x))))
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(x: &[f32; 32]) -> [__m256; 4] {
    // SAFETY: all offsets are within the array.
    unsafe {
        let at = x.as_ptr();
        [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)), _mm256_loadu_ps(at.add(16)), _mm256_loadu_ps(at.add(24))]
    }
}

/// Lane for lane the larger of `largest` and the magnitudes of `x`; a NaN in `x` is passed over, as `maxps` gives its
/// second operand then.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_magnitudes(mut largest: __m256, x: [__m256; 4]) -> __m256 {
    let sign = _mm256_set1_ps(-0.0);
    for x in x {
        largest = _mm256_max_ps(_mm256_andnot_ps(sign, x), largest);
    }
    largest
}

#[inline]
#[target_feature(enable = "avx2")]
fn largest_lane(x: __m256) -> f32 {
    let x = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)))
}

/// The first element of magnitude `largest`, which must be there.
#[inline]
#[target_feature(enable = "avx2")]
fn first_of_magnitude(x: &[f32; 256], largest: f32) -> f32 {
    let (sign, largest) = (_mm256_set1_ps(-0.0), _mm256_set1_ps(largest));
    for eight in x.as_chunks::<8>().0 {
        // SAFETY: the array has eight elements.
        let magnitudes = _mm256_andnot_ps(sign, unsafe { _mm256_loadu_ps(eight.as_ptr()) });
        let equal = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(magnitudes, largest));
        if equal != 0 {
            return eight[equal.trailing_zeros() as usize];
        }
    }
    unreachable!("the largest magnitude is that of an element")
}

/// Writes the rounded products of `x` and `inverse`, and gives the sums of the two halves of them.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn round(x: [__m256; 4], inverse: f32, quants: &mut [i8; 32]) -> [i16; 2] {
    let [a, b, c, d] = [
        round_eight(x[0], inverse),
        round_eight(x[1], inverse),
        round_eight(x[2], inverse),
        round_eight(x[3], inverse),
    ];
    // Packing works within halves of 128 bits: a0 b0 c0 d0 | a1 b1 c1 d1, four quants each, to be put in order.
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    let packed = _mm256_permutevar8x32_epi32(packed, order);
    // SAFETY: the array has 32 elements.
    unsafe { _mm256_storeu_si256(quants.as_mut_ptr().cast(), packed) };
    let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), packed);
    let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    let twos = _mm256_add_epi32(fours, _mm256_shuffle_epi32::<0b01_00_11_10>(fours));
    let ones = _mm256_add_epi32(twos, _mm256_shuffle_epi32::<0b10_11_00_01>(twos));
    // At most 16 · 127 each.
    [_mm256_extract_epi32::<0>(ones) as i16, _mm256_extract_epi32::<4>(ones) as i16]
}

/// As `round_to_i8` of the scalar code, for eight products of `x` and `inverse`; the order of the operands decides what
/// NaN gives.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn round_eight(x: __m256, inverse: f32) -> __m256i {
    let inverse = _mm256_set1_ps(inverse);
    let x = _mm256_max_ps(_mm256_mul_ps(x, inverse), _mm256_set1_ps(-127.0));
    let x = _mm256_min_ps(x, _mm256_set1_ps(127.0));
    _mm256_cvtps_epi32(x)
}

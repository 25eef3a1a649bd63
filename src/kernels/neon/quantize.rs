//! Rounding of activations, 16 elements at a time.

use crate::quant::{self, ActivationFormat, ColumnMut};
use std::arch::aarch64::*;

/// As [`quant::quantize`].
#[target_feature(enable = "neon")]
pub(super) fn quantize(x: &[f32], column: ColumnMut<'_>) {
    match column.format {
        ActivationFormat::Q8_0 | ActivationFormat::Q8_1 => quantize_q8_0(x, column),
        ActivationFormat::Q8_K => quantize_q8_k(x, column),
        ActivationFormat::F16 => round_to_f16(x, column.floats),
        // Integer arithmetic that the compiler makes vectors of, or a copy.
        ActivationFormat::BF16 | ActivationFormat::F32 => quant::quantize(x, column),
    }
}

#[target_feature(enable = "neon")]
fn quantize_q8_0(x: &[f32], column: ColumnMut<'_>) {
    assert_eq!(x.len(), column.quants.len());
    let blocks = x.as_chunks::<32>().0.iter().zip(column.quants.as_chunks_mut::<32>().0);
    let sums = column.sums.as_chunks_mut::<2>().0;
    for (i, ((x, quants), sums)) in blocks.zip(sums).enumerate() {
        let largest = largest_magnitude(x);
        let scale = largest / 127.0;
        let inverse = if largest != 0.0 { 127.0 / largest } else { 0.0 };
        round(x, inverse, quants, sums);
        column.scales[i] = through_f16(scale);
        if column.format == ActivationFormat::Q8_1 {
            column.scaled_sums[i] = through_f16(scale * f32::from(sums[0] + sums[1]));
        }
    }
}

#[target_feature(enable = "neon")]
fn quantize_q8_k(x: &[f32], column: ColumnMut<'_>) {
    assert_eq!(x.len(), column.quants.len());
    let blocks = x.as_chunks::<256>().0.iter().zip(column.quants.as_chunks_mut::<256>().0);
    let sums = column.sums.as_chunks_mut::<16>().0;
    for (((x, quants), sums), scale) in blocks.zip(sums).zip(column.scales) {
        let largest = largest_magnitude(x);
        if largest == 0.0 {
            quants.fill(0);
            sums.fill(0);
            *scale = 0.0;
            continue;
        }
        let inverse = -127.0 / first_of_magnitude(x, largest);
        round(x, inverse, quants, sums);
        *scale = 1.0 / inverse;
    }
}

#[target_feature(enable = "neon")]
fn round_to_f16(x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let (x, x_tail) = x.as_chunks::<4>();
    let (out, out_tail) = out.as_chunks_mut::<4>();
    for (x, out) in x.iter().zip(out) {
        // SAFETY: both arrays have four elements.
        unsafe { vst1q_f32(out.as_mut_ptr(), vcvt_f32_f16(vcvt_f16_f32(vld1q_f32(x.as_ptr())))) };
    }
    for (x, out) in x_tail.iter().zip(out_tail) {
        *out = through_f16(*x);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn through_f16(x: f32) -> f32 {
    vgetq_lane_f32::<0>(vcvt_f32_f16(vcvt_f16_f32(vdupq_n_f32(x))))
}

/// The largest magnitude of `x`, whose length is a multiple of 16; NaN is passed over, as it is not above any number.
#[inline]
#[target_feature(enable = "neon")]
fn largest_magnitude(x: &[f32]) -> f32 {
    let mut largest = [vdupq_n_f32(0.0); 4];
    for x in x.as_chunks::<16>().0 {
        for (largest, x) in largest.iter_mut().zip(load(x)) {
            let x = vabsq_f32(x);
            *largest = vbslq_f32(vcgtq_f32(x, *largest), x, *largest);
        }
    }
    let [a, b, c, d] = largest;
    vmaxvq_f32(vmaxq_f32(vmaxq_f32(a, b), vmaxq_f32(c, d)))
}

/// The first element of magnitude `largest`, which must be there.
#[inline]
#[target_feature(enable = "neon")]
fn first_of_magnitude(x: &[f32; 256], largest: f32) -> f32 {
    let magnitude = vdupq_n_f32(largest);
    for sixteen in x.as_chunks::<16>().0 {
        let [a, b, c, d] = load(sixteen).map(|x| vceqq_f32(vabsq_f32(x), magnitude));
        if vmaxvq_u32(vorrq_u32(vorrq_u32(a, b), vorrq_u32(c, d))) != 0
            && let Some(first) = sixteen.iter().find(|x| x.abs() == largest)
        {
            return *first;
        }
    }
    unreachable!("the largest magnitude is that of an element")
}

#[inline]
#[target_feature(enable = "neon")]
fn load(x: &[f32; 16]) -> [float32x4_t; 4] {
    let at = x.as_ptr();
    // SAFETY: all offsets are within the array.
    unsafe { [vld1q_f32(at), vld1q_f32(at.add(4)), vld1q_f32(at.add(8)), vld1q_f32(at.add(12))] }
}

/// Writes the rounded products of `x` and `inverse`, and the sum of each 16 of them.
#[inline]
#[target_feature(enable = "neon")]
fn round(x: &[f32], inverse: f32, quants: &mut [i8], sums: &mut [i16]) {
    let sixteens = x.as_chunks::<16>().0.iter().zip(quants.as_chunks_mut::<16>().0);
    for ((x, quants), sum) in sixteens.zip(sums) {
        let [a, b, c, d] = load(x).map(|x| round_four(x, inverse));
        // All are within 127 of zero: narrowing loses nothing.
        let (low, high) = (vcombine_s16(vmovn_s32(a), vmovn_s32(b)), vcombine_s16(vmovn_s32(c), vmovn_s32(d)));
        let packed = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
        // SAFETY: the array has 16 elements.
        unsafe { vst1q_s8(quants.as_mut_ptr(), packed) };
        *sum = vaddlvq_s8(packed);
    }
}

/// As `round_to_i8` of the scalar code, for four products of `x` and `inverse`: `fmaxnm` gives the number where the other
/// operand is NaN.
#[inline]
#[target_feature(enable = "neon")]
fn round_four(x: float32x4_t, inverse: f32) -> int32x4_t {
    vcvtnq_s32_f32(vminnmq_f32(vmaxnmq_f32(vmulq_n_f32(x, inverse), vdupq_n_f32(-127.0)), vdupq_n_f32(127.0)))
}

//! Products of plain numbers, in 16 lanes: four registers a row and column.

use super::Product;
use crate::math;
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::ops::Range;

/// A type of plain numbers that widens to f32 exactly.
pub(super) trait Number {
    const BYTES: usize;

    /// Four numbers from `at` on, as f32.
    ///
    /// # Safety
    /// They can be read, and the processor has NEON.
    unsafe fn four(at: *const u8) -> float32x4_t;

    /// One number from its bytes.
    fn one(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Number for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn four(at: *const u8) -> float32x4_t {
        // Weights may start at any address: bytes are loaded.
        // SAFETY: 16 bytes can be read, by the caller.
        unsafe { vreinterpretq_f32_u8(vld1q_u8(at)) }
    }

    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Number for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn four(at: *const u8) -> float32x4_t {
        // SAFETY: eight bytes can be read, by the caller.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at))) }
    }

    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

impl Number for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn four(at: *const u8) -> float32x4_t {
        // SAFETY: eight bytes can be read, by the caller.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(vld1_u8(at)))) }
    }

    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

#[target_feature(enable = "neon")]
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

/// Dot product of numbers and floats.
#[target_feature(enable = "neon")]
pub(super) fn dot<N: Number>(a: &[u8], b: &[f32]) -> f32 {
    dots::<N, 1, 1>(&[a], &[b])[0][0]
}

/// Dot products of `R` rows and `C` columns.
#[inline]
#[target_feature(enable = "neon")]
fn dots<N: Number, const R: usize, const C: usize>(rows: &[&[u8]; R], x: &[&[f32]; C]) -> [[f32; R]; C] {
    let n = x[0].len();
    assert!(x.iter().all(|x| x.len() == n) && rows.iter().all(|row| row.len() == n * N::BYTES));
    let mut sums = [[[vdupq_n_f32(0.0); 4]; R]; C];
    let whole = n / math::LANES * math::LANES;
    for i in (0..whole).step_by(math::LANES) {
        for quarter in 0..4 {
            let i = i + 4 * quarter;
            // SAFETY: elements `i` to `i + 4` lie within every row and column; this function has NEON.
            unsafe {
                let w = rows.map(|row| N::four(row.as_ptr().add(i * N::BYTES)));
                let x = x.map(|x| vld1q_f32(x.as_ptr().add(i)));
                for (sums, x) in sums.iter_mut().zip(x) {
                    for (sums, w) in sums.iter_mut().zip(w) {
                        sums[quarter] = vfmaq_f32(sums[quarter], w, x);
                    }
                }
            }
        }
    }
    let mut values = [[0.0; R]; C];
    for c in 0..C {
        for r in 0..R {
            let mut lanes = [0.0f32; math::LANES];
            for (lanes, sum) in lanes.as_chunks_mut::<4>().0.iter_mut().zip(sums[c][r]) {
                // SAFETY: the array is 16 bytes.
                unsafe { vst1q_f32(lanes.as_mut_ptr(), sum) };
            }
            let tail = rows[r][whole * N::BYTES..].chunks_exact(N::BYTES).zip(&x[c][whole..]);
            for (lane, (w, x)) in lanes.iter_mut().zip(tail) {
                *lane = N::one(w).mul_add(*x, *lane);
            }
            values[c][r] = math::sum_lanes(lanes);
        }
    }
    values
}

/// `y[i] = fma(a, x[i], y[i])`.
#[target_feature(enable = "neon")]
pub(super) fn axpy_f16(a: f32, x: &[f16], y: &mut [f32]) {
    assert_eq!(x.len(), y.len());
    let (x, x_tail) = x.as_chunks::<4>();
    let (y, y_tail) = y.as_chunks_mut::<4>();
    for (x, y) in x.iter().zip(y) {
        // SAFETY: both arrays have four elements.
        unsafe {
            let sum = vfmaq_n_f32(vld1q_f32(y.as_ptr()), F16::four(x.as_ptr().cast()), a);
            vst1q_f32(y.as_mut_ptr(), sum);
        }
    }
    for (x, y) in x_tail.iter().zip(y_tail) {
        *y = a.mul_add(x.to_f32(), *y);
    }
}

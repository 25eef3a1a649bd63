//! Products of plain numbers.

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

/// Dot products of `R` rows and `C` columns.
#[inline]
#[target_feature(enable = "neon")]
fn dots<N: Number, const R: usize, const C: usize>(rows: &[&[u8]; R], x: &[&[f32]; C]) -> [[f32; R]; C] {
    let n = x[0].len();
    assert!(x.iter().all(|x| x.len() == n) && rows.iter().all(|row| row.len() == n * N::BYTES));
    let mut lanes = [[[0.0f32; math::WIDE_LANES]; R]; C];
    let whole = n / math::WIDE_LANES * math::WIDE_LANES;
    // Each quarter of the lanes has a pass of its own, so that the sums of several rows and columns fit the registers.
    for quarter in 0..math::WIDE_LANES / math::LANES {
        let mut sums = [[[vdupq_n_f32(0.0); 4]; R]; C];
        for i in (math::LANES * quarter..whole).step_by(math::WIDE_LANES) {
            for four in 0..4 {
                let i = i + 4 * four;
                // SAFETY: elements `i` to `i + 4` lie within every row and column; this function has NEON.
                unsafe {
                    let w = rows.map(|row| N::four(row.as_ptr().add(i * N::BYTES)));
                    let x = x.map(|x| vld1q_f32(x.as_ptr().add(i)));
                    for (sums, x) in sums.iter_mut().zip(x) {
                        for (sums, w) in sums.iter_mut().zip(w) {
                            sums[four] = vfmaq_f32(sums[four], w, x);
                        }
                    }
                }
            }
        }
        for (lanes, sums) in lanes.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            let quarter: &mut [f32; math::LANES] = &mut lanes.as_chunks_mut().0[quarter];
            for (lanes, sum) in quarter.as_chunks_mut::<4>().0.iter_mut().zip(sums) {
                // SAFETY: the array is 16 bytes.
                unsafe { vst1q_f32(lanes.as_mut_ptr(), *sum) };
            }
        }
    }
    let mut values = [[0.0; R]; C];
    for c in 0..C {
        for r in 0..R {
            let lanes = &mut lanes[c][r];
            let tail = rows[r][whole * N::BYTES..].chunks_exact(N::BYTES).zip(&x[c][whole..]);
            for (lane, (w, x)) in lanes.iter_mut().zip(tail) {
                *lane = N::one(w).mul_add(*x, *lane);
            }
            values[c][r] = math::sum_wide_lanes(lanes);
        }
    }
    values
}

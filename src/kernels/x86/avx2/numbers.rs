//! Products of plain numbers. The 64 lanes of a sum would take eight registers a row and column: each quarter of them, two
//! registers, has a pass of its own, which leaves room for several rows and columns. No pass reads what another reads.

use super::Product;
use crate::math;
use half::{bf16, f16};
use std::arch::x86_64::*;
use std::ops::Range;

/// A type of plain numbers that widens to f32 exactly.
pub(super) trait Number {
    const BYTES: usize;

    /// Eight numbers from `at` on, as f32.
    ///
    /// # Safety
    /// They can be read, and the processor has AVX2 and F16C.
    unsafe fn eight(at: *const u8) -> __m256;

    /// One number from its bytes.
    fn one(bytes: &[u8]) -> f32;
}

pub(super) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Number for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 32 bytes can be read, by the caller.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }

    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

impl Number for F16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 16 bytes can be read, by the caller.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }

    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

impl Number for Bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn eight(at: *const u8) -> __m256 {
        // SAFETY: 16 bytes can be read, by the caller.
        unsafe {
            let halves = _mm256_cvtepu16_epi32(_mm_loadu_si128(at.cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(halves))
        }
    }

    #[inline(always)]
    fn one(bytes: &[u8]) -> f32 {
        bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
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
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<N: Number, const R: usize, const C: usize>(rows: &[&[u8]; R], x: &[&[f32]; C]) -> [[f32; R]; C] {
    let n = x[0].len();
    assert!(x.iter().all(|x| x.len() == n) && rows.iter().all(|row| row.len() == n * N::BYTES));
    let mut lanes = [[[0.0f32; math::WIDE_LANES]; R]; C];
    let whole = n / math::WIDE_LANES * math::WIDE_LANES;
    for quarter in (0..math::WIDE_LANES).step_by(math::LANES) {
        let mut low = [[_mm256_setzero_ps(); R]; C];
        let mut high = low;
        for i in (quarter..whole).step_by(math::WIDE_LANES) {
            let (mut w_low, mut w_high) = ([_mm256_setzero_ps(); R], [_mm256_setzero_ps(); R]);
            for r in 0..R {
                // SAFETY: elements `i` to `i + 16` lie within the row; this function has the features.
                unsafe {
                    let at = rows[r].as_ptr().add(i * N::BYTES);
                    (w_low[r], w_high[r]) = (N::eight(at), N::eight(at.add(8 * N::BYTES)));
                }
            }
            for c in 0..C {
                // SAFETY: elements `i` to `i + 16` lie within the column.
                let (x_low, x_high) = unsafe {
                    let at = x[c].as_ptr().add(i);
                    (_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(8)))
                };
                for r in 0..R {
                    low[c][r] = _mm256_fmadd_ps(w_low[r], x_low, low[c][r]);
                    high[c][r] = _mm256_fmadd_ps(w_high[r], x_high, high[c][r]);
                }
            }
        }
        for c in 0..C {
            for r in 0..R {
                let lanes: &mut [f32; math::LANES] = &mut lanes[c][r].as_chunks_mut().0[quarter / math::LANES];
                // SAFETY: the array is 64 bytes.
                unsafe {
                    _mm256_storeu_ps(lanes.as_mut_ptr(), low[c][r]);
                    _mm256_storeu_ps(lanes.as_mut_ptr().add(8), high[c][r]);
                }
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

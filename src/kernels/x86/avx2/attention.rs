//! The loops of attention: tiles of rows and columns in registers.

use super::super::super::attention::{self, LANE_ORDER};
use super::super::super::{ByteScales, FloatProduct};
use crate::math;
use half::f16;
use std::arch::x86_64::*;

/// Lanes of a register.
const LANES: usize = 8;

/// Adds `product.a · product.b` to `product.out`.
///
/// A tile is `R` rows by `V` registers of columns. Each step loads `V` registers of `b` and `R` numbers of `a`: six rows
/// and two registers need 15 of the 16 registers; fewer rows take more columns, so that there are always eight chains of
/// additions or more.
///
/// # Safety
/// Its shapes were checked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn add_product(product: FloatProduct<'_>) {
    // SAFETY: as for the caller.
    unsafe { all_rows::<false>(product) }
}

/// Writes dot products to `product.out`, in tiles like those of [`add_product`].
///
/// # Safety
/// Its shapes were checked.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn scores(product: FloatProduct<'_>) {
    // SAFETY: as for the caller.
    unsafe { all_rows::<true>(product) }
}

/// Scores where `IN_LANES` is set, else a sum that is added to.
///
/// # Safety
/// The shapes were checked.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn all_rows<const IN_LANES: bool>(mut product: FloatProduct<'_>) {
    let mut row = 0;
    while row < product.rows {
        // SAFETY: as for the caller; `row` and the rows after it that are named lie below `rows`.
        row += unsafe {
            match product.rows - row {
                6.. => rows::<6, 2, IN_LANES>(&mut product, row),
                4 | 5 => rows::<4, 2, IN_LANES>(&mut product, row),
                2 | 3 => rows::<2, 4, IN_LANES>(&mut product, row),
                _ => rows::<1, 8, IN_LANES>(&mut product, row),
            }
        };
    }
}

/// Does `R` rows from `row` on, and gives `R`.
///
/// # Safety
/// As [`add_product`]; the rows are there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const R: usize, const V: usize, const IN_LANES: bool>(
    product: &mut FloatProduct<'_>,
    row: usize,
) -> usize {
    let mut column = 0;
    // SAFETY: the columns end at `width` at most.
    unsafe {
        while column + V * LANES <= product.width {
            tile::<R, V, IN_LANES>(product, row, column);
            column += V * LANES;
        }
        while column + LANES <= product.width {
            tile::<R, 1, IN_LANES>(product, row, column);
            column += LANES;
        }
    }
    for row in row..row + R {
        for column in column..product.width {
            let at = row * product.out_stride + column;
            let terms = (0..product.inner)
                .map(|i| (product.a[row * product.a_stride + i], product.b[i * product.width + column]));
            product.out[at] = if IN_LANES {
                let mut lanes = [0.0f32; math::LANES];
                for (i, (a, b)) in terms.enumerate() {
                    lanes[i % math::LANES] = a.mul_add(b, lanes[i % math::LANES]);
                }
                math::sum_lanes(lanes)
            } else {
                terms.fold(product.out[at], |sum, (a, b)| a.mul_add(b, sum))
            };
        }
    }
    R
}

/// Does `R` rows from `row` on and `8 V` columns from `column` on.
///
/// # Safety
/// They lie within the product, whose shapes were checked.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<const R: usize, const V: usize, const IN_LANES: bool>(
    product: &mut FloatProduct<'_>,
    row: usize,
    column: usize,
) {
    let FloatProduct { inner, width, a, a_stride, b, out, out_stride, .. } = product;
    // SAFETY: the tile lies within `out`, the same rows within `a` and the same columns within `b`, by the caller.
    unsafe {
        let out = out.as_mut_ptr().add(row * *out_stride + column);
        let (a, b) = (a.as_ptr().add(row * *a_stride), b.as_ptr().add(column));
        let mut sums = [[_mm256_setzero_ps(); V]; R];
        if IN_LANES {
            // Sums of 1, 2, 4, 8 and 16 lanes that wait for their other half.
            let mut waiting = [sums; 5];
            for (n, lane) in LANE_ORDER.into_iter().enumerate() {
                let mut chain = [[_mm256_setzero_ps(); V]; R];
                for i in (lane..*inner).step_by(math::LANES) {
                    step::<R, V>(a.add(i), *a_stride, b.add(i * *width), &mut chain);
                }
                let n_closed = n.trailing_ones() as usize;
                for half in &waiting[..n_closed] {
                    for (chain, half) in chain.iter_mut().flatten().zip(half.iter().flatten()) {
                        *chain = _mm256_add_ps(*half, *chain);
                    }
                }
                waiting[n_closed] = chain;
            }
            sums = waiting[4];
        } else {
            for (r, sums) in sums.iter_mut().enumerate() {
                for (v, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_loadu_ps(out.add(r * *out_stride + v * LANES));
                }
            }
            for i in 0..*inner {
                step::<R, V>(a.add(i), *a_stride, b.add(i * *width), &mut sums);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                _mm256_storeu_ps(out.add(r * *out_stride + v * LANES), *sum);
            }
        }
    }
}

/// Adds the products of one number of each row, `a_stride` apart, and `V` registers of columns.
///
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn step<const R: usize, const V: usize>(
    a: *const f32,
    a_stride: usize,
    b: *const f32,
    sums: &mut [[__m256; V]; R],
) {
    let mut columns = [_mm256_setzero_ps(); V];
    for (v, column) in columns.iter_mut().enumerate() {
        // SAFETY: the columns can be read, by the caller.
        *column = unsafe { _mm256_loadu_ps(b.add(v * LANES)) };
    }
    for (r, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the number can be read, by the caller.
        let a = unsafe { _mm256_broadcast_ss(&*a.add(r * a_stride)) };
        for (sum, column) in sums.iter_mut().zip(columns) {
            *sum = _mm256_fmadd_ps(a, column, *sum);
        }
    }
}

/// `out[i] = x[i]`.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn widen_f16(x: &[f16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    let (x, x_tail) = x.as_chunks::<LANES>();
    let (out, out_tail) = out.as_chunks_mut::<LANES>();
    for (x, out) in x.iter().zip(out) {
        // SAFETY: both arrays have eight elements.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast()))) };
    }
    out_tail.iter_mut().zip(x_tail).for_each(|(out, x)| *out = x.to_f32());
}

// Bodies shared with the scalar path, compiled with wide registers and fused multiply-add.

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn widen_bytes(x: &[i8], scales: ByteScales<'_>, out: &mut [f32]) {
    attention::widen_bytes(x, scales, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn softmax_part(x: &mut [f32], scale: f32) -> (f32, f32) {
    math::softmax_part(x, scale)
}

//! Products of the K-quants and the other types with blocks of 256, four rows at once: one float lane a row.

mod one;
mod several;

use super::multiply::Multiply;
use super::unpack::Unpack256;
use super::{Product, ROWS, eight_sums};
use crate::quant::Column;
use std::arch::aarch64::*;
use std::ops::Range;

/// Float sums of four rows: of products and of minimums.
type Totals = (float32x4_t, float32x4_t);

/// # Safety
/// The processor has NEON and what `M` needs.
#[inline(always)]
pub(super) unsafe fn matmul<M: Multiply, B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    // SAFETY: the caller has the features.
    unsafe {
        if B::EIGHT_SUMS {
            return eight_sums::blocks_256::<M, B>(product, rows);
        }
        match product.columns {
            [x] => one::matmul::<M, B>(product, rows, x),
            _ => several::matmul::<M, B>(product, rows),
        }
    }
}

/// Sixteen bytes as 32-bit lanes.
#[inline(always)]
unsafe fn widened(bytes: int8x16_t) -> [int32x4_t; 4] {
    // SAFETY: the caller has NEON.
    unsafe {
        let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
        [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)]
    }
}

/// A column whose fields have been checked to hold a number of blocks.
struct Blocks<'a>(&'a Column<'a>);

impl<'a> Blocks<'a> {
    #[inline(always)]
    fn new(column: &'a Column<'a>, n_blocks: usize) -> Self {
        assert!(column.quants.len() == 256 * n_blocks && column.scales.len() == n_blocks);
        assert!(column.sums.len() == 16 * n_blocks);
        Self(column)
    }

    /// Where the 256 quants of block `i` begin, which must exist.
    #[inline(always)]
    unsafe fn quants(&self, i: usize) -> *const i8 {
        // SAFETY: block `i` exists, by the caller.
        unsafe { self.0.quants.as_ptr().add(256 * i) }
    }

    /// Sums of the activations of block `i`, which must exist, that share a scale: 16, or 8 and eight zeros.
    #[inline(always)]
    unsafe fn sums<B: Unpack256>(&self, i: usize) -> [int16x8_t; 2] {
        // SAFETY: block `i` exists, by the caller, who has NEON. Sums of 32 are at most 32 · 127.
        unsafe {
            let at = self.0.sums.as_ptr().add(16 * i);
            let (low, high) = (vld1q_s16(at), vld1q_s16(at.add(8)));
            if B::SCALE_BY_16 { [low, high] } else { [vpaddq_s16(low, high), vdupq_n_s16(0)] }
        }
    }

    /// Adds the integer products of four rows and block `i`, which must exist, and of their minimums to the float sums.
    #[inline(always)]
    unsafe fn add_block<B: Unpack256>(
        &self,
        (total, min_total): Totals,
        (products, mins): (int32x4_t, int32x4_t),
        (factors, min_factors): (float32x4_t, float32x4_t),
        i: usize,
    ) -> Totals {
        // SAFETY: block `i` exists, by the caller, who has NEON.
        unsafe {
            let scale = *self.0.scales.get_unchecked(i);
            let total = vfmaq_f32(total, vmulq_n_f32(factors, scale), vcvtq_f32_s32(products));
            if !B::HAS_MIN {
                return (total, min_total);
            }
            (total, vfmaq_f32(min_total, vmulq_n_f32(min_factors, scale), vcvtq_f32_s32(mins)))
        }
    }
}

#[inline(always)]
unsafe fn no_totals() -> Totals {
    // SAFETY: the caller has NEON.
    unsafe { (vdupq_n_f32(0.0), vdupq_n_f32(0.0)) }
}

/// The results of four rows from their float sums.
#[inline(always)]
unsafe fn row_values<B: Unpack256>((total, min_total): Totals) -> [f32; ROWS] {
    let mut lanes = [0.0; ROWS];
    // SAFETY: the array is 16 bytes; the caller has NEON.
    unsafe {
        let total = if B::HAS_MIN { vsubq_f32(total, min_total) } else { total };
        vst1q_f32(lanes.as_mut_ptr(), total);
    }
    lanes
}

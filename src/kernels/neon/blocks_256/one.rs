//! Products of one column.
//!
//! Decoding reads each weight once: quants go from memory through registers and nowhere else.

use super::super::multiply::{Multiply, sums_of_four};
use super::super::unpack::{Scales, Unpack256};
use super::super::{Product, ROWS};
use super::{Blocks, no_totals, row_values, widened};
use crate::quant::Column;
use std::arch::aarch64::*;
use std::ops::Range;

#[inline(always)]
pub(super) unsafe fn matmul<M: Multiply, B: Unpack256>(product: Product<'_>, rows: Range<usize>, x: &Column<'_>) {
    let n_blocks = product.w.cols() / 256;
    let x = Blocks::new(x, n_blocks);
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        // SAFETY: block `i` is below `n_blocks`; the caller has the features.
        unsafe {
            let mut totals = no_totals();
            for i in 0..n_blocks {
                let blocks = group.map(|row| &row[i]);
                let (quants, sums) = (x.quants(i), x.sums::<B>(i));
                let scales = blocks.map(|block| block.scales());
                // Written out: in a closure, which has no features of its own, the path's instructions would be calls.
                let products = sums_of_four([
                    block_product::<M, B>(blocks[0], scales[0].scales, quants),
                    block_product::<M, B>(blocks[1], scales[1].scales, quants),
                    block_product::<M, B>(blocks[2], scales[2].scales, quants),
                    block_product::<M, B>(blocks[3], scales[3].scales, quants),
                ]);
                let mins = match B::HAS_MIN {
                    true => sums_of_four(scales.map(|scales| min_product::<B>(scales, sums))),
                    false => vdupq_n_s32(0),
                };
                let factors = (B::factors(blocks), B::min_factors(blocks));
                totals = x.add_block::<B>(totals, (products, mins), factors, i);
            }
            product.store(0, first, rows.end, &row_values::<B>(totals));
        }
    }
}

/// Lanes whose sum is the integer product of a block and 256 activations.
#[inline(always)]
unsafe fn block_product<M: Multiply, B: Unpack256>(block: &B, scales: int8x16_t, x: *const i8) -> int32x4_t {
    // SAFETY: 256 activations can be read, by the caller, who has the features.
    unsafe {
        let scales = widened(scales);
        // Two chains, as one instruction's result is not ready for the next but after several cycles.
        let zero = vdupq_n_s32(0);
        let mut even = add_group::<M, B, 0>(zero, block, &scales, x);
        let mut odd = add_group::<M, B, 1>(zero, block, &scales, x);
        even = add_group::<M, B, 2>(even, block, &scales, x);
        odd = add_group::<M, B, 3>(odd, block, &scales, x);
        even = add_group::<M, B, 4>(even, block, &scales, x);
        odd = add_group::<M, B, 5>(odd, block, &scales, x);
        even = add_group::<M, B, 6>(even, block, &scales, x);
        odd = add_group::<M, B, 7>(odd, block, &scales, x);
        vaddq_s32(even, odd)
    }
}

/// Adds the scaled products of group `J` of 32 quants to `sum`.
#[inline(always)]
unsafe fn add_group<M: Multiply, B: Unpack256, const J: usize>(
    sum: int32x4_t,
    block: &B,
    scales: &[int32x4_t; 4],
    x: *const i8,
) -> int32x4_t {
    // SAFETY: the 32 activations can be read, by the caller, who has the features.
    unsafe {
        let [a, b] = block.group::<J>();
        let [low, high] = [vld1q_s8(x.add(32 * J)), vld1q_s8(x.add(32 * J + 16))];
        let zero = vdupq_n_s32(0);
        let first = M::add_products(zero, a, low);
        if B::SCALE_BY_16 {
            let (second, scales) = (M::add_products(zero, b, high), scales[J / 2]);
            return match J % 2 {
                0 => vmlaq_laneq_s32::<1>(vmlaq_laneq_s32::<0>(sum, first, scales), second, scales),
                _ => vmlaq_laneq_s32::<3>(vmlaq_laneq_s32::<2>(sum, first, scales), second, scales),
            };
        }
        let (products, scales) = (M::add_products(first, b, high), scales[J / 4]);
        match J % 4 {
            0 => vmlaq_laneq_s32::<0>(sum, products, scales),
            1 => vmlaq_laneq_s32::<1>(sum, products, scales),
            2 => vmlaq_laneq_s32::<2>(sum, products, scales),
            _ => vmlaq_laneq_s32::<3>(sum, products, scales),
        }
    }
}

/// Lanes whose sum is the integer product of a block's minimums and the sums of the activations that share them.
#[inline(always)]
unsafe fn min_product<B: Unpack256>(scales: Scales, sums: [int16x8_t; 2]) -> int32x4_t {
    // SAFETY: the caller has NEON.
    unsafe {
        let mins = vmovl_s8(vget_low_s8(scales.mins));
        let total = vmlal_high_s16(vmull_s16(vget_low_s16(mins), vget_low_s16(sums[0])), mins, sums[0]);
        if !B::SCALE_BY_16 {
            return total;
        }
        let mins = vmovl_high_s8(scales.mins);
        vmlal_high_s16(vmlal_s16(total, vget_low_s16(mins), vget_low_s16(sums[1])), mins, sums[1])
    }
}

//! Products of the types that keep eight float sums a row, see [`Block::EIGHT_SUMS`]: two registers a row and column.
//!
//! A row's blocks are unpacked once for up to [`TILE_COLUMNS`].
//!
//! [`Block::EIGHT_SUMS`]: crate::quant::blocks::Block::EIGHT_SUMS

use super::Product;
use super::multiply::Multiply;
use super::unpack::{Unpack32, Unpack256};
use crate::math;
use crate::quant::Column;
use std::arch::aarch64::*;
use std::ops::Range;

/// Columns that share an unpacked block; their sums lie on the stack.
const TILE_COLUMNS: usize = 64;

/// Sums of a row and a column: eight of products and one of minimums.
#[derive(Clone, Copy)]
struct Sums {
    products: [float32x4_t; 2],
    mins: f32,
}

impl Sums {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has NEON.
        Self { products: unsafe { [vdupq_n_f32(0.0); 2] }, mins: 0.0 }
    }

    /// Adds `scale` times the lanes of `products` and `min` times `min_product`.
    #[inline(always)]
    unsafe fn add(&mut self, scale: f32, products: [int32x4_t; 2], min: f32, min_product: f32) {
        for (sums, products) in self.products.iter_mut().zip(products) {
            // SAFETY: the caller has NEON.
            *sums = unsafe { vfmaq_n_f32(*sums, vcvtq_f32_s32(products), scale) };
        }
        self.mins = min.mul_add(min_product, self.mins);
    }

    /// Sum of the products, as [`math::sum_eight`].
    #[inline(always)]
    unsafe fn product(&self) -> f32 {
        let mut lanes = [0.0; 8];
        // SAFETY: the arrays are 16 bytes; the caller has NEON.
        unsafe {
            vst1q_f32(lanes.as_mut_ptr(), self.products[0]);
            vst1q_f32(lanes[4..].as_mut_ptr(), self.products[1]);
        }
        math::sum_eight(lanes)
    }
}

/// # Safety
/// The processor has NEON and what `M` needs.
#[inline(always)]
pub(super) unsafe fn blocks_32<M: Multiply, B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    assert!(B::HAS_MIN, "all such types have minimums");
    for row in rows {
        let [blocks]: [&[B]; 1] = product.rows(row, row + 1);
        for (chunk, columns) in product.columns.chunks(TILE_COLUMNS).enumerate() {
            // SAFETY: the caller has the features, here and below.
            let mut sums = [unsafe { Sums::zero() }; TILE_COLUMNS];
            for (i, block) in blocks.iter().enumerate() {
                // SAFETY: 16 quants are read from each half of the block.
                unsafe {
                    let quants = block.quants();
                    let (scale, min) = (first_lane(B::scales([block; 4])), first_lane(B::mins([block; 4])));
                    for (x, sums) in columns.iter().zip(&mut sums) {
                        let products = add_thirty_two::<M>([vdupq_n_s32(0); 2], quants, &x.quants.as_chunks().0[i]);
                        sums.add(scale * x.scales[i], products, min, x.scaled_sums[i]);
                    }
                }
            }
            for (j, sums) in sums[..columns.len()].iter().enumerate() {
                // SAFETY: as above.
                let sum = unsafe { sums.product() };
                product.out.write(chunk * TILE_COLUMNS + j, row, sum + sums.mins);
            }
        }
    }
}

/// # Safety
/// The processor has NEON and what `M` needs.
#[inline(always)]
pub(super) unsafe fn blocks_256<M: Multiply, B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    assert!(B::HAS_MIN && !B::SCALE_BY_16, "all such types have minimums, and scales of 32");
    for row in rows {
        let [blocks]: [&[B]; 1] = product.rows(row, row + 1);
        for (chunk, columns) in product.columns.chunks(TILE_COLUMNS).enumerate() {
            // SAFETY: the caller has the features, here and below.
            let mut sums = [unsafe { Sums::zero() }; TILE_COLUMNS];
            for (i, block) in blocks.iter().enumerate() {
                // SAFETY: as above.
                unsafe {
                    let unpacked = Unpacked::new(block);
                    for (x, sums) in columns.iter().zip(&mut sums) {
                        let x_scale = x.scales[i];
                        let (products, min_product) = unpacked.products::<M>(x, i);
                        sums.add(unpacked.scale * x_scale, products, unpacked.min * x_scale, min_product as f32);
                    }
                }
            }
            for (j, sums) in sums[..columns.len()].iter().enumerate() {
                // SAFETY: as above.
                let sum = unsafe { sums.product() };
                product.out.write(chunk * TILE_COLUMNS + j, row, sum - sums.mins);
            }
        }
    }
}

/// A block of 256.
struct Unpacked {
    /// `[8 groups]` of 32 quants, in order.
    quants: [[int8x16_t; 2]; 8],
    /// Integer scale of each group.
    scales: [i32; 8],
    /// Integer minimum of each group.
    mins: int16x8_t,
    scale: f32,
    min: f32,
}

impl Unpacked {
    #[inline(always)]
    unsafe fn new<B: Unpack256>(block: &B) -> Self {
        // SAFETY: the array is 16 bytes; the caller has NEON.
        unsafe {
            let quants = [
                block.group::<0>(),
                block.group::<1>(),
                block.group::<2>(),
                block.group::<3>(),
                block.group::<4>(),
                block.group::<5>(),
                block.group::<6>(),
                block.group::<7>(),
            ];
            let scales = block.scales();
            let mut bytes = [0i8; 16];
            vst1q_s8(bytes.as_mut_ptr(), scales.scales);
            Self {
                quants,
                scales: std::array::from_fn(|j| i32::from(bytes[j])),
                mins: vmovl_s8(vget_low_s8(scales.mins)),
                scale: first_lane(B::factors([block; 4])),
                min: first_lane(B::min_factors([block; 4])),
            }
        }
    }

    /// Eight integer products with block `i` of `x`, and that of the minimums.
    #[inline(always)]
    unsafe fn products<M: Multiply>(&self, x: &Column<'_>, i: usize) -> ([int32x4_t; 2], i32) {
        let quants: &[[i8; 32]] = x.quants[256 * i..256 * (i + 1)].as_chunks().0;
        let x_sums: &[i16; 16] = &x.sums.as_chunks().0[i];
        // SAFETY: the sums are 32 bytes; sums of 32 are at most 32 · 127; the caller has the features.
        unsafe {
            let zero = [vdupq_n_s32(0); 2];
            let mut sums = zero;
            for j in 0..8 {
                let products = add_thirty_two::<M>(zero, self.quants[j], &quants[j]);
                sums[0] = vmlaq_n_s32(sums[0], products[0], self.scales[j]);
                sums[1] = vmlaq_n_s32(sums[1], products[1], self.scales[j]);
            }
            let x_sums = vpaddq_s16(vld1q_s16(x_sums.as_ptr()), vld1q_s16(x_sums[8..].as_ptr()));
            let low = vmull_s16(vget_low_s16(self.mins), vget_low_s16(x_sums));
            (sums, vaddvq_s32(vmlal_high_s16(low, self.mins, x_sums)))
        }
    }
}

/// Adds the products of 32 quants and activations, four neighbours a lane.
#[inline(always)]
unsafe fn add_thirty_two<M: Multiply>(sums: [int32x4_t; 2], quants: [int8x16_t; 2], x: &[i8; 32]) -> [int32x4_t; 2] {
    // SAFETY: 16 bytes are read from each half; the caller has the features.
    unsafe {
        [
            M::add_fours(sums[0], quants[0], vld1q_s8(x.as_ptr())),
            M::add_fours(sums[1], quants[1], vld1q_s8(x[16..].as_ptr())),
        ]
    }
}

#[inline(always)]
unsafe fn first_lane(x: float32x4_t) -> f32 {
    // SAFETY: the caller has NEON.
    unsafe { vgetq_lane_f32::<0>(x) }
}

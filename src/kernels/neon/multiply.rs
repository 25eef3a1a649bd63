//! The three ways to multiply 8-bit integers, which are all that the paths differ in.
//!
//! For several columns, quants of four rows are unpacked once and laid out as the instruction wants them: a *unit* is 16
//! quants of each of four rows, in four vectors. It is multiplied with 16 activations of each of two columns.

use super::unpack::{Unpack32, Unpack256};
use super::{Product, blocks_32, blocks_256};
use std::arch::{aarch64::*, asm, is_aarch64_feature_detected};
use std::fmt::Debug;
use std::ops::Range;

/// How a path multiplies integers.
///
/// # Safety
/// The unsafe methods may only be called where [`is_supported`](Self::is_supported) is true. Quants are any bytes,
/// activations within 127 of zero.
pub(super) trait Multiply: Debug + Send + Sync + 'static {
    /// Name of the path.
    const NAME: &'static str;

    /// Integers of four rows and two columns.
    type Sums: Copy;

    fn is_supported() -> bool;

    unsafe fn zero() -> Self::Sums;

    /// Adds 16 products to four lanes, each to some lane.
    unsafe fn add_products(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;

    /// Adds 16 products to four lanes, four neighbours each.
    unsafe fn add_fours(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t;

    /// Makes a unit of 16 quants of each of four rows.
    unsafe fn unit(rows: [int8x16_t; 4]) -> [int8x16_t; 4];

    /// Adds the products of a unit and 16 activations of each of two columns.
    unsafe fn add_unit(sums: Self::Sums, unit: [int8x16_t; 4], x: [int8x16_t; 2]) -> Self::Sums;

    /// Adds `products` times the scale of their row.
    unsafe fn add_scaled(sums: Self::Sums, products: Self::Sums, scales: int32x4_t) -> Self::Sums;

    /// The integers of each column, one a row.
    unsafe fn columns(sums: Self::Sums) -> [int32x4_t; 2];

    /// [`blocks_32::matmul`], compiled with the path's features.
    unsafe fn blocks_32<B: Unpack32>(product: Product<'_>, rows: Range<usize>);

    /// [`blocks_256::matmul`], compiled with the path's features.
    unsafe fn blocks_256<B: Unpack256>(product: Product<'_>, rows: Range<usize>);
}

/// Sums of the lanes of four vectors, in order.
#[inline(always)]
pub(super) unsafe fn sums_of_four(v: [int32x4_t; 4]) -> int32x4_t {
    // SAFETY: the caller has NEON.
    unsafe { vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3])) }
}

/// Long multiplication, 8 to 16 bits: every 64-bit ARM processor.
#[derive(Debug)]
pub(super) struct Long;

impl Multiply for Long {
    const NAME: &'static str = "neon";

    /// Lanes of two columns of four rows, to be summed.
    type Sums = [[int32x4_t; 4]; 2];

    fn is_supported() -> bool {
        is_aarch64_feature_detected!("neon")
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        // SAFETY: the caller has NEON.
        unsafe { [[vdupq_n_s32(0); 4]; 2] }
    }

    #[inline(always)]
    unsafe fn add_products(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // Two products fit 16 bits: at most 2 · 128 · 127 = 32512.
        // SAFETY: the caller has NEON.
        unsafe {
            let products = vmull_s8(vget_low_s8(w), vget_low_s8(x));
            vpadalq_s16(sum, vmlal_high_s8(products, w, x))
        }
    }

    #[inline(always)]
    unsafe fn add_fours(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the caller has NEON.
        unsafe {
            let low = vpaddlq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)));
            let high = vpaddlq_s16(vmull_high_s8(w, x));
            vaddq_s32(sum, vpaddq_s32(low, high))
        }
    }

    #[inline(always)]
    unsafe fn unit(rows: [int8x16_t; 4]) -> [int8x16_t; 4] {
        rows
    }

    #[inline(always)]
    unsafe fn add_unit(mut sums: Self::Sums, unit: [int8x16_t; 4], x: [int8x16_t; 2]) -> Self::Sums {
        for (sums, x) in sums.iter_mut().zip(x) {
            for (sum, w) in sums.iter_mut().zip(unit) {
                // SAFETY: the caller has NEON.
                *sum = unsafe { Self::add_products(*sum, w, x) };
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn add_scaled(sums: Self::Sums, products: Self::Sums, scales: int32x4_t) -> Self::Sums {
        let [a, b] = sums;
        let [p, q] = products;
        // SAFETY: the caller has NEON.
        unsafe {
            let add = |sums: [int32x4_t; 4], products: [int32x4_t; 4]| {
                [
                    vmlaq_laneq_s32::<0>(sums[0], products[0], scales),
                    vmlaq_laneq_s32::<1>(sums[1], products[1], scales),
                    vmlaq_laneq_s32::<2>(sums[2], products[2], scales),
                    vmlaq_laneq_s32::<3>(sums[3], products[3], scales),
                ]
            };
            [add(a, p), add(b, q)]
        }
    }

    #[inline(always)]
    unsafe fn columns([a, b]: Self::Sums) -> [int32x4_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { [sums_of_four(a), sums_of_four(b)] }
    }

    #[target_feature(enable = "neon")]
    unsafe fn blocks_32<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
        // SAFETY: this function has the features.
        unsafe { blocks_32::matmul::<Self, B>(product, rows) }
    }

    #[target_feature(enable = "neon")]
    unsafe fn blocks_256<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
        // SAFETY: this function has the features.
        unsafe { blocks_256::matmul::<Self, B>(product, rows) }
    }
}

/// The dot product of four pairs of bytes (FEAT_DotProd): servers since Neoverse N1, phones since 2018, all of Apple's M.
#[derive(Debug)]
pub(super) struct Dot;

impl Multiply for Dot {
    const NAME: &'static str = "neon-dot";

    /// A vector for each column, a row a lane.
    type Sums = [int32x4_t; 2];

    fn is_supported() -> bool {
        is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod")
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        // SAFETY: the caller has NEON.
        unsafe { [vdupq_n_s32(0); 2] }
    }

    #[inline(always)]
    unsafe fn add_products(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the caller has the dot product.
        unsafe { sdot(sum, w, x) }
    }

    #[inline(always)]
    unsafe fn add_fours(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the caller has the dot product.
        unsafe { sdot(sum, w, x) }
    }

    /// Turned, so that each vector holds four neighbouring quants of each row, which meet the same four activations.
    #[inline(always)]
    unsafe fn unit(rows: [int8x16_t; 4]) -> [int8x16_t; 4] {
        // SAFETY: the caller has NEON.
        unsafe {
            let [a, b, c, d] = rows.map(|row| vreinterpretq_s32_s8(row));
            let (ac, bd) = (vzip1q_s32(a, c), vzip1q_s32(b, d));
            let (ac_high, bd_high) = (vzip2q_s32(a, c), vzip2q_s32(b, d));
            [vzip1q_s32(ac, bd), vzip2q_s32(ac, bd), vzip1q_s32(ac_high, bd_high), vzip2q_s32(ac_high, bd_high)]
                .map(|turned| vreinterpretq_s8_s32(turned))
        }
    }

    #[inline(always)]
    unsafe fn add_unit(mut sums: Self::Sums, unit: [int8x16_t; 4], x: [int8x16_t; 2]) -> Self::Sums {
        for (sum, x) in sums.iter_mut().zip(x) {
            // SAFETY: the caller has the dot product.
            unsafe {
                *sum = sdot_lane::<0>(*sum, unit[0], x);
                *sum = sdot_lane::<1>(*sum, unit[1], x);
                *sum = sdot_lane::<2>(*sum, unit[2], x);
                *sum = sdot_lane::<3>(*sum, unit[3], x);
            }
        }
        sums
    }

    #[inline(always)]
    unsafe fn add_scaled(sums: Self::Sums, products: Self::Sums, scales: int32x4_t) -> Self::Sums {
        // SAFETY: the caller has NEON.
        unsafe { [vmlaq_s32(sums[0], products[0], scales), vmlaq_s32(sums[1], products[1], scales)] }
    }

    #[inline(always)]
    unsafe fn columns(sums: Self::Sums) -> [int32x4_t; 2] {
        sums
    }

    #[target_feature(enable = "neon,dotprod")]
    unsafe fn blocks_32<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
        // SAFETY: this function has the features.
        unsafe { blocks_32::matmul::<Self, B>(product, rows) }
    }

    #[target_feature(enable = "neon,dotprod")]
    unsafe fn blocks_256<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
        // SAFETY: this function has the features.
        unsafe { blocks_256::matmul::<Self, B>(product, rows) }
    }
}

/// Products of 2 x 8 and 8 x 2 matrices of bytes (FEAT_I8MM): Neoverse V1 and N2, Apple's M2. One column is multiplied as
/// by [`Dot`], which every such processor has.
#[derive(Debug)]
pub(super) struct Matrix;

impl Multiply for Matrix {
    const NAME: &'static str = "neon-i8mm";

    /// Rows 0 and 1, then 2 and 3, each with both columns: `r0 c0, r0 c1, r1 c0, r1 c1`.
    type Sums = [int32x4_t; 2];

    fn is_supported() -> bool {
        Dot::is_supported() && is_aarch64_feature_detected!("i8mm")
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Sums {
        // SAFETY: the caller has NEON.
        unsafe { [vdupq_n_s32(0); 2] }
    }

    #[inline(always)]
    unsafe fn add_products(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the caller has the dot product.
        unsafe { sdot(sum, w, x) }
    }

    #[inline(always)]
    unsafe fn add_fours(sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
        // SAFETY: the caller has the dot product.
        unsafe { sdot(sum, w, x) }
    }

    /// Halves of two rows side by side: the lower ones of rows 0 and 1, their upper ones, and those of rows 2 and 3.
    #[inline(always)]
    unsafe fn unit([a, b, c, d]: [int8x16_t; 4]) -> [int8x16_t; 4] {
        // SAFETY: the caller has NEON.
        unsafe {
            let ([ab, ab_high], [cd, cd_high]) = (side_by_side([a, b]), side_by_side([c, d]));
            [ab, ab_high, cd, cd_high]
        }
    }

    #[inline(always)]
    unsafe fn add_unit([mut top, mut bottom]: Self::Sums, unit: [int8x16_t; 4], x: [int8x16_t; 2]) -> Self::Sums {
        // SAFETY: the caller has matrix products.
        unsafe {
            let [x, x_high] = side_by_side(x);
            top = smmla(top, unit[0], x);
            bottom = smmla(bottom, unit[2], x);
            top = smmla(top, unit[1], x_high);
            bottom = smmla(bottom, unit[3], x_high);
        }
        [top, bottom]
    }

    #[inline(always)]
    unsafe fn add_scaled(sums: Self::Sums, products: Self::Sums, scales: int32x4_t) -> Self::Sums {
        // SAFETY: the caller has NEON.
        unsafe {
            [
                vmlaq_s32(sums[0], products[0], vzip1q_s32(scales, scales)),
                vmlaq_s32(sums[1], products[1], vzip2q_s32(scales, scales)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn columns([top, bottom]: Self::Sums) -> [int32x4_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { [vuzp1q_s32(top, bottom), vuzp2q_s32(top, bottom)] }
    }

    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn blocks_32<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
        // SAFETY: this function has the features.
        unsafe { blocks_32::matmul::<Self, B>(product, rows) }
    }

    #[target_feature(enable = "neon,dotprod,i8mm")]
    unsafe fn blocks_256<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
        // SAFETY: this function has the features.
        unsafe { blocks_256::matmul::<Self, B>(product, rows) }
    }
}

/// The lower halves of two vectors, then their upper halves.
#[inline(always)]
unsafe fn side_by_side([a, b]: [int8x16_t; 2]) -> [int8x16_t; 2] {
    // SAFETY: the caller has NEON.
    unsafe {
        let (a, b) = (vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b));
        [vreinterpretq_s8_s64(vzip1q_s64(a, b)), vreinterpretq_s8_s64(vzip2q_s64(a, b))]
    }
}

// The standard library has these instructions in unstable functions only.

/// Adds to each lane the products of its four bytes of `a` and `b`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which this function's features include.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds to each lane the products of its four bytes of `a` and those of lane `LANE` of `b`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_lane<const LANE: i32>(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which this function's features include.
    unsafe {
        asm!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[{lane}]", inout(vreg) sum, in(vreg) a, in(vreg) b, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Adds to lane `2 i + j` the dot product of half `i` of `a` and half `j` of `b`, eight bytes each.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn smmla(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which this function's features include.
    unsafe {
        asm!("smmla {0:v}.4s, {1:v}.16b, {2:v}.16b", inout(vreg) sum, in(vreg) a, in(vreg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

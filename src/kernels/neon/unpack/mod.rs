//! Blocks to vectors of signed quants and of scales: what every NEON path does before it multiplies.
//!
//! The functions are `#[inline(always)]` and have no features of their own, so that a path compiles them for its
//! instruction set. All need NEON at run time; that is their safety contract. Unlike on x86, products of signed bytes
//! cost no more than others, so quants have their offset taken off here and need no correction afterwards.

mod blocks_256;
mod blocks_32;

use crate::quant::blocks::Block;
use std::arch::aarch64::*;

/// A block of 32 elements with one scale.
///
/// # Safety
/// Methods may only be called on a processor with NEON.
pub(super) trait Unpack32: Block {
    /// The 32 quants in order.
    unsafe fn quants(&self) -> [int8x16_t; 2];

    /// Scales of four blocks, one a lane.
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t;

    /// Added minimums of four blocks; zero where the format has none.
    #[inline(always)]
    unsafe fn mins(_blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { vdupq_n_f32(0.0) }
    }
}

/// Integer scales and minimums of a block of 256, a byte each: 16, or 8 where 32 elements share one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    pub scales: int8x16_t,
    /// Below 64; zero where the format has none.
    pub mins: int8x16_t,
}

/// A block of 256 elements with integer scales.
///
/// # Safety
/// Methods may only be called on a processor with NEON.
pub(super) trait Unpack256: Block {
    /// True where each 16 elements have a scale of their own, false where 32 share one.
    const SCALE_BY_16: bool;

    /// The 32 quants of group `J` of 8, in order.
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2];

    /// The integer scales.
    unsafe fn scales(&self) -> Scales;

    /// Float factors of four blocks, one a lane.
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t;

    /// Float factors of the subtracted minimums of four blocks; zero where the format has none.
    #[inline(always)]
    unsafe fn min_factors(_blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { vdupq_n_f32(0.0) }
    }
}

/// The 16 bytes from `start` on; a constant start makes the check free.
#[inline(always)]
unsafe fn load(bytes: &[u8], start: usize) -> uint8x16_t {
    let run: &[u8; 16] = bytes[start..].first_chunk().expect("the run lies within the field");
    // SAFETY: 16 bytes; the caller has NEON.
    unsafe { vld1q_u8(run.as_ptr()) }
}

/// The lower four bits of each byte.
#[inline(always)]
unsafe fn low_half(bytes: uint8x16_t) -> uint8x16_t {
    // SAFETY: the caller has NEON.
    unsafe { vandq_u8(bytes, vdupq_n_u8(0x0f)) }
}

/// The upper four bits of each byte.
#[inline(always)]
unsafe fn high_half(bytes: uint8x16_t) -> uint8x16_t {
    // SAFETY: the caller has NEON.
    unsafe { vshrq_n_u8::<4>(bytes) }
}

/// The low halves of 16 bytes, then the high halves.
#[inline(always)]
unsafe fn halves(bytes: uint8x16_t) -> [uint8x16_t; 2] {
    // SAFETY: the caller has NEON.
    unsafe { [low_half(bytes), high_half(bytes)] }
}

/// The bytes, below 128, minus `offset`.
#[inline(always)]
unsafe fn minus(bytes: [uint8x16_t; 2], offset: i8) -> [int8x16_t; 2] {
    // SAFETY: the caller has NEON.
    bytes.map(|bytes| unsafe { vsubq_s8(vreinterpretq_s8_u8(bytes), vdupq_n_s8(offset)) })
}

/// The bytes, below 128, as they are.
#[inline(always)]
unsafe fn signed(bytes: [uint8x16_t; 2]) -> [int8x16_t; 2] {
    // SAFETY: the caller has NEON.
    bytes.map(|bytes| unsafe { vreinterpretq_s8_u8(bytes) })
}

/// Looks each of 32 indices below 16 up in `table`.
#[inline(always)]
unsafe fn look_up(table: &[i8; 16], indices: [uint8x16_t; 2]) -> [int8x16_t; 2] {
    // SAFETY: the table is 16 bytes; the caller has NEON.
    unsafe {
        let table = vld1q_s8(table.as_ptr());
        indices.map(|indices| vqtbl1q_s8(table, indices))
    }
}

/// Byte `i` is all ones where bit `i` of `bits` is set, else zero.
#[inline(always)]
unsafe fn spread_bits(bits: [u8; 4]) -> [uint8x16_t; 2] {
    /// Bit of each byte.
    const BIT: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the array is 16 bytes; the caller has NEON.
    unsafe {
        let bit = vld1q_u8(BIT.as_ptr());
        let eights = bits.map(|byte| vdup_n_u8(byte));
        let [low, high] = [vcombine_u8(eights[0], eights[1]), vcombine_u8(eights[2], eights[3])];
        [vtstq_u8(low, bit), vtstq_u8(high, bit)]
    }
}

/// Four half-precision numbers, widened.
#[inline(always)]
unsafe fn widened(numbers: [[u8; 2]; 4]) -> float32x4_t {
    let numbers = numbers.map(u16::from_le_bytes);
    // SAFETY: the array is eight bytes; the caller has NEON.
    unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(numbers.as_ptr()))) }
}

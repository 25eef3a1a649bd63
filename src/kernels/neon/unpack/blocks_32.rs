//! Blocks of 32.

use super::{Unpack32, halves, load, look_up, minus, signed, spread_bits, widened};
use crate::quant::blocks::*;
use std::arch::aarch64::*;

impl Unpack32 for BlockQ4_0 {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { minus(halves(load(&self.qs, 0)), 8) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockQ4_1 {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { signed(halves(load(&self.qs, 0))) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn mins(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.m)) }
    }
}

impl Unpack32 for BlockQ5_0 {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { minus(with_fifth_bits(halves(load(&self.qs, 0)), self.qh), 16) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockQ5_1 {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { signed(with_fifth_bits(halves(load(&self.qs, 0)), self.qh)) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn mins(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.m)) }
    }
}

impl Unpack32 for BlockQ8_0 {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        let bytes = bytemuck::cast_slice(&self.qs);
        // SAFETY: the caller has NEON.
        unsafe { signed([load(bytes, 0), load(bytes, 16)]) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockIq4Nl {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { look_up(&IQ4_VALUES, halves(load(&self.qs, 0))) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockMxfp4 {
    #[inline(always)]
    unsafe fn quants(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { look_up(&MXFP4_VALUES, halves(load(&self.qs, 0))) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> float32x4_t {
        let scales = blocks.map(|block| half_of_e8m0(block.e));
        // SAFETY: the array is 16 bytes; the caller has NEON.
        unsafe { vld1q_f32(scales.as_ptr()) }
    }
}

/// Bit `i` of `bits` above the four of quant `i`.
#[inline(always)]
unsafe fn with_fifth_bits([low, high]: [uint8x16_t; 2], bits: [u8; 4]) -> [uint8x16_t; 2] {
    // SAFETY: the caller has NEON.
    unsafe {
        let ([a, b], fifth) = (spread_bits(bits), vdupq_n_u8(0x10));
        [vorrq_u8(low, vandq_u8(a, fifth)), vorrq_u8(high, vandq_u8(b, fifth))]
    }
}

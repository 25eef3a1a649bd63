//! Blocks of 256.

use super::{Scales, Unpack256, halves, high_half, load, look_up, low_half, minus, signed, spread_bits, widened};
use crate::quant::blocks::*;
use std::arch::aarch64::*;

impl Unpack256 for BlockQ2K {
    const SCALE_BY_16: bool = true;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { signed(two_bits::<J>(&self.qs)) }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        // SAFETY: the caller has NEON.
        unsafe {
            let both = load(&self.scales, 0);
            let [scales, mins] = signed([low_half(both), high_half(both)]);
            Scales { scales, mins }
        }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn min_factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.dmin)) }
    }
}

impl Unpack256 for BlockQ3K {
    const SCALE_BY_16: bool = true;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { minus(with_bit::<J>(two_bits::<J>(&self.qs), &self.hmask, 0x04), 4) }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        let raw = self.raw_scales();
        // SAFETY: the caller has NEON.
        unsafe {
            let raw = vreinterpretq_s8_u8(load(&raw, 0));
            Scales { scales: vsubq_s8(raw, vdupq_n_s8(32)), mins: vdupq_n_s8(0) }
        }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack256 for BlockQ4K {
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { signed(four_bits(&self.qs, 32 * (J / 2), J % 2)) }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        // SAFETY: the caller has NEON.
        unsafe { eight_scales_and_mins(&self.scales) }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn min_factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.dmin)) }
    }
}

impl Unpack256 for BlockQ5K {
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { signed(with_bit::<J>(four_bits(&self.qs, 32 * (J / 2), J % 2), &self.qh, 0x10)) }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        // SAFETY: the caller has NEON.
        unsafe { eight_scales_and_mins(&self.scales) }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn min_factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.dmin)) }
    }
}

impl Unpack256 for BlockQ6K {
    const SCALE_BY_16: bool = true;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe {
            let low = four_bits(&self.ql, 64 * (J / 4) + 32 * (J % 2), J % 4 / 2);
            // The two bits of group 0 are the lowest: they go up by 4; those of group 3 come down by 2.
            let move_bits = |bytes| match J % 4 {
                0 => vshlq_n_u8::<4>(bytes),
                1 => vshlq_n_u8::<2>(bytes),
                2 => bytes,
                _ => vshrq_n_u8::<2>(bytes),
            };
            let upper = vdupq_n_u8(0x30);
            let a = vandq_u8(move_bits(load(&self.qh, 32 * (J / 4))), upper);
            let b = vandq_u8(move_bits(load(&self.qh, 32 * (J / 4) + 16)), upper);
            minus([vorrq_u8(low[0], a), vorrq_u8(low[1], b)], 32)
        }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        // SAFETY: the caller has NEON.
        unsafe { Scales { scales: vld1q_s8(self.scales.as_ptr()), mins: vdupq_n_s8(0) } }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack256 for BlockIq4Xs {
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        // SAFETY: the caller has NEON.
        unsafe { look_up(&IQ4_VALUES, halves(load(&self.qs, 16 * J))) }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        // SAFETY: the caller has NEON.
        unsafe { Scales { scales: eight(&self.unpacked_scales()), mins: vdupq_n_s8(0) } }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

impl Unpack256 for BlockIq3S {
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> [int8x16_t; 2] {
        let magnitudes: [u32; 8] = std::array::from_fn(|entry| self.magnitudes(J, entry));
        let magnitudes: &[u8] = bytemuck::cast_slice(&magnitudes);
        let signs = std::array::from_fn(|i| self.signs[4 * J + i]);
        // SAFETY: the caller has NEON.
        unsafe {
            let ([a, b], [p, q]) = (signed([load(magnitudes, 0), load(magnitudes, 16)]), signed(spread_bits(signs)));
            // (m xor -1) - (-1) = -m.
            [vsubq_s8(veorq_s8(a, p), p), vsubq_s8(veorq_s8(b, q), q)]
        }
    }

    #[inline(always)]
    unsafe fn scales(&self) -> Scales {
        // SAFETY: the caller has NEON.
        unsafe { Scales { scales: eight(&self.unpacked_scales()), mins: vdupq_n_s8(0) } }
    }

    #[inline(always)]
    unsafe fn factors(blocks: [&Self; 4]) -> float32x4_t {
        // SAFETY: the caller has NEON.
        unsafe { widened(blocks.map(|block| block.d)) }
    }
}

/// Two bits each of the elements of group `J`, placed as in [`BlockQ2K`].
#[inline(always)]
unsafe fn two_bits<const J: usize>(bytes: &[u8; 64]) -> [uint8x16_t; 2] {
    // SAFETY: the caller has NEON.
    unsafe {
        [load(bytes, 32 * (J / 4)), load(bytes, 32 * (J / 4) + 16)].map(|bytes| {
            let moved = match J % 4 {
                0 => bytes,
                1 => vshrq_n_u8::<2>(bytes),
                2 => vshrq_n_u8::<4>(bytes),
                _ => vshrq_n_u8::<6>(bytes),
            };
            vandq_u8(moved, vdupq_n_u8(3))
        })
    }
}

/// The halves of 32 bytes from `start` on: the low ones where `half` is 0, else the high ones.
#[inline(always)]
unsafe fn four_bits(bytes: &[u8; 128], start: usize, half: usize) -> [uint8x16_t; 2] {
    // SAFETY: the caller has NEON.
    unsafe {
        [load(bytes, start), load(bytes, start + 16)]
            .map(|bytes| if half == 0 { low_half(bytes) } else { high_half(bytes) })
    }
}

/// Each of 32 quants, with the bits `value` set where bit `J` of its byte of `bits` is.
#[inline(always)]
unsafe fn with_bit<const J: usize>([a, b]: [uint8x16_t; 2], bits: &[u8; 32], value: u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller has NEON.
    unsafe {
        let (bit, value) = (vdupq_n_u8(1 << J), vdupq_n_u8(value));
        let [p, q] = [vtstq_u8(load(bits, 0), bit), vtstq_u8(load(bits, 16), bit)];
        [vorrq_u8(a, vandq_u8(p, value)), vorrq_u8(b, vandq_u8(q, value))]
    }
}

/// Eight bytes, twice.
#[inline(always)]
unsafe fn eight(bytes: &[i8; 8]) -> int8x16_t {
    // SAFETY: the array is eight bytes; the caller has NEON.
    unsafe {
        let bytes = vld1_s8(bytes.as_ptr());
        vcombine_s8(bytes, bytes)
    }
}

#[inline(always)]
unsafe fn eight_scales_and_mins(bytes: &[u8; 12]) -> Scales {
    let (scales, mins) = scales_and_mins(bytes);
    // SAFETY: the caller has NEON.
    unsafe { Scales { scales: eight(bytemuck::cast_ref(&scales)), mins: eight(bytemuck::cast_ref(&mins)) } }
}

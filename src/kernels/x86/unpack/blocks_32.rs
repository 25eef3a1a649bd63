//! Blocks of 32.

use super::{Quants, Unpack32, halves, load, look_up, spread_bits};
use crate::quant::blocks::*;
use std::arch::x86_64::*;

impl Unpack32 for BlockQ4_0 {
    const QUANTS: Quants = Quants::Above(8);

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { halves(&self.qs) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { eight_halves(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockQ4_1 {
    const QUANTS: Quants = Quants::Above(0);

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { halves(&self.qs) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { eight_halves(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn scales_and_mins(blocks: [&Self; 8]) -> (__m256, __m256) {
        // SAFETY: the caller has F16C.
        unsafe { (eight_halves(blocks.map(|block| block.d)), eight_halves(blocks.map(|block| block.m))) }
    }
}

impl Unpack32 for BlockQ5_0 {
    const QUANTS: Quants = Quants::Above(16);

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_or_si256(halves(&self.qs), fifth_bits(self.qh)) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { eight_halves(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockQ5_1 {
    const QUANTS: Quants = Quants::Above(0);

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_or_si256(halves(&self.qs), fifth_bits(self.qh)) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { eight_halves(blocks.map(|block| block.d)) }
    }

    #[inline(always)]
    unsafe fn scales_and_mins(blocks: [&Self; 8]) -> (__m256, __m256) {
        // SAFETY: the caller has F16C.
        unsafe { (eight_halves(blocks.map(|block| block.d)), eight_halves(blocks.map(|block| block.m))) }
    }
}

impl Unpack32 for BlockQ8_0 {
    const QUANTS: Quants = Quants::Signed;

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { load(bytemuck::cast_ref(&self.qs)) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { eight_halves(blocks.map(|block| block.d)) }
    }
}

impl Unpack32 for BlockIq4Nl {
    const QUANTS: Quants = Quants::Signed;

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { look_up(&IQ4_VALUES, halves(&self.qs)) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        // SAFETY: the caller has F16C.
        unsafe { eight_halves(blocks.map(|block| block.d)) }
    }
}

/// The values of MXFP4, raised by 12 so that none is negative.
const MXFP4_RAISED: [i8; 16] = {
    let mut values = MXFP4_VALUES;
    let mut i = 0;
    while i < 16 {
        values[i] += 12;
        i += 1;
    }
    values
};

impl Unpack32 for BlockMxfp4 {
    const QUANTS: Quants = Quants::Above(12);

    #[inline(always)]
    unsafe fn quants(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { look_up(&MXFP4_RAISED, halves(&self.qs)) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 8]) -> __m256 {
        let [a, b, c, d, e, f, g, h] = blocks.map(|block| i32::from(block.e));
        // As `half_of_e8m0`: a normal number from 2 on, below that one of two subnormals.
        // SAFETY: the caller has AVX2.
        unsafe {
            let e = _mm256_setr_epi32(a, b, c, d, e, f, g, h);
            let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
            let subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
            let is_normal = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
            _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, is_normal))
        }
    }
}

#[inline(always)]
unsafe fn eight_halves(d: [[u8; 2]; 8]) -> __m256 {
    let [a, b, c, d, e, f, g, h] = d.map(i16::from_le_bytes);
    // SAFETY: the caller has F16C.
    unsafe { _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h)) }
}

/// Bit `i` of `bits` as bit 4 of byte `i`.
#[inline(always)]
unsafe fn fifth_bits(bits: [u8; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_and_si256(spread_bits(bits), _mm256_set1_epi8(0x10)) }
}

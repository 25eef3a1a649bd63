//! Blocks of 256.

use super::{Quants, Scales, Unpack256, halves, load, look_up, spread_bits};
use crate::quant::blocks::*;
use std::arch::x86_64::*;

impl Unpack256 for BlockQ2K {
    const QUANTS: Quants = Quants::Above(0);
    const LARGEST: u8 = 3;
    const SCALE_BY_16: bool = true;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { low_bits::<2>(shift_right(load(run(&self.qs, 32 * (J / 4))), 2 * (J % 4))) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: the caller has AVX2.
        unsafe {
            let [a, b, c, d] = blocks.map(|block| word(block.d, block.dmin));
            let factors = _mm256_cvtph_ps(_mm_setr_epi32(a, b, c, d));
            let [a, b, c, d] = blocks.map(|block| &block.scales);
            ([q2_k_scales(a), q2_k_scales(b), q2_k_scales(c), q2_k_scales(d)], factors)
        }
    }
}

impl Unpack256 for BlockQ3K {
    const QUANTS: Quants = Quants::Above(4);
    const LARGEST: u8 = 7;
    const SCALE_BY_16: bool = true;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let low = low_bits::<2>(shift_right(load(run(&self.qs, 32 * (J / 4))), 2 * (J % 4)));
            _mm256_or_si256(low, bit_to::<2>(load(&self.hmask), J))
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: the caller has AVX2.
        unsafe {
            let factors = four_halves(blocks.map(|block| block.d));
            let [a, b, c, d] = blocks.map(|block| block.raw_scales().map(|scale| scale as i8 - 32));
            ([offset_scales::<4>(&a), offset_scales::<4>(&b), offset_scales::<4>(&c), offset_scales::<4>(&d)], factors)
        }
    }
}

impl Unpack256 for BlockQ4K {
    const QUANTS: Quants = Quants::Above(0);
    const LARGEST: u8 = 15;
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { low_bits::<4>(shift_right(load(run(&self.qs, 32 * (J / 2))), 4 * (J % 2))) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: the caller has AVX2 and F16C; a block begins with the 16 bytes of `d`, `dmin` and `scales`.
        unsafe { scales_and_mins_of_four(blocks.map(|block| run(bytemuck::bytes_of(block), 0))) }
    }
}

impl Unpack256 for BlockQ5K {
    const QUANTS: Quants = Quants::Above(0);
    const LARGEST: u8 = 31;
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let low = low_bits::<4>(shift_right(load(run(&self.qs, 32 * (J / 2))), 4 * (J % 2)));
            _mm256_or_si256(low, bit_to::<4>(load(&self.qh), J))
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: as for Q4_K, whose first 16 bytes are the same.
        unsafe { scales_and_mins_of_four(blocks.map(|block| run(bytemuck::bytes_of(block), 0))) }
    }
}

impl Unpack256 for BlockQ6K {
    const QUANTS: Quants = Quants::Above(32);
    const LARGEST: u8 = 63;
    const SCALE_BY_16: bool = true;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let low = low_bits::<4>(shift_right(load(run(&self.ql, 64 * (J / 4) + 32 * (J % 2))), 4 * (J % 4 / 2)));
            // The two bits of group 0 are the lowest: they go up by 4; those of group 3 come down by 2.
            let high = load(run(&self.qh, 32 * (J / 4)));
            let high = match J % 4 {
                0 => _mm256_slli_epi16::<4>(high),
                1 => _mm256_slli_epi16::<2>(high),
                2 => high,
                _ => _mm256_srli_epi16::<2>(high),
            };
            _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)))
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: the caller has AVX2.
        unsafe {
            let factors = four_halves(blocks.map(|block| block.d));
            let [a, b, c, d] = blocks.map(|block| &block.scales);
            ([offset_scales::<32>(a), offset_scales::<32>(b), offset_scales::<32>(c), offset_scales::<32>(d)], factors)
        }
    }
}

impl Unpack256 for BlockIq4Xs {
    const QUANTS: Quants = Quants::Signed;
    const LARGEST: u8 = 127;
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { look_up(&IQ4_VALUES, halves(run(&self.qs, 16 * J))) }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: the caller has AVX2.
        unsafe {
            let factors = four_halves(blocks.map(|block| block.d));
            let [a, b, c, d] = blocks.map(|block| block.unpacked_scales());
            ([eight_scales::<0>(a), eight_scales::<0>(b), eight_scales::<0>(c), eight_scales::<0>(d)], factors)
        }
    }
}

impl Unpack256 for BlockIq3S {
    const QUANTS: Quants = Quants::Above(15);
    const LARGEST: u8 = 30;
    const SCALE_BY_16: bool = false;

    #[inline(always)]
    unsafe fn group<const J: usize>(&self) -> __m256i {
        let signs: [u8; 4] = *run(&self.signs, 4 * J);
        // SAFETY: eight bytes of `qs` are read; an index has nine bits; the caller has AVX2.
        unsafe {
            let low = _mm256_cvtepu8_epi32(_mm_loadl_epi64(run::<8>(&self.qs, 8 * J).as_ptr().cast()));
            // Bit k of the byte is the ninth of index k.
            let high =
                _mm256_sllv_epi32(_mm256_set1_epi32(i32::from(self.qh[J])), _mm256_setr_epi32(8, 7, 6, 5, 4, 3, 2, 1));
            let indices = _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi32(0x100)));
            let mut at = [0u32; 8];
            _mm256_storeu_si256(at.as_mut_ptr().cast(), indices);
            let [a, b, c, d, e, f, g, h] = at.map(|at| *IQ3_S_GRID.get_unchecked(at as usize) as i32);
            let magnitudes = _mm256_setr_epi32(a, b, c, d, e, f, g, h);
            let negative = spread_bits(signs);
            // (m xor -1) - (-1) = -m.
            let signed = _mm256_sub_epi8(_mm256_xor_si256(magnitudes, negative), negative);
            _mm256_add_epi8(signed, _mm256_set1_epi8(15))
        }
    }

    #[inline(always)]
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256) {
        // SAFETY: the caller has AVX2.
        unsafe {
            let factors = four_halves(blocks.map(|block| block.d));
            let [a, b, c, d] = blocks.map(|block| block.unpacked_scales());
            ([eight_scales::<15>(a), eight_scales::<15>(b), eight_scales::<15>(c), eight_scales::<15>(d)], factors)
        }
    }
}

/// The `N` bytes from `start` on; a constant start makes the check free.
#[inline(always)]
fn run<const N: usize>(bytes: &[u8], start: usize) -> &[u8; N] {
    bytes[start..].first_chunk().expect("the run lies within the field")
}

/// Shifts words of 16 bits by an even constant below 8, after inlining one instruction.
#[inline(always)]
unsafe fn shift_right(x: __m256i, by: usize) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        match by {
            0 => x,
            2 => _mm256_srli_epi16::<2>(x),
            4 => _mm256_srli_epi16::<4>(x),
            _ => _mm256_srli_epi16::<6>(x),
        }
    }
}

/// The lowest `BITS` bits of each byte.
#[inline(always)]
unsafe fn low_bits<const BITS: u32>(x: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_and_si256(x, _mm256_set1_epi8((1 << BITS) - 1)) }
}

/// Bit `from` of each byte, moved to bit `TO` (2 or 4), alone.
#[inline(always)]
unsafe fn bit_to<const TO: i32>(x: __m256i, from: usize) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let moved = match from as i32 - TO {
            -4 => _mm256_slli_epi16::<4>(x),
            -3 => _mm256_slli_epi16::<3>(x),
            -2 => _mm256_slli_epi16::<2>(x),
            -1 => _mm256_slli_epi16::<1>(x),
            0 => x,
            1 => _mm256_srli_epi16::<1>(x),
            2 => _mm256_srli_epi16::<2>(x),
            3 => _mm256_srli_epi16::<3>(x),
            4 => _mm256_srli_epi16::<4>(x),
            _ => _mm256_srli_epi16::<5>(x),
        };
        _mm256_and_si256(moved, _mm256_set1_epi8(1 << TO))
    }
}

/// Scales in the low halves, minimums in the high ones.
#[inline(always)]
unsafe fn q2_k_scales(bytes: &[u8; 16]) -> Scales {
    // SAFETY: the caller has AVX2.
    unsafe {
        let (both, mask) = (even_odd_bytes(bytes), _mm_set1_epi8(0x0f));
        let mins = _mm_and_si128(_mm_srli_epi16::<4>(both), mask);
        Scales { scales: _mm256_cvtepu8_epi16(_mm_and_si128(both, mask)), sum_factors: _mm256_cvtepu8_epi16(mins) }
    }
}

/// Sixteen scales, of quants that are stored `OFFSET` too high.
#[inline(always)]
unsafe fn offset_scales<const OFFSET: i16>(scales: &[i8; 16]) -> Scales {
    // SAFETY: the caller has AVX2.
    unsafe {
        let scales = _mm256_cvtepi8_epi16(even_odd_bytes(bytemuck::cast_ref(scales)));
        Scales { scales, sum_factors: _mm256_mullo_epi16(scales, _mm256_set1_epi16(-OFFSET)) }
    }
}

/// Eight scales of 32 elements, each both an even and an odd scale of 16, of quants that are stored `OFFSET` too high.
#[inline(always)]
unsafe fn eight_scales<const OFFSET: i16>(scales: [i8; 8]) -> Scales {
    // SAFETY: the caller has AVX2.
    unsafe {
        let scales = i64::from_le_bytes(scales.map(|scale| scale as u8));
        let scales = _mm256_cvtepi8_epi16(_mm_set1_epi64x(scales));
        Scales { scales, sum_factors: _mm256_mullo_epi16(scales, _mm256_set1_epi16(-OFFSET)) }
    }
}

/// Bytes 0, 2 .. 14, then 1, 3 .. 15.
#[inline(always)]
unsafe fn even_odd_bytes(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes; the caller has AVX2.
    unsafe {
        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
        _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15))
    }
}

#[inline(always)]
fn word(low: [u8; 2], high: [u8; 2]) -> i32 {
    i32::from_le_bytes([low[0], low[1], high[0], high[1]])
}

/// `d0 d1 d2 d3 d0 d1 d2 d3`.
#[inline(always)]
unsafe fn four_halves(d: [[u8; 2]; 4]) -> __m256 {
    let [a, b, c, d] = d.map(i16::from_le_bytes);
    // SAFETY: the caller has F16C.
    unsafe { _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, a, b, c, d)) }
}

/// Scales of four blocks of Q4_K or Q5_K from their first 16 bytes, which are four words: `d` and `dmin`, then the three
/// words of [`scales_and_mins`]. Transposed, each word's bits are sorted for four blocks at once.
#[inline(always)]
unsafe fn scales_and_mins_of_four(heads: [&[u8; 16]; 4]) -> ([Scales; 4], __m256) {
    // SAFETY: each head is 16 bytes; the caller has AVX2 and F16C.
    unsafe {
        let (r0, r1) = (_mm_loadu_si128(heads[0].as_ptr().cast()), _mm_loadu_si128(heads[1].as_ptr().cast()));
        let (r2, r3) = (_mm_loadu_si128(heads[2].as_ptr().cast()), _mm_loadu_si128(heads[3].as_ptr().cast()));
        let (t0, t1) = (_mm_unpacklo_epi32(r0, r1), _mm_unpacklo_epi32(r2, r3));
        let (t2, t3) = (_mm_unpackhi_epi32(r0, r1), _mm_unpackhi_epi32(r2, r3));
        let factors = _mm256_cvtph_ps(_mm_unpacklo_epi64(t0, t1));
        let (a, b, c) = (_mm_unpackhi_epi64(t0, t1), _mm_unpacklo_epi64(t2, t3), _mm_unpackhi_epi64(t2, t3));
        let six = _mm_set1_epi8(0x3f);
        let (scales_low, scales_high) = (_mm_and_si128(a, six), with_upper_bits(c, a));
        let (mins_low, mins_high) = (_mm_and_si128(b, six), with_upper_bits(_mm_srli_epi16::<4>(c), b));
        let s01 = _mm256_broadcastsi128_si256(_mm_unpacklo_epi32(scales_low, scales_high));
        let s23 = _mm256_broadcastsi128_si256(_mm_unpackhi_epi32(scales_low, scales_high));
        let m01 = _mm256_broadcastsi128_si256(_mm_unpacklo_epi32(mins_low, mins_high));
        let m23 = _mm256_broadcastsi128_si256(_mm_unpackhi_epi32(mins_low, mins_high));
        let zero = _mm256_setzero_si256();
        let scales = [
            Scales { scales: _mm256_unpacklo_epi8(s01, zero), sum_factors: _mm256_unpacklo_epi8(m01, zero) },
            Scales { scales: _mm256_unpackhi_epi8(s01, zero), sum_factors: _mm256_unpackhi_epi8(m01, zero) },
            Scales { scales: _mm256_unpacklo_epi8(s23, zero), sum_factors: _mm256_unpacklo_epi8(m23, zero) },
            Scales { scales: _mm256_unpackhi_epi8(s23, zero), sum_factors: _mm256_unpackhi_epi8(m23, zero) },
        ];
        (scales, factors)
    }
}

/// The low halves of the bytes of `low` with the upper two bits of `word` above them.
#[inline(always)]
unsafe fn with_upper_bits(low: __m128i, word: __m128i) -> __m128i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = _mm_and_si128(low, _mm_set1_epi8(0x0f));
        _mm_or_si128(low, _mm_and_si128(_mm_srli_epi16::<2>(word), _mm_set1_epi8(0x30)))
    }
}

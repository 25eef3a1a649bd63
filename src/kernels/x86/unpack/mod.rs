//! Blocks to vectors of 32 quants and of scales: what every x86 path does before it multiplies.
//!
//! The functions are `#[inline(always)]` and have no features of their own, so that a path compiles them for its
//! instruction set. All need AVX2 and F16C at run time; that is their safety contract.

mod blocks_256;
mod blocks_32;

use crate::quant::blocks::Block;
use std::arch::asm;
use std::arch::x86_64::*;

/// What the bytes of a quant vector mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quants {
    /// Unsigned bytes; the element is the byte minus the number.
    Above(i16),
    /// Signed bytes.
    Signed,
}

/// A block of 32 elements with one scale.
///
/// # Safety
/// Methods may only be called on a processor with AVX2 and F16C.
pub(super) trait Unpack32: Block {
    /// Meaning of [`quants`](Self::quants). Unsigned ones are below 32, so that four products of 127 fit 16 bits.
    const QUANTS: Quants;

    /// The 32 quants in order.
    unsafe fn quants(&self) -> __m256i;

    /// Scales of eight blocks, one a lane.
    unsafe fn scales(blocks: [&Self; 8]) -> __m256;

    /// Scales and added minimums of eight blocks; the minimums are zero where the format has none.
    #[inline(always)]
    unsafe fn scales_and_mins(blocks: [&Self; 8]) -> (__m256, __m256) {
        // SAFETY: the caller has AVX2.
        unsafe { (Self::scales(blocks), _mm256_setzero_ps()) }
    }
}

/// Integer scales of a block of 256, as 16-bit lanes. Scale `k` belongs to elements `16 k .. 16 k + 16`; even scales are in
/// the lower half of a register, odd ones in the upper half: `s0 s2 .. s14 | s1 s3 .. s15`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    pub scales: __m256i,
    /// What is multiplied with the sums of 16 activations, in the order of [`even_odd`]: the minimums where the format
    /// has them, else scales times minus the offset of the quants.
    pub sum_factors: __m256i,
}

impl Scales {
    /// Every scale twice, so that one shuffle gives a group of 32 elements its two scales.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    pub unsafe fn twice(&self) -> TwiceScales {
        // SAFETY: the caller has AVX2.
        unsafe {
            let (low, high) =
                (_mm256_unpacklo_epi16(self.scales, self.scales), _mm256_unpackhi_epi16(self.scales, self.scales));
            TwiceScales { low: opaque(low), high: opaque(high) }
        }
    }
}

/// [`Scales`], each twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwiceScales {
    /// Scales of groups 0 to 3: `s0 s0 s2 s2 s4 s4 s6 s6 | s1 s1 s3 s3 s5 s5 s7 s7`.
    pub low: __m256i,
    /// Scales of groups 4 to 7.
    pub high: __m256i,
}

impl TwiceScales {
    /// Scales of the 16-bit lanes of group `J` of 32 elements, of which each lane holds two.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    pub unsafe fn group<const J: usize>(&self) -> __m256i {
        let from = if J < 4 { self.low } else { self.high };
        // SAFETY: the caller has AVX2.
        unsafe {
            match J % 4 {
                0 => _mm256_shuffle_epi32::<0b00_00_00_00>(from),
                1 => _mm256_shuffle_epi32::<0b01_01_01_01>(from),
                2 => _mm256_shuffle_epi32::<0b10_10_10_10>(from),
                _ => _mm256_shuffle_epi32::<0b11_11_11_11>(from),
            }
        }
    }
}

/// A block of 256 elements with integer scales.
///
/// # Safety
/// Methods may only be called on a processor with AVX2 and F16C.
pub(super) trait Unpack256: Block {
    /// Meaning of [`group`](Self::group). Unsigned quants are below 32, or below 64 where they are above by 32.
    const QUANTS: Quants;

    /// Largest unsigned quant; means nothing for signed ones.
    const LARGEST: u8;

    /// True where each 16 elements have a scale of their own, false where 32 share one.
    const SCALE_BY_16: bool;

    /// The 32 quants of group `J` of 8, in order.
    unsafe fn group<const J: usize>(&self) -> __m256i;

    /// Integer scales of four blocks, and their float factors: `d0 dmin0 d1 dmin1 ..` where the format has minimums, else
    /// `d0 d1 d2 d3 d0 d1 d2 d3`.
    unsafe fn scales(blocks: [&Self; 4]) -> ([Scales; 4], __m256);
}

/// The same value, which the compiler does not know to be so.
///
/// It would join the shuffles that make [`TwiceScales`] with those of [`TwiceScales::group`] to shuffles of 16-bit lanes, of which a
/// group then takes two.
#[inline]
#[target_feature(enable = "avx2")]
fn opaque(mut x: __m256i) -> __m256i {
    // SAFETY: the text is an empty comment; the register is left as it was.
    unsafe { asm!("/* {0} */", inout(ymm_reg) x, options(pure, nomem, nostack, preserves_flags)) };
    x
}

/// Asks for the cache lines that a block `ahead` bytes after `block` takes; the address need not be valid.
#[inline(always)]
pub(super) fn prefetch<B>(block: *const B, ahead: usize) {
    let at = block.cast::<i8>().wrapping_add(ahead);
    for line in (0..size_of::<B>()).step_by(64) {
        // SAFETY: a prefetch has no effect but on speed, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line)) };
    }
}

/// Sums of 16 activations in the order of [`Scales`]: even ones in the low half, odd ones in the high half.
#[inline(always)]
pub(super) unsafe fn even_odd(sums: &[i16; 16]) -> __m256i {
    // SAFETY: the array is 32 bytes; the caller has AVX2.
    unsafe {
        let sums = _mm256_loadu_si256(sums.as_ptr().cast());
        let order = _mm256_setr_epi8(
            0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
        );
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_shuffle_epi8(sums, order))
    }
}

#[inline(always)]
unsafe fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes; the caller has AVX2.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The low halves of 16 bytes, then the high halves.
#[inline(always)]
unsafe fn halves(bytes: &[u8; 16]) -> __m256i {
    // SAFETY: 16 bytes; the caller has AVX2.
    unsafe {
        let both = _mm256_broadcastsi128_si256(_mm_loadu_si128(bytes.as_ptr().cast()));
        // Shifts whole words; what comes in from the neighbour byte is masked off.
        let shifted = _mm256_srlv_epi64(both, _mm256_setr_epi64x(0, 0, 4, 4));
        _mm256_and_si256(shifted, _mm256_set1_epi8(0x0f))
    }
}

/// Looks each of 32 indices below 16 up in `table`.
#[inline(always)]
unsafe fn look_up(table: &[i8; 16], indices: __m256i) -> __m256i {
    // SAFETY: the table is 16 bytes; the caller has AVX2.
    unsafe {
        let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
        _mm256_shuffle_epi8(table, indices)
    }
}

/// Byte `i` is all ones where bit `i` of `bits` is set, else zero.
#[inline(always)]
unsafe fn spread_bits(bits: [u8; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let bits = _mm256_set1_epi32(i32::from_le_bytes(bits));
        let byte = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(bits, byte), bit), bit)
    }
}

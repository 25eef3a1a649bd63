//! Products of 32 quants in pairs, sums of several vectors' lanes at once, and the turning of eight vectors.

use super::super::unpack::Quants;
use std::arch::x86_64::*;

/// Products of 32 quants and 32 activations, added in pairs to 16-bit lanes.
///
/// No pair overflows: a signed quant is at least -128 and an activation within 127 of zero, so a pair is at most
/// 2 · 128 · 127 = 32512; unsigned quants are below 64.
#[inline(always)]
pub(in super::super) unsafe fn pairs(kind: Quants, quants: __m256i, x: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        match kind {
            Quants::Above(_) => _mm256_maddubs_epi16(quants, x),
            // The first operand must be unsigned: its signs move to the second.
            Quants::Signed => _mm256_maddubs_epi16(_mm256_abs_epi8(quants), _mm256_sign_epi8(x, quants)),
        }
    }
}

/// Interleaves and adds: `a0 b0 a1 b1 | ..` of pairs of 32-bit lanes of `a` and `b`, two lanes each.
#[inline(always)]
pub(in super::super) unsafe fn fold_two(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)) }
}

/// As [`fold_two`] for lanes of 64 bits.
#[inline(always)]
pub(in super::super) unsafe fn fold_four(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)) }
}

/// As [`fold_two`] for halves of 128 bits.
#[inline(always)]
pub(in super::super) unsafe fn fold_halves(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)) }
}

/// Sums of the 32-bit lanes of four vectors, twice: `s0 s1 s2 s3 s0 s1 s2 s3`.
#[inline(always)]
pub(in super::super) unsafe fn sums_of_four(v: [__m256i; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let sums = fold_four(fold_two(v[0], v[1]), fold_two(v[2], v[3]));
        _mm256_add_epi32(sums, _mm256_permute2x128_si256::<0x01>(sums, sums))
    }
}

/// Sums of the 32-bit lanes of eight vectors: `a0 b0 a1 b1 a2 b2 a3 b3`.
#[inline(always)]
pub(super) unsafe fn sums_of_four_and_four(a: [__m256i; 4], b: [__m256i; 4]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = fold_four(fold_two(a[0], b[0]), fold_two(a[1], b[1]));
        let high = fold_four(fold_two(a[2], b[2]), fold_two(a[3], b[3]));
        fold_halves(low, high)
    }
}

/// Sums of the 32-bit lanes of eight vectors, in order.
#[inline(always)]
pub(in super::super) unsafe fn sums_of_eight(v: [__m256i; 8]) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let low = fold_four(fold_two(v[0], v[1]), fold_two(v[2], v[3]));
        let high = fold_four(fold_two(v[4], v[5]), fold_two(v[6], v[7]));
        fold_halves(low, high)
    }
}

/// Rows to columns: lane `r` of vector `k` becomes lane `k` of vector `r`.
#[inline(always)]
pub(in super::super) unsafe fn transpose(v: [__m256i; 8]) -> [__m256i; 8] {
    // SAFETY: the caller has AVX2.
    unsafe {
        let (a0, a1) = (_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[0], v[1]));
        let (a2, a3) = (_mm256_unpacklo_epi32(v[2], v[3]), _mm256_unpackhi_epi32(v[2], v[3]));
        let (a4, a5) = (_mm256_unpacklo_epi32(v[4], v[5]), _mm256_unpackhi_epi32(v[4], v[5]));
        let (a6, a7) = (_mm256_unpacklo_epi32(v[6], v[7]), _mm256_unpackhi_epi32(v[6], v[7]));
        let (b0, b1) = (_mm256_unpacklo_epi64(a0, a2), _mm256_unpackhi_epi64(a0, a2));
        let (b2, b3) = (_mm256_unpacklo_epi64(a1, a3), _mm256_unpackhi_epi64(a1, a3));
        let (b4, b5) = (_mm256_unpacklo_epi64(a4, a6), _mm256_unpackhi_epi64(a4, a6));
        let (b6, b7) = (_mm256_unpacklo_epi64(a5, a7), _mm256_unpackhi_epi64(a5, a7));
        [
            _mm256_permute2x128_si256::<0x20>(b0, b4),
            _mm256_permute2x128_si256::<0x20>(b1, b5),
            _mm256_permute2x128_si256::<0x20>(b2, b6),
            _mm256_permute2x128_si256::<0x20>(b3, b7),
            _mm256_permute2x128_si256::<0x31>(b0, b4),
            _mm256_permute2x128_si256::<0x31>(b1, b5),
            _mm256_permute2x128_si256::<0x31>(b2, b6),
            _mm256_permute2x128_si256::<0x31>(b3, b7),
        ]
    }
}

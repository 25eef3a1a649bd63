//! Products of 32 quants, and sums of several vectors' lanes at once.

use super::super::unpack::Quants;
use std::arch::x86_64::*;

/// Products of 32 quants and 32 activations, added in pairs to 16-bit lanes.
///
/// No pair overflows: a signed quant is at least -128 and an activation within 127 of zero, so a pair is at most
/// 2 · 128 · 127 = 32512; unsigned quants are below 64.
#[inline(always)]
pub(super) unsafe fn pairs(kind: Quants, quants: __m256i, x: __m256i) -> __m256i {
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
unsafe fn fold_two(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)) }
}

/// As [`fold_two`] for lanes of 64 bits.
#[inline(always)]
unsafe fn fold_four(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)) }
}

/// As [`fold_two`] for halves of 128 bits.
#[inline(always)]
unsafe fn fold_halves(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi32(_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b)) }
}

/// Sums of the 32-bit lanes of four vectors, twice: `s0 s1 s2 s3 s0 s1 s2 s3`.
#[inline(always)]
pub(super) unsafe fn sums_of_four(v: [__m256i; 4]) -> __m256i {
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

/// Sums of the 16-bit lanes of eight vectors of pairs, as 32-bit lanes in order.
///
/// Where `small` says that four pairs fit 16 bits, lanes are widened after they have been added fourfold and not before:
/// two multiplications in place of eight.
#[inline(always)]
pub(super) unsafe fn sums_of_eight(v: [__m256i; 8], small: bool) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe {
        let one = _mm256_set1_epi16(1);
        let (low, high);
        if small {
            let [a, b] = [narrow_fold(v[0], v[1]), narrow_fold(v[2], v[3])];
            let [c, d] = [narrow_fold(v[4], v[5]), narrow_fold(v[6], v[7])];
            low = _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)), one);
            high = _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)), one);
        } else {
            let a = fold_two(_mm256_madd_epi16(v[0], one), _mm256_madd_epi16(v[1], one));
            let b = fold_two(_mm256_madd_epi16(v[2], one), _mm256_madd_epi16(v[3], one));
            let c = fold_two(_mm256_madd_epi16(v[4], one), _mm256_madd_epi16(v[5], one));
            let d = fold_two(_mm256_madd_epi16(v[6], one), _mm256_madd_epi16(v[7], one));
            (low, high) = (fold_four(a, b), fold_four(c, d));
        }
        fold_halves(low, high)
    }
}

/// As [`fold_two`] on pairs of 16-bit lanes.
#[inline(always)]
unsafe fn narrow_fold(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)) }
}

/// Rows to columns: lane `r` of vector `k` becomes lane `k` of vector `r`.
#[inline(always)]
pub(super) unsafe fn transpose(v: [__m256i; 8]) -> [__m256i; 8] {
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

/// Products of 16 quants of each of eight rows, four a vector, and 16 activations, added and scaled: a lane is a row.
#[inline(always)]
pub(super) unsafe fn scaled_sum(kind: Quants, quads: [__m256i; 4], x: *const i8, scales: __m256i) -> __m256i {
    // SAFETY: 16 activations can be read, by the caller, who has AVX2.
    unsafe {
        let x = x.cast::<i32>();
        let a = pairs(kind, quads[0], _mm256_set1_epi32(x.read_unaligned()));
        let b = pairs(kind, quads[1], _mm256_set1_epi32(x.add(1).read_unaligned()));
        let c = pairs(kind, quads[2], _mm256_set1_epi32(x.add(2).read_unaligned()));
        let d = pairs(kind, quads[3], _mm256_set1_epi32(x.add(3).read_unaligned()));
        // Pairs are at most 2 · 127 times the largest quant: of 31, four fit 16 bits; of 63, two.
        match kind {
            Quants::Above(32) => {
                let (ab, cd) = (_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
                _mm256_add_epi32(_mm256_madd_epi16(ab, scales), _mm256_madd_epi16(cd, scales))
            }
            Quants::Above(_) => {
                let sum = _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
                _mm256_madd_epi16(sum, scales)
            }
            Quants::Signed => {
                let ab = _mm256_add_epi32(_mm256_madd_epi16(a, scales), _mm256_madd_epi16(b, scales));
                let cd = _mm256_add_epi32(_mm256_madd_epi16(c, scales), _mm256_madd_epi16(d, scales));
                _mm256_add_epi32(ab, cd)
            }
        }
    }
}

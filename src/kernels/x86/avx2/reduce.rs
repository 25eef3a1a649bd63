//! Products of quants without VNNI.

use super::super::rows::Multiply;
use super::super::rows::reduce::{fold_halves, pairs, sums_of_eight};
use super::super::unpack::Quants;
use std::arch::x86_64::*;

/// Multiplication in pairs of 8-bit lanes to 16-bit ones, and of those to 32-bit ones.
pub(super) struct InPairs;

impl Multiply for InPairs {
    #[inline(always)]
    unsafe fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)) }
    }

    fn offset(kind: Quants) -> i32 {
        match kind {
            Quants::Above(offset) => i32::from(offset),
            Quants::Signed => 0,
        }
    }

    #[inline(always)]
    unsafe fn sums_of_products(kind: Quants, blocks: [__m256i; 8], x: [__m256i; 8]) -> __m256i {
        // SAFETY: the caller has AVX2.
        unsafe {
            let one = _mm256_set1_epi16(1);
            let mut v = blocks;
            for (v, x) in v.iter_mut().zip(x) {
                *v = pairs(kind, *v, x);
            }
            if kind == Quants::Signed {
                for v in &mut v {
                    *v = _mm256_madd_epi16(*v, one);
                }
                return sums_of_eight(v);
            }
            // Four pairs of quants below 32 fit 16 bits: lanes are widened after they have been added fourfold and not
            // before, two multiplications in place of eight.
            let [a, b] = [narrow_fold(v[0], v[1]), narrow_fold(v[2], v[3])];
            let [c, d] = [narrow_fold(v[4], v[5]), narrow_fold(v[6], v[7])];
            let low =
                _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b)), one);
            let high =
                _mm256_madd_epi16(_mm256_add_epi16(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)), one);
            fold_halves(low, high)
        }
    }
}

/// As [`fold_two`](super::super::rows::reduce::fold_two) on pairs of 16-bit lanes.
#[inline(always)]
unsafe fn narrow_fold(a: __m256i, b: __m256i) -> __m256i {
    // SAFETY: the caller has AVX2.
    unsafe { _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b)) }
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

//! Products of the rows of one column with VNNI.

use super::super::rows::Multiply;
use super::super::rows::reduce::sums_of_eight;
use super::super::unpack::Quants;
use super::lanes::{offset, unsigned};
use std::arch::x86_64::*;

/// Multiplication and addition in one instruction.
pub(super) struct Vnni;

impl Multiply for Vnni {
    #[inline(always)]
    unsafe fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the caller has AVX-512 VL and VNNI.
        unsafe { _mm256_dpwssd_epi32(sum, a, b) }
    }

    fn offset(kind: Quants) -> i32 {
        offset(kind)
    }

    #[inline(always)]
    unsafe fn sums_of_products(kind: Quants, blocks: [__m256i; 8], x: [__m256i; 8]) -> __m256i {
        // SAFETY: the caller has AVX-512 VL and VNNI.
        unsafe {
            let mut products = blocks;
            for (product, x) in products.iter_mut().zip(x) {
                *product = _mm256_dpbusd_epi32(_mm256_setzero_si256(), unsigned(kind, *product), x);
            }
            sums_of_eight(products)
        }
    }
}

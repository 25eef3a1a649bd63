//! Products of one column: several rows at once, each in registers of its own, so that the sums of their lanes and their
//! float factors share instructions.
//!
//! Shared by the paths, as how they multiply is all that differs. As in [`unpack`](super::unpack), functions are
//! `#[inline(always)]`, have no features of their own and need AVX2, F16C and FMA at run time, and those of `M`.

pub(super) mod blocks_256;
pub(super) mod blocks_32;
pub(super) mod reduce;

use super::unpack::Quants;
use std::arch::x86_64::*;

/// How a path multiplies integers.
///
/// # Safety
/// Methods may only be called on a processor with AVX2 and what else the path needs.
pub(super) trait Multiply {
    /// Adds to each 32-bit lane of `sum` the products of its two 16-bit lanes of `a` and `b`.
    unsafe fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i;

    /// What [`sums_of_products`](Self::sums_of_products) takes the quants to lie above the elements.
    fn offset(kind: Quants) -> i32;

    /// Sums of the products of 32 activations and 32 quants of each of eight rows, each quant raised by
    /// [`offset`](Self::offset). Unsigned quants are below 32.
    unsafe fn sums_of_products(kind: Quants, rows: [__m256i; 8], x: __m256i) -> __m256i;
}

//! Products of one column: several blocks at once, each in registers of its own, so that the sums of their lanes and their
//! float factors share instructions.
//!
//! Decoding reads each weight once, so memory sets the pace. Blocks are taken in the order in which they lie in memory,
//! whatever rows they are of: one stream of reads is what the processor's own prefetching is made for (several rows side
//! by side, which needs no second step, got half of the memory's speed). Their integers and factors are kept for a few
//! rows and then added up, a lane for each row, in the order of the blocks.
//!
//! Shared by the paths, as how they multiply is all that differs. As in [`unpack`](super::unpack), functions are
//! `#[inline(always)]`, have no features of their own and need AVX2, F16C and FMA at run time, and those of `M`.

pub(super) mod blocks_256;
pub(super) mod blocks_32;
pub(super) mod reduce;

use super::unpack::Quants;
use std::arch::x86_64::*;

/// How far ahead of the block at hand memory is asked for.
pub(super) const AHEAD: usize = 2048;

/// How a path multiplies integers.
///
/// # Safety
/// Methods may only be called on a processor with AVX2 and what else the path needs.
pub(super) trait Multiply {
    /// Adds to each 32-bit lane of `sum` the products of its two 16-bit lanes of `a` and `b`.
    unsafe fn add_pairs(sum: __m256i, a: __m256i, b: __m256i) -> __m256i;

    /// What [`sums_of_products`](Self::sums_of_products) takes the quants to lie above the elements.
    fn offset(kind: Quants) -> i32;

    /// Sums of the products of the 32 quants of each of eight blocks with the 32 activations that belong to it, each quant
    /// raised by [`offset`](Self::offset). Unsigned quants are below 32.
    unsafe fn sums_of_products(kind: Quants, blocks: [__m256i; 8], x: [__m256i; 8]) -> __m256i;
}

//! Products of the types that keep eight float sums a row, see [`Block::EIGHT_SUMS`]: a register a row and column.
//!
//! A 32-bit lane of a product in pairs holds four neighbouring elements of 32, which is the order that those types want:
//! nothing is summed across lanes but at the end of a row. The price is that each row and column has a register of its own
//! to convert and to scale, where elsewhere one serves eight or sixteen rows.
//!
//! Shared by the paths, as in [`rows`](super::rows).
//!
//! [`Block::EIGHT_SUMS`]: crate::quant::blocks::Block::EIGHT_SUMS

pub(super) mod blocks_256;
pub(super) mod blocks_32;

use crate::math;
use std::arch::x86_64::*;

/// Columns that share the unpacked blocks of a row; their sums lie on the stack.
const TILE_COLUMNS: usize = 64;

/// Sums of a row and a column: eight of products and one of minimums.
#[derive(Clone, Copy)]
struct Sums {
    products: __m256,
    mins: f32,
}

impl Sums {
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        Self { products: unsafe { _mm256_setzero_ps() }, mins: 0.0 }
    }

    /// Adds `scale` times the lanes of `products` and `min` times `min_product`.
    ///
    /// # Safety
    /// The processor has AVX2 and FMA.
    #[inline(always)]
    unsafe fn add(&mut self, scale: f32, products: __m256i, min: f32, min_product: f32) {
        // SAFETY: the caller has AVX2 and FMA.
        unsafe {
            self.products = _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(products), self.products);
        }
        self.mins = min.mul_add(min_product, self.mins);
    }

    /// Sum of the products, as [`math::sum_eight`].
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn product(&self) -> f32 {
        let mut lanes = [0.0; 8];
        // SAFETY: the array is 32 bytes; the caller has AVX2.
        unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), self.products) };
        math::sum_eight(lanes)
    }
}

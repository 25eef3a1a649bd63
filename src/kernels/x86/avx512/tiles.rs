//! Products of many columns in tiles of rows and columns.
//!
//! Each lane of a register is a row, so that nothing is summed across lanes. Two registers of rows and four columns are
//! multiplied at a time, their integers in registers: a vector of quants serves four columns, four activations serve 32
//! rows. Activations are first copied in the order in which tiles read them; else columns, which often lie a power of two
//! apart, would push each other out of the first-level cache. A block of weights is unpacked once for many columns.

use super::Product;
use super::lanes::{GROUPS, ROWS, to_array};
use crate::quant::Column;
use crate::quant::blocks::Block;
use std::arch::x86_64::*;
use std::ops::Range;

/// Columns of a tile.
pub(super) const COLUMNS: usize = 4;
/// Columns that share unpacked weights: their packed activations stay in the second-level cache.
const MOST_COLUMNS: usize = 128;

/// Float sums of a tile: of products and of minimums.
pub(super) type Sums = [[[__m512; 2]; GROUPS]; COLUMNS];

/// 256 activations of each column of a tile, in the order of use.
#[derive(Clone)]
#[repr(C, align(64))]
pub(super) struct PackedBlock {
    /// Four quants each.
    pub quads: [[i32; COLUMNS]; 64],
    /// Where sums of products start, if not at zero.
    pub starts: [[i32; COLUMNS]; 32],
    /// Pairs of 16-bit sums that are multiplied with minimums.
    pub pairs: [[i32; COLUMNS]; 8],
    pub scales: [[f32; COLUMNS]; 8],
    /// Scaled sums that are multiplied with minimums.
    pub scaled_sums: [[f32; COLUMNS]; 8],
}

impl PackedBlock {
    const EMPTY: Self = Self {
        quads: [[0; COLUMNS]; 64],
        starts: [[0; COLUMNS]; 32],
        pairs: [[0; COLUMNS]; 8],
        scales: [[0.0; COLUMNS]; 8],
        scaled_sums: [[0.0; COLUMNS]; 8],
    };
}

/// The blocks of 256 elements of the rows of a tile, unpacked; a row may end before.
///
/// # Safety
/// `unsafe` functions may only be called on a processor with AVX-512 F, BW, DQ, VL, VNNI and F16C.
pub(super) trait Panel {
    type Bytes: Block;

    unsafe fn zero() -> Self;

    /// Copies what belongs to the activations of panel `i` of `column`, but for the quants, to place `c` of `packed`.
    unsafe fn pack(column: &Column<'_>, i: usize, c: usize, packed: &mut PackedBlock);

    /// Unpacks panel `i` of the rows.
    unsafe fn unpack(&mut self, rows: &[&[Self::Bytes]; GROUPS * ROWS], i: usize);

    /// Adds the products with the first `C` columns of `x` to `sums`.
    unsafe fn multiply<const C: usize>(&self, x: &PackedBlock, sums: &mut Sums);

    /// The result of sums of products and of minimums.
    unsafe fn value(sums: [__m512; 2]) -> __m512;
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<P: Panel>(product: Product<'_>, rows: Range<usize>) {
    let n = product.columns.len();
    let n_panels = product.w.cols().div_ceil(256);
    if n_panels == 0 {
        let zeros = vec![0.0; rows.len()];
        return (0..n).for_each(|j| product.out.write_rows(j, rows.start, &zeros));
    }
    // Chunks of about the same size, so that none unpacks all weights for a few columns.
    let chunk = n.div_ceil(n.div_ceil(MOST_COLUMNS).max(1)).next_multiple_of(COLUMNS).max(COLUMNS);
    let n_tiles = n.min(chunk).div_ceil(COLUMNS);
    let mut packed = vec![PackedBlock::EMPTY; n_panels * n_tiles];
    let mut sums: Vec<Sums> = vec![[[[_mm512_setzero_ps(); 2]; GROUPS]; COLUMNS]; n_tiles];
    // SAFETY: this function has the features, here and below.
    let mut panel = unsafe { P::zero() };
    for (start, columns) in (0..n).step_by(chunk).zip(product.columns.chunks(chunk)) {
        let n_tiles = columns.len().div_ceil(COLUMNS);
        for i in 0..n_panels {
            for (packed, columns) in packed[i * n_tiles..].iter_mut().zip(columns.chunks(COLUMNS)) {
                packed.quads = turned_quads(columns, i);
                for (c, column) in columns.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { P::pack(column, i, c, packed) };
                }
            }
        }
        for first in rows.clone().step_by(GROUPS * ROWS) {
            let group: [&[P::Bytes]; GROUPS * ROWS] = product.rows(first, rows.end);
            sums.fill([[[_mm512_setzero_ps(); 2]; GROUPS]; COLUMNS]);
            for (i, packed) in packed[..n_panels * n_tiles].chunks_exact(n_tiles).enumerate() {
                // SAFETY: as above.
                unsafe { panel.unpack(&group, i) };
                for (tile, (x, sums)) in packed.iter().zip(&mut sums).enumerate() {
                    let n = COLUMNS.min(columns.len() - COLUMNS * tile);
                    let places = start + COLUMNS * tile..start + COLUMNS * tile + n;
                    if i + 2 == n_panels {
                        ask_for(product, places.clone(), first);
                    }
                    // SAFETY: as above.
                    unsafe {
                        match n {
                            1 => panel.multiply::<1>(x, sums),
                            2 => panel.multiply::<2>(x, sums),
                            3 => panel.multiply::<3>(x, sums),
                            _ => panel.multiply::<COLUMNS>(x, sums),
                        }
                    }
                    if i + 1 == n_panels {
                        store::<P>(product, places, first, rows.end, sums);
                    }
                }
            }
        }
    }
}

/// Asks for the cache lines of a tile's results, to be written: they are seldom in a cache, and stores wait for them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn ask_for(product: Product<'_>, columns: Range<usize>, first: usize) {
    for j in columns {
        for row in [first, first + ROWS, first + GROUPS * ROWS - 1] {
            _mm_prefetch::<_MM_HINT_ET0>(product.out.address(j, row).cast());
        }
    }
}

/// Stores the results of a tile, but for rows from `end` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn store<P: Panel>(product: Product<'_>, columns: Range<usize>, first: usize, end: usize, sums: &Sums) {
    for (j, sums) in columns.zip(sums) {
        for (g, sums) in sums.iter().enumerate() {
            // SAFETY: this function has the features.
            product.store(j, first + ROWS * g, end, &to_array(unsafe { P::value(*sums) }));
        }
    }
}

/// Quants of panel `i` of up to [`COLUMNS`] columns, four of each in turn; zeros where a column is missing or has ended.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn turned_quads(columns: &[Column<'_>], i: usize) -> [[i32; COLUMNS]; 64] {
    let mut turned = [[0; COLUMNS]; 64];
    let none: &[[i8; 16]] = &[];
    let mut quants = [none; COLUMNS];
    for (quants, column) in quants.iter_mut().zip(columns) {
        let sixteens = column.quants.as_chunks().0;
        *quants = &sixteens[16 * i..sixteens.len().min(16 * (i + 1))];
    }
    for (k, turned) in turned.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let mut rows = [_mm_setzero_si128(); COLUMNS];
        for (row, quants) in rows.iter_mut().zip(quants) {
            if let Some(quants) = quants.get(k) {
                // SAFETY: an array of 16 bytes is read.
                *row = unsafe { _mm_loadu_si128(quants.as_ptr().cast()) };
            }
        }
        let (low, high) = (_mm_unpacklo_epi32(rows[0], rows[1]), _mm_unpackhi_epi32(rows[0], rows[1]));
        let (low_more, high_more) = (_mm_unpacklo_epi32(rows[2], rows[3]), _mm_unpackhi_epi32(rows[2], rows[3]));
        let quads = [
            _mm_unpacklo_epi64(low, low_more),
            _mm_unpackhi_epi64(low, low_more),
            _mm_unpacklo_epi64(high, high_more),
            _mm_unpackhi_epi64(high, high_more),
        ];
        for (turned, quads) in turned.iter_mut().zip(quads) {
            // SAFETY: an array of four words is written.
            unsafe { _mm_storeu_si128(turned.as_mut_ptr().cast(), quads) };
        }
    }
    turned
}

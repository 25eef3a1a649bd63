//! Products of the types with blocks of 32.

use super::super::unpack::{Unpack32, prefetch};
use super::super::{eight_sums, rows};
use super::Product;
use super::lanes::{GROUPS, ROWS, offset, transpose, unsigned};
use super::multiply::Vnni;
use super::tiles::{self, COLUMNS, PackedBlock, Panel, Sums};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::marker::PhantomData;
use std::ops::Range;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    if B::EIGHT_SUMS {
        // SAFETY: this function has the features.
        return unsafe { eight_sums::blocks_32::matmul::<Vnni, B>(product, rows) };
    }
    if let [x] = product.columns {
        // SAFETY: this function has the features.
        return unsafe { rows::blocks_32::matmul::<Vnni, B>(product, rows, x) };
    }
    tiles::matmul::<Blocks<B>>(product, rows);
}

/// Up to eight neighbouring blocks of each of the rows of a tile, a lane a row.
struct Blocks<B> {
    blocks: [[Unpacked; GROUPS]; 8],
    /// Blocks in use: fewer than eight at the end of a row.
    n: usize,
    ty: PhantomData<B>,
}

/// A block of 16 rows.
#[derive(Clone, Copy)]
struct Unpacked {
    /// Vectors of four quants a row.
    quads: [__m512i; 8],
    scales: __m512,
    /// Added minimums.
    mins: __m512,
}

impl<B: Unpack32> Panel for Blocks<B> {
    type Bytes = B;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512.
        let (integers, floats) = unsafe { (_mm512_setzero_si512(), _mm512_setzero_ps()) };
        let block = Unpacked { quads: [integers; 8], scales: floats, mins: floats };
        Self { blocks: [[block; GROUPS]; 8], n: 0, ty: PhantomData }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn pack(column: &Column<'_>, i: usize, c: usize, packed: &mut PackedBlock) {
        let blocks = 8 * i..column.scales.len().min(8 * (i + 1));
        let sums = column.sums[2 * blocks.start..2 * blocks.end].as_chunks::<2>().0;
        for (to, [a, b]) in packed.starts.iter_mut().zip(sums) {
            to[c] = -offset(B::QUANTS) * (i32::from(*a) + i32::from(*b));
        }
        for (to, scale) in packed.scales.iter_mut().zip(&column.scales[blocks.clone()]) {
            to[c] = *scale;
        }
        if B::HAS_MIN {
            for (to, sum) in packed.scaled_sums.iter_mut().zip(&column.scaled_sums[blocks]) {
                to[c] = *sum;
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn unpack(&mut self, rows: &[&[B]; GROUPS * ROWS], i: usize) {
        let blocks = 8 * i..rows[0].len().min(8 * (i + 1));
        self.n = blocks.len();
        for (i, unpacked) in blocks.zip(&mut self.blocks) {
            for (rows, unpacked) in rows.as_chunks::<ROWS>().0.iter().zip(unpacked) {
                let mut quants = [_mm256_setzero_si256(); ROWS];
                for (quants, row) in quants.iter_mut().zip(rows) {
                    prefetch(&row[i], size_of_val(*row) * GROUPS * ROWS);
                    // SAFETY: this function has AVX2.
                    *quants = unsigned(B::QUANTS, unsafe { row[i].quants() });
                }
                let [scales, mins] = scales_and_mins(rows, i);
                *unpacked = Unpacked { quads: transpose(&quants), scales, mins };
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn multiply<const C: usize>(&self, x: &PackedBlock, sums: &mut Sums) {
        let mut totals: [[[__m512; 2]; GROUPS]; C] = std::array::from_fn(|c| sums[c]);
        for (i, blocks) in self.blocks[..self.n].iter().enumerate() {
            let quads: &[[i32; COLUMNS]; 8] = &x.quads.as_chunks().0[i];
            let mut integers = [[_mm512_setzero_si512(); GROUPS]; C];
            if offset(B::QUANTS) != 0 {
                for (integers, start) in integers.iter_mut().zip(x.starts[i]) {
                    *integers = [_mm512_set1_epi32(start); GROUPS];
                }
            }
            for (q, quads) in quads.iter().enumerate() {
                for (integers, quad) in integers.iter_mut().zip(quads) {
                    let x = _mm512_set1_epi32(*quad);
                    for (integers, block) in integers.iter_mut().zip(blocks) {
                        *integers = _mm512_dpbusd_epi32(*integers, block.quads[q], x);
                    }
                }
            }
            for c in 0..C {
                for g in 0..GROUPS {
                    let [total, min_total] = &mut totals[c][g];
                    let factors = _mm512_mul_ps(blocks[g].scales, _mm512_set1_ps(x.scales[i][c]));
                    *total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(integers[c][g]), *total);
                    if B::HAS_MIN {
                        let sum = _mm512_set1_ps(x.scaled_sums[i][c]);
                        *min_total = _mm512_fmadd_ps(blocks[g].mins, sum, *min_total);
                    }
                }
            }
        }
        sums[..C].copy_from_slice(&totals);
    }

    #[inline(always)]
    unsafe fn value([total, min_total]: [__m512; 2]) -> __m512 {
        // SAFETY: the caller has AVX-512.
        if B::HAS_MIN { unsafe { _mm512_add_ps(total, min_total) } } else { total }
    }
}

/// Scales and added minimums of block `i` of 16 rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn scales_and_mins<B: Unpack32>(rows: &[&[B]; ROWS], i: usize) -> [__m512; 2] {
    let (low, high) = (std::array::from_fn(|r| &rows[r][i]), std::array::from_fn(|r| &rows[8 + r][i]));
    // SAFETY: this function has AVX2 and F16C.
    let ((scales, mins), (high_scales, high_mins)) = unsafe { (B::scales_and_mins(low), B::scales_and_mins(high)) };
    let join = |low, high| _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high);
    [join(scales, high_scales), join(mins, high_mins)]
}

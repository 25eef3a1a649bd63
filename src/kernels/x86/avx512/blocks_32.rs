//! Products of the types with blocks of 32.

use super::super::rows;
use super::super::unpack::{Unpack32, prefetch};
use super::Product;
use super::lanes::{ROWS, add_products, offset, to_array, transpose, unsigned};
use super::multiply::Vnni;
use std::arch::x86_64::*;
use std::ops::Range;

/// Columns that share an unpacked block; their sums lie on the stack.
const COLUMNS: usize = 64;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<B: Unpack32>(product: Product<'_>, rows: Range<usize>) {
    if let [x] = product.columns {
        // SAFETY: this function has the features.
        return unsafe { rows::blocks_32::matmul::<Vnni, B>(product, rows, x) };
    }
    for first in rows.clone().step_by(ROWS) {
        let group: [&[B]; ROWS] = product.rows(first, rows.end);
        for start in (0..product.columns.len()).step_by(COLUMNS) {
            add_columns(product, &group, start, first, rows.end);
        }
    }
}

/// Products of 16 rows and up to [`COLUMNS`] columns from `start` on.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_columns<B: Unpack32>(product: Product<'_>, rows: &[&[B]; ROWS], start: usize, first: usize, end: usize) {
    let n_blocks = product.w.cols() / 32;
    let columns = &product.columns[start..product.columns.len().min(start + COLUMNS)];
    let mut totals = [[_mm512_setzero_ps(); 2]; COLUMNS];
    for i in 0..n_blocks {
        let mut quants = [_mm256_setzero_si256(); ROWS];
        for (quants, row) in quants.iter_mut().zip(rows) {
            let block = &row[i];
            prefetch(block, ROWS * n_blocks * size_of::<B>());
            // SAFETY: this function has AVX2.
            *quants = unsigned(B::QUANTS, unsafe { block.quants() });
        }
        let quants = transpose(&quants);
        let [scales, mins] = scales_and_mins(rows, i);
        for (x, [total, min_total]) in columns.iter().zip(&mut totals) {
            let sum = i32::from(x.sums[2 * i]) + i32::from(x.sums[2 * i + 1]);
            let activations: &[[u8; 4]; 8] = bytemuck::cast_ref(&x.quants.as_chunks::<32>().0[i]);
            let integers = add_products(-offset(B::QUANTS) * sum, &quants, activations);
            let factors = _mm512_mul_ps(scales, _mm512_set1_ps(x.scales[i]));
            *total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(integers), *total);
            if B::HAS_MIN {
                *min_total = _mm512_fmadd_ps(mins, _mm512_set1_ps(x.scaled_sums[i]), *min_total);
            }
        }
    }
    for (j, [total, min_total]) in totals[..columns.len()].iter().enumerate() {
        let values = if B::HAS_MIN { _mm512_add_ps(*total, *min_total) } else { *total };
        product.store(start + j, first, end, &to_array(values));
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

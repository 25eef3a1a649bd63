//! The definition of right: plain loops in the order that every other path must keep.
//!
//! The bodies are `#[inline(always)]`, so that another path can compile them for its instruction set.

use super::{ByteScales, FloatProduct, Kernels, OutColumns, assert_shapes, attention};
use crate::math;
use crate::quant::blocks::*;
use crate::quant::{self, ActivationFormat, Activations, Column, ColumnMut, TensorType, WeightRows};
use half::{bf16, f16};
use std::ops::Range;

/// Plain Rust for any processor.
#[derive(Debug)]
pub(super) struct Scalar;

impl Kernels for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn quantize(&self, x: &[f32], column: ColumnMut<'_>) {
        quant::quantize(x, column);
    }

    fn matmul(&self, w: &WeightRows<'_>, rows: Range<usize>, x: &Activations, columns: &[u32], out: &OutColumns<'_>) {
        assert_shapes(w, &rows, x, columns, out);
        let columns: Vec<Column<'_>> = columns.iter().map(|column| x.column(*column as usize)).collect();
        match w.ty() {
            TensorType::F32 => numbers(w, rows, &columns, out, f32::from_le_bytes),
            TensorType::F16 => numbers(w, rows, &columns, out, |bytes| f16::from_le_bytes(bytes).to_f32()),
            TensorType::BF16 => numbers(w, rows, &columns, out, |bytes| bf16::from_le_bytes(bytes).to_f32()),
            TensorType::Q4_0 => blocks::<BlockQ4_0>(w, rows, &columns, out),
            TensorType::Q4_1 => blocks::<BlockQ4_1>(w, rows, &columns, out),
            TensorType::Q5_0 => blocks::<BlockQ5_0>(w, rows, &columns, out),
            TensorType::Q5_1 => blocks::<BlockQ5_1>(w, rows, &columns, out),
            TensorType::Q8_0 => blocks::<BlockQ8_0>(w, rows, &columns, out),
            TensorType::IQ4_NL => blocks::<BlockIq4Nl>(w, rows, &columns, out),
            TensorType::MXFP4 => blocks::<BlockMxfp4>(w, rows, &columns, out),
            TensorType::Q2_K => blocks::<BlockQ2K>(w, rows, &columns, out),
            TensorType::Q3_K => blocks::<BlockQ3K>(w, rows, &columns, out),
            TensorType::Q4_K => blocks::<BlockQ4K>(w, rows, &columns, out),
            TensorType::Q5_K => blocks::<BlockQ5K>(w, rows, &columns, out),
            TensorType::Q6_K => blocks::<BlockQ6K>(w, rows, &columns, out),
            TensorType::IQ4_XS => blocks::<BlockIq4Xs>(w, rows, &columns, out),
            TensorType::IQ3_S => blocks::<BlockIq3S>(w, rows, &columns, out),
            // `assert_shapes` lets through only types with an activation format.
            ty => unreachable!("{ty} weights cannot be multiplied"),
        }
    }

    fn add_product(&self, product: FloatProduct<'_>) {
        product.assert_shapes();
        let FloatProduct { rows, inner, width, a, a_stride, b, out, out_stride } = product;
        for row in 0..rows {
            let out = &mut out[row * out_stride..][..width];
            for (a, b) in a[row * a_stride..][..inner].iter().zip(b.chunks_exact(width.max(1))) {
                for (out, b) in out.iter_mut().zip(b) {
                    *out = a.mul_add(*b, *out);
                }
            }
        }
    }

    fn scores(&self, product: FloatProduct<'_>) {
        product.assert_shapes();
        let FloatProduct { rows, inner, width, a, a_stride, b, out, out_stride } = product;
        for row in 0..rows {
            let a = &a[row * a_stride..][..inner];
            for (j, out) in out[row * out_stride..][..width].iter_mut().enumerate() {
                let mut lanes = [0.0f32; math::LANES];
                for (i, a) in a.iter().enumerate() {
                    let lane = &mut lanes[i % math::LANES];
                    *lane = a.mul_add(b[i * width + j], *lane);
                }
                *out = math::sum_lanes(lanes);
            }
        }
    }

    fn widen_f16(&self, x: &[f16], out: &mut [f32]) {
        assert_eq!(x.len(), out.len());
        out.iter_mut().zip(x).for_each(|(out, x)| *out = x.to_f32());
    }

    fn widen_bytes(&self, x: &[i8], scales: ByteScales<'_>, out: &mut [f32]) {
        attention::widen_bytes(x, scales, out);
    }

    fn softmax_part(&self, x: &mut [f32], scale: f32) -> (f32, f32) {
        math::softmax_part(x, scale)
    }

    fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        math::rms_norm(x, weight, eps, out);
    }

    fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        math::silu_mul(gate, up);
    }
}

/// Dot product of numbers of `N` bytes and `x`: element `i` goes into lane `i mod 64`.
#[inline(always)]
fn dot_numbers<const N: usize>(row: &[u8], x: &[f32], value: impl Fn([u8; N]) -> f32) -> f32 {
    let row = row.as_chunks::<N>().0;
    assert_eq!(row.len(), x.len());
    let mut lanes = [0.0f32; math::WIDE_LANES];
    for (row, x) in row.chunks(math::WIDE_LANES).zip(x.chunks(math::WIDE_LANES)) {
        for ((lane, w), x) in lanes.iter_mut().zip(row).zip(x) {
            *lane = value(*w).mul_add(*x, *lane);
        }
    }
    math::sum_wide_lanes(&lanes)
}

fn numbers<const N: usize>(
    w: &WeightRows<'_>,
    rows: Range<usize>,
    columns: &[Column<'_>],
    out: &OutColumns<'_>,
    value: impl Fn([u8; N]) -> f32,
) {
    for row in rows {
        for (j, x) in columns.iter().enumerate() {
            out.write(j, row, dot_numbers(w.row(row), x.floats, &value));
        }
    }
}

fn blocks<B: Block>(w: &WeightRows<'_>, rows: Range<usize>, columns: &[Column<'_>], out: &OutColumns<'_>) {
    if B::EIGHT_SUMS {
        return blocks_in_eight_sums::<B>(w, rows, columns, out);
    }
    let mut block = Unpacked::new();
    let mut sums = vec![[0.0f32; 2]; columns.len()];
    for row in rows {
        sums.fill([0.0; 2]);
        for (i, bytes) in bytemuck::cast_slice::<u8, B>(w.row(row)).iter().enumerate() {
            bytes.unpack(&mut block);
            for (sums, x) in sums.iter_mut().zip(columns) {
                add_block::<B>(&block, x, i, sums);
            }
        }
        for (j, [sum, min_sum]) in sums.iter().enumerate() {
            let value = match B::TYPE.activation_format() {
                Some(ActivationFormat::Q8_1) => sum + min_sum,
                _ if B::HAS_MIN => sum - min_sum,
                _ => *sum,
            };
            out.write(j, row, value);
        }
    }
}

fn blocks_in_eight_sums<B: Block>(
    w: &WeightRows<'_>,
    rows: Range<usize>,
    columns: &[Column<'_>],
    out: &OutColumns<'_>,
) {
    let mut block = Unpacked::new();
    for row in rows {
        for (j, x) in columns.iter().enumerate() {
            let (mut sums, mut min_sum) = ([0.0f32; 8], 0.0);
            for (i, bytes) in bytemuck::cast_slice::<u8, B>(w.row(row)).iter().enumerate() {
                bytes.unpack(&mut block);
                let mut products = [0i32; 8];
                for (e, (w, x)) in block.quants.iter().zip(&x.quants[i * B::LEN..(i + 1) * B::LEN]).enumerate() {
                    products[e % 32 / 4] += i32::from(block.scales[e / 16]) * i32::from(*w) * i32::from(*x);
                }
                for (sum, product) in sums.iter_mut().zip(products) {
                    *sum = (block.scale * x.scales[i]).mul_add(product as f32, *sum);
                }
                add_min::<B>(&block, x, i, &mut min_sum);
            }
            let sum = math::sum_eight(sums);
            out.write(j, row, if B::LEN == 32 { sum + min_sum } else { sum - min_sum });
        }
    }
}

/// Adds block `i` to the two sums of a row and a column: that of products and that of minimums.
#[inline(always)]
fn add_block<B: Block>(block: &Unpacked, x: &Column<'_>, i: usize, [sum, min_sum]: &mut [f32; 2]) {
    let quants = x.quants[i * B::LEN..(i + 1) * B::LEN].as_chunks::<16>().0;
    let mut product = 0i32;
    for ((w, x), scale) in block.quants.as_chunks::<16>().0.iter().zip(quants).zip(block.scales) {
        let dot = w.iter().zip(x).fold(0, |dot, (w, x)| dot + i32::from(*w) * i32::from(*x));
        product += i32::from(scale) * dot;
    }
    *sum = (block.scale * x.scales[i]).mul_add(product as f32, *sum);
    add_min::<B>(block, x, i, min_sum);
}

/// Adds the minimum of block `i`, if the format has one, to the sum of a row and a column.
#[inline(always)]
fn add_min<B: Block>(block: &Unpacked, x: &Column<'_>, i: usize, min_sum: &mut f32) {
    if B::HAS_MIN && B::LEN == 32 {
        // The format adds its minimum, `Unpacked` subtracts it.
        *min_sum = (-block.min).mul_add(x.scaled_sums[i], *min_sum);
    } else if B::HAS_MIN {
        let sums = &x.sums[16 * i..16 * (i + 1)];
        let total = sums.iter().zip(block.mins).fold(0, |total, (sum, min)| total + i32::from(*sum) * i32::from(min));
        *min_sum = (block.min * x.scales[i]).mul_add(total as f32, *min_sum);
    }
}

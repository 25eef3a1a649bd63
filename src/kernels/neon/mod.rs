//! Paths for 64-bit ARM processors: NEON alone, with the dot product (`sdot`), and with matrix products (`smmla`).
//!
//! They share all but how integers are multiplied ([`multiply`]). Vectors hold four 32-bit lanes, and a lane is a row
//! wherever floats are added: four rows at a time, with one column or with several.
#![allow(unsafe_code)] // Vector loads take raw pointers, and the features are proven at run time.

mod blocks_256;
mod blocks_32;
mod eight_sums;
mod multiply;
mod numbers;
mod quantize;
mod unpack;

use super::{ByteScales, FloatProduct, Kernels, OutColumns, assert_shapes, scalar};
use crate::math;
use crate::quant::blocks::*;
use crate::quant::{Activations, Column, ColumnMut, TensorType, WeightRows};
use half::f16;
use multiply::{Dot, Long, Matrix, Multiply};
use std::marker::PhantomData;
use std::ops::Range;

/// Rows that are multiplied at once, one a lane.
const ROWS: usize = 4;

/// The paths that this processor can run, in order of speed.
pub(super) fn available() -> Vec<Box<dyn Kernels>> {
    let mut paths: Vec<Box<dyn Kernels>> = Vec::new();
    if let Some(path) = Neon::<Long>::detect() {
        paths.push(Box::new(path));
    }
    if let Some(path) = Neon::<Dot>::detect() {
        paths.push(Box::new(path));
    }
    if let Some(path) = Neon::<Matrix>::detect() {
        paths.push(Box::new(path));
    }
    paths
}

/// The proof that the processor has NEON and what `M` needs.
#[derive(Debug)]
struct Neon<M>(PhantomData<M>);

impl<M: Multiply> Neon<M> {
    fn detect() -> Option<Self> {
        M::is_supported().then_some(Self(PhantomData))
    }
}

impl<M: Multiply> Kernels for Neon<M> {
    fn name(&self) -> &'static str {
        M::NAME
    }

    fn quantize(&self, x: &[f32], column: ColumnMut<'_>) {
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe { quantize::quantize(x, column) }
    }

    fn matmul(&self, w: &WeightRows<'_>, rows: Range<usize>, x: &Activations, columns: &[u32], out: &OutColumns<'_>) {
        assert_shapes(w, &rows, x, columns, out);
        let columns: Vec<Column<'_>> = columns.iter().map(|column| x.column(*column as usize)).collect();
        let product = Product { w, columns: &columns, out };
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe {
            match w.ty() {
                TensorType::F32 => numbers::matmul::<numbers::F32>(product, rows),
                TensorType::F16 => numbers::matmul::<numbers::F16>(product, rows),
                TensorType::BF16 => numbers::matmul::<numbers::Bf16>(product, rows),
                TensorType::Q4_0 => M::blocks_32::<BlockQ4_0>(product, rows),
                TensorType::Q4_1 => M::blocks_32::<BlockQ4_1>(product, rows),
                TensorType::Q5_0 => M::blocks_32::<BlockQ5_0>(product, rows),
                TensorType::Q5_1 => M::blocks_32::<BlockQ5_1>(product, rows),
                TensorType::Q8_0 => M::blocks_32::<BlockQ8_0>(product, rows),
                TensorType::IQ4_NL => M::blocks_32::<BlockIq4Nl>(product, rows),
                TensorType::MXFP4 => M::blocks_32::<BlockMxfp4>(product, rows),
                TensorType::Q2_K => M::blocks_256::<BlockQ2K>(product, rows),
                TensorType::Q3_K => M::blocks_256::<BlockQ3K>(product, rows),
                TensorType::Q4_K => M::blocks_256::<BlockQ4K>(product, rows),
                TensorType::Q5_K => M::blocks_256::<BlockQ5K>(product, rows),
                TensorType::Q6_K => M::blocks_256::<BlockQ6K>(product, rows),
                TensorType::IQ4_XS => M::blocks_256::<BlockIq4Xs>(product, rows),
                TensorType::IQ3_S => M::blocks_256::<BlockIq3S>(product, rows),
                // `assert_shapes` lets through only types with an activation format.
                ty => unreachable!("{ty} weights cannot be multiplied"),
            }
        }
    }

    // NEON and its fused multiply-add belong to every 64-bit ARM target: the compiler already makes vectors of these.

    fn add_product(&self, product: FloatProduct<'_>) {
        scalar::Scalar.add_product(product);
    }

    fn scores(&self, product: FloatProduct<'_>) {
        scalar::Scalar.scores(product);
    }

    fn widen_f16(&self, x: &[f16], out: &mut [f32]) {
        scalar::Scalar.widen_f16(x, out);
    }

    fn widen_bytes(&self, x: &[i8], scales: ByteScales<'_>, out: &mut [f32]) {
        scalar::Scalar.widen_bytes(x, scales, out);
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

/// A product whose shapes have been checked.
#[derive(Clone, Copy)]
struct Product<'a> {
    w: &'a WeightRows<'a>,
    columns: &'a [Column<'a>],
    out: &'a OutColumns<'a>,
}

impl<'a> Product<'a> {
    /// Rows `first` to `first + R`; from `end` on the last one before it stands in, so that a group is always whole.
    #[inline(always)]
    fn rows<B: bytemuck::Pod, const R: usize>(&self, first: usize, end: usize) -> [&'a [B]; R] {
        std::array::from_fn(|r| bytemuck::cast_slice(self.w.row((first + r).min(end - 1))))
    }

    /// The columns in pairs; the last of an odd number stands in for its missing neighbour.
    fn pairs(&self) -> Vec<[Column<'a>; 2]> {
        self.columns.chunks(2).map(|pair| [pair[0], pair[pair.len() - 1]]).collect()
    }

    /// Stores the values of rows `first ..` of column `j`, but for those from `end` on and columns that stood in.
    #[inline(always)]
    fn store(&self, j: usize, first: usize, end: usize, values: &[f32]) {
        if j < self.columns.len() {
            for (row, value) in (first..end).zip(values) {
                self.out.write(j, row, *value);
            }
        }
    }
}

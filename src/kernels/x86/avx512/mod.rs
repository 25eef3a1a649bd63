//! AVX-512 with VNNI: Intel since Ice Lake (2019), AMD since Zen 4 (2022).
//!
//! For several columns, sixteen rows lie in the 16 lanes of a register, so that nothing is summed across lanes: four quants
//! of each row are one vector, and one instruction multiplies them with the same four activations and adds; see
//! [`tiles`]. One column does not repay the turning of rows into lanes: see [`rows`](super::rows). Functions whose time is
//! not spent there are those of AVX2, which gives the same bits.

mod attention;
mod blocks_256;
mod blocks_32;
mod lanes;
mod multiply;
mod numbers;
mod tiles;

use super::super::{ByteScales, FloatProduct, Kernels, OutColumns, assert_shapes};
use super::Product;
use super::avx2::Avx2;
use crate::quant::blocks::*;
use crate::quant::{Activations, Column, ColumnMut, TensorType, WeightRows};
use half::f16;
use std::ops::Range;

/// The proof that the processor has AVX-512 F, BW, DQ, VL and VNNI, and all that AVX2's path needs.
#[derive(Debug)]
pub(super) struct Avx512Vnni {
    avx2: Avx2,
}

impl Avx512Vnni {
    pub(super) fn detect() -> Option<Self> {
        let avx2 = Avx2::detect()?;
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni");
        has_all.then_some(Self { avx2 })
    }
}

impl Kernels for Avx512Vnni {
    fn name(&self) -> &'static str {
        "avx512-vnni"
    }

    fn quantize(&self, x: &[f32], column: ColumnMut<'_>) {
        self.avx2.quantize(x, column);
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
                TensorType::Q4_0 => blocks_32::matmul::<BlockQ4_0>(product, rows),
                TensorType::Q4_1 => blocks_32::matmul::<BlockQ4_1>(product, rows),
                TensorType::Q5_0 => blocks_32::matmul::<BlockQ5_0>(product, rows),
                TensorType::Q5_1 => blocks_32::matmul::<BlockQ5_1>(product, rows),
                TensorType::Q8_0 => blocks_32::matmul::<BlockQ8_0>(product, rows),
                TensorType::IQ4_NL => blocks_32::matmul::<BlockIq4Nl>(product, rows),
                TensorType::MXFP4 => blocks_32::matmul::<BlockMxfp4>(product, rows),
                TensorType::Q2_K => blocks_256::matmul::<BlockQ2K>(product, rows),
                TensorType::Q3_K => blocks_256::matmul::<BlockQ3K>(product, rows),
                TensorType::Q4_K => blocks_256::matmul::<BlockQ4K>(product, rows),
                TensorType::Q5_K => blocks_256::matmul::<BlockQ5K>(product, rows),
                TensorType::Q6_K => blocks_256::matmul::<BlockQ6K>(product, rows),
                TensorType::IQ4_XS => blocks_256::matmul::<BlockIq4Xs>(product, rows),
                TensorType::IQ3_S => blocks_256::matmul::<BlockIq3S>(product, rows),
                // `assert_shapes` lets through only types with an activation format.
                ty => unreachable!("{ty} weights cannot be multiplied"),
            }
        }
    }

    fn add_product(&self, product: FloatProduct<'_>) {
        product.assert_shapes();
        // SAFETY: `self` comes only from `detect`, which saw the features; the shapes were checked.
        unsafe { attention::add_product(product) }
    }

    fn scores(&self, product: FloatProduct<'_>) {
        product.assert_shapes();
        // SAFETY: `self` comes only from `detect`, which saw the features; the shapes were checked.
        unsafe { attention::scores(product) }
    }

    fn widen_f16(&self, x: &[f16], out: &mut [f32]) {
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe { attention::widen_f16(x, out) }
    }

    fn widen_bytes(&self, x: &[i8], scales: ByteScales<'_>, out: &mut [f32]) {
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe { attention::widen_bytes(x, scales, out) }
    }

    fn softmax_part(&self, x: &mut [f32], scale: f32) -> (f32, f32) {
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe { attention::softmax_part(x, scale) }
    }

    fn rms_norm(&self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        self.avx2.rms_norm(x, weight, eps, out);
    }

    fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        self.avx2.silu_mul(gate, up);
    }
}

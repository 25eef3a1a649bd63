//! AVX2 with FMA and F16C: every x86-64 processor since 2013 (Intel) and 2015 (AMD).
//!
//! Every type has its own loops here; none falls back to scalar ones.

mod attention;
mod blocks_256;
mod blocks_32;
mod numbers;
mod quantize;
mod reduce;

use super::super::{ByteScales, FloatProduct, Kernels, OutColumns, assert_shapes};
use super::Product;
use crate::math;
use crate::quant::blocks::*;
use crate::quant::{Activations, Column, ColumnMut, TensorType, WeightRows};
use half::f16;
use std::ops::Range;

/// The proof that the processor has AVX2, FMA and F16C.
#[derive(Debug)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        (has_all && is_x86_feature_detected!("f16c")).then_some(Self(()))
    }
}

impl Kernels for Avx2 {
    fn name(&self) -> &'static str {
        "avx2"
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
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe { rms_norm(x, weight, eps, out) }
    }

    fn silu_mul(&self, gate: &mut [f32], up: &[f32]) {
        // SAFETY: `self` comes only from `detect`, which saw the features.
        unsafe { silu_mul(gate, up) }
    }
}

// The bodies of `math`, compiled with wide registers and fused multiply-add.

#[target_feature(enable = "avx2,fma,f16c")]
fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    math::rms_norm(x, weight, eps, out);
}

#[target_feature(enable = "avx2,fma,f16c")]
fn silu_mul(gate: &mut [f32], up: &[f32]) {
    math::silu_mul(gate, up);
}

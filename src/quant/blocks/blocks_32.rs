//! Blocks of 32 elements with one scale.

use super::{Block, IQ4_VALUES, MXFP4_VALUES, Unpacked, f16_to_f32, half_of_e8m0};
use crate::quant::TensorType;
use bytemuck::{Pod, Zeroable};

/// 4-bit quants around 8.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_0 {
    /// Scale, f16.
    pub d: [u8; 2],
    /// Elements 0..16 in the low halves, 16..32 in the high ones.
    pub qs: [u8; 16],
}

/// 4-bit quants with a minimum.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4_1 {
    /// Scale, f16.
    pub d: [u8; 2],
    /// Value of quant 0, f16.
    pub m: [u8; 2],
    /// As in [`BlockQ4_0`].
    pub qs: [u8; 16],
}

/// 5-bit quants around 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_0 {
    /// Scale, f16.
    pub d: [u8; 2],
    /// Fifth bit of each element, the first in the lowest bit.
    pub qh: [u8; 4],
    /// As in [`BlockQ4_0`].
    pub qs: [u8; 16],
}

/// 5-bit quants with a minimum.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5_1 {
    /// Scale, f16.
    pub d: [u8; 2],
    /// Value of quant 0, f16.
    pub m: [u8; 2],
    /// As in [`BlockQ5_0`].
    pub qh: [u8; 4],
    /// As in [`BlockQ4_0`].
    pub qs: [u8; 16],
}

/// Signed bytes.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ8_0 {
    /// Scale, f16.
    pub d: [u8; 2],
    /// The elements.
    pub qs: [i8; 32],
}

/// 4-bit indices into [`IQ4_VALUES`].
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Nl {
    /// Scale, f16.
    pub d: [u8; 2],
    /// Indices, placed as in [`BlockQ4_0`].
    pub qs: [u8; 16],
}

/// 4-bit floats with a shared power of two.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockMxfp4 {
    /// Exponent of the scale, biased by 127; see [`half_of_e8m0`].
    pub e: u8,
    /// Indices into [`MXFP4_VALUES`], placed as in [`BlockQ4_0`].
    pub qs: [u8; 16],
}

impl Block for BlockQ4_0 {
    const TYPE: TensorType = TensorType::Q4_0;
    const LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        halves(&self.qs, &mut out.quants, |q| q as i8 - 8);
    }
}

impl Block for BlockQ4_1 {
    const TYPE: TensorType = TensorType::Q4_1;
    const LEN: usize = 32;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        // The format adds its minimum.
        out.min = -f16_to_f32(self.m);
        halves(&self.qs, &mut out.quants, |q| q as i8);
    }
}

impl Block for BlockQ5_0 {
    const TYPE: TensorType = TensorType::Q5_0;
    const LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        halves(&self.qs, &mut out.quants, |q| q as i8 - 16);
        add_fifth_bits(self.qh, &mut out.quants);
    }
}

impl Block for BlockQ5_1 {
    const TYPE: TensorType = TensorType::Q5_1;
    const LEN: usize = 32;
    const HAS_MIN: bool = true;
    const EIGHT_SUMS: bool = true;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        out.min = -f16_to_f32(self.m);
        halves(&self.qs, &mut out.quants, |q| q as i8);
        add_fifth_bits(self.qh, &mut out.quants);
    }
}

impl Block for BlockQ8_0 {
    const TYPE: TensorType = TensorType::Q8_0;
    const LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        out.quants[..32].copy_from_slice(&self.qs);
    }
}

impl Block for BlockIq4Nl {
    const TYPE: TensorType = TensorType::IQ4_NL;
    const LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        halves(&self.qs, &mut out.quants, |q| IQ4_VALUES[usize::from(q)]);
    }
}

impl Block for BlockMxfp4 {
    const TYPE: TensorType = TensorType::MXFP4;
    const LEN: usize = 32;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = half_of_e8m0(self.e);
        halves(&self.qs, &mut out.quants, |q| MXFP4_VALUES[usize::from(q)]);
    }
}

/// Writes `value` of the low halves of `bytes`, then of the high ones, to the first 32 of `out`.
#[inline(always)]
pub(super) fn halves(bytes: &[u8; 16], out: &mut [i8], value: impl Fn(u8) -> i8) {
    let (low, high) = out[..32].split_at_mut(16);
    for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
        (*low, *high) = (value(byte & 0x0f), value(byte >> 4));
    }
}

#[inline(always)]
fn add_fifth_bits(bits: [u8; 4], quants: &mut [i8; 256]) {
    let bits = u32::from_le_bytes(bits);
    for (i, quant) in quants[..32].iter_mut().enumerate() {
        *quant += ((bits >> i & 1) << 4) as i8;
    }
}

//! Blocks of 256 elements with integer scales for each 16 or 32 of them.

use super::{Block, Unpacked, f16_to_f32};
use crate::quant::TensorType;
use bytemuck::{Pod, Zeroable};

/// 2-bit quants; a 4-bit scale and minimum for each 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ2K {
    /// Scale (low half) and minimum (high half) of each 16 elements.
    pub scales: [u8; 16],
    /// 32 bytes for each 128 elements; bits 2g and 2g+1 hold the elements of the half's group g of 32.
    pub qs: [u8; 64],
    /// Scale of the scales, f16.
    pub d: [u8; 2],
    /// Scale of the minimums, f16.
    pub dmin: [u8; 2],
}

/// 3-bit quants around 4; a 6-bit scale around 32 for each 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ3K {
    /// Third bit of each element: byte l, bit g is element l of group g of 32. A clear bit subtracts 4.
    pub hmask: [u8; 32],
    /// Lower two bits, placed as in [`BlockQ2K`].
    pub qs: [u8; 64],
    /// 16 scales of 6 bits: low halves in bytes 0..8 (8 low, 8 high), upper two bits in bytes 8..12.
    pub scales: [u8; 12],
    /// Scale of the scales, f16.
    pub d: [u8; 2],
}

/// 4-bit quants; a 6-bit scale and minimum for each 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ4K {
    /// Scale of the scales, f16.
    pub d: [u8; 2],
    /// Scale of the minimums, f16.
    pub dmin: [u8; 2],
    /// See [`scales_and_mins`].
    pub scales: [u8; 12],
    /// 32 bytes for each 64 elements: the first 32 in the low halves, the others in the high ones.
    pub qs: [u8; 128],
}

/// 5-bit quants; a 6-bit scale and minimum for each 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ5K {
    /// Scale of the scales, f16.
    pub d: [u8; 2],
    /// Scale of the minimums, f16.
    pub dmin: [u8; 2],
    /// See [`scales_and_mins`].
    pub scales: [u8; 12],
    /// Fifth bit of each element: byte l, bit g is element l of group g of 32.
    pub qh: [u8; 32],
    /// Lower four bits, placed as in [`BlockQ4K`].
    pub qs: [u8; 128],
}

/// 6-bit quants around 32; an 8-bit scale for each 16.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockQ6K {
    /// Lower four bits: 64 bytes for each 128 elements, the first 64 in the low halves, the others in the high ones.
    pub ql: [u8; 128],
    /// Upper two bits: 32 bytes for each 128 elements; bits 2g and 2g+1 belong to the half's group g of 32.
    pub qh: [u8; 64],
    /// Scale of each 16 elements.
    pub scales: [i8; 16],
    /// Scale of the scales, f16.
    pub d: [u8; 2],
}

/// The eight scales and eight minimums, 6 bits each, of a `Q4_K` or `Q5_K` block, each as eight bytes.
///
/// Bytes 0..4 hold scales 0..4 in their lower six bits, bytes 4..8 the minimums 0..4. Bytes 8..12 hold the lower halves
/// of scales 4..8 (low) and minimums 4..8 (high); the upper two bits of those are the upper two bits of bytes 0..8.
#[inline(always)]
pub fn scales_and_mins(bytes: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
    let (a, b, c) = (word(0), word(4), word(8));
    let join = |low: u32, high: u32| (u64::from(low) | u64::from(high) << 32).to_le_bytes();
    let scales = join(a & 0x3f3f_3f3f, c & 0x0f0f_0f0f | a >> 2 & 0x3030_3030);
    let mins = join(b & 0x3f3f_3f3f, c >> 4 & 0x0f0f_0f0f | b >> 2 & 0x3030_3030);
    (scales, mins)
}

impl BlockQ3K {
    /// The 16 scales, without their offset of 32 (0 to 63).
    #[inline(always)]
    pub fn raw_scales(&self) -> [u8; 16] {
        let word = |i: usize| u32::from_le_bytes(std::array::from_fn(|byte| self.scales[4 * i + byte]));
        let (a, b, upper) = (word(0), word(1), word(2));
        // Four bytes at a time: a half, and two of the upper bits.
        let join = |halves: u32, upper: u32| (halves & 0x0f0f_0f0f | (upper & 0x0303_0303) << 4).to_le_bytes();
        let fours = [join(a, upper), join(b, upper >> 2), join(a >> 4, upper >> 4), join(b >> 4, upper >> 6)];
        bytemuck::cast(fours)
    }
}

impl Block for BlockQ2K {
    const TYPE: TensorType = TensorType::Q2_K;
    const LEN: usize = 256;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        (out.scale, out.min) = (f16_to_f32(self.d), f16_to_f32(self.dmin));
        for ((scale, min), byte) in out.scales.iter_mut().zip(&mut out.mins).zip(self.scales) {
            (*scale, *min) = ((byte & 0x0f) as i8, byte >> 4);
        }
        two_bits(&self.qs, &mut out.quants);
    }
}

impl Block for BlockQ3K {
    const TYPE: TensorType = TensorType::Q3_K;
    const LEN: usize = 256;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        out.scales = self.raw_scales().map(|scale| scale as i8 - 32);
        two_bits(&self.qs, &mut out.quants);
        for (group, quants) in out.quants.chunks_exact_mut(32).enumerate() {
            for (quant, bits) in quants.iter_mut().zip(self.hmask) {
                *quant -= 4 - ((bits >> group & 1) << 2) as i8;
            }
        }
    }
}

impl Block for BlockQ4K {
    const TYPE: TensorType = TensorType::Q4_K;
    const LEN: usize = 256;
    const HAS_MIN: bool = true;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        (out.scale, out.min) = (f16_to_f32(self.d), f16_to_f32(self.dmin));
        double_scales(&self.scales, out);
        four_bits(&self.qs, &mut out.quants);
    }
}

impl Block for BlockQ5K {
    const TYPE: TensorType = TensorType::Q5_K;
    const LEN: usize = 256;
    const HAS_MIN: bool = true;
    const EIGHT_SUMS: bool = true;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        (out.scale, out.min) = (f16_to_f32(self.d), f16_to_f32(self.dmin));
        double_scales(&self.scales, out);
        four_bits(&self.qs, &mut out.quants);
        for (group, quants) in out.quants.chunks_exact_mut(32).enumerate() {
            for (quant, bits) in quants.iter_mut().zip(self.qh) {
                *quant |= ((bits >> group & 1) << 4) as i8;
            }
        }
    }
}

impl Block for BlockQ6K {
    const TYPE: TensorType = TensorType::Q6_K;
    const LEN: usize = 256;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        out.scales = self.scales;
        let halves = out.quants.chunks_exact_mut(128).zip(self.ql.chunks_exact(64)).zip(self.qh.chunks_exact(32));
        for ((quants, low), high) in halves {
            for (group, quants) in quants.chunks_exact_mut(32).enumerate() {
                let low = &low[32 * (group % 2)..][..32];
                for ((quant, low), high) in quants.iter_mut().zip(low).zip(high) {
                    let low = low >> (4 * (group / 2)) & 0x0f;
                    *quant = (low | (high >> (2 * group) & 3) << 4) as i8 - 32;
                }
            }
        }
    }
}

/// Gives each of the eight scales and minimums to two runs of 16.
#[inline(always)]
fn double_scales(bytes: &[u8; 12], out: &mut Unpacked) {
    let (scales, mins) = scales_and_mins(bytes);
    for i in 0..16 {
        (out.scales[i], out.mins[i]) = (scales[i / 2] as i8, mins[i / 2]);
    }
}

#[inline(always)]
fn two_bits(bytes: &[u8; 64], quants: &mut [i8; 256]) {
    for (bytes, quants) in bytes.chunks_exact(32).zip(quants.chunks_exact_mut(128)) {
        for (group, quants) in quants.chunks_exact_mut(32).enumerate() {
            for (byte, quant) in bytes.iter().zip(quants) {
                *quant = (byte >> (2 * group) & 3) as i8;
            }
        }
    }
}

#[inline(always)]
fn four_bits(bytes: &[u8; 128], quants: &mut [i8; 256]) {
    for (bytes, quants) in bytes.chunks_exact(32).zip(quants.chunks_exact_mut(64)) {
        let (low, high) = quants.split_at_mut(32);
        for ((byte, low), high) in bytes.iter().zip(low).zip(high) {
            (*low, *high) = ((byte & 0x0f) as i8, (byte >> 4) as i8);
        }
    }
}

//! Blocks of 256 elements whose quants are table entries.

use super::blocks_32::halves;
use super::{Block, IQ3_S_GRID, IQ4_VALUES, Unpacked, f16_to_f32};
use crate::quant::TensorType;
use bytemuck::{Pod, Zeroable};

/// 4-bit indices into [`IQ4_VALUES`]; a 6-bit scale around 32 for each 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq4Xs {
    /// Scale of the scales, f16.
    pub d: [u8; 2],
    /// Upper two bits of each scale, the first in the lowest bits.
    pub scales_h: [u8; 2],
    /// Lower four bits of each scale, even ones in the low halves.
    pub scales_l: [u8; 4],
    /// 16 bytes for each 32 elements, the first 16 in the low halves.
    pub qs: [u8; 128],
}

/// 9-bit indices into [`IQ3_S_GRID`], four elements each, with separate signs; an odd scale, 1 to 31, for each 32.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct BlockIq3S {
    /// Scale of the scales, f16.
    pub d: [u8; 2],
    /// Lower eight bits of each index.
    pub qs: [u8; 64],
    /// Ninth bit of each index, a byte for each 32 elements.
    pub qh: [u8; 8],
    /// A set bit negates the element.
    pub signs: [u8; 32],
    /// `(scale - 1) / 2` of each 32 elements, even ones in the low halves.
    pub scales: [u8; 4],
}

impl BlockIq4Xs {
    /// The eight scales, -32 to 31.
    #[inline(always)]
    pub fn unpacked_scales(&self) -> [i8; 8] {
        let high = u64::from(u16::from_le_bytes(self.scales_h));
        // The 16 bits are moved apart, two to a byte.
        let high = (high | high << 24) & 0x0000_00ff_0000_00ff;
        let high = (high | high << 12) & 0x000f_000f_000f_000f;
        let high = (high | high << 6) & 0x0303_0303_0303_0303;
        let raw = nibbles(self.scales_l) | high << 4;
        // 32 is subtracted from each byte; the top bits keep borrows apart.
        let top = 0x8080_8080_8080_8080;
        (((raw | top) - 0x2020_2020_2020_2020) ^ top).to_le_bytes().map(|scale| scale as i8)
    }
}

impl BlockIq3S {
    /// The eight scales, odd numbers from 1 to 31.
    #[inline(always)]
    pub fn unpacked_scales(&self) -> [i8; 8] {
        (nibbles(self.scales) << 1 | 0x0101_0101_0101_0101).to_le_bytes().map(|scale| scale as i8)
    }

    /// Grid entry `entry` (of 8) of group `group` (of 8): four magnitudes, the first in the lowest byte.
    #[inline(always)]
    pub fn magnitudes(&self, group: usize, entry: usize) -> u32 {
        let low = usize::from(self.qs[8 * group + entry]);
        IQ3_S_GRID[low | usize::from(self.qh[group] >> entry & 1) << 8]
    }
}

/// The eight halves of four bytes as bytes, the low half of the first in the lowest byte.
#[inline(always)]
fn nibbles(bytes: [u8; 4]) -> u64 {
    let x = u64::from(u32::from_le_bytes(bytes));
    let x = (x | x << 16) & 0x0000_ffff_0000_ffff;
    let x = (x | x << 8) & 0x00ff_00ff_00ff_00ff;
    (x | x << 4) & 0x0f0f_0f0f_0f0f_0f0f
}

impl Block for BlockIq4Xs {
    const TYPE: TensorType = TensorType::IQ4_XS;
    const LEN: usize = 256;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        let scales = self.unpacked_scales();
        out.scales = std::array::from_fn(|i| scales[i / 2]);
        for (bytes, quants) in self.qs.as_chunks::<16>().0.iter().zip(out.quants.chunks_exact_mut(32)) {
            halves(bytes, quants, |q| IQ4_VALUES[usize::from(q)]);
        }
    }
}

impl Block for BlockIq3S {
    const TYPE: TensorType = TensorType::IQ3_S;
    const LEN: usize = 256;
    const HAS_MIN: bool = false;

    #[inline(always)]
    fn unpack(&self, out: &mut Unpacked) {
        out.scale = f16_to_f32(self.d);
        let scales = self.unpacked_scales();
        out.scales = std::array::from_fn(|i| scales[i / 2]);
        for (i, quants) in out.quants.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let signs = self.signs[i / 2] >> (4 * (i % 2));
            let magnitudes = self.magnitudes(i / 8, i % 8).to_le_bytes();
            for (j, (quant, magnitude)) in quants.iter_mut().zip(magnitudes).enumerate() {
                *quant = if signs >> j & 1 == 0 { magnitude as i8 } else { -(magnitude as i8) };
            }
        }
    }
}

//! The block formats of weights: their bytes, and how one block becomes integers and scales.
//!
//! All structs are plain bytes of alignment 1, so that a row of a file is a slice of them wherever it starts.
//!
//! Source: the layouts are ggml's (`block_q4_K` and so on), as its Python package `gguf` also documents them.

mod blocks_32;
mod grid;
mod iq;
mod k_quants;

pub use blocks_32::{BlockIq4Nl, BlockMxfp4, BlockQ4_0, BlockQ4_1, BlockQ5_0, BlockQ5_1, BlockQ8_0};
pub use grid::IQ3_S_GRID;
pub use iq::{BlockIq3S, BlockIq4Xs};
pub use k_quants::{BlockQ2K, BlockQ3K, BlockQ4K, BlockQ5K, BlockQ6K, scales_and_mins};

use super::TensorType;
use bytemuck::Pod;
use half::f16;

/// The 16 values of the non-linear 4-bit types IQ4_NL and IQ4_XS.
pub const IQ4_VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The 16 values of a 4-bit float (E2M1), doubled so that they are integers; the scale of an MXFP4 block is halved.
///
/// Source: OCP Microscaling Formats (MX) Specification 1.0, section 5.3.3.
pub const MXFP4_VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// A block of quantized weights, as it lies in the file.
pub trait Block: Pod + Sync {
    /// The type whose rows are made of these blocks.
    const TYPE: TensorType;
    /// Elements of a block, 32 or 256.
    const LEN: usize;
    /// True where the format has minimums.
    const HAS_MIN: bool;
    /// True where a row keeps eight sums of products and not one: sum `j` is that of elements `4 j .. 4 j + 4` of every 32.
    ///
    /// Costs speed, so only the types take it whose results would else lie too far from llama.cpp's, which adds so.
    const EIGHT_SUMS: bool = false;

    /// Writes the block's integers and scales to `out`, whose first `LEN` quants and `LEN / 16` scales are used.
    fn unpack(&self, out: &mut Unpacked);
}

/// One block of any format, unpacked: element `i` is `scale · scales[i / 16] · quants[i] - min · mins[i / 16]`.
#[derive(Clone, Debug)]
pub struct Unpacked {
    /// The integers.
    pub quants: [i8; 256],
    /// Scale of the whole block.
    pub scale: f32,
    /// Integer scale of each 16 quants; 1 where the format has none.
    pub scales: [i8; 16],
    /// Factor of the minimums, subtracted; 0 where the format has none.
    pub min: f32,
    /// Integer minimum of each 16 quants.
    pub mins: [u8; 16],
}

impl Unpacked {
    /// A block of zeros to be filled: scales of 1, no minimum.
    pub fn new() -> Self {
        Self { quants: [0; 256], scale: 0.0, scales: [1; 16], min: 0.0, mins: [1; 16] }
    }
}

impl Default for Unpacked {
    fn default() -> Self {
        Self::new()
    }
}

/// Scale of an MXFP4 block, half of `2^(exponent - 127)`, as its values are doubled; the two smallest are subnormal.
///
/// Exponent 255 means NaN in the specification and `2^127` here, as in ggml.
#[inline(always)]
pub fn half_of_e8m0(exponent: u8) -> f32 {
    let bits = match exponent {
        0 | 1 => 0x0020_0000 << exponent,
        _ => (u32::from(exponent) - 1) << 23,
    };
    f32::from_bits(bits)
}

#[inline(always)]
fn f16_to_f32(bytes: [u8; 2]) -> f32 {
    f16::from_le_bytes(bytes).to_f32()
}

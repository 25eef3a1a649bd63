//! Chosen numbers in the formats of the embedding, the output, norms and routers.
//!
//! One scale serves a whole block, taken from its largest magnitude: enough for codes, which have few levels.

use bytemuck::cast_slice_mut;
use clutor::quant::TensorType;
use clutor::quant::blocks::{BlockQ4_0, BlockQ4K, BlockQ6K, BlockQ8_0};
use half::{bf16, f16};

/// The types that can hold chosen numbers.
pub const ENCODABLE: [TensorType; 7] = {
    use TensorType::*;
    [F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q6_K]
};

/// Writes `values` as type `ty` to `out`.
///
/// # Panics
/// If the type is not [`ENCODABLE`], or `out` is not exactly the blocks of `values`.
pub fn encode(ty: TensorType, values: &[f32], out: &mut [u8]) {
    assert_eq!(Some(out.len()), ty.row_bytes(values.len()));
    match ty {
        TensorType::F32 => numbers(values, out, f32::to_le_bytes),
        TensorType::F16 => numbers(values, out, |x| f16::from_f32(x).to_le_bytes()),
        TensorType::BF16 => numbers(values, out, |x| bf16::from_f32(x).to_le_bytes()),
        TensorType::Q4_0 => blocks(values, out, q4_0),
        TensorType::Q8_0 => blocks(values, out, q8_0),
        TensorType::Q4_K => blocks(values, out, q4_k),
        TensorType::Q6_K => blocks(values, out, q6_k),
        _ => panic!("no encoder for {ty}"),
    }
}

/// The scales and minimums of a `Q4_K` or `Q5_K` block, all below 64, as the 12 bytes that
/// [`scales_and_mins`](clutor::quant::blocks::scales_and_mins) reads.
pub fn pack_scales(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => scales[i] | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] | mins[i] >> 4 << 6,
        _ => scales[i - 4] & 15 | mins[i - 4] << 4,
    })
}

fn numbers<const N: usize>(values: &[f32], out: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    for (value, out) in values.iter().zip(out.as_chunks_mut::<N>().0) {
        *out = bytes(*value);
    }
}

fn blocks<const N: usize, B: bytemuck::Pod>(values: &[f32], out: &mut [u8], block: impl Fn(&[f32; N]) -> B) {
    for (values, out) in values.as_chunks::<N>().0.iter().zip(cast_slice_mut(out)) {
        *out = block(values);
    }
}

/// Whole numbers in `-most..=most` and the step between them, such that the largest magnitude is `most` steps.
fn steps<const N: usize>(values: &[f32; N], most: f32) -> (f32, [i8; N]) {
    let step = values.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / most;
    let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
    (step, values.map(|x| (x * inverse).round() as i8))
}

fn q4_0(values: &[f32; 32]) -> BlockQ4_0 {
    let (step, quants) = steps(values, 7.0);
    let quant = |i: usize| (quants[i] + 8) as u8;
    let qs = std::array::from_fn(|i| quant(i) | quant(i + 16) << 4);
    BlockQ4_0 { d: f16::from_f32(step).to_le_bytes(), qs }
}

fn q8_0(values: &[f32; 32]) -> BlockQ8_0 {
    let (step, qs) = steps(values, 127.0);
    BlockQ8_0 { d: f16::from_f32(step).to_le_bytes(), qs }
}

fn q4_k(values: &[f32; 256]) -> BlockQ4K {
    // All scales and minimums are the same power of two, so the step is the same everywhere and quant 8 is zero.
    const SCALE: u8 = 32;
    let (step, quants) = steps(values, 7.0);
    let d = f16::from_f32(step / f32::from(SCALE));
    let quant = |i: usize| (quants[i] + 8) as u8;
    // Byte l of group g of 32 bytes holds elements l and l + 32 of the group's 64.
    let qs = std::array::from_fn(|i| quant(i / 32 * 64 + i % 32) | quant(i / 32 * 64 + 32 + i % 32) << 4);
    BlockQ4K {
        d: d.to_le_bytes(),
        dmin: f16::from_f32(8.0 * d.to_f32()).to_le_bytes(),
        scales: pack_scales([SCALE; 8], [SCALE; 8]),
        qs,
    }
}

fn q6_k(values: &[f32; 256]) -> BlockQ6K {
    const SCALE: i8 = 64;
    let (step, quants) = steps(values, 31.0);
    // Element l of group g of 32, in half h of 128.
    let quant = |h: usize, g: usize, l: usize| (quants[128 * h + 32 * g + l] + 32) as u8;
    BlockQ6K {
        ql: std::array::from_fn(|i| {
            let (h, g, l) = (i / 64, i / 32 % 2, i % 32);
            quant(h, g, l) & 15 | quant(h, g + 2, l) << 4
        }),
        qh: std::array::from_fn(|i| (0..4).fold(0, |bits, g| bits | quant(i / 32, g, i % 32) >> 4 << (2 * g))),
        scales: [SCALE; 16],
        d: f16::from_f32(step / f32::from(SCALE)).to_le_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clutor::quant::blocks::scales_and_mins;
    use clutor::quant::dequantize_row;

    #[test]
    fn what_is_encoded_decodes_to_within_half_a_step() {
        let values: Vec<f32> = (0..512).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect();
        for ty in ENCODABLE {
            let mut bytes = vec![0; ty.row_bytes(512).unwrap()];
            encode(ty, &values, &mut bytes);
            let mut decoded = vec![f32::NAN; 512];
            dequantize_row(ty, &bytes, &mut decoded);
            // Half of a seventh of the largest magnitude, 2, and the rounding of the scale to f16.
            let bound = 1.0 / 7.0 + 2.0 / 1024.0;
            assert!(decoded.iter().zip(&values).all(|(a, b)| (a - b).abs() <= bound), "{ty}");
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for ty in ENCODABLE {
            let mut bytes = vec![0xff; ty.row_bytes(256).unwrap()];
            encode(ty, &[0.0; 256], &mut bytes);
            let mut decoded = vec![f32::NAN; 256];
            dequantize_row(ty, &bytes, &mut decoded);
            assert_eq!(decoded, [0.0; 256], "{ty}");
        }
    }

    #[test]
    fn packed_scales_are_read_back() {
        let (scales, mins) = ([0, 1, 15, 16, 31, 32, 62, 63], [63, 48, 47, 33, 17, 9, 2, 0]);
        assert_eq!(scales_and_mins(&pack_scales(scales, mins)), (scales, mins));
    }
}

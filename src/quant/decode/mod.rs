//! Decoding of weight rows to f32, for embeddings and as the reference of what a format means.

use super::TensorType;
use super::blocks::*;
use half::{bf16, f16};

/// Decodes a row of type `ty` to `out`, `[cols]`.
///
/// # Panics
/// If the bytes are not the row of `out.len()` elements, or the engine cannot multiply with the type (the types without
/// an [`activation_format`](TensorType::activation_format)).
pub fn dequantize_row(ty: TensorType, bytes: &[u8], out: &mut [f32]) {
    assert_eq!(Some(bytes.len()), ty.row_bytes(out.len()), "bytes of a {ty} row of {} elements", out.len());
    match ty {
        TensorType::F32 => numbers(bytes, out, f32::from_le_bytes),
        TensorType::F16 => numbers(bytes, out, |bytes| f16::from_le_bytes(bytes).to_f32()),
        TensorType::BF16 => numbers(bytes, out, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        TensorType::Q4_0 => blocks::<BlockQ4_0>(bytes, out),
        TensorType::Q4_1 => blocks::<BlockQ4_1>(bytes, out),
        TensorType::Q5_0 => blocks::<BlockQ5_0>(bytes, out),
        TensorType::Q5_1 => blocks::<BlockQ5_1>(bytes, out),
        TensorType::Q8_0 => blocks::<BlockQ8_0>(bytes, out),
        TensorType::IQ4_NL => blocks::<BlockIq4Nl>(bytes, out),
        TensorType::MXFP4 => blocks::<BlockMxfp4>(bytes, out),
        TensorType::Q2_K => blocks::<BlockQ2K>(bytes, out),
        TensorType::Q3_K => blocks::<BlockQ3K>(bytes, out),
        TensorType::Q4_K => blocks::<BlockQ4K>(bytes, out),
        TensorType::Q5_K => blocks::<BlockQ5K>(bytes, out),
        TensorType::Q6_K => blocks::<BlockQ6K>(bytes, out),
        TensorType::IQ4_XS => blocks::<BlockIq4Xs>(bytes, out),
        TensorType::IQ3_S => blocks::<BlockIq3S>(bytes, out),
        _ => panic!("no decoder for {ty}"),
    }
}

fn numbers<const N: usize>(bytes: &[u8], out: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    for (bytes, out) in bytes.as_chunks::<N>().0.iter().zip(out) {
        *out = value(*bytes);
    }
}

fn blocks<B: Block>(bytes: &[u8], out: &mut [f32]) {
    let mut block = Unpacked::new();
    for (bytes, out) in bytemuck::cast_slice::<u8, B>(bytes).iter().zip(out.chunks_exact_mut(B::LEN)) {
        bytes.unpack(&mut block);
        for (i, (out, quants)) in out.chunks_exact_mut(16).zip(block.quants.chunks_exact(16)).enumerate() {
            let scale = block.scale * f32::from(block.scales[i]);
            let min = block.min * f32::from(block.mins[i]);
            for (out, quant) in out.iter_mut().zip(quants) {
                // Fused, as compilers make it of ggml's loop: an embedding is quantized after its norm, where a last bit
                // can decide.
                *out = scale.mul_add(f32::from(*quant), -min);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_hex(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn recorded_blocks_of_every_type_decode_to_the_recorded_values() {
        let mut types = Vec::new();
        for line in include_str!("recorded/blocks.txt").lines() {
            let [name, block, values] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            let ty = (0..64).filter_map(TensorType::from_id).find(|ty| ty.name() == name).unwrap();
            let values = from_hex(values);
            let right: Vec<f32> = values.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
            let mut decoded = vec![f32::NAN; right.len()];
            dequantize_row(ty, &from_hex(block), &mut decoded);
            // The recordings round the product before the minimum is taken off; here it is fused.
            let rounding = 4.0 * f32::EPSILON * right.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
            let close = |(a, b): (&f32, &f32)| (a - b).abs() <= rounding;
            assert!(decoded.iter().zip(&right).all(close), "{name}: {decoded:?}, not {right:?}");
            types.push(ty);
        }
        for ty in (0..64).filter_map(TensorType::from_id) {
            assert_eq!(types.contains(&ty), ty.activation_format().is_some(), "{ty}");
        }
    }

    #[test]
    #[should_panic(expected = "bytes of a Q4_0 row of 64 elements")]
    fn a_row_of_another_length_is_refused() {
        dequantize_row(TensorType::Q4_0, &[0; 18], &mut [0.0; 64]);
    }
}

//! Rounding of activations to the formats of [`Activations`](super::Activations).

use super::{ActivationFormat, ColumnMut};
use half::{bf16, f16};

/// Writes `x`, `[cols]`, into `column` in the column's format.
///
/// NaN and infinite elements give unspecified quants, the same on every machine.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub fn quantize(x: &[f32], column: ColumnMut<'_>) {
    match column.format {
        ActivationFormat::Q8_0 | ActivationFormat::Q8_1 => quantize_q8_0(x, column),
        ActivationFormat::Q8_K => quantize_q8_k(x, column),
        ActivationFormat::F16 => round_floats(x, column.floats, |x| f16::from_f32(x).to_f32()),
        ActivationFormat::BF16 => round_floats(x, column.floats, |x| bf16::from_f32(x).to_f32()),
        ActivationFormat::F32 => column.floats.copy_from_slice(x),
    }
}

/// Nearest integer, ties to even, kept within -127..=127: -128 would overflow the products of the SIMD paths. NaN gives
/// -127, by the order of the comparisons, which is also that of `maxps` and `minps`.
#[inline(always)]
fn round_to_i8(x: f32) -> i8 {
    let x = if x > -127.0 { x } else { -127.0 };
    let x = if x < 127.0 { x } else { 127.0 };
    x.round_ties_even() as i8
}

/// Blocks of 32 with scale `max |x| / 127`, rounded to f16; with scaled sums where the format has them.
///
/// Source: the rounding is that of ggml's x86 code: quants by the reciprocal, the scale rounded after it was used.
#[inline(always)]
fn quantize_q8_0(x: &[f32], column: ColumnMut<'_>) {
    assert_eq!(x.len(), column.quants.len());
    let blocks = x.as_chunks::<32>().0.iter().zip(column.quants.as_chunks_mut::<32>().0);
    let sums = column.sums.as_chunks_mut::<2>().0;
    for (i, ((x, quants), sums)) in blocks.zip(sums).enumerate() {
        let largest = x.iter().fold(0.0f32, |largest, x| if x.abs() > largest { x.abs() } else { largest });
        let scale = largest / 127.0;
        let inverse = if largest != 0.0 { 127.0 / largest } else { 0.0 };
        for (quant, x) in quants.iter_mut().zip(x) {
            *quant = round_to_i8(x * inverse);
        }
        *sums = sums_of_16(quants);
        column.scales[i] = f16::from_f32(scale).to_f32();
        if column.format == ActivationFormat::Q8_1 {
            let sum = f32::from(sums[0] + sums[1]);
            column.scaled_sums[i] = f16::from_f32(scale * sum).to_f32();
        }
    }
}

/// Blocks of 256 with an f32 scale that takes the element of largest magnitude, the first of equals, to -127.
///
/// The product is rounded to f32 first, and then to an integer. Compilers may fuse the two in ggml's code; in the build
/// that made the recordings of `__test__/data/golden` they did not.
///
/// Source: ggml's `quantize_row_q8_K`, and its observed results.
#[inline(always)]
fn quantize_q8_k(x: &[f32], column: ColumnMut<'_>) {
    assert_eq!(x.len(), column.quants.len());
    let blocks = x.as_chunks::<256>().0.iter().zip(column.quants.as_chunks_mut::<256>().0);
    let sums = column.sums.as_chunks_mut::<16>().0;
    for (((x, quants), sums), scale) in blocks.zip(sums).zip(column.scales) {
        let largest = x.iter().fold(0.0f32, |largest, x| if x.abs() > largest.abs() { *x } else { largest });
        if largest == 0.0 {
            quants.fill(0);
            sums.fill(0);
            *scale = 0.0;
            continue;
        }
        let inverse = -127.0 / largest;
        for (quant, x) in quants.iter_mut().zip(x) {
            *quant = round_to_i8(x * inverse);
        }
        *sums = sums_of_16(quants);
        *scale = 1.0 / inverse;
    }
}

#[inline(always)]
fn round_floats(x: &[f32], out: &mut [f32], round: impl Fn(f32) -> f32) {
    assert_eq!(x.len(), out.len());
    for (out, x) in out.iter_mut().zip(x) {
        *out = round(*x);
    }
}

/// Sums of 16 quants each; at most 16 · 127.
#[inline(always)]
fn sums_of_16<const N: usize>(quants: &[i8]) -> [i16; N] {
    std::array::from_fn(|i| quants[16 * i..16 * (i + 1)].iter().fold(0, |sum, quant| sum + i16::from(*quant)))
}

#[cfg(test)]
mod tests {
    use super::super::Activations;
    use super::*;

    fn quantized(format: ActivationFormat, x: &[f32]) -> Activations {
        let mut activations = Activations::new();
        activations.resize(format, x.len(), 1);
        quantize(x, activations.columns_mut().remove(0));
        activations
    }

    #[test]
    fn a_block_of_32_is_scaled_by_its_largest_magnitude() {
        let mut x = [0.0; 32];
        (x[3], x[20]) = (-254.0, 5.0);
        let q8_1 = quantized(ActivationFormat::Q8_1, &x);
        let column = q8_1.column(0);
        // 2.5 rounds to the even 2.
        assert_eq!((column.quants[3], column.quants[20]), (-127, 2));
        assert_eq!((column.scales, column.sums, column.scaled_sums), (&[2.0][..], &[-127, 2][..], &[-250.0][..]));
    }

    #[test]
    fn the_largest_of_256_becomes_minus_127_whatever_its_sign() {
        for sign in [1.0, -1.0] {
            let x: Vec<f32> = (0..256).map(|i| sign * (255 - i) as f32 / 255.0).collect();
            let q8_k = quantized(ActivationFormat::Q8_K, &x);
            assert_eq!(q8_k.column(0).quants[0], -127);
            assert_eq!(q8_k.column(0).quants[255], 0);
            assert!((q8_k.column(0).scales[0] + sign / 127.0).abs() < 1e-8);
        }
    }

    #[test]
    fn of_equal_magnitudes_the_first_gives_the_sign() {
        let mut x = [0.0; 256];
        (x[7], x[8]) = (1.0, -1.0);
        let q8_k = quantized(ActivationFormat::Q8_K, &x);
        assert_eq!((q8_k.column(0).quants[7], q8_k.column(0).quants[8]), (-127, 127));
    }

    #[test]
    fn zeros_stay_zeros_and_odd_inputs_do_not_panic() {
        for format in [ActivationFormat::Q8_0, ActivationFormat::Q8_1, ActivationFormat::Q8_K] {
            let zeros = quantized(format, &[0.0; 256]);
            assert_eq!(zeros.column(0).quants, [0; 256]);
            assert!(zeros.column(0).scales.iter().all(|scale| *scale == 0.0));
            for odd in [f32::NAN, f32::INFINITY, f32::MIN_POSITIVE / 8.0] {
                let mut x = [0.0; 256];
                x[100] = odd;
                assert!(quantized(format, &x).column(0).quants.iter().all(|quant| *quant >= -127));
            }
        }
    }

    #[test]
    fn float_formats_round_to_the_precision_of_the_weights() {
        let x = [1.0 + 1.0 / 1024.0, 1.0 + 1.0 / 512.0];
        assert_eq!(quantized(ActivationFormat::F32, &x).column(0).floats, x);
        assert_eq!(quantized(ActivationFormat::F16, &x).column(0).floats, x);
        assert_eq!(quantized(ActivationFormat::BF16, &x).column(0).floats, [1.0, 1.0]);
    }
}

use super::*;
use crate::quant::{ActivationFormat, TensorType, dequantize_row};
use proptest::prelude::*;

/// Numbers from a seed, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64: Steele, Lea and Flood 2014.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Between -1 and 1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

fn multipliable() -> Vec<TensorType> {
    (0..64).filter_map(TensorType::from_id).filter(|ty| ty.activation_format().is_some()).collect()
}

/// Byte offsets of the f16 numbers of a block.
fn scale_offsets(ty: TensorType) -> &'static [usize] {
    use TensorType::*;
    match ty {
        F16 | Q4_0 | Q5_0 | Q8_0 | IQ4_NL | IQ4_XS | IQ3_S => &[0],
        Q4_1 | Q5_1 | Q4_K | Q5_K => &[0, 2],
        Q2_K => &[80, 82],
        Q3_K => &[108],
        Q6_K => &[208],
        _ => &[],
    }
}

/// Weights whose integers are random, or all at an end of their range, and whose scales are ordinary or extreme but
/// finite.
fn weights(ty: TensorType, rows: usize, cols: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0; rows * ty.row_bytes(cols).unwrap()];
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        let fill = [None, None, None, Some(0x00), Some(0xff), Some(0x80), Some(0x7f)][random.below(7)];
        for byte in block.iter_mut() {
            *byte = fill.unwrap_or(random.next() as u8);
        }
        match ty {
            TensorType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
            TensorType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
            _ => {}
        }
        for offset in scale_offsets(ty) {
            let scale = match random.below(8) {
                0 => f16::MAX,
                1 => f16::MIN,
                2 => f16::from_bits(1),
                3 => -f16::ZERO,
                _ => f16::from_f32(random.float()),
            };
            block[*offset..offset + 2].copy_from_slice(&scale.to_le_bytes());
        }
    }
    bytes
}

/// Columns of ordinary, huge, tiny and zero values.
fn activations(path: &dyn Kernels, format: ActivationFormat, cols: usize, n: usize, seed: u64) -> Activations {
    let mut random = Random(seed);
    let mut x = Activations::new();
    x.resize(format, cols, n);
    for column in x.columns_mut() {
        let magnitude = [1.0, 1.0, 1.0, 1e30, 1e-30, 1e-41, 0.0][random.below(7)];
        let values: Vec<f32> = (0..cols).map(|_| random.float() * magnitude).collect();
        path.quantize(&values, column);
    }
    x
}

fn product(path: &dyn Kernels, w: &WeightRows<'_>, rows: Range<usize>, x: &Activations, columns: &[u32]) -> Vec<f32> {
    let mut out = vec![f32::MAX; columns.len() * w.rows().max(1)];
    path.matmul(w, rows, x, columns, &OutColumns::new(&mut out, w.rows().max(1)));
    out
}

/// Bits, with every NaN alike: which NaN an operation gives is not specified.
fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_path_multiplies_like_scalar_to_the_bit(
        seed in any::<u64>(), rows in 0usize..40, n_blocks in 1usize..20, n in 1usize..10,
    ) {
        let scalar = by_name("scalar").unwrap();
        for ty in multipliable() {
            let random = &mut Random(seed);
            // Rows of 256-element blocks are kept short, and float rows may have any length.
            let cols = match ty.block_len() { 256 => 256 * n_blocks.div_ceil(2), 32 => 32 * n_blocks, _ => 7 * n_blocks };
            let bytes = weights(ty, rows, cols, random);
            let w = WeightRows::new(ty, &bytes, rows, cols);
            let x = activations(scalar, ty.activation_format().unwrap(), cols, n, seed);
            let columns: Vec<u32> = (0..n).map(|_| random.below(n) as u32).collect();
            let first = random.below(rows + 1);
            let range = first..first + random.below(rows - first + 1);
            let right = product(scalar, &w, range.clone(), &x, &columns);
            for path in available() {
                let out = product(path, &w, range.clone(), &x, &columns);
                prop_assert_eq!(bits(&out), bits(&right), "{} {} {:?} {:?}", path.name(), ty, &range, &columns);
            }
        }
    }

    #[test]
    fn every_path_quantizes_like_scalar_to_the_bit(
        seed in any::<u64>(), n_blocks in 1usize..5,
        odd in prop_oneof![Just(0.0), Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY), Just(f32::MAX)],
    ) {
        use ActivationFormat as F;
        let mut random = Random(seed);
        let magnitude = [1.0, 1e30, 1e-6, 1e-38, 1e-41][random.below(5)];
        let mut values: Vec<f32> = (0..256 * n_blocks).map(|_| random.float() * magnitude).collect();
        // Equal largest magnitudes of both signs, ties of rounding, and one odd value.
        for _ in 0..3 {
            let at = random.below(values.len());
            values[at] = [1.0, -1.0][random.below(2)] * magnitude;
        }
        let at = random.below(values.len());
        values[at] = odd;
        for format in [F::Q8_0, F::Q8_1, F::Q8_K, F::F16, F::BF16, F::F32] {
            let cols = if format.is_quantized() { values.len() } else { values.len() - 3 };
            let [right, out] = [by_name("scalar").unwrap(), best()].map(|path| {
                let mut x = Activations::new();
                x.resize(format, cols, 1);
                path.quantize(&values[..cols], x.columns_mut().remove(0));
                x
            });
            let (right, out) = (right.column(0), out.column(0));
            prop_assert_eq!(right.quants, out.quants);
            prop_assert_eq!(right.sums, out.sums);
            for (right, out) in [(right.scales, out.scales), (right.scaled_sums, out.scaled_sums), (right.floats, out.floats)] {
                prop_assert_eq!(bits(right), bits(out), "{:?}", format);
            }
        }
    }

    #[test]
    fn every_path_has_the_same_elementwise_bits(seed in any::<u64>(), len in 1usize..70) {
        let mut random = Random(seed);
        let mut floats = |magnitude: f32| (0..len).map(|_| random.float() * magnitude).collect::<Vec<f32>>();
        let (a, b, wide) = (floats(1.0), floats(3.0), floats(120.0));
        let results = |path: &dyn Kernels| {
            let mut all = Vec::new();
            let mut y = b.clone();
            path.rms_norm(&a, &b, 1e-5, &mut y);
            all.extend(&y);
            let mut y = wide.clone();
            path.silu_mul(&mut y, &b);
            all.extend(&y);
            let mut y = wide.clone();
            let (max, sum) = path.softmax_part(&mut y, 0.3);
            all.extend(&y);
            all.extend([max, sum]);
            bits(&all)
        };
        let right = results(by_name("scalar").unwrap());
        for path in available() {
            prop_assert_eq!(&results(path), &right, "{}", path.name());
        }
    }

    #[test]
    fn every_path_adds_products_like_scalar_to_the_bit(
        seed in any::<u64>(), rows in 0usize..17, inner in 0usize..40, width in 1usize..200, gap in 0usize..3,
    ) {
        let mut random = Random(seed);
        let mut floats = |n: usize| (0..n).map(|_| random.float()).collect::<Vec<f32>>();
        let (a, b) = (floats(rows * (inner + gap)), floats(inner * width));
        let before = floats(rows * (width + gap));
        let result = |path: &dyn Kernels| {
            let mut out = before.clone();
            let (a_stride, out_stride) = (inner + gap, width + gap);
            let (a, b, out_rows) = (&a[..], &b[..], &mut out[..]);
            path.add_product(FloatProduct { rows, inner, width, a, a_stride, b, out: out_rows, out_stride });
            let mut scores = before.clone();
            path.scores(FloatProduct { rows, inner, width, a, a_stride, b, out: &mut scores, out_stride });
            [out, scores].concat()
        };
        let right = result(by_name("scalar").unwrap());
        for row in 0..rows {
            // What lies between two rows is not touched.
            let rest = row * (width + gap) + width..(row + 1) * (width + gap);
            prop_assert_eq!(&right[rest.clone()], &before[rest.clone()]);
            prop_assert_eq!(&right[before.len()..][rest.clone()], &before[rest]);
        }
        for path in available() {
            prop_assert_eq!(bits(&result(path)), bits(&right), "{}", path.name());
        }
    }

    #[test]
    fn every_path_widens_like_scalar_to_the_bit(seed in any::<u64>(), n in 0usize..70, slabs in 0usize..4, width in 1usize..40) {
        let mut random = Random(seed);
        let halves: Vec<f16> = (0..n).map(|_| f16::from_bits(random.next() as u16)).collect();
        let numbers: Vec<i8> = (0..32 * slabs * width).map(|_| random.next() as i8).collect();
        let scales: Vec<f32> = (0..slabs * width).map(|_| random.float()).collect();
        let result = |path: &dyn Kernels| {
            let (mut wide, mut along) = (vec![0.0; n], vec![0.0; numbers.len()]);
            let mut across = along.clone();
            path.widen_f16(&halves, &mut wide);
            path.widen_bytes(&numbers, ByteScales::Along(&scales), &mut along);
            path.widen_bytes(&numbers, ByteScales::Across { scales: &scales, width }, &mut across);
            bits(&[wide, along, across].concat())
        };
        let right = result(by_name("scalar").unwrap());
        for path in available() {
            prop_assert_eq!(&result(path), &right, "{}", path.name());
        }
    }
}

#[test]
fn long_rows_and_many_columns_have_the_same_bits_on_every_path() {
    // Longer than what a path unpacks at once, more columns than share it, and an odd rest of each.
    let (rows, cols, n) = (41, 256 * 19, 131);
    let scalar = by_name("scalar").unwrap();
    for ty in multipliable() {
        let random = &mut Random(3);
        let bytes = weights(ty, rows, cols, random);
        let w = WeightRows::new(ty, &bytes, rows, cols);
        let x = activations(scalar, ty.activation_format().unwrap(), cols, 5, 4);
        let columns: Vec<u32> = (0..n).map(|_| random.below(5) as u32).collect();
        let right = product(scalar, &w, 0..rows, &x, &columns);
        for path in available() {
            let out = product(path, &w, 0..rows, &x, &columns);
            assert_eq!(bits(&out), bits(&right), "{} {ty}", path.name());
        }
    }
}

#[test]
fn sums_over_no_columns_are_zero_on_every_path() {
    for ty in multipliable() {
        let w = WeightRows::new(ty, &[], 3, 0);
        let mut x = Activations::new();
        x.resize(ty.activation_format().unwrap(), 0, 2);
        for path in available() {
            assert_eq!(product(path, &w, 0..3, &x, &[0, 1]), [0.0; 6], "{} {ty}", path.name());
            assert_eq!(product(path, &w, 0..3, &x, &[1]), [0.0; 3], "{} {ty}", path.name());
        }
    }
}

#[test]
fn the_largest_integers_have_the_same_bits_on_every_path() {
    // Quants at either end of their range against activations of 127 and of -127, all of one sign: sums that a path keeps
    // in few bits are as far from zero as they can be.
    let (rows, cols, scalar) = (4, 256, by_name("scalar").unwrap());
    for ty in multipliable() {
        let mut x = Activations::new();
        x.resize(ty.activation_format().unwrap(), cols, 4);
        for (column, value) in x.columns_mut().into_iter().zip([1.0, -1.0, 1.0, -1.0]) {
            scalar.quantize(&vec![value; cols], column);
        }
        for fill in [0x00, 0xff, 0x80, 0x7f, 0x0f, 0xf0] {
            let mut bytes = vec![fill; rows * ty.row_bytes(cols).unwrap()];
            for block in bytes.chunks_exact_mut(ty.block_bytes()) {
                for offset in scale_offsets(ty) {
                    block[*offset..offset + 2].copy_from_slice(&f16::ONE.to_le_bytes());
                }
            }
            let w = WeightRows::new(ty, &bytes, rows, cols);
            for columns in [&[0][..], &[1], &[0, 1, 2, 3]] {
                let right = bits(&product(scalar, &w, 0..rows, &x, columns));
                for path in available() {
                    let out = product(path, &w, 0..rows, &x, columns);
                    assert_eq!(bits(&out), right, "{} {ty} {fill:#x} {columns:?}", path.name());
                }
            }
        }
    }
}

/// Largest difference between an activation of at most 1 and what its format makes of it.
fn rounding(format: ActivationFormat) -> f64 {
    match format {
        // Half a step of 1/127 of the largest of the block, whose scale is itself rounded to the 11 bits of an f16.
        ActivationFormat::Q8_0 | ActivationFormat::Q8_1 => 0.5 / 127.0 + 2f64.powi(-11),
        ActivationFormat::Q8_K => 0.5 / 127.0,
        ActivationFormat::F16 => 2f64.powi(-12),
        ActivationFormat::BF16 => 2f64.powi(-9),
        ActivationFormat::F32 => 0.0,
    }
}

#[test]
fn a_product_is_as_close_to_that_of_the_decoded_weights_as_rounded_activations_allow() {
    let (rows, cols) = (6, 512);
    for ty in multipliable() {
        let random = &mut Random(7);
        // Neither scales nor activations change signs, so that quants wrong by a constant are wrong in sum.
        let mut bytes: Vec<u8> = (0..rows * ty.row_bytes(cols).unwrap()).map(|_| random.next() as u8).collect();
        for block in bytes.chunks_exact_mut(ty.block_bytes()) {
            for offset in scale_offsets(ty) {
                block[*offset..offset + 2].copy_from_slice(&f16::from_f32(random.float().abs()).to_le_bytes());
            }
            match ty {
                TensorType::F32 => block.copy_from_slice(&random.float().to_le_bytes()),
                TensorType::BF16 => block.copy_from_slice(&half::bf16::from_f32(random.float()).to_le_bytes()),
                TensorType::MXFP4 => block[0] = 120,
                _ => {}
            }
        }
        let values: Vec<f32> = (0..cols).map(|_| 0.75 + random.float() / 4.0).collect();
        let format = ty.activation_format().unwrap();
        let w = WeightRows::new(ty, &bytes, rows, cols);
        let mut decoded = vec![0.0; cols];
        for path in available() {
            let mut x = Activations::new();
            x.resize(format, cols, 1);
            path.quantize(&values, x.columns_mut().remove(0));
            let out = product(path, &w, 0..rows, &x, &[0]);
            for (row, out) in out.iter().enumerate() {
                dequantize_row(ty, w.row(row), &mut decoded);
                let sum: f64 = decoded.iter().zip(&values).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                let magnitude: f64 = decoded.iter().map(|w| f64::from(w.abs())).sum();
                // And what sums of f32 lose.
                let allowed = magnitude * (rounding(format) + 2f64.powi(-18));
                let error = (f64::from(*out) - sum).abs();
                assert!(error <= allowed, "{ty} on {}: {out} for {sum}, allowed are {allowed}", path.name());
            }
        }
    }
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() {
    assert_eq!(by_name("scalar").unwrap().name(), "scalar");
    let error = by_name("abacus").unwrap_err().to_string();
    assert!(error.contains("`abacus`") && error.contains("scalar"), "{error}");
    assert_eq!(best().name(), available().last().unwrap().name());
}

#[test]
#[should_panic(expected = "activations for Q4_K weights")]
fn activations_of_another_format_are_refused() {
    let x = activations(best(), ActivationFormat::Q8_0, 256, 1, 1);
    product(best(), &WeightRows::new(TensorType::Q4_K, &[0; 144], 1, 256), 0..1, &x, &[0]);
}

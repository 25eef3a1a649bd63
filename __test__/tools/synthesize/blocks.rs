//! Random blocks of every format with a given spread.
//!
//! Quants are random bits and go straight into the file; only the bytes that hold scales are made, a pool of them for
//! each tensor. What spread a format's random quants have is measured with the engine's own decoder.

use super::encode::pack_scales;
use super::random::Random;
use clutor::quant::{TensorType, dequantize_row};
use half::{bf16, f16};

/// Fills rows with random numbers of mean 0 and a given deviation.
#[derive(Debug)]
pub struct Filler {
    ty: TensorType,
    /// Scale bytes of a block, or one number; as many as 12 random bits can name.
    pool: Vec<Scales>,
}

/// The bytes of a block that are not quants, in the order of [`places`].
type Scales = [u8; 20];

const POOL_BITS: u32 = 12;
const POOL: usize = 1 << POOL_BITS;

impl Filler {
    /// A filler for type `ty` and deviation `sigma`.
    ///
    /// # Panics
    /// If the engine cannot multiply with the type.
    pub fn new(ty: TensorType, sigma: f64, random: &mut Random) -> Self {
        if ty.block_len() == 1 {
            // Each number and its negative, so that their mean is zero.
            let pair = |_| {
                let x = sigma * random.normal();
                [number(ty, x), number(ty, -x)]
            };
            return Self { ty, pool: (0..POOL / 2).flat_map(pair).collect() };
        }
        let unit = unit_deviation(ty);
        Self { ty, pool: (0..POOL).map(|_| scales(ty, sigma / unit, random)).collect() }
    }

    /// Fills `bytes`, any number of whole blocks.
    ///
    /// # Panics
    /// If `bytes` is not whole blocks.
    pub fn fill(&self, random: &mut Random, bytes: &mut [u8]) {
        assert!(bytes.len().is_multiple_of(self.ty.block_bytes()));
        match (self.ty.block_len(), self.ty.block_bytes()) {
            (1, 4) => self.numbers::<4>(random, bytes),
            (1, _) => self.numbers::<2>(random, bytes),
            _ => self.blocks(random, bytes),
        }
    }

    fn numbers<const N: usize>(&self, random: &mut Random, bytes: &mut [u8]) {
        for numbers in bytes.as_chunks_mut::<N>().0.chunks_mut((u64::BITS / POOL_BITS) as usize) {
            let mut bits = random.bits();
            for number in numbers {
                *number = *self.pool[bits as usize % POOL].first_chunk().expect("a number is shorter than the scales");
                bits >>= POOL_BITS;
            }
        }
    }

    fn blocks(&self, random: &mut Random, bytes: &mut [u8]) {
        random.fill(bytes);
        if self.ty == TensorType::Q8_0 {
            // Files hold no -128, and kernels may count on that.
            bytes.iter_mut().for_each(|byte| *byte = (*byte as i8).max(-127) as u8);
        }
        let places = places(self.ty);
        for blocks in bytes.chunks_mut(self.ty.block_bytes() * (u64::BITS / POOL_BITS) as usize) {
            let mut bits = random.bits();
            for block in blocks.chunks_exact_mut(self.ty.block_bytes()) {
                let mut scales = &self.pool[bits as usize % POOL][..];
                bits >>= POOL_BITS;
                for &(at, len) in places {
                    let (part, rest) = scales.split_at(len);
                    block[at..at + len].copy_from_slice(part);
                    scales = rest;
                }
            }
        }
    }
}

/// Where a block has the bytes that must not be random: offset and length.
fn places(ty: TensorType) -> &'static [(usize, usize)] {
    use TensorType::*;
    match ty {
        Q4_0 | Q5_0 | Q8_0 | IQ4_NL | IQ4_XS | IQ3_S => &[(0, 2)],
        Q4_1 | Q5_1 => &[(0, 4)],
        MXFP4 => &[(0, 1)],
        Q2_K => &[(80, 4), (0, 16)],
        Q3_K => &[(108, 2)],
        Q4_K | Q5_K => &[(0, 16)],
        Q6_K => &[(208, 2), (192, 16)],
        _ => panic!("no random blocks of {ty}"),
    }
}

/// Scale bytes of a block whose step is around `step`. Formats without a minimum have quants whose mean is not quite
/// zero; they get scales of either sign.
fn scales(ty: TensorType, step: f64, random: &mut Random) -> Scales {
    use TensorType::*;
    let sign = f64::from(random.sign());
    let step = step * random.uniform(0.85, 1.15);
    let f16 = |x: f64| f16::from_f64(x).to_le_bytes();
    // The mean of quants of `bits` bits, which the minimum takes off.
    let with_min = |bits: i32| {
        let mean = f64::from((1 << bits) - 1) / 2.0;
        let step = f16::from_f64(step);
        [step.to_le_bytes(), f16(mean * step.to_f64())].concat()
    };
    let bytes = match ty {
        Q4_1 | Q5_1 => {
            let bits = if ty == Q4_1 { 4 } else { 5 };
            let mean = f64::from((1 << bits) - 1) / 2.0;
            // These two add their minimum.
            [f16(step), f16(-mean * step)].concat()
        }
        MXFP4 => {
            // Powers of two only: a mixture of two of them has the mean square.
            let exponent = libm::floor(libm::log2(step));
            let ratio = step / libm::exp2(exponent);
            let up = random.uniform(0.0, 1.0) < (ratio * ratio - 1.0) / 3.0;
            vec![(127.0 + exponent) as u8 + u8::from(up)]
        }
        Q2_K => {
            let scales: [u8; 16] = std::array::from_fn(|_| 0x11 * random.integer(8, 15));
            [&with_min(2)[..], &scales].concat()
        }
        Q4_K | Q5_K => {
            let scales = std::array::from_fn(|_| random.integer(32, 63));
            [&with_min(if ty == Q4_K { 4 } else { 5 })[..], &pack_scales(scales, scales)].concat()
        }
        Q6_K => {
            let scales: [u8; 16] = std::array::from_fn(|_| (random.integer(60, 127) as i8 * random.sign() as i8) as u8);
            [&f16(step)[..], &scales].concat()
        }
        // Their other scales are random bits like the quants.
        _ => f16(sign * step).to_vec(),
    };
    let mut scales = [0; 20];
    scales[..bytes.len()].copy_from_slice(&bytes);
    scales
}

fn number(ty: TensorType, x: f64) -> Scales {
    let mut bytes = [0; 20];
    match ty {
        TensorType::F32 => bytes[..4].copy_from_slice(&(x as f32).to_le_bytes()),
        TensorType::F16 => bytes[..2].copy_from_slice(&f16::from_f64(x).to_le_bytes()),
        TensorType::BF16 => bytes[..2].copy_from_slice(&bf16::from_f64(x).to_le_bytes()),
        _ => panic!("no random numbers of {ty}"),
    }
    bytes
}

/// Deviation of random blocks whose step is around 1.
fn unit_deviation(ty: TensorType) -> f64 {
    const BLOCKS: usize = 256;
    let mut random = Random::of(0, "unit deviation", u64::from(ty as u32));
    let filler = Filler { ty, pool: (0..POOL).map(|_| scales(ty, 1.0, &mut random)).collect() };
    let mut bytes = vec![0; BLOCKS * ty.block_bytes()];
    filler.fill(&mut random, &mut bytes);
    deviation(ty, &bytes)
}

fn deviation(ty: TensorType, bytes: &[u8]) -> f64 {
    let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_len()];
    dequantize_row(ty, bytes, &mut values);
    (values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>() / values.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types() -> impl Iterator<Item = TensorType> {
        (0..64).filter_map(TensorType::from_id).filter(|ty| ty.activation_format().is_some())
    }

    #[test]
    fn every_type_has_the_mean_and_the_deviation_asked_for() {
        for ty in types() {
            for sigma in [1.0, 0.02, 0.003] {
                let mut random = Random::of(3, ty.name(), 0);
                let filler = Filler::new(ty, sigma, &mut random);
                let n = 1 << 18;
                let mut bytes = vec![0; n / ty.block_len() * ty.block_bytes()];
                filler.fill(&mut random, &mut bytes);
                let mut values = vec![0.0; n];
                dequantize_row(ty, &bytes, &mut values);
                let found = deviation(ty, &bytes);
                let mean = values.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
                // Scales are shared by up to 256 numbers and the smallest ones have few bits.
                assert!((found / sigma - 1.0).abs() < 0.06, "{ty}: {found}, not {sigma}");
                assert!(mean.abs() < 0.03 * sigma, "{ty}: mean {mean} of {sigma}");
            }
        }
    }

    #[test]
    fn no_block_repeats_and_q8_0_has_no_least_byte() {
        for ty in types().filter(|ty| ty.block_len() > 1) {
            let mut random = Random::of(4, ty.name(), 0);
            let filler = Filler::new(ty, 0.02, &mut random);
            let mut bytes = vec![0; 1000 * ty.block_bytes()];
            filler.fill(&mut random, &mut bytes);
            let mut blocks: Vec<&[u8]> = bytes.chunks(ty.block_bytes()).collect();
            blocks.sort_unstable();
            assert!(blocks.windows(2).all(|pair| pair[0] != pair[1]), "{ty}");
            if ty == TensorType::Q8_0 {
                assert!(blocks.iter().all(|block| !block[2..].contains(&0x80)));
            }
        }
    }
}

//! Random numbers that depend on a seed, a name and a place, and on nothing else.

use std::f64::consts::TAU;

/// SplitMix64: a counter and a function that mixes its bits.
///
/// Source: Steele, Lea and Flood 2014, Fast splittable pseudorandom number generators, doi 10.1145/2660193.2660195.
#[derive(Clone, Debug)]
pub struct Random(u64);

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The numbers of place `place` in what `name` names.
    pub fn of(seed: u64, name: &str, place: u64) -> Self {
        // FNV-1a: names are short, and SplitMix does the mixing.
        let byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, byte);
        Self(mix(mix(mix(seed).wrapping_add(hash)).wrapping_add(place)))
    }

    /// 64 random bits.
    #[inline(always)]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    /// Evenly spread over `low..high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * ((self.bits() >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// A whole number of `low..=high`.
    pub fn integer(&mut self, low: u8, high: u8) -> u8 {
        low + (self.bits() % u64::from(high - low + 1)) as u8
    }

    /// 1 or -1.
    pub fn sign(&mut self) -> f32 {
        if self.bits() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// Normally distributed, mean 0, deviation 1.
    ///
    /// Source: Box and Muller 1958, A note on the generation of random normal deviates.
    pub fn normal(&mut self) -> f64 {
        // The least number above 0 keeps the logarithm finite.
        let radius = (-2.0 * libm::log(self.uniform(f64::EPSILON, 1.0))).sqrt();
        radius * libm::cos(TAU * self.uniform(0.0, 1.0))
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = self.bits().to_le_bytes();
        }
        let last = self.bits().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_places_and_seeds_give_streams_of_their_own() {
        let first = |seed, name, place| Random::of(seed, name, place).bits();
        assert_eq!(first(1, "a", 0), first(1, "a", 0));
        let all = [first(1, "a", 0), first(2, "a", 0), first(1, "b", 0), first(1, "a", 1)];
        assert!((0..4).all(|i| (0..i).all(|j| all[i] != all[j])), "{all:x?}");
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut random = Random::of(1, "normal", 0);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|x| x * x).sum::<f64>() / 1e5;
        // Four standard errors: 1/sqrt(n) of the mean, sqrt(2/n) of the variance.
        assert!(mean.abs() < 0.013 && (variance - 1.0).abs() < 0.018, "{mean} {variance}");
    }

    #[test]
    fn odd_lengths_are_filled_to_the_last_byte() {
        let mut bytes = [0; 4001];
        Random::of(1, "bytes", 0).fill(&mut bytes);
        assert!(bytes.iter().filter(|byte| **byte == 0).count() < 50);
        assert_ne!(bytes[3996..], [0; 5]);
    }
}

//! Rotary position embedding.

use std::f64::consts::PI;

/// How positions beyond the trained context are squeezed into it (GGUF `<arch>.rope.scaling.*`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeScaling {
    /// Positions as they are.
    None,
    /// Every angle divided by `factor`.
    Linear {
        /// `<arch>.rope.scaling.factor`.
        factor: f32,
    },
    /// Slow pairs divided by `factor`, fast pairs kept, a ramp between; attention sharpened.
    ///
    /// Source: Peng et al. 2023, YaRN, arXiv 2309.00071, with its constants beta 32 and 1.
    Yarn {
        /// `<arch>.rope.scaling.factor`.
        factor: f32,
        /// `<arch>.rope.scaling.original_context_length`.
        original_context: usize,
    },
}

/// Rotary embedding of heads of one width.
///
/// Angles, cosines and sines are computed in f64 with a portable libm and rounded once, so that they are the same on
/// every machine.
///
/// Source: Su et al. 2021, RoFormer, arXiv 2104.09864.
#[derive(Clone, Debug)]
pub struct Rope {
    /// Radians per position of each pair, `[head_dim / 2]`.
    frequencies: Vec<f64>,
    /// Factor on cosine and sine; 1 but for YaRN.
    magnitude: f64,
}

impl Rope {
    /// Pair `i` turns by `pos · base^(-2i / head_dim)` radians, changed by `scaling`. `base` is GGUF key
    /// `<arch>.rope.freq_base`.
    ///
    /// # Panics
    /// If `head_dim` is odd or zero.
    pub fn new(head_dim: usize, base: f32, scaling: RopeScaling) -> Self {
        assert!(head_dim > 0 && head_dim.is_multiple_of(2), "head_dim {head_dim} is odd");
        let (frequencies, magnitude) = frequencies(head_dim, f64::from(base), scaling);
        Self { frequencies, magnitude }
    }

    /// Writes the cosines, then the sines, of position `pos` to `turn`, `[head_dim]`. One turn serves all heads of all
    /// layers.
    ///
    /// # Panics
    /// If `turn` is not `head_dim` long.
    pub fn turn(&self, pos: usize, turn: &mut [f32]) {
        let half = self.frequencies.len();
        assert_eq!(turn.len(), 2 * half);
        let (cos, sin) = turn.split_at_mut(half);
        for ((cos, sin), frequency) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            let angle = pos as f64 * frequency;
            *cos = (libm::cos(angle) * self.magnitude) as f32;
            *sin = (libm::sin(angle) * self.magnitude) as f32;
        }
    }
}

/// Rotates each head of `x` by `turn`, in place.
///
/// `x` is `[n_heads, head_dim]`, `turn` is `[head_dim]` from [`Rope::turn`]. Element `i` pairs with
/// `i + head_dim / 2` (NeoX pairing, as llama.cpp does for olmoe and qwen3moe).
///
/// # Panics
/// If `x` is not whole heads.
#[inline(always)]
pub fn rotate(x: &mut [f32], turn: &[f32]) {
    let (head_dim, half) = (turn.len(), turn.len() / 2);
    assert_eq!(x.len() % head_dim, 0);
    let (cos, sin) = turn.split_at(half);
    for head in x.chunks_exact_mut(head_dim) {
        let (a, b) = head.split_at_mut(half);
        for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}

/// Radians per position of each pair, and the factor on cosine and sine.
fn frequencies(head_dim: usize, base: f64, scaling: RopeScaling) -> (Vec<f64>, f64) {
    let dim = head_dim as f64;
    let plain = (0..head_dim / 2).map(|i| libm::pow(base, -2.0 * i as f64 / dim));
    match scaling {
        RopeScaling::None => (plain.collect(), 1.0),
        RopeScaling::Linear { factor } => (plain.map(|f| f / f64::from(factor)).collect(), 1.0),
        RopeScaling::Yarn { factor, original_context } => {
            // The pair that makes `turns` whole turns over the original context.
            let pair =
                |turns: f64| dim * libm::log(original_context as f64 / (turns * 2.0 * PI)) / (2.0 * libm::log(base));
            let low = libm::floor(pair(32.0)).max(0.0);
            let high = libm::ceil(pair(1.0)).min(dim - 1.0);
            let factor = f64::from(factor);
            let scaled = plain.enumerate().map(|(i, f)| {
                let kept = 1.0 - ((i as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
                f / factor * (1.0 - kept) + f * kept
            });
            (scaled.collect(), 1.0 + 0.1 * libm::log(factor))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rotated(x: [f32; 4], pos: usize, base: f32, scaling: RopeScaling) -> [f32; 4] {
        let (mut x, mut turn) = (x, [0.0; 4]);
        Rope::new(4, base, scaling).turn(pos, &mut turn);
        rotate(&mut x, &turn);
        x
    }

    #[test]
    fn position_zero_leaves_a_head_as_it_is() {
        assert_eq!(rotated([1.0, 2.0, 3.0, 4.0], 0, 10000.0, RopeScaling::None), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn the_first_pair_turns_by_one_radian_per_position() {
        let x = rotated([1.0, 0.0, 0.0, 0.0], 3, 10000.0, RopeScaling::None);
        assert!((x[0] - 3f32.cos()).abs() < 1e-6 && (x[2] - 3f32.sin()).abs() < 1e-6);
    }

    #[test]
    fn linear_scaling_by_two_at_an_even_position_is_no_scaling_at_half_of_it() {
        let x = [0.3, -0.2, 0.9, 0.4];
        let scaled = rotated(x, 8, 100.0, RopeScaling::Linear { factor: 2.0 });
        assert_eq!(scaled, rotated(x, 4, 100.0, RopeScaling::None));
    }

    #[test]
    fn yarn_keeps_the_fastest_pair_and_divides_the_slowest() {
        let (f, magnitude) = frequencies(64, 10000.0, RopeScaling::Yarn { factor: 4.0, original_context: 128 });
        let (plain, _) = frequencies(64, 10000.0, RopeScaling::None);
        assert_eq!(f[0], plain[0]);
        assert_eq!(f[31], plain[31] / 4.0);
        assert!((magnitude - 1.138_629_4).abs() < 1e-6);
    }
}

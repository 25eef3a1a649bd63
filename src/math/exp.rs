//! Exponential, silu and softmax from one polynomial, so that no result depends on the system's libm.

use super::sum_wide;

/// Above this, `exp` overflows f32.
const LARGEST: f32 = 88.722_83;
/// Below this, the result is smaller than the least normal f32 and is given as zero.
const SMALLEST: f32 = -87.336_54;
/// ln 2 in two parts, the first exact in 15 bits, so that `x - n ln 2` keeps its last bits (Cody and Waite).
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

/// The natural exponential, within 2 units in the last place; 0 below -87.33, infinity above 88.72, NaN for NaN.
///
/// `x` is split into `n ln 2 + r` with `|r| <= ln 2 / 2`; `exp(r)` is the Taylor polynomial of degree 7 (remainder below
/// 6e-9 of the result), and `2^n` goes into the exponent bits in two steps, so that `n = 128` does not overflow early.
///
/// Source: Cody and Waite 1980, Software Manual for the Elementary Functions, chapter 6.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let clamped = x.clamp(SMALLEST, LARGEST);
    let n = (clamped * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let mut p = 1.0f32 / 5040.0;
    for coefficient in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p.mul_add(r, coefficient);
    }
    // `n` is within -126..=128: added to 1.5 · 2^23 it lands in the lowest bits. A cast would keep the compiler from making
    // vectors, as it checks for NaN and overflow; a NaN gives any number here, and `p` stays NaN.
    let n = (n + 12_582_912.0).to_bits().wrapping_sub(12_582_912.0f32.to_bits()) as i32;
    let half = n >> 1;
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) as u32) << 23);
    let result = p * power(half) * power(n.wrapping_sub(half));
    if x < SMALLEST {
        0.0
    } else if x > LARGEST {
        f32::INFINITY
    } else {
        result
    }
}

/// `x / (1 + exp(-x))`.
///
/// Source: Hendrycks and Gimpel 2016, arXiv 1606.08415; Elfwing et al. 2017, arXiv 1702.03118.
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// `gate[i] = silu(gate[i]) · up[i]`, the gated activation of an expert; both are `[n]`.
///
/// Source: Shazeer 2020, GLU Variants Improve Transformer, arXiv 2002.05202 (SwiGLU).
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    for (gate, up) in gate.iter_mut().zip(up) {
        *gate = silu(*gate) * up;
    }
}

/// Softmax of `x`, in place: `exp(x - max) / sum`, the sum in f64 ([`sum_wide`]); an empty slice stays empty.
#[inline(always)]
pub fn softmax(x: &mut [f32]) {
    softmax_part(x, 1.0);
}

/// Softmax of `scale · x`, in place, as [`softmax`]. Gives the largest `scale · x[i]` and the sum of the exponentials, which
/// tell the weight of `x` in a softmax over more than it.
#[inline(always)]
pub fn softmax_part(x: &mut [f32], scale: f32) -> (f32, f32) {
    // Written as a select and not `f32::max`, so that every instruction set compiles it alike.
    let max = x.iter().fold(f32::NEG_INFINITY, |max, &x| if scale * x > max { scale * x } else { max });
    for x in x.iter_mut() {
        *x = exp(scale * *x - max);
    }
    let sum = sum_wide(x, |x| x);
    let inverse = (1.0 / sum) as f32;
    for x in x.iter_mut() {
        *x *= inverse;
    }
    (max, sum as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place_over_its_whole_range() {
        let mut worst = 0.0f64;
        for i in -87_300..88_700 {
            let x = i as f32 / 1000.0;
            let right = libm::exp(f64::from(x));
            worst = worst.max(((f64::from(exp(x)) - right) / right).abs());
        }
        assert!(worst < 2.0 * f64::from(f32::EPSILON), "worst relative error {worst:e}");
    }

    #[test]
    fn exp_has_the_right_edges() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-1e9), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(1e9), f32::INFINITY);
        assert!(exp(88.72).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn softmax_adds_to_one_and_survives_large_values() {
        let mut x = [1000.0, 1000.0, 999.0, f32::NEG_INFINITY];
        softmax(&mut x);
        assert!((x.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!(x[0], x[1]);
        assert_eq!(x[3], 0.0);
        softmax(&mut []);
    }

    #[test]
    fn silu_of_a_very_negative_number_is_a_negative_zero() {
        assert_eq!(silu(-200.0), 0.0);
        assert_eq!(silu(0.0), 0.0);
        assert!((silu(1.0) - 0.731_058_6).abs() < 1e-6);
    }
}

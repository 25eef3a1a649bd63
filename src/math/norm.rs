//! Root-mean-square normalisation.

use super::sum_wide;

/// Writes `x / sqrt(mean(x²) + eps) · weight` to `out`; all are `[n]`.
///
/// Source: Zhang and Sennrich 2019, Root Mean Square Layer Normalization, arXiv 1910.07467. Squares are f32 and their
/// sum f64 ([`sum_wide`]), as in llama.cpp: what the norm gives is quantized next, where a last bit can decide.
///
/// # Panics
/// If the lengths differ or are zero.
#[inline(always)]
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    assert!(!x.is_empty() && x.len() == weight.len() && x.len() == out.len());
    let mean = (sum_wide(x, |x| x * x) / x.len() as f64) as f32;
    let scale = 1.0 / (mean + eps).sqrt();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_divided_by_its_root_mean_square() {
        let mut out = [0.0; 4];
        rms_norm(&[2.0, -2.0, 2.0, -2.0], &[1.0, 1.0, 0.5, 3.0], 0.0, &mut out);
        assert_eq!(out, [1.0, -1.0, 0.5, -3.0]);
    }

    #[test]
    fn eps_keeps_a_zero_vector_finite() {
        let mut out = [1.0; 2];
        rms_norm(&[0.0, 0.0], &[1.0, 1.0], 1e-5, &mut out);
        assert_eq!(out, [0.0, 0.0]);
    }
}

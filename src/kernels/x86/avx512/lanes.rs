//! Sixteen rows in the lanes of a register.

use super::super::unpack::Quants;
use std::arch::x86_64::*;

/// Rows that are multiplied at once: the 32-bit lanes of a register.
pub(super) const ROWS: usize = 16;
/// Registers of rows that share each activation.
pub(super) const GROUPS: usize = 2;

/// Turns 16 rows of eight 32-bit words round: vector `k` of the result holds word `k` of every row, row `r` in lane `r`.
///
/// Rows `r` and `r + 4` share a register, so that a transposition within parts of 128 bits leaves word `k` of eight rows
/// in parts 0 and 2, and word `k + 4` in parts 1 and 3; choosing parts from two such registers ends it.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn transpose(rows: &[__m256i; ROWS]) -> [__m512i; 8] {
    let low = transpose_fours([join(rows, 0), join(rows, 1), join(rows, 2), join(rows, 3)]);
    let high = transpose_fours([join(rows, 8), join(rows, 9), join(rows, 10), join(rows, 11)]);
    let mut words = [_mm512_setzero_si512(); 8];
    for k in 0..4 {
        words[k] = _mm512_shuffle_i64x2::<0b10_00_10_00>(low[k], high[k]);
        words[k + 4] = _mm512_shuffle_i64x2::<0b11_01_11_01>(low[k], high[k]);
    }
    words
}

/// Rows `r` and `r + 4` in one register.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn join(rows: &[__m256i; ROWS], r: usize) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(rows[r]), rows[r + 4])
}

/// Transposes 4 x 4 words within each part of 128 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn transpose_fours([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    let (ab, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab, cd),
        _mm512_unpackhi_epi64(ab, cd),
        _mm512_unpacklo_epi64(ab_high, cd_high),
        _mm512_unpackhi_epi64(ab_high, cd_high),
    ]
}

/// What the unsigned quants of [`unsigned`] lie above the elements.
pub(super) const fn offset(kind: Quants) -> i32 {
    match kind {
        Quants::Above(offset) => offset as i32,
        Quants::Signed => 128,
    }
}

/// Quants as the unsigned bytes that the multiplication wants; signed ones are raised by 128.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn unsigned(kind: Quants, quants: __m256i) -> __m256i {
    match kind {
        Quants::Above(_) => quants,
        Quants::Signed => _mm256_xor_si256(quants, _mm256_set1_epi8(-128)),
    }
}

/// The lanes as an array.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn to_array(x: __m512) -> [f32; ROWS] {
    let mut lanes = [0.0; ROWS];
    // SAFETY: the array is 64 bytes.
    unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), x) };
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_k_of_row_r_moves_to_lane_r_of_vector_k() {
        if super::super::Avx512Vnni::detect().is_none() {
            return;
        }
        let words: [[i32; 8]; ROWS] = std::array::from_fn(|r| std::array::from_fn(|k| (100 * r + k) as i32));
        // SAFETY: `detect` saw the features, and all arrays are as long as the vectors.
        let turned = unsafe { transpose(&words.map(|row| _mm256_loadu_si256(row.as_ptr().cast()))) };
        for (k, vector) in turned.into_iter().enumerate() {
            let mut lanes = [0i32; ROWS];
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), vector) };
            assert_eq!(lanes, std::array::from_fn(|r| (100 * r + k) as i32));
        }
    }
}

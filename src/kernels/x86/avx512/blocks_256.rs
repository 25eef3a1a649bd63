//! Products of the K-quants and the other types with blocks of 256.

use super::super::unpack::{Quants, Unpack256, prefetch};
use super::super::{eight_sums, rows};
use super::Product;
use super::lanes::{GROUPS, ROWS, offset, transpose, unsigned};
use super::multiply::Vnni;
use super::tiles::{self, PackedBlock, Panel, Sums};
use crate::quant::Column;
use std::arch::x86_64::*;
use std::ops::Range;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
pub(super) fn matmul<B: Unpack256>(product: Product<'_>, rows: Range<usize>) {
    if B::EIGHT_SUMS {
        // SAFETY: this function has the features.
        return unsafe { eight_sums::blocks_256::matmul::<Vnni, B>(product, rows) };
    }
    if let [x] = product.columns {
        // SAFETY: this function has the features.
        return unsafe { rows::blocks_256::matmul::<Vnni, B>(product, rows, x) };
    }
    tiles::matmul::<Block<B>>(product, rows);
}

/// One block of each of the rows of a tile, a lane a row.
struct Block<B> {
    /// `[groups of rows, 64]` vectors of four quants a row.
    quads: [[__m512i; 64]; GROUPS],
    /// `[groups of rows, 16]` integer scales.
    scales: [[__m512i; 16]; GROUPS],
    /// Pairs of 16-bit minimums, in the order of [`pairs_of_sums`].
    mins: [[__m512i; 8]; GROUPS],
    /// Float factors of the products and of the minimums.
    factors: [[__m512; 2]; GROUPS],
    ty: std::marker::PhantomData<B>,
}

/// Neighbouring elements whose products, counted from the type's offset, have a sum that fits 16 bits; 0 if not even eight.
const fn elements_in_16_bits<B: Unpack256>() -> usize {
    let largest = match B::QUANTS {
        Quants::Above(offset) if offset > 0 => {
            let (below, above) = (offset as usize, B::LARGEST as usize - offset as usize);
            if below > above { below } else { above }
        }
        Quants::Above(_) => B::LARGEST as usize,
        Quants::Signed => 128,
    };
    match i16::MAX as usize / (127 * largest) {
        16.. => 16,
        8..16 => 8,
        _ => 0,
    }
}

/// Elements that are summed before they are scaled.
const fn run<B: Unpack256>() -> usize {
    match elements_in_16_bits::<B>() {
        0 if B::SCALE_BY_16 => 16,
        0 => 32,
        n => n,
    }
}

impl<B: Unpack256> Panel for Block<B> {
    type Bytes = B;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512.
        unsafe {
            let (integers, floats) = (_mm512_setzero_si512(), _mm512_setzero_ps());
            Self {
                quads: [[integers; 64]; GROUPS],
                scales: [[integers; 16]; GROUPS],
                mins: [[integers; 8]; GROUPS],
                factors: [[floats; 2]; GROUPS],
                ty: std::marker::PhantomData,
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn pack(column: &Column<'_>, i: usize, c: usize, packed: &mut PackedBlock) {
        let below = -offset(B::QUANTS);
        if below != 0 {
            let quants = &column.quants[256 * i..256 * (i + 1)];
            for (to, run) in packed.starts.iter_mut().zip(quants.chunks_exact(const { run::<B>() })) {
                to[c] = below * run.iter().map(|x| i32::from(*x)).sum::<i32>();
            }
        }
        packed.scales[0][c] = column.scales[i];
        if B::HAS_MIN {
            let pairs = pairs_of_sums::<B>(&column.sums.as_chunks().0[i]);
            for (to, pair) in packed.pairs.iter_mut().zip(pairs) {
                to[c] = pair;
            }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn unpack(&mut self, rows: &[&[B]; GROUPS * ROWS], i: usize) {
        for g in 0..GROUPS {
            let blocks: [&B; ROWS] = std::array::from_fn(|r| &rows[ROWS * g + r][i]);
            for block in blocks {
                prefetch(block, size_of_val(rows[0]) * GROUPS * ROWS);
            }
            let quads = self.quads[g].as_chunks_mut::<8>().0;
            quads[0] = quads_of::<B, 0>(&blocks);
            quads[1] = quads_of::<B, 1>(&blocks);
            quads[2] = quads_of::<B, 2>(&blocks);
            quads[3] = quads_of::<B, 3>(&blocks);
            quads[4] = quads_of::<B, 4>(&blocks);
            quads[5] = quads_of::<B, 5>(&blocks);
            quads[6] = quads_of::<B, 6>(&blocks);
            quads[7] = quads_of::<B, 7>(&blocks);
            self.unpack_scales(g, &blocks);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn multiply<const C: usize>(&self, x: &PackedBlock, sums: &mut Sums) {
        let zero = _mm512_setzero_si512();
        let mut products = [[zero; GROUPS]; C];
        let run = const { run::<B>() };
        for k in 0..256 / run {
            let mut dots = [[zero; GROUPS]; C];
            if offset(B::QUANTS) != 0 {
                for (dots, start) in dots.iter_mut().zip(x.starts[k]) {
                    *dots = [_mm512_set1_epi32(start); GROUPS];
                }
            }
            for q in k * run / 4..(k + 1) * run / 4 {
                for (dots, quad) in dots.iter_mut().zip(x.quads[q]) {
                    let x = _mm512_set1_epi32(quad);
                    for (dots, quads) in dots.iter_mut().zip(&self.quads) {
                        *dots = _mm512_dpbusd_epi32(*dots, quads[q], x);
                    }
                }
            }
            for c in 0..C {
                for g in 0..GROUPS {
                    let scale = self.scales[g][k * run / 16];
                    products[c][g] = if const { elements_in_16_bits::<B>() } > 0 {
                        // The sum is the lane's lower half; the scale's upper half is zero.
                        _mm512_dpwssd_epi32(products[c][g], dots[c][g], scale)
                    } else {
                        _mm512_add_epi32(products[c][g], _mm512_mullo_epi32(dots[c][g], scale))
                    };
                }
            }
        }
        for c in 0..C {
            for g in 0..GROUPS {
                let x_scale = _mm512_set1_ps(x.scales[0][c]);
                let factors = _mm512_mul_ps(self.factors[g][0], x_scale);
                let [total, min_total] = &mut sums[c][g];
                *total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(products[c][g]), *total);
                if B::HAS_MIN {
                    let mut integers = zero;
                    for k in 0..n_pairs::<B>() {
                        integers = _mm512_dpwssd_epi32(integers, self.mins[g][k], _mm512_set1_epi32(x.pairs[k][c]));
                    }
                    let factors = _mm512_mul_ps(self.factors[g][1], x_scale);
                    *min_total = _mm512_fmadd_ps(factors, _mm512_cvtepi32_ps(integers), *min_total);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn value([total, min_total]: [__m512; 2]) -> __m512 {
        // SAFETY: the caller has AVX-512.
        if B::HAS_MIN { unsafe { _mm512_sub_ps(total, min_total) } } else { total }
    }
}

/// Pairs of minimums of a block: where 32 elements share one, their two sums are added first.
const fn n_pairs<B: Unpack256>() -> usize {
    if B::SCALE_BY_16 { 8 } else { 4 }
}

/// Sums of activations in pairs that belong to the pairs of minimums: those of elements `64 k` and `64 k + 32`, and after
/// four of these pairs, where each 16 elements have a minimum, those 16 elements further on.
fn pairs_of_sums<B: Unpack256>(sums: &[i16; 16]) -> [i32; 8] {
    let pair = |a: i16, b: i16| i32::from(a) & 0xffff | i32::from(b) << 16;
    std::array::from_fn(|k| match (k, B::SCALE_BY_16) {
        (0..4, true) => pair(sums[4 * k], sums[4 * k + 2]),
        (_, true) => pair(sums[4 * (k - 4) + 1], sums[4 * (k - 4) + 3]),
        (0..4, false) => pair(sums[4 * k] + sums[4 * k + 1], sums[4 * k + 2] + sums[4 * k + 3]),
        (_, false) => 0,
    })
}

/// Quants of group `J` of 32 elements, four a vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn quads_of<B: Unpack256, const J: usize>(blocks: &[&B; ROWS]) -> [__m512i; 8] {
    let mut quants = [_mm256_setzero_si256(); ROWS];
    for (quants, block) in quants.iter_mut().zip(blocks) {
        // SAFETY: this function has AVX2.
        *quants = unsigned(B::QUANTS, unsafe { block.group::<J>() });
    }
    transpose(&quants)
}

impl<B: Unpack256> Block<B> {
    /// Scales, minimums and factors of the 16 rows of group `g`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    fn unpack_scales(&mut self, g: usize, blocks: &[&B; ROWS]) {
        let mut scales = [_mm256_setzero_si256(); ROWS];
        let mut mins = scales;
        let mut fours = [_mm256_setzero_ps(); 4];
        for (i, blocks) in blocks.as_chunks::<4>().0.iter().enumerate() {
            // SAFETY: this function has AVX2 and F16C.
            let (four, factors) = unsafe { B::scales(*blocks) };
            fours[i] = factors;
            for (r, four) in four.iter().enumerate() {
                scales[4 * i + r] = four.scales;
                mins[4 * i + r] = four.sum_factors;
            }
        }
        // Vector `k` holds scales `4 k` and `4 k + 2`, vector `4 + k` those after them.
        for (k, pair) in transpose(&scales).into_iter().enumerate() {
            let (low, high) = (_mm512_slli_epi32::<16>(pair), pair);
            let at = 4 * (k % 4) + k / 4;
            self.scales[g][at] = scale_lanes::<B>(low);
            self.scales[g][at + 2] = scale_lanes::<B>(high);
        }
        let join = _mm512_castps256_ps512;
        let (low, high) =
            (_mm512_insertf32x8::<1>(join(fours[0]), fours[1]), _mm512_insertf32x8::<1>(join(fours[2]), fours[3]));
        if B::HAS_MIN {
            self.mins[g] = transpose(&mins);
            // Scales and those of the minimums take turns.
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            self.factors[g] = [_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high)];
        } else {
            // Each four lanes come twice.
            self.factors[g][0] = _mm512_shuffle_f32x4::<0b10_00_10_00>(low, high);
        }
    }
}

/// Scales from the upper halves of lanes: in the lower halves alone, or as whole lanes where those are multiplied.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn scale_lanes<B: Unpack256>(upper: __m512i) -> __m512i {
    if elements_in_16_bits::<B>() > 0 { _mm512_srli_epi32::<16>(upper) } else { _mm512_srai_epi32::<16>(upper) }
}

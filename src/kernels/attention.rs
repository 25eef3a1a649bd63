//! What the loops of attention work on.

/// A product of small float matrices: rows of queries times a tile of keys, or rows of weights times a tile of values.
///
/// [`add_product`](super::Kernels::add_product) makes `out[r][j] = fma(a[r][i], b[i][j], out[r][j])` for `i` from 0 to
/// `inner - 1` in this order. [`scores`](super::Kernels::scores) has 16 such chains for each element, from zero: step `i` is
/// in chain `i mod 16`, and they end in [`sum_lanes`](crate::math::sum_lanes). Neither the number of rows nor the width of
/// registers can change a bit.
#[derive(Debug)]
pub struct FloatProduct<'a> {
    /// Rows of `a` and `out`.
    pub rows: usize,
    /// Elements of a row of `a`, and rows of `b`.
    pub inner: usize,
    /// Elements of a row of `b` and of `out`.
    pub width: usize,
    /// `[rows, inner]`, rows `a_stride` apart.
    pub a: &'a [f32],
    /// At least `inner`.
    pub a_stride: usize,
    /// `[inner, width]`.
    pub b: &'a [f32],
    /// `[rows, width]`, rows `out_stride` apart.
    pub out: &'a mut [f32],
    /// At least `width`.
    pub out_stride: usize,
}

impl FloatProduct<'_> {
    /// Checks what every path relies on: the last row of each matrix ends within its slice.
    pub(super) fn assert_shapes(&self) {
        let end = |stride: usize, len: usize| self.rows.saturating_sub(1) * stride + len;
        assert!(self.rows == 0 || end(self.a_stride, self.inner) <= self.a.len(), "rows of a");
        assert!(self.rows == 0 || end(self.out_stride, self.width) <= self.out.len(), "rows of out");
        assert!(self.inner <= self.a_stride && self.width <= self.out_stride, "rows overlap");
        assert!(self.inner * self.width <= self.b.len(), "rows of b");
    }
}

/// Scales of byte numbers, one for each 32.
#[derive(Clone, Copy, Debug)]
pub enum ByteScales<'a> {
    /// One for 32 numbers that follow each other: `[numbers / 32]`.
    Along(&'a [f32]),
    /// One for 32 numbers `width` apart: `[numbers / 32 / width, width]`.
    Across {
        /// The scales.
        scales: &'a [f32],
        /// Numbers of a row.
        width: usize,
    },
}

/// `out[i]` = number `i` times its scale.
///
/// # Panics
/// If the lengths do not fit.
#[inline(always)]
pub(super) fn widen_bytes(numbers: &[i8], scales: ByteScales<'_>, out: &mut [f32]) {
    assert_eq!(numbers.len(), out.len());
    match scales {
        ByteScales::Along(scales) => {
            let (numbers, out) = (numbers.as_chunks::<32>().0, out.as_chunks_mut::<32>().0);
            assert_eq!(numbers.len(), scales.len());
            for ((numbers, out), scale) in numbers.iter().zip(out).zip(scales) {
                for (out, number) in out.iter_mut().zip(numbers) {
                    *out = f32::from(*number) * scale;
                }
            }
        }
        ByteScales::Across { scales, width } => {
            assert_eq!(numbers.len(), 32 * scales.len());
            let slabs = numbers.chunks_exact(32 * width).zip(out.chunks_exact_mut(32 * width));
            for ((numbers, out), scales) in slabs.zip(scales.chunks_exact(width)) {
                for (numbers, out) in numbers.chunks_exact(width).zip(out.chunks_exact_mut(width)) {
                    for ((out, number), scale) in out.iter_mut().zip(numbers).zip(scales) {
                        *out = f32::from(*number) * scale;
                    }
                }
            }
        }
    }
}

/// The lanes of a dot product in an order in which each can be added as soon as it is there: `LANE_ORDER[n]` closes as many
/// pairs as `n` ends in one bits, and needs one sum of each size besides.
#[cfg(target_arch = "x86_64")]
pub(super) const LANE_ORDER: [usize; crate::math::LANES] = [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15];

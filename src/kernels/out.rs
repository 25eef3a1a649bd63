//! The output of a matrix product, filled by several threads at once.

use std::sync::atomic::{AtomicU32, Ordering};

/// Output matrix of a product, `[n, stride]`: column `j` of the batch owns `stride` floats, row `r` is its `r`-th.
///
/// Threads share it and write the rows that they computed. Elements are written with relaxed atomic stores, which are
/// plain stores on every processor: two threads given the same row by mistake cost a wrong value, not undefined behaviour.
#[derive(Debug)]
pub struct OutColumns<'a> {
    bits: &'a [AtomicU32],
    n: usize,
    stride: usize,
}

impl<'a> OutColumns<'a> {
    /// Views `out` as `[out.len() / stride, stride]`.
    ///
    /// # Panics
    /// If `stride` is zero or does not divide the length.
    #[allow(unsafe_code)] // The standard library casts to a slice of atomics only in unstable functions.
    pub fn new(out: &'a mut [f32], stride: usize) -> Self {
        assert!(stride > 0 && out.len().is_multiple_of(stride), "{} outputs in columns of {stride}", out.len());
        let n = out.len() / stride;
        // SAFETY: AtomicU32 has the size and alignment of f32, every bit pattern is valid for both, and the exclusive
        // borrow of `out` lasts as long as the view.
        let bits = unsafe { std::slice::from_raw_parts(out.as_mut_ptr().cast::<AtomicU32>(), out.len()) };
        Self { bits, n, stride }
    }

    /// Number of columns.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Rows of a column.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Stores `value` at row `row` of column `j`.
    ///
    /// # Panics
    /// If `j` or `row` is out of range.
    #[inline(always)]
    pub fn write(&self, j: usize, row: usize, value: f32) {
        assert!(row < self.stride, "row {row} of {}", self.stride);
        self.bits[j * self.stride + row].store(value.to_bits(), Ordering::Relaxed);
    }

    /// Where row `row` of column `j` is, to ask for its cache line; the place need not exist.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn address(&self, j: usize, row: usize) -> *const u8 {
        self.bits.as_ptr().wrapping_add(j * self.stride + row).cast()
    }

    /// Stores `values` at the rows from `first` on of column `j`.
    ///
    /// # Panics
    /// If `j` or one of the rows is out of range.
    #[inline(always)]
    pub fn write_rows(&self, j: usize, first: usize, values: &[f32]) {
        let column = &self.bits[j * self.stride..(j + 1) * self.stride];
        for (bits, value) in column[first..first + values.len()].iter().zip(values) {
            bits.store(value.to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_fill_disjoint_rows_of_every_column() {
        let mut out = vec![0.0; 12];
        let view = OutColumns::new(&mut out, 4);
        std::thread::scope(|scope| {
            for rows in [0..2, 2..4] {
                let view = &view;
                scope.spawn(move || {
                    for (j, row) in (0..3).flat_map(|j| rows.clone().map(move |row| (j, row))) {
                        view.write(j, row, (10 * j + row) as f32);
                    }
                });
            }
        });
        assert_eq!(out, [0., 1., 2., 3., 10., 11., 12., 13., 20., 21., 22., 23.]);
    }

    #[test]
    fn several_rows_of_a_column_are_filled_at_once() {
        let mut out = vec![0.0; 8];
        OutColumns::new(&mut out, 4).write_rows(1, 1, &[1.0, 2.0]);
        assert_eq!(out, [0., 0., 0., 0., 0., 1., 2., 0.]);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn rows_past_the_end_of_a_column_are_refused() {
        OutColumns::new(&mut [0.0; 8], 4).write_rows(0, 3, &[1.0, 2.0]);
    }
}

//! The output of a matrix product, filled by several threads at once.
#![allow(unsafe_code)] // Threads write disjoint rows of every column; slices cannot express that.

use std::marker::PhantomData;

/// Output matrix of a product, `[n, stride]`: column `j` of the batch owns `stride` floats, row `r` is its `r`-th.
///
/// Threads share it and write disjoint rows.
#[derive(Debug)]
pub struct OutColumns<'a> {
    first: *mut f32,
    n: usize,
    stride: usize,
    _borrow: PhantomData<&'a mut [f32]>,
}

// SAFETY: the only access is `write`, whose contract forbids two threads the same element.
unsafe impl Send for OutColumns<'_> {}
// SAFETY: as above.
unsafe impl Sync for OutColumns<'_> {}

impl<'a> OutColumns<'a> {
    /// Views `out` as `[out.len() / stride, stride]`.
    ///
    /// # Panics
    /// If `stride` is zero or does not divide the length.
    pub fn new(out: &'a mut [f32], stride: usize) -> Self {
        assert!(stride > 0 && out.len() % stride == 0, "{} outputs in columns of {stride}", out.len());
        Self { first: out.as_mut_ptr(), n: out.len() / stride, stride, _borrow: PhantomData }
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
    /// # Safety
    /// No other thread reads or writes the same element during the life of this view.
    ///
    /// # Panics
    /// If `j` or `row` is out of range.
    #[inline(always)]
    pub unsafe fn write(&self, j: usize, row: usize, value: f32) {
        assert!(j < self.n && row < self.stride, "element {j}, {row} of {}, {}", self.n, self.stride);
        // SAFETY: in bounds by the assertion; exclusive by the caller's promise.
        unsafe { self.first.add(j * self.stride + row).write(value) }
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
                        // SAFETY: the two threads have disjoint rows.
                        unsafe { view.write(j, row, (10 * j + row) as f32) };
                    }
                });
            }
        });
        assert_eq!(out, [0., 1., 2., 3., 10., 11., 12., 13., 20., 21., 22., 23.]);
    }
}

//! A borrowed weight matrix in its stored format.

use super::TensorType;
use std::ops::Range;

/// Rows of a weight matrix, `[rows, cols]`, in the bytes of the file.
///
/// A row is `cols / block_len` blocks, rows lie back to back, and the bytes may start at any address.
#[derive(Clone, Copy, Debug)]
pub struct WeightRows<'a> {
    ty: TensorType,
    bytes: &'a [u8],
    rows: usize,
    cols: usize,
}

impl<'a> WeightRows<'a> {
    /// Wraps `bytes` as a `[rows, cols]` matrix of type `ty`.
    ///
    /// # Panics
    /// If `cols` is not a whole number of blocks or `bytes` is not exactly `rows` rows long.
    pub fn new(ty: TensorType, bytes: &'a [u8], rows: usize, cols: usize) -> Self {
        let row_bytes = ty.row_bytes(cols).expect("cols is a whole number of blocks");
        assert_eq!(Some(bytes.len()), row_bytes.checked_mul(rows), "{ty} matrix of {rows} x {cols}");
        Self { ty, bytes, rows, cols }
    }

    /// Element type of the matrix.
    pub fn ty(&self) -> TensorType {
        self.ty
    }

    /// Number of rows, the outputs of a product.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns, the inputs of a product.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of one row.
    pub fn row_bytes(&self) -> usize {
        self.cols / self.ty.block_len() * self.ty.block_bytes()
    }

    /// The stored bytes of row `row`.
    ///
    /// # Panics
    /// If `row` is out of range.
    pub fn row(&self, row: usize) -> &'a [u8] {
        self.row_range(row..row + 1)
    }

    /// The stored bytes of `rows`, row by row.
    ///
    /// # Panics
    /// If a row is out of range.
    pub fn row_range(&self, rows: Range<usize>) -> &'a [u8] {
        let n = self.row_bytes();
        &self.bytes[rows.start * n..rows.end * n]
    }
}

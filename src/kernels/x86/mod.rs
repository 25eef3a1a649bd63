//! Paths for x86-64 processors.
#![allow(unsafe_code)] // Vector loads take raw pointers, and the features are proven at run time.

mod avx2;
mod avx512;
mod eight_sums;
mod rows;
mod unpack;

use super::{Kernels, OutColumns};
use crate::quant::{Column, WeightRows};
use std::ops::Range;

/// The paths that this processor can run, in order of speed.
pub(super) fn available() -> Vec<Box<dyn Kernels>> {
    let mut paths: Vec<Box<dyn Kernels>> = Vec::new();
    if let Some(path) = avx2::Avx2::detect() {
        paths.push(Box::new(path));
    }
    if let Some(path) = avx512::Avx512Vnni::detect() {
        paths.push(Box::new(path));
    }
    paths
}

/// A product whose shapes have been checked.
#[derive(Clone, Copy)]
struct Product<'a> {
    w: &'a WeightRows<'a>,
    columns: &'a [Column<'a>],
    out: &'a OutColumns<'a>,
}

impl<'a> Product<'a> {
    /// Rows `first` to `first + R`; from `end` on the last one before it stands in, so that a group is always whole.
    #[inline(always)]
    fn rows<B: bytemuck::Pod, const R: usize>(&self, first: usize, end: usize) -> [&'a [B]; R] {
        std::array::from_fn(|r| bytemuck::cast_slice(self.w.row((first + r).min(end - 1))))
    }

    /// The blocks of `rows`, row by row.
    #[inline(always)]
    fn blocks<B: bytemuck::Pod>(&self, rows: Range<usize>) -> &'a [B] {
        bytemuck::cast_slice(self.w.row_range(rows))
    }

    /// Stores the values of rows `first ..` of column `j`, but for those from `end` on.
    #[inline(always)]
    fn store(&self, j: usize, first: usize, end: usize, values: &[f32]) {
        if let Some(n) = end.checked_sub(first) {
            self.out.write_rows(j, first, &values[..n.min(values.len())]);
        }
    }
}

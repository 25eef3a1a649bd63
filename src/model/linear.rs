//! Matrix products, several of them in one hand-off to the compute threads.

use super::dense::Bytes;
use super::weights::Matrix;
use super::workspace::{QuantizedSet, resize};
use crate::kernels::{Kernels, OutColumns};
use crate::parallel::Pool;
use crate::quant::{ActivationFormat, Activations, WeightRows};
use std::ops::Range;

/// What products are computed with.
#[derive(Clone, Copy, Debug)]
pub struct Compute<'a> {
    /// Threads.
    pub pool: &'a Pool,
    /// Loops.
    pub kernels: &'a dyn Kernels,
}

impl Compute<'_> {
    /// Norm of each row of `x`; activations of the rows before are forgotten.
    pub(super) fn norm(
        &self,
        x: &[f32],
        weight: &[f32],
        eps: f32,
        normed: &mut Vec<f32>,
        quantized: &mut QuantizedSet,
    ) {
        let width = weight.len();
        let rows = x.chunks_exact(width).zip(resize(normed, x.len()).chunks_exact_mut(width)).collect();
        self.pool.for_each(rows, |_, (x, out)| self.kernels.rms_norm(x, weight, eps, out));
        quantized.clear();
    }

    /// Products of several matrices with the same `n` columns `x`, in one hand-off. Each output becomes `[n, rows]`.
    pub(super) fn matrices(
        &self,
        bytes: Bytes<'_>,
        matrices: &[&Matrix],
        x: &[f32],
        n: usize,
        quantized: &mut QuantizedSet,
        outs: &mut [&mut Vec<f32>],
    ) {
        let format = |matrix: &Matrix| matrix.ty().activation_format().expect("loading checked every type");
        for matrix in matrices {
            self.quantize(format(matrix), x, x.len() / n, quantized);
        }
        let columns: Vec<u32> = (0..n as u32).collect();
        let products = matrices.iter().zip(outs).map(|(matrix, out)| {
            let weights = matrix.rows(bytes);
            let out = OutColumns::new(resize(out, n * weights.rows()), weights.rows());
            Product { weights, x: quantized.get(format(matrix)), columns: &columns, out }
        });
        let products: Vec<_> = products.collect();
        self.multiply(&products);
    }

    /// Makes the columns `x`, `[n, cols]`, available in `format`, unless they are already.
    pub(super) fn quantize(&self, format: ActivationFormat, x: &[f32], cols: usize, set: &mut QuantizedSet) {
        if let Some(batch) = set.room(format, cols, x.len() / cols) {
            let columns = batch.columns_mut().into_iter().zip(x.chunks_exact(cols)).collect();
            self.pool.for_each(columns, |_, (column, x)| self.kernels.quantize(x, column));
        }
    }

    /// Computes all `products` in one hand-off.
    pub(super) fn multiply(&self, products: &[Product<'_>]) {
        multiply(self.pool, self.kernels, products);
    }
}

/// One matrix with the columns it is multiplied with.
#[derive(Debug)]
pub struct Product<'a> {
    /// Matrix, `[rows, cols]`.
    pub weights: WeightRows<'a>,
    /// Batch of columns in the format that the matrix wants.
    pub x: &'a Activations,
    /// Which columns of the batch, in the order of the output.
    pub columns: &'a [u32],
    /// Output, `[columns.len(), rows]`.
    pub out: OutColumns<'a>,
}

/// Rows of one task are a multiple of this, so that kernels that take several rows at a time stay full: with one column,
/// and with several.
const ROW_STEPS: [usize; 2] = [16, 32];
/// Multiply-adds below which a hand-off costs more than it saves.
const SERIAL_WORK: usize = 1 << 16;
/// Tasks per thread: enough to even out the end, few enough to stay cheap.
const TASKS_PER_THREAD: usize = 4;

/// Computes all `products`, split by rows over the pool's threads; a row is never split.
pub fn multiply(pool: &Pool, kernels: &dyn Kernels, products: &[Product<'_>]) {
    let work = |p: &Product<'_>| p.weights.rows() * p.weights.cols() * p.columns.len();
    let total: usize = products.iter().map(work).sum();
    let compute = |(p, rows): (usize, Range<usize>)| {
        let p = &products[p];
        kernels.matmul(&p.weights, rows, p.x, p.columns, &p.out);
    };
    if pool.n_threads() == 1 || total <= SERIAL_WORK {
        return products.iter().enumerate().for_each(|(i, p)| compute((i, 0..p.weights.rows())));
    }
    let task_work = total.div_ceil(pool.n_threads() * TASKS_PER_THREAD);
    let tasks: Vec<(usize, Range<usize>)> = products
        .iter()
        .enumerate()
        .flat_map(|(i, p)| {
            let per_row = (p.weights.cols() * p.columns.len()).max(1);
            let row_step = ROW_STEPS[usize::from(p.columns.len() > 1)];
            let step = (task_work / per_row).next_multiple_of(row_step).max(row_step);
            let rows = p.weights.rows();
            (0..rows).step_by(step).map(move |first| (i, first..(first + step).min(rows)))
        })
        .collect();
    pool.run(tasks.len(), |i| compute(tasks[i].clone()));
}

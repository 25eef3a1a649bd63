//! Matrix products, several of them in one hand-off to the compute threads.

use crate::kernels::{Kernels, OutColumns};
use crate::parallel::Pool;
use crate::quant::{Activations, WeightRows};
use std::ops::Range;

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

/// Rows of one task are a multiple of this, so that kernels that take several rows at a time stay full.
const ROW_STEP: usize = 16;
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
            let step = (task_work / per_row).next_multiple_of(ROW_STEP).max(ROW_STEP);
            let rows = p.weights.rows();
            (0..rows).step_by(step).map(move |first| (i, first..(first + step).min(rows)))
        })
        .collect();
    pool.run(tasks.len(), |i| compute(tasks[i].clone()));
}

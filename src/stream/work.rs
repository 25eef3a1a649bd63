//! What is done with weights once they are in memory.

use super::Work;
use crate::kernels::{Kernels, OutColumns};
use crate::model::{Model, Product, multiply};
use crate::parallel::Pool;
use crate::quant::{ActivationFormat, Activations, WeightRows};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Does the work, and sums up what came of it.
pub(super) struct Worker<'a> {
    work: Work,
    pool: &'a Pool,
    kernels: &'a dyn Kernels,
    /// What matrices are multiplied with, one vector for each format and width.
    vectors: HashMap<(ActivationFormat, usize), Activations>,
    out: Vec<f32>,
    /// Of all results, in any order: the same whenever the same weights were worked on.
    pub digest: u64,
    /// Time that it took.
    pub busy: Duration,
}

/// Bytes that one thread sums up at a time.
const CHECKSUM_BYTES: usize = 256 << 10;
/// Longest sleep, so that nobody waits long to break a delay off.
const SLEEP: Duration = Duration::from_millis(20);

impl<'a> Worker<'a> {
    pub fn new(work: Work, model: &'a Model) -> Self {
        let (pool, kernels) = (model.pool(), model.kernels());
        Self { work, pool, kernels, vectors: HashMap::new(), out: Vec::new(), digest: 0, busy: Duration::ZERO }
    }

    /// Works on matrices of `n_experts` experts, or dense ones if that is 0.
    pub fn work(&mut self, matrices: &[WeightRows<'_>], n_experts: usize, cancelled: &dyn Fn() -> bool) {
        let started = Instant::now();
        match self.work {
            Work::Dot => self.multiply(matrices),
            Work::Checksum => self.sum(matrices),
            Work::Delay(each) => {
                let end = started + each * u32::try_from(n_experts).unwrap_or(u32::MAX);
                while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                    if cancelled() {
                        break;
                    }
                    std::thread::sleep(left.min(SLEEP));
                }
            }
        }
        self.busy += started.elapsed();
    }

    /// All products in one hand-off.
    fn multiply(&mut self, matrices: &[WeightRows<'_>]) {
        let format = |matrix: &WeightRows<'_>| matrix.ty().activation_format().expect("loading checked every type");
        for matrix in matrices {
            let (format, cols) = (format(matrix), matrix.cols());
            self.vectors.entry((format, cols)).or_insert_with(|| vector(self.kernels, format, cols));
        }
        self.out.resize(matrices.iter().map(WeightRows::rows).sum(), 0.0);
        let mut left = &mut self.out[..];
        let mut products = Vec::with_capacity(matrices.len());
        for matrix in matrices {
            let (out, rest) = left.split_at_mut(matrix.rows());
            left = rest;
            let x = &self.vectors[&(format(matrix), matrix.cols())];
            products.push(Product { weights: *matrix, x, columns: &[0], out: OutColumns::new(out, matrix.rows()) });
        }
        multiply(self.pool, self.kernels, &products);
        drop(products);
        self.digest = self.out.iter().fold(self.digest, |sum, x| sum.wrapping_add(u64::from(x.to_bits())));
    }

    fn sum(&mut self, matrices: &[WeightRows<'_>]) {
        let rows = matrices.iter().flat_map(|matrix| {
            let step = (CHECKSUM_BYTES / matrix.row_bytes().max(1)).max(1);
            (0..matrix.rows()).step_by(step).map(move |first| (matrix, first..matrix.rows().min(first + step)))
        });
        let total = AtomicU64::new(0);
        self.pool.for_each(rows.collect(), |_, (matrix, rows)| {
            let sum = rows.fold(0u64, |sum, row| sum.wrapping_add(sum_of_words(matrix.row(row))));
            total.fetch_add(sum, Ordering::Relaxed);
        });
        self.digest = self.digest.wrapping_add(total.into_inner());
    }
}

fn sum_of_words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// A vector of `cols` numbers between -1 and 1, without a pattern, in `format`.
fn vector(kernels: &dyn Kernels, format: ActivationFormat, cols: usize) -> Activations {
    // Multiples of the golden ratio spread evenly (Weyl's sequence).
    let spread = |i: usize| (i as u32).wrapping_mul(0x9e37_79b9) as f32 / u32::MAX as f32 * 2.0 - 1.0;
    let x: Vec<f32> = (0..cols).map(spread).collect();
    let mut vector = Activations::new();
    vector.resize(format, cols, 1);
    vector.columns_mut().into_iter().for_each(|column| kernels.quantize(&x, column));
    vector
}

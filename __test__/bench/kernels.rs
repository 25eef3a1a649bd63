//! Speed of every kernel path and type: `npm run bench:kernels [-- <part of a type or path name>]`.
//!
//! One thread. Decoding: bytes of weights per second, one column, with the weights in the second-level cache and in
//! memory; the limit of the latter is the bandwidth at which one thread reads memory, which is measured first. Prompts:
//! multiplications and additions per second, 64 columns. Best of many short runs.

use clutor::bench::read_bandwidth;
use clutor::kernels::{Kernels, OutColumns, available};
use clutor::quant::{Activations, TensorType, WeightRows};
use clutor::store::anonymous_memory;
use memmap2::MmapMut;
use std::hint::black_box;
use std::time::Instant;

const COLS: usize = 2048;
const CACHE_BYTES: usize = 320 << 10;
/// More than caches hold: servers have some of half of it.
const MEMORY_BYTES: usize = 1 << 30;
/// One call multiplies so many bytes of rows: long enough to measure, short enough to be undisturbed.
const PART_BYTES: usize = 4 << 20;
const PROMPT_COLUMNS: usize = 64;

fn main() {
    // `cargo bench` passes `--bench`; what else is given selects.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()));
    let bandwidth = match read_bandwidth(MEMORY_BYTES, 1) {
        Ok(bandwidth) => bandwidth.one_thread / 1e9,
        Err(error) => return eprintln!("{error}"),
    };
    let mut memory = Memory::new();
    println!("one thread reads memory at {bandwidth:.1} GB/s\n");
    println!(
        "rows of {COLS}, one thread      cache GB/s  x scalar   memory GB/s  of limit   {PROMPT_COLUMNS} columns GOP/s  x scalar"
    );
    for ty in (0..64).filter_map(TensorType::from_id).filter(|ty| ty.activation_format().is_some()) {
        let mut scalar = None;
        for path in available() {
            if !is_wanted(&format!("{ty} {}", path.name())) {
                continue;
            }
            let cache = gigabytes_per_second(path, ty, memory.weights(ty, CACHE_BYTES));
            let beyond = gigabytes_per_second(path, ty, memory.weights(ty, MEMORY_BYTES));
            let prompt = gigaops_per_second(path, ty, memory.weights(ty, CACHE_BYTES));
            if path.name() == "scalar" {
                scalar = Some((cache, prompt));
            }
            // Only beside scalar code that was measured too.
            let times = |of: fn((f64, f64)) -> f64, speed: f64| {
                scalar.map_or("-".to_owned(), |scalar| format!("{:.1}", speed / of(scalar)))
            };
            println!(
                "{:<10} {:<14} {cache:>14.2} {:>9} {beyond:>13.2} {:>7.0} % {prompt:>20.1} {:>10}",
                ty.name(),
                path.name(),
                times(|scalar| scalar.0, cache),
                100.0 * beyond / bandwidth,
                times(|scalar| scalar.1, prompt),
            );
        }
    }
    println!("\nrounding of {COLS} activations, GB/s");
    for path in available().into_iter().filter(|path| is_wanted(path.name())) {
        for ty in [TensorType::Q8_0, TensorType::Q4_1, TensorType::Q4_K, TensorType::F16, TensorType::BF16] {
            let format = ty.activation_format().expect("the type can be multiplied");
            let mut x = Activations::new();
            x.resize(format, COLS, 1);
            let values = values();
            let seconds = best_seconds(|| path.quantize(black_box(&values), x.columns_mut().remove(0)));
            println!("{:<10} {:<14} {:>14.2}", format!("{format:?}"), path.name(), (4 * COLS) as f64 / seconds / 1e9);
        }
    }
    println!("\nelement by element, {COLS} elements, GB/s read");
    for path in available().into_iter().filter(|path| is_wanted(path.name())) {
        let (a, mut b) = (values(), values());
        let halves: Vec<half::f16> = a.iter().map(|a| half::f16::from_f32(*a)).collect();
        let print = |name: &str, bytes: usize, seconds: f64| {
            println!("{name:<10} {:<14} {:>14.2}", path.name(), bytes as f64 / seconds / 1e9);
        };
        print("dot_f32", 8 * COLS, best_seconds(|| _ = black_box(path.dot_f32(black_box(&a), &b))));
        print("dot_f16", 6 * COLS, best_seconds(|| _ = black_box(path.dot_f16(black_box(&halves), &b))));
        print("axpy_f32", 8 * COLS, best_seconds(|| path.axpy_f32(1e-9, black_box(&a), &mut b)));
        print("axpy_f16", 6 * COLS, best_seconds(|| path.axpy_f16(1e-9, black_box(&halves), &mut b)));
        let mut out = vec![0.0; COLS];
        print("rms_norm", 8 * COLS, best_seconds(|| path.rms_norm(black_box(&a), &a, 1e-5, &mut out)));
        print("silu_mul", 8 * COLS, best_seconds(|| path.silu_mul(black_box(&mut out), &a)));
        print("softmax", 4 * COLS, best_seconds(|| path.softmax(black_box(&mut out))));
    }
}

fn gigabytes_per_second(path: &dyn Kernels, ty: TensorType, weights: &[u8]) -> f64 {
    let product = Product::new(path, ty, weights, 1);
    let row_bytes = product.bytes.len() / product.rows;
    (product.part_rows() * row_bytes) as f64 / product.seconds(path) / 1e9
}

fn gigaops_per_second(path: &dyn Kernels, ty: TensorType, weights: &[u8]) -> f64 {
    let product = Product::new(path, ty, weights, PROMPT_COLUMNS);
    (2 * product.part_rows() * COLS * PROMPT_COLUMNS) as f64 / product.seconds(path) / 1e9
}

/// Bytes that stand for weights of any type, in huge pages as those of a model.
struct Memory {
    bytes: MmapMut,
    /// Whether the exponents of MXFP4's blocks are among them.
    has_exponents: bool,
}

impl Memory {
    fn new() -> Self {
        let mut bytes = anonymous_memory(MEMORY_BYTES).expect("a gigabyte of memory");
        Self::fill(&mut bytes);
        Self { bytes, has_exponents: false }
    }

    /// Bytes without set exponent bits in any f16: scales are small and never infinite or NaN.
    fn fill(bytes: &mut [u8]) {
        let (first, rest) = bytes.split_at_mut(PART_BYTES);
        first.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i.wrapping_mul(0x9e37_79b1) >> 13) as u8 & 0x3b);
        rest.chunks_mut(PART_BYTES).for_each(|part| part.copy_from_slice(&first[..part.len()]));
    }

    /// The first `bytes` bytes, as weights of `ty`.
    fn weights(&mut self, ty: TensorType, bytes: usize) -> &[u8] {
        if ty == TensorType::MXFP4 {
            // Its scale is a whole exponent; those of models lie near 2^-7, and tiny ones would cost subnormal arithmetic.
            self.bytes.iter_mut().step_by(ty.block_bytes()).for_each(|exponent| *exponent = 120);
            self.has_exponents = true;
        } else if std::mem::take(&mut self.has_exponents) {
            Self::fill(&mut self.bytes);
        }
        &self.bytes[..bytes]
    }
}

/// A matrix and its activations.
struct Product<'a> {
    ty: TensorType,
    bytes: &'a [u8],
    rows: usize,
    x: Activations,
    n: usize,
}

impl<'a> Product<'a> {
    fn new(path: &dyn Kernels, ty: TensorType, weights: &'a [u8], n: usize) -> Self {
        let row_bytes = ty.row_bytes(COLS).expect("the row is whole blocks");
        // Whole parts, so that a walk over the matrix can start again at any of them.
        let part = (PART_BYTES.min(weights.len()) / row_bytes / 8 * 8).max(8);
        let rows = weights.len() / row_bytes / part * part;
        let bytes = &weights[..rows * row_bytes];
        let mut x = Activations::new();
        x.resize(ty.activation_format().expect("the type can be multiplied"), COLS, n);
        let values = values();
        for column in x.columns_mut() {
            path.quantize(&values, column);
        }
        Self { ty, bytes, rows, x, n }
    }

    /// Seconds of a product with the rows that `PART_BYTES` hold, walking over the whole matrix.
    fn seconds(&self, path: &dyn Kernels) -> f64 {
        let w = WeightRows::new(self.ty, self.bytes, self.rows, COLS);
        let columns: Vec<u32> = (0..self.n as u32).collect();
        let mut out = vec![0.0; self.n * self.rows];
        let mut first = 0;
        let part = self.part_rows();
        best_seconds(|| {
            let rows = first..first + part;
            path.matmul(black_box(&w), rows, &self.x, &columns, &OutColumns::new(&mut out, self.rows));
            black_box(&mut out);
            first = (first + part) % self.rows;
        })
    }

    fn part_rows(&self) -> usize {
        (PART_BYTES / (self.bytes.len() / self.rows) / 8 * 8).min(self.rows)
    }
}

fn values() -> Vec<f32> {
    (0..COLS).map(|i| (i as f32 * 0.37).sin()).collect()
}

/// Seconds of one call: the best of many short runs, so that other processes disturb few of them.
fn best_seconds(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    call();
    let calls = (0.0005 / start.elapsed().as_secs_f64()).ceil().max(1.0);
    let mut best = f64::INFINITY;
    while start.elapsed().as_secs_f64() < 0.3 {
        let start = Instant::now();
        for _ in 0..calls as usize {
            call();
        }
        best = best.min(start.elapsed().as_secs_f64() / calls);
    }
    best
}

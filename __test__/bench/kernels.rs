//! Speed of every kernel path and type: `cargo bench --bench kernels [-- <part of a type or path name>]`.
//!
//! One thread. Decoding: bytes of weights per second, one column, with the weights in the second-level cache and in
//! memory. Prompts: multiplications and additions per second, 64 columns. Best of many short runs.

use clutor::kernels::{ByteScales, Kernels, OutColumns, available};
use clutor::quant::{Activations, TensorType, WeightRows};
use std::hint::black_box;
use std::time::Instant;

const COLS: usize = 2048;
const CACHE_BYTES: usize = 320 << 10;
const MEMORY_BYTES: usize = 192 << 20;
/// One call multiplies so many bytes of rows: long enough to measure, short enough to be undisturbed.
const PART_BYTES: usize = 4 << 20;
const PROMPT_COLUMNS: usize = 64;

fn main() {
    // `cargo bench` passes `--bench`; what else is given selects.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()));
    println!(
        "rows of {COLS}, one thread      cache GB/s  x scalar   memory GB/s   {PROMPT_COLUMNS} columns GOP/s  x scalar"
    );
    for ty in (0..64).filter_map(TensorType::from_id).filter(|ty| ty.activation_format().is_some()) {
        let mut scalar = None;
        for path in available() {
            if !is_wanted(&format!("{ty} {}", path.name())) {
                continue;
            }
            let cache = gigabytes_per_second(path, ty, CACHE_BYTES);
            let memory = gigabytes_per_second(path, ty, MEMORY_BYTES);
            let prompt = gigaops_per_second(path, ty);
            let (cache_scalar, prompt_scalar) = *scalar.get_or_insert((cache, prompt));
            println!(
                "{:<10} {:<14} {cache:>14.2} {:>9.1} {memory:>13.2} {prompt:>18.1} {:>10.1}",
                ty.name(),
                path.name(),
                cache / cache_scalar,
                prompt / prompt_scalar,
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
        let a = values();
        let halves: Vec<half::f16> = a.iter().map(|a| half::f16::from_f32(*a)).collect();
        let bytes = vec![3i8; COLS];
        let print = |name: &str, bytes: usize, seconds: f64| {
            println!("{name:<10} {:<14} {:>14.2}", path.name(), bytes as f64 / seconds / 1e9);
        };
        let mut out = vec![0.0; COLS];
        print("rms_norm", 8 * COLS, best_seconds(|| path.rms_norm(black_box(&a), &a, 1e-5, &mut out)));
        print("silu_mul", 8 * COLS, best_seconds(|| path.silu_mul(black_box(&mut out), &a)));
        print("softmax", 4 * COLS, best_seconds(|| _ = path.softmax_part(black_box(&mut out), 1.0)));
        print("widen_f16", 2 * COLS, best_seconds(|| path.widen_f16(black_box(&halves), &mut out)));
        let scales = ByteScales::Along(&a[..COLS / 32]);
        print("widen_q8", COLS, best_seconds(|| path.widen_bytes(black_box(&bytes), scales, &mut out)));
    }
}

fn gigabytes_per_second(path: &dyn Kernels, ty: TensorType, bytes: usize) -> f64 {
    let product = Product::new(path, ty, bytes, 1);
    let row_bytes = product.bytes.len() / product.rows;
    (product.part_rows() * row_bytes) as f64 / product.seconds(path) / 1e9
}

fn gigaops_per_second(path: &dyn Kernels, ty: TensorType) -> f64 {
    let product = Product::new(path, ty, CACHE_BYTES, PROMPT_COLUMNS);
    (2 * product.part_rows() * COLS * PROMPT_COLUMNS) as f64 / product.seconds(path) / 1e9
}

/// A matrix of a given size in bytes and its activations.
struct Product {
    ty: TensorType,
    bytes: Vec<u8>,
    rows: usize,
    x: Activations,
    n: usize,
}

impl Product {
    fn new(path: &dyn Kernels, ty: TensorType, bytes: usize, n: usize) -> Self {
        let row_bytes = ty.row_bytes(COLS).expect("the row is whole blocks");
        // Whole parts, so that a walk over the matrix can start again at any of them.
        let part = (PART_BYTES.min(bytes) / row_bytes / 8 * 8).max(8);
        let rows = bytes / row_bytes / part * part;
        // Bytes without set exponent bits in any f16: scales are small and never infinite or NaN.
        let mut bytes: Vec<u8> =
            (0..rows * row_bytes).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 13) as u8 & 0x3b).collect();
        if ty == TensorType::MXFP4 {
            // Its scale is a whole exponent; those of models lie near 2^-7, and tiny ones would cost subnormal arithmetic.
            bytes.iter_mut().step_by(ty.block_bytes()).for_each(|exponent| *exponent = 120);
        }
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
        let w = WeightRows::new(self.ty, &self.bytes, self.rows, COLS);
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

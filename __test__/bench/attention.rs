//! Cost of attention at several contexts: `cargo bench --bench attention [-- <part of a line>]`.
//!
//! One layer, on the fastest kernel path, with as many threads as the machine has cores: a token of decoding, and a chunk of
//! a prompt that ends at the context. Best of many runs. Decoding reads the whole cache: GB/s are its bytes.

use clutor::kernels;
use clutor::model::{AttentionBuffers, BatchToken, CacheType, Compute, HeadShape, Sequence, attend, store};
use clutor::parallel::Pool;
use std::time::{Duration, Instant};

/// Heads of two models: each has keys of its own, and eight share them.
const SHAPES: [(&str, HeadShape); 2] = [
    ("olmoe-1b-7b", HeadShape { n_heads: 16, n_kv_heads: 16, head_dim: 128 }),
    ("qwen3-30b-a3b", HeadShape { n_heads: 32, n_kv_heads: 4, head_dim: 128 }),
];
const CONTEXTS: [usize; 3] = [1 << 10, 8 << 10, 32 << 10];
const CHUNK: usize = 512;
const RUNNING: Duration = Duration::from_millis(1000);

fn main() {
    // `cargo bench` passes `--bench`; what else is given selects.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
    let pool = Pool::new(n_threads).expect("threads can be started");
    let compute = Compute { pool: &pool, kernels: kernels::best() };
    println!("one layer, {}, {n_threads} threads", compute.kernels.name());
    println!(
        "{:<14} {:<5} {:>7} {:>12} {:>6} {:>16} {:>8}",
        "shape", "cache", "context", "decode us", "GB/s", "chunk us/token", "GMAC/s"
    );
    for (name, shape) in SHAPES {
        for ty in [CacheType::F16, CacheType::F32, CacheType::Q8_0] {
            for context in CONTEXTS {
                let line = format!("{name:<14} {:<5} {context:>7}", ty.name());
                if wanted.iter().all(|wanted| line.contains(wanted.as_str())) {
                    measure(&line, shape, ty, context, &compute);
                }
            }
        }
    }
}

fn measure(line: &str, shape: HeadShape, ty: CacheType, context: usize, compute: &Compute<'_>) {
    let HeadShape { n_heads, n_kv_heads, head_dim } = shape;
    let (mut sequence, mut buffers) = (Sequence::new(1, shape, ty, context), AttentionBuffers::default());
    sequence.reserve(context).expect("there is memory");
    let token = |pos| BatchToken { sequence: 0, pos, id: 0, wants_logits: false };
    let floats = |n: usize| -> Vec<f32> { (0..n).map(|i| (i as f32 * 0.37).sin()).collect() };
    let (kv, q) = (floats(CHUNK * n_kv_heads * head_dim), floats(CHUNK * n_heads * head_dim));
    for first in (0..context).step_by(CHUNK) {
        let batch: Vec<BatchToken> = (first..first + CHUNK).map(token).collect();
        store(shape, compute, 0, &mut [&mut sequence], &batch, &kv, &kv);
    }
    let mut seconds = |batch: &[BatchToken]| {
        let n = batch.len() * n_heads * head_dim;
        let mut out = vec![0.0; n];
        let mut best = f64::INFINITY;
        let started = Instant::now();
        while started.elapsed() < RUNNING {
            compute.pool.enter(|| {
                for _ in 0..4 {
                    let start = Instant::now();
                    attend(shape, compute, 0, &[&mut sequence], batch, &q[..n], &mut buffers, &mut out);
                    best = best.min(start.elapsed().as_secs_f64());
                }
            });
        }
        best
    };
    let decode = seconds(&[token(context - 1)]);
    let chunk: Vec<BatchToken> = (context - CHUNK..context).map(token).collect();
    let prompt = seconds(&chunk);
    let bytes = 2 * context * ty.bytes(n_kv_heads * head_dim);
    let products: usize = chunk.iter().map(|token| 2 * (token.pos + 1) * n_heads * head_dim).sum();
    println!(
        "{line} {:>12.1} {:>6.1} {:>16.2} {:>8.1}",
        decode * 1e6,
        bytes as f64 / decode / 1e9,
        prompt * 1e6 / CHUNK as f64,
        products as f64 / prompt / 1e9,
    );
}

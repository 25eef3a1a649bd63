//! Attention beside the formula in f64, and beside itself in other batches, on other paths and threads.

use super::*;
use crate::kernels;
use crate::model::CacheType;

const TYPES: [CacheType; 3] = [CacheType::F32, CacheType::F16, CacheType::Q8_0];
/// Two query heads a key/value head, so that groups are shared, and three of those.
const SHAPE: HeadShape = HeadShape { n_heads: 6, n_kv_heads: 3, head_dim: 32 };

/// Numbers without a pattern, between -1 and 1, times `size`.
fn floats(n: usize, seed: u64, size: f32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * size
    };
    (0..n).map(next).collect()
}

struct Text {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

fn text(n: usize, seed: u64) -> Text {
    let HeadShape { n_heads, n_kv_heads, head_dim } = SHAPE;
    Text {
        // Scores of some size, so that the softmax prefers some positions.
        q: floats(n * n_heads * head_dim, seed, 3.0),
        k: floats(n * n_kv_heads * head_dim, seed + 1, 3.0),
        v: floats(n * n_kv_heads * head_dim, seed + 2, 1.0),
    }
}

fn token(sequence: usize, pos: usize) -> BatchToken {
    BatchToken { sequence, pos, id: 0, wants_logits: false }
}

/// Attention of all positions of `text` in batches of `n`.
fn attended(text: &Text, ty: CacheType, compute: &Compute<'_>, n: usize) -> Vec<f32> {
    let (q_dim, kv_dim) = (SHAPE.n_heads * SHAPE.head_dim, SHAPE.n_kv_heads * SHAPE.head_dim);
    let (mut sequence, mut buffers) = (Sequence::new(1, SHAPE, ty, 0), AttentionBuffers::default());
    let mut out = vec![f32::NAN; text.q.len()];
    let n_all = text.q.len() / q_dim;
    for first in (0..n_all).step_by(n) {
        let end = n_all.min(first + n);
        let batch: Vec<BatchToken> = (first..end).map(|pos| token(0, pos)).collect();
        sequence.reserve(batch.len()).unwrap();
        let kv = first * kv_dim..end * kv_dim;
        store(SHAPE, compute, 0, &mut [&mut sequence], &batch, &text.k[kv.clone()], &text.v[kv]);
        let q = first * q_dim..end * q_dim;
        attend(SHAPE, compute, 0, &[&mut sequence], &batch, &text.q[q.clone()], &mut buffers, &mut out[q]);
        sequence.commit(batch.len());
    }
    out
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// The formula, in f64.
fn right(text: &Text, pos: usize, head: usize) -> Vec<f64> {
    let HeadShape { n_heads, n_kv_heads, head_dim } = SHAPE;
    let kv_head = head / (n_heads / n_kv_heads);
    let q = &text.q[(pos * n_heads + head) * head_dim..][..head_dim];
    let at = |all: &[f32], pos: usize, i: usize| f64::from(all[(pos * n_kv_heads + kv_head) * head_dim + i]);
    let score = |p: usize| (0..head_dim).map(|i| f64::from(q[i]) * at(&text.k, p, i)).sum::<f64>();
    let weights: Vec<f64> = (0..=pos).map(|p| (score(p) / (head_dim as f64).sqrt()).exp()).collect();
    let sum: f64 = weights.iter().sum();
    (0..head_dim).map(|i| (0..=pos).map(|p| weights[p] / sum * at(&text.v, p, i)).sum()).collect()
}

#[test]
fn attention_is_that_of_the_formula() {
    let text = text(2 * BLOCK + 40, 1);
    let pool = Pool::new(2).unwrap();
    // The errors of scores of size 10 or so by the rounding of keys, and of values: measured 2e-6, 2e-3 and 2e-2.
    for (ty, allowed) in TYPES.into_iter().zip([1e-5, 5e-3, 5e-2]) {
        let out = attended(&text, ty, &Compute { pool: &pool, kernels: kernels::best() }, 512);
        let mut worst = 0.0f64;
        for pos in [0, 1, 63, 64, 100, 255, 256, 300, 511, 512, 551] {
            for head in 0..SHAPE.n_heads {
                let out = &out[(pos * SHAPE.n_heads + head) * SHAPE.head_dim..][..SHAPE.head_dim];
                for (out, right) in out.iter().zip(right(&text, pos, head)) {
                    worst = worst.max((f64::from(*out) - right).abs());
                }
            }
        }
        assert!(worst < allowed, "{ty:?}: {worst:e}");
    }
}

#[test]
fn no_batch_path_or_number_of_threads_changes_a_bit() {
    let text = text(2 * BLOCK + 40, 5);
    let one = Pool::new(1).unwrap();
    for ty in TYPES {
        let best = Compute { pool: &one, kernels: kernels::best() };
        let single = bits(&attended(&text, ty, &best, 1));
        for n in [2, 7, 64, 100, 512, 1000] {
            assert!(single == bits(&attended(&text, ty, &best, n)), "{ty:?} in batches of {n}");
        }
        for kernels in kernels::available() {
            let together = attended(&text, ty, &Compute { pool: &one, kernels }, 300);
            assert!(single == bits(&together), "{ty:?} on {}", kernels.name());
        }
        // One token of three heads is fewer tasks than these threads want: they share its blocks.
        for n_threads in [2, 5] {
            let pool = Pool::new(n_threads).unwrap();
            for n in [1, 3, 50, 512] {
                let many = attended(&text, ty, &Compute { pool: &pool, kernels: kernels::best() }, n);
                assert!(single == bits(&many), "{ty:?} with {n_threads} threads in batches of {n}");
            }
        }
    }
}

#[test]
fn what_lies_behind_a_query_is_not_looked_at() {
    // A cache that was longer, with keys and values that would spoil every sum.
    let (q_dim, kv_dim) = (SHAPE.n_heads * SHAPE.head_dim, SHAPE.n_kv_heads * SHAPE.head_dim);
    let (text, pool) = (text(70, 9), Pool::new(1).unwrap());
    let compute = Compute { pool: &pool, kernels: kernels::best() };
    for ty in [CacheType::F32, CacheType::F16] {
        let clean = attended(&text, ty, &compute, 1);
        let (mut sequence, mut buffers) = (Sequence::new(1, SHAPE, ty, 0), AttentionBuffers::default());
        sequence.reserve(400).unwrap();
        let batch: Vec<BatchToken> = (0..400).map(|pos| token(0, pos)).collect();
        let bad = vec![f32::NAN; 400 * kv_dim];
        store(SHAPE, &compute, 0, &mut [&mut sequence], &batch, &bad, &bad);
        store(SHAPE, &compute, 0, &mut [&mut sequence], &batch[..70], &text.k, &text.v);
        let mut out = vec![0.0; 70 * q_dim];
        attend(SHAPE, &compute, 0, &[&mut sequence], &batch[..70], &text.q, &mut buffers, &mut out);
        assert_eq!(bits(&out), bits(&clean), "{ty:?}");
    }
}

#[test]
fn texts_in_one_batch_are_as_each_alone() {
    let (q_dim, kv_dim) = (SHAPE.n_heads * SHAPE.head_dim, SHAPE.n_kv_heads * SHAPE.head_dim);
    let (texts, pool) = ([text(300, 20), text(300, 30)], Pool::new(2).unwrap());
    let compute = Compute { pool: &pool, kernels: kernels::best() };
    let alone = texts.each_ref().map(|text| attended(text, CacheType::F16, &compute, 300));
    let mut sequences = [0, 1].map(|_| Sequence::new(1, SHAPE, CacheType::F16, 0));
    sequences.iter_mut().for_each(|sequence| sequence.reserve(300).unwrap());
    let [a, b] = &mut sequences;
    // Tokens of the two in turn.
    let batch: Vec<BatchToken> = (0..600).map(|i| token(i % 2, i / 2)).collect();
    let gather = |of: fn(&Text) -> &[f32], width: usize| -> Vec<f32> {
        batch.iter().flat_map(|t| of(&texts[t.sequence])[t.pos * width..(t.pos + 1) * width].to_vec()).collect()
    };
    let (q, k, v) = (gather(|t| &t.q, q_dim), gather(|t| &t.k, kv_dim), gather(|t| &t.v, kv_dim));
    store(SHAPE, &compute, 0, &mut [&mut *a, &mut *b], &batch, &k, &v);
    let mut out = vec![0.0; 600 * q_dim];
    attend(SHAPE, &compute, 0, &[a, b], &batch, &q, &mut AttentionBuffers::default(), &mut out);
    for (token, out) in batch.iter().zip(out.chunks_exact(q_dim)) {
        let alone = &alone[token.sequence][token.pos * q_dim..(token.pos + 1) * q_dim];
        assert_eq!(bits(out), bits(alone), "{token:?}");
    }
}

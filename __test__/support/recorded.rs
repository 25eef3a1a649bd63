//! Comparison of logits with recorded ones.
#![allow(dead_code)] // Each test uses what it needs.

use clutor::generate::{Recording, logits};
use clutor::model::Model;
use clutor::sampling::greedy;
use std::path::Path;

/// Everything that `model` says about `ids`.
pub fn record(model: &Model, ids: &[u32]) -> Recording {
    logits(model, ids, 512, &|| false, &mut |_| {}).unwrap()
}

/// The recorded text of a folder.
pub fn tokens(folder: &Path) -> Vec<u32> {
    crate::npy::read_i32(&folder.join("tokens.npy")).iter().map(|id| *id as u32).collect()
}

/// Kullback-Leibler divergence of `ours` from `theirs` at each position.
pub fn divergences(theirs: &[f32], ours: &[f32], vocab_size: usize) -> Vec<f64> {
    assert_eq!(theirs.len(), ours.len());
    let of = |(theirs, ours): (&[f32], &[f32])| -> f64 {
        log_probs(theirs).iter().zip(log_probs(ours)).map(|(p, q)| p.exp() * (p - q)).sum()
    };
    theirs.chunks_exact(vocab_size).zip(ours.chunks_exact(vocab_size)).map(of).collect()
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// How far apart the recorded logits of the two greedy choices are, for each position where these differ.
pub fn greedy_gaps(theirs: &[f32], ours: &[f32], vocab_size: usize) -> Vec<f32> {
    let gap = |(theirs, ours): (&[f32], &[f32])| {
        let (a, b) = (greedy(theirs) as usize, greedy(ours) as usize);
        (a != b).then(|| theirs[a] - theirs[b])
    };
    theirs.chunks_exact(vocab_size).zip(ours.chunks_exact(vocab_size)).filter_map(gap).collect()
}

/// Expert sets, each sorted, of every token and layer.
pub fn expert_sets(topk: &[i32], n_used: usize) -> Vec<Vec<i32>> {
    let sorted = |set: &[i32]| {
        let mut set = set.to_vec();
        set.sort_unstable();
        set
    };
    topk.chunks_exact(n_used).map(sorted).collect()
}

/// Natural logarithms of the softmax, in f64.
fn log_probs(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - largest).exp()).sum();
    logits.iter().map(|x| f64::from(x - largest) - sum.ln()).collect()
}

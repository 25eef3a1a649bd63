//! The engine beside recorded answers: llama.cpp's, and those of the plain float64 reference in `__test__/reference`.
//!
//! Every kernel path runs; the cache is f32, as in the recordings. Run with `--nocapture` to see the table.

#[path = "../support/models.rs"]
mod models;
#[path = "../support/npy.rs"]
mod npy;

use clutor::generate::{Recording, logits};
use clutor::sampling::greedy;
use models::{golden_folders, kernel_paths, load, name};
use std::ops::ControlFlow;
use std::path::Path;

const TIE: f32 = 0.0;
fn record(model: &clutor::model::Model, ids: &[u32]) -> Recording {
    logits(model, ids, 512, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn tokens(folder: &Path) -> Vec<u32> {
    npy::read_i32(&folder.join("tokens.npy")).iter().map(|id| *id as u32).collect()
}

/// Natural logarithms of the softmax, in f64.
fn log_probs(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|x| f64::from(x - largest).exp()).sum();
    logits.iter().map(|x| f64::from(x - largest) - sum.ln()).collect()
}

/// Mean over positions of the Kullback-Leibler divergence of `ours` from `theirs`, and the largest.
fn divergence(theirs: &[f32], ours: &[f32], vocab_size: usize) -> (f64, f64) {
    assert_eq!(theirs.len(), ours.len());
    let of = |(theirs, ours): (&[f32], &[f32])| -> f64 {
        log_probs(theirs).iter().zip(log_probs(ours)).map(|(p, q)| p.exp() * (p - q)).sum()
    };
    let all: Vec<f64> = theirs.chunks_exact(vocab_size).zip(ours.chunks_exact(vocab_size)).map(of).collect();
    if std::env::var("KLS").is_ok() {
        println!("{}", all.iter().map(|k| format!("{k:.0e}")).collect::<Vec<_>>().join(" "));
    }
    (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max))
}

/// How far apart the recorded logits of the two greedy choices are, for each position where these differ.
fn greedy_gaps(theirs: &[f32], ours: &[f32], vocab_size: usize) -> Vec<f32> {
    let gap = |(theirs, ours): (&[f32], &[f32])| {
        let (a, b) = (greedy(theirs) as usize, greedy(ours) as usize);
        (a != b).then(|| theirs[a] - theirs[b])
    };
    theirs.chunks_exact(vocab_size).zip(ours.chunks_exact(vocab_size)).filter_map(gap).collect()
}

/// Expert sets, each sorted, of every token and layer.
fn sets(topk: &[i32], n_used: usize) -> Vec<Vec<i32>> {
    let sorted = |set: &[i32]| {
        let mut set = set.to_vec();
        set.sort_unstable();
        set
    };
    topk.chunks_exact(n_used).map(sorted).collect()
}

#[test]
fn logits_tokens_and_routing_are_those_of_llama_cpp_for_every_type() {
    println!("{:16} {:12} {:>9} {:>9} {:>7} {:>8}", "model", "kernels", "mean KL", "max KL", "greedy", "routing");
    let (mut pairs, mut same_pairs) = (0, 0);
    for folder in golden_folders() {
        let ids = tokens(&folder);
        let theirs = npy::read_f32(&folder.join("logits.npy"));
        for path in kernel_paths() {
            let model = load(&folder.join("model.gguf"), path, 1);
            let (ours, vocab_size) = (record(&model, &ids), model.vocab_size());
            let (mean, max) = divergence(&theirs, &ours.logits, vocab_size);
            let gaps = greedy_gaps(&theirs, &ours.logits, vocab_size);
            let n_used = model.config().routing.n_used;
            let (a, b) = (sets(&npy::read_i32(&folder.join("topk.npy")), n_used), sets(&ours.topk, n_used));
            let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
            (pairs, same_pairs) = (pairs + a.len(), same_pairs + same);
            println!("{:16} {path:12} {mean:9.1e} {max:9.1e} {gaps:?} {same:>4}/{}", name(&folder), a.len());
            if mean > 1e-5 {
                println!("YYYY");
            }
            if gaps.iter().any(|gap| *gap > TIE) {
                println!("XXXX {gaps:?}");
            }
        }
    }
    assert!(same_pairs as f64 >= 0.999 * pairs as f64, "{same_pairs} of {pairs} expert sets agree");
}

#[test]
fn logits_are_those_of_the_float64_reference_within_what_8_bit_activations_cost() {
    println!("{:16} {:>9} {:>9}", "model", "mean KL", "max diff");
    for folder in golden_folders() {
        let theirs = npy::read_f32(&folder.join("reference_logits.npy"));
        let model = load(&folder.join("model.gguf"), "scalar", 1);
        let ours = record(&model, &tokens(&folder)).logits;
        let (mean, _) = divergence(&theirs, &ours, model.vocab_size());
        let worst = theirs.iter().zip(&ours).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        println!("{:16} {mean:9.1e} {worst:9.1e}", name(&folder));
        assert!(mean < 2e-3, "{}: mean KL divergence {mean:e} from the reference", name(&folder));
    }
}

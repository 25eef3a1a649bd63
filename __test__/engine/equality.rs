//! The logits are a function of the file and the tokens alone: the same bits on every kernel path, for any number of
//! threads, any batch size, and whatever else is computed in the same pass.

#[path = "../support/models.rs"]
mod models;

use clutor::generate::logits;
use clutor::model::{BatchToken, LOGIT_TOKENS, Model, Workspace};
use models::{golden_folders, kernel_paths, load, name};
use std::path::{Path, PathBuf};

/// Tokens without a pattern, from a fixed linear congruential generator.
fn ids(n: usize, vocab_size: usize, seed: u64) -> Vec<u32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocab_size as u64) as u32
    };
    (0..n).map(next).collect()
}

/// Bits of the logits of `n` tokens.
fn bits(model: &Model, n: usize, batch: usize) -> Vec<u32> {
    let ids = ids(n, model.vocab_size(), 7);
    let recording = logits(model, &ids, batch, &|| false, &mut |_| {}).unwrap();
    recording.logits.iter().map(|logit| logit.to_bits()).collect()
}

fn models() -> Vec<PathBuf> {
    golden_folders().into_iter().map(|folder| folder.join("model.gguf")).chain([models::trained_model()]).collect()
}

fn title(path: &Path) -> String {
    name(path.parent().unwrap())
}

#[test]
fn every_kernel_path_gives_the_same_bits() {
    for path in models() {
        let scalar = bits(&load(&path, "scalar", 1), 24, 24);
        for kernels in kernel_paths() {
            assert!(scalar == bits(&load(&path, kernels, 1), 24, 24), "{} on {kernels}", title(&path));
        }
    }
}

#[test]
fn the_number_of_threads_changes_nothing() {
    for path in models() {
        let one = bits(&load(&path, best(), 1), 40, 16);
        for n_threads in [2, 3] {
            assert!(one == bits(&load(&path, best(), n_threads), 40, 16), "{} with {n_threads} threads", title(&path));
        }
    }
}

#[test]
fn token_by_token_is_the_same_as_batches_of_any_size() {
    for path in models() {
        let model = load(&path, best(), 2);
        let single = bits(&model, 150, 1);
        for batch in [7, 64, 512] {
            assert!(single == bits(&model, 150, batch), "{} in batches of {batch}", title(&path));
        }
    }
}

#[test]
fn logits_in_pieces_are_those_of_the_whole_batch_and_never_many_at_once() {
    for path in models() {
        let model = load(&path, best(), 2);
        let n = 2 * LOGIT_TOKENS + 3;
        let batch: Vec<BatchToken> = ids(n, model.vocab_size(), 5)
            .into_iter()
            .enumerate()
            .map(|(pos, id)| BatchToken { sequence: 0, pos, id, wants_logits: pos % 2 == 0 })
            .collect();
        let mut whole = Workspace::new();
        model.forward(&mut whole, &mut [&mut model.new_sequence()], &batch, None, &|| false).unwrap();
        let (mut pieces, mut lengths) = (Vec::new(), Vec::new());
        let mut take = |piece: &[f32]| {
            lengths.push(piece.len() / model.vocab_size());
            pieces.extend_from_slice(piece);
        };
        let (mut workspace, sequences) = (Workspace::new(), &mut [&mut model.new_sequence()]);
        model.forward_in_pieces(&mut workspace, sequences, &batch, None, &mut take, &|| false).unwrap();
        assert!(pieces == whole.logits(), "{}", title(&path));
        assert_eq!(lengths, [LOGIT_TOKENS, n.div_ceil(2) - LOGIT_TOKENS]);
    }
}

#[test]
fn two_sequences_interleaved_are_the_same_as_each_alone() {
    for path in models() {
        let model = load(&path, best(), 2);
        let texts = [1, 2].map(|seed| ids(30, model.vocab_size(), seed));
        let alone = texts.each_ref().map(|ids| logits(&model, ids, 64, &|| false, &mut |_| {}).unwrap().logits);
        let (mut workspace, mut a, mut b) = (Workspace::new(), model.new_sequence(), model.new_sequence());
        let mut together = [Vec::new(), Vec::new()];
        // One sequence goes on by two tokens a pass, the other by three, until the shorter way is done.
        for pass in 0..10 {
            let token = |sequence: usize, pos: usize| BatchToken {
                sequence,
                pos,
                id: texts[sequence][pos],
                wants_logits: true,
            };
            let (two, three) = (2 * pass, 3 * pass);
            let batch = [token(0, two), token(1, three), token(1, three + 1), token(0, two + 1), token(1, three + 2)];
            model.forward(&mut workspace, &mut [&mut a, &mut b], &batch, None, &|| false).unwrap();
            for (token, logits) in batch.iter().zip(workspace.logits().chunks_exact(model.vocab_size())) {
                together[token.sequence].extend_from_slice(logits);
            }
        }
        for (alone, together) in alone.iter().zip(&together) {
            assert!(alone[..together.len()] == together[..], "{}", title(&path));
        }
    }
}

#[test]
fn a_pass_that_is_cancelled_or_refused_leaves_the_sequence_as_it_was() {
    let model = load(&models::trained_model(), best(), 2);
    let (mut workspace, mut sequence) = (Workspace::new(), model.new_sequence());
    let token = |pos: usize, id: u32| BatchToken { sequence: 0, pos, id, wants_logits: true };
    model.forward(&mut workspace, &mut [&mut sequence], &[token(0, 5)], None, &|| true).unwrap_err();
    assert_eq!(sequence.len(), 0);
    let unknown = model.forward(&mut workspace, &mut [&mut sequence], &[token(0, 4096)], None, &|| false);
    assert_eq!(unknown.unwrap_err().to_string(), "the token id 4096 is outside the vocabulary of 4096 tokens");
    model.forward(&mut workspace, &mut [&mut sequence], &[token(0, 5)], None, &|| false).unwrap();
    let clean = logits(&model, &[5], 1, &|| false, &mut |_| {}).unwrap();
    assert_eq!(workspace.logits(), clean.logits);
}

fn best() -> &'static str {
    clutor::kernels::best().name()
}

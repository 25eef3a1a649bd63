//! Dense weights that are read anew in every pass give the same bits as those in memory, and reads that fail are told.

#[path = "../support/models.rs"]
mod models;

use clutor::generate::logits;
use clutor::model::{BatchToken, CacheType, DensePlace, ForwardError, LoadOptions, Model, Workspace};
use models::{golden_folders, trained_model};
use std::fs::OpenOptions;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

fn load(path: &Path, dense: DensePlace) -> Model {
    let cache_bytes = Some(1 << 20);
    let options =
        LoadOptions { n_threads: Some(2), cache_type: CacheType::F32, cache_bytes, dense, ..LoadOptions::default() };
    Model::load(path, &options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn ids(model: &Model) -> Vec<u32> {
    (0..40u32).map(|i| i * i * 7919 % model.vocab_size() as u32).collect()
}

fn answers(model: &Model, batch: usize) -> Vec<f32> {
    logits(model, &ids(model), batch, &|| false, &mut |_| {}).unwrap().logits
}

fn models() -> Vec<PathBuf> {
    golden_folders().into_iter().map(|folder| folder.join("model.gguf")).chain([trained_model()]).collect()
}

#[test]
fn a_ring_gives_the_same_bits_with_every_model_and_batch() {
    for path in models() {
        let right = answers(&load(&path, DensePlace::Resident), 40);
        let model = load(&path, DensePlace::Ring);
        assert!(model.plan().ring);
        for batch in [1, 7, 40] {
            assert!(right == answers(&model, batch), "{} in batches of {batch}", path.display());
        }
        assert!(model.ring_report().unwrap().read_bytes > 0);
    }
}

#[test]
fn sequences_side_by_side_and_passes_from_several_threads_get_their_own_bits() {
    let path = trained_model();
    let [resident, ring] = [DensePlace::Resident, DensePlace::Ring].map(|dense| load(&path, dense));
    let both = |model: &Model| {
        let (mut workspace, mut first, mut second) = (Workspace::new(), model.new_sequence(), model.new_sequence());
        let mut all = Vec::new();
        for pos in 0..6usize {
            let token = |sequence: usize| BatchToken {
                sequence,
                pos,
                id: (pos * 31 + sequence * 977 + 5) as u32,
                // Some passes have no use for the output.
                wants_logits: pos % 3 != sequence,
            };
            let batch = [token(0), token(1)];
            model.forward(&mut workspace, &mut [&mut first, &mut second], &batch, None, &|| false).unwrap();
            all.extend_from_slice(workspace.logits());
        }
        all
    };
    let right = both(&resident);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| assert!(both(&ring) == right));
        }
    });
}

#[test]
fn a_pass_that_is_given_up_anywhere_leaves_the_next_one_sound() {
    let model = load(&trained_model(), DensePlace::Ring);
    let right = answers(&model, 40);
    for layer in 0..4 {
        let asked = AtomicUsize::new(0);
        let cancelled = || asked.fetch_add(1, Ordering::Relaxed) == layer;
        let error = logits(&model, &ids(&model), 40, &cancelled, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("cancelled"), "{error}");
        assert!(answers(&model, 40) == right);
    }
}

#[test]
fn a_file_cut_short_in_use_fails_the_pass_and_not_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::copy(trained_model(), &path).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let model = load(&path, DensePlace::Ring);
    let right = answers(&model, 8);

    OpenOptions::new().write(true).open(&path).unwrap().set_len(whole.len() as u64 / 3).unwrap();
    for _ in 0..2 {
        let error = logits(&model, &ids(&model), 8, &|| false, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("the file ends at byte") && error.contains(&path.display().to_string()), "{error}");
    }
    // Written in place: the model holds the file, not its path.
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, &whole).unwrap();
    assert!(answers(&model, 8) == right);
}

#[test]
fn a_ring_is_for_models_that_are_streamed() {
    let options = LoadOptions { dense: DensePlace::Ring, ..LoadOptions::default() };
    let error = Model::plan_for(&trained_model(), &options).unwrap_err().to_string();
    assert!(error.contains("only while experts are streamed"), "{error}");
}

#[test]
fn an_unknown_token_and_a_full_context_are_told_before_anything_is_read() {
    let model = load(&trained_model(), DensePlace::Ring);
    let token = BatchToken { sequence: 0, pos: 0, id: u32::MAX, wants_logits: true };
    let mut sequence = model.new_sequence();
    let failed = model.forward(&mut Workspace::new(), &mut [&mut sequence], &[token], None, &|| false);
    assert!(matches!(failed, Err(ForwardError::TokenId { .. })));
}

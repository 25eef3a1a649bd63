//! Which experts were hot is remembered, and the next start reads them first; the text is the same.

#[path = "../support/models.rs"]
mod models;

use clutor::experts::{Prefetch, StreamingOptions};
use clutor::generate::logits;
use clutor::model::{CacheType, LoadOptions, Model};
use clutor::store::Counters;
use models::{golden_folders, trained_model};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// About a quarter of the trained model's experts.
const CACHE_BYTES: u64 = 2 << 20;

fn load(path: &Path, warm_folder: Option<PathBuf>) -> Model {
    let streaming = StreamingOptions { prefetch: Prefetch::Off, warm_folder, ..Default::default() };
    let options = LoadOptions {
        n_threads: Some(1),
        cache_type: CacheType::F32,
        cache_bytes: Some(CACHE_BYTES),
        streaming,
        ..LoadOptions::default()
    };
    Model::load(path, &options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// Logits of `n` tokens that keep to a few ids, as a text about one thing does.
fn answers(model: &Model, n: usize) -> Vec<f32> {
    let ids: Vec<u32> = (0..n as u32).map(|i| 300 + i * i % 7).collect();
    logits(model, &ids, 1, &|| false, &mut |_| {}).unwrap().logits
}

fn counters(model: &Model) -> Counters {
    model.streaming_report().unwrap().store
}

/// Waits until as many experts are warmed as there are slots.
fn wait_until_warm(model: &Model) {
    while (counters(model).warmed as usize) < model.plan().cached_experts {
        std::thread::yield_now();
    }
}

/// Hits of the first 8 tokens, of 16 requests each.
fn early_hits(model: &Model) -> u64 {
    answers(model, 8);
    let Counters { accesses, hits, .. } = counters(model);
    assert_eq!(accesses, 8 * 16);
    hits
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).map_or(Vec::new(), |entries| entries.map(|entry| entry.unwrap().path()).collect())
}

#[test]
fn the_second_start_finds_more_in_memory_and_gives_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let warm_folder = folder.path().join("warm");
    let first = load(&trained_model(), Some(warm_folder.clone()));
    assert_eq!(counters(&first).warmed, 0);
    let right = answers(&first, 60);
    assert!(!warm_folder.exists(), "nothing is written before the end");
    drop(first);
    assert_eq!(files(&warm_folder).len(), 1);

    let second = load(&trained_model(), Some(warm_folder.clone()));
    wait_until_warm(&second);
    assert!(counters(&second).warm_bytes > 0 && counters(&second).demand_bytes == 0);
    let (cold, warm) = (early_hits(&load(&trained_model(), None)), early_hits(&second));
    assert!(warm >= cold + 8, "{warm} hits of 128 after a warm start, {cold} without");
    // Whatever is warm by then: this one does not wait.
    let third = load(&trained_model(), Some(warm_folder));
    assert!(answers(&third, 60) == right && answers(&second, 60) == right);
}

#[test]
fn a_run_that_used_nothing_leaves_what_is_remembered_alone() {
    let folder = tempfile::tempdir().unwrap();
    let run = || load(&trained_model(), Some(folder.path().into()));
    drop(run());
    assert!(files(folder.path()).is_empty());
    answers(&run(), 8);
    let [path] = &files(folder.path())[..] else { panic!("one file") };
    let before = fs::read(path).unwrap();
    wait_until_warm(&run());
    assert_eq!(fs::read(path).unwrap(), before);
}

#[test]
fn each_model_has_its_own_file_wherever_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let warm_folder = folder.path().join("warm");
    let golden = golden_folders().into_iter().find(|folder| folder.ends_with("qwen3moe-q2_K")).unwrap();
    answers(&load(&trained_model(), Some(warm_folder.clone())), 8);
    let one = files(&warm_folder);
    let other = load(&golden.join("model.gguf"), Some(warm_folder.clone()));
    assert_eq!(counters(&other).warmed, 0);
    logits(&other, &[1, 2, 3], 1, &|| false, &mut |_| {}).unwrap();
    drop(other);
    assert_eq!(files(&warm_folder).len(), 2);

    let moved = folder.path().join("moved.gguf");
    fs::copy(trained_model(), &moved).unwrap();
    answers(&load(&moved, Some(warm_folder.clone())), 8);
    assert_eq!(files(&warm_folder).len(), 2, "a copy is the same model");

    // The same table and sizes with another router is another model.
    let mut bytes = fs::read(&moved).unwrap();
    let router = clutor::gguf::Gguf::open(&moved).unwrap().tensor("blk.0.ffn_gate_inp.weight").unwrap().offset;
    bytes[router as usize + 1] ^= 1;
    fs::write(&moved, bytes).unwrap();
    answers(&load(&moved, Some(warm_folder.clone())), 8);
    assert_eq!(files(&warm_folder).len(), 3);
    assert!(one.iter().all(|path| path.exists()));
}

#[test]
fn what_is_damaged_or_another_models_is_ignored_and_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let run = || load(&trained_model(), Some(folder.path().into()));
    let right = answers(&run(), 20);
    let [path] = &files(folder.path())[..] else { panic!("one file") };
    let sound = fs::read(path).unwrap();
    let mut of_another_model = sound.clone();
    of_another_model[12] ^= 1;
    for wrong in [vec![], b"{\"version\":9}".to_vec(), sound[..sound.len() / 2].to_vec(), of_another_model] {
        fs::write(path, wrong).unwrap();
        let model = run();
        assert!(answers(&model, 20) == right);
        assert_eq!(counters(&model).warmed, 0);
        drop(model);
        wait_until_warm(&run());
    }
}

#[test]
fn a_folder_that_cannot_be_had_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::write(&taken, "a file").unwrap();
    let right = answers(&load(&trained_model(), None), 8);
    let model = load(&trained_model(), Some(taken.join("warm")));
    assert!(answers(&model, 8) == right);
    drop(model);
    assert_eq!(fs::read_to_string(&taken).unwrap(), "a file");
}

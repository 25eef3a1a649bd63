//! Streamed experts give the same bits as resident ones, whatever the cache, the policy, the prediction and the threads.

#[path = "../support/models.rs"]
mod models;

use clutor::experts::{Prefetch, StreamingOptions};
use clutor::generate::logits;
use clutor::model::{CacheType, LoadOptions, Model};
use clutor::routing::SmartRoute;
use clutor::store::PageCache;
use clutor::store::policy::PolicyKind;
use models::{cache_bytes_for, golden_folders, trained_model};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

fn load(path: &Path, options: LoadOptions) -> Model {
    let options = LoadOptions { n_threads: Some(2), cache_type: CacheType::F32, ..options };
    Model::load(path, &options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn streamed(path: &Path, cache_bytes: u64, streaming: StreamingOptions) -> Model {
    let model = load(path, LoadOptions { cache_bytes: Some(cache_bytes), streaming, ..LoadOptions::default() });
    assert!(model.plan().streaming);
    model
}

/// Logits of 60 tokens without a pattern, in chunks of `batch`.
fn answers(model: &Model, batch: usize) -> Vec<f32> {
    let ids: Vec<u32> = (0..60u32).map(|i| i * i * 7919 % model.vocab_size() as u32).collect();
    logits(model, &ids, batch, &|| false, &mut |_| {}).unwrap().logits
}

fn models() -> Vec<PathBuf> {
    let names = ["olmoe-base", "qwen3moe-q2_K", "qwen3moe-mxfp4"];
    let golden = golden_folders().into_iter().filter(|folder| names.iter().any(|name| folder.ends_with(name)));
    golden.map(|folder| folder.join("model.gguf")).chain([trained_model()]).collect()
}

/// From the smallest cache to one for everything.
fn cache_sizes(model: &Model) -> [u64; 3] {
    let all = model.info().expert_bytes + ((model.info().n_layers * model.info().n_experts) as u64 * 3 * 4096 * 2);
    [0, all / 3, all]
}

#[test]
fn the_size_of_the_cache_and_of_the_batch_change_nothing() {
    for path in models() {
        let resident = load(&path, LoadOptions::default());
        let right = answers(&resident, 60);
        for cache_bytes in cache_sizes(&resident) {
            let model = streamed(&path, cache_bytes, StreamingOptions::default());
            for batch in [1, 7, 60] {
                assert!(right == answers(&model, batch), "{} with {cache_bytes} bytes, batch {batch}", path.display());
            }
        }
    }
}

#[test]
fn every_policy_prediction_and_number_of_io_threads_gives_the_same_bits() {
    let path = trained_model();
    let resident = load(&path, LoadOptions::default());
    let (right, sizes) = (answers(&resident, 1), cache_sizes(&resident));
    for policy in PolicyKind::ALL {
        for prefetch in [Prefetch::Off, Prefetch::Prev, Prefetch::Ahead, Prefetch::Auto] {
            for (n_io_threads, page_cache) in [(1, PageCache::Use), (3, PageCache::Bypass)] {
                let options = StreamingOptions { policy, prefetch, n_io_threads, page_cache, ..Default::default() };
                let model = streamed(&path, sizes[1], options.clone());
                assert!(right == answers(&model, 1), "{options:?}");
            }
        }
    }
}

#[test]
fn the_counters_of_a_run_add_up() {
    let path = trained_model();
    let resident = load(&path, LoadOptions::default());
    let options = StreamingOptions { prefetch: Prefetch::Ahead, ..Default::default() };
    let model = streamed(&path, cache_sizes(&resident)[1], options);
    answers(&model, 1);
    let report = model.streaming_report().unwrap();
    let store = report.store;
    // 60 tokens, 4 layers, 4 experts each.
    assert_eq!(store.accesses, 960);
    assert_eq!(store.hits + store.staging_hits + store.misses + store.bypasses, store.accesses);
    assert!(store.misses > 0 && store.hits > 0 && store.demand_bytes > 0 && store.prefetches > 0);
    // The README of the model states what a router ahead finds: two thirds to four fifths of the next layer's experts.
    let share = report.prediction.confirmed as f64 / report.prediction.chosen as f64;
    assert!((0.4..0.95).contains(&share), "{share} predicted");
    assert!(resident.streaming_report().is_none());
}

#[test]
fn the_plan_is_what_the_load_keeps() {
    let path = trained_model();
    let options = LoadOptions { cache_bytes: Some(1 << 20), ..LoadOptions::default() };
    let plan = Model::plan_for(&path, &options).unwrap();
    let model = Model::load(&path, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(plan.cached_experts, model.plan().cached_experts);
    assert!(plan.cached_share() < 0.5 && plan.cached_experts >= 4);
    let error = Model::plan_for(&path, &LoadOptions { memory_bytes: Some(1 << 20), ..LoadOptions::default() });
    assert!(error.unwrap_err().to_string().contains("at least"));
}

#[test]
fn smart_route_needs_streaming_and_with_tau_0_changes_nothing() {
    let path = trained_model();
    let smart = |tau, cache_bytes| {
        let smart = Some(SmartRoute { n_kept: 1, n_candidates: 8, tau });
        let options =
            LoadOptions { n_threads: Some(2), cache_type: CacheType::F32, smart, cache_bytes, ..Default::default() };
        Model::load(&path, &options, &mut |_| ControlFlow::Continue(()))
    };
    assert!(smart(1.0, None).unwrap_err().to_string().contains("SMART-ROUTE"));
    assert!(smart(f32::NAN, Some(1 << 20)).is_err());
    let resident = load(&path, LoadOptions::default());
    let right = answers(&resident, 1);
    for (n_kept, n_candidates) in [(0, 4), (0, 16), (2, 8), (4, 16)] {
        let smart = Some(SmartRoute { n_kept, n_candidates, tau: 0.0 });
        let cache_bytes = Some(cache_bytes_for(&path, 25));
        assert!(right == answers(&load(&path, LoadOptions { smart, cache_bytes, ..Default::default() }), 1));
    }
    let off = smart(0.0, Some(cache_sizes(&resident)[1])).unwrap();
    assert!(right == answers(&off, 1));
    assert_eq!(off.substitutions().unwrap().substituted, 0);
    let on = smart(1.0, Some(cache_sizes(&resident)[1])).unwrap();
    answers(&on, 1);
    let counts = on.substitutions().unwrap();
    assert!(counts.substituted > 0 && counts.largest_gap <= 1.0 && counts.dropped_mass > 0.0, "{counts:?}");
    let misses = |model: &Model| model.streaming_report().unwrap().store.misses;
    assert!(misses(&on) < misses(&off));
}

//! The benchmark counts what the work reads, and does the work that it names.

#[path = "../support/models.rs"]
mod models;

use clutor::bench::{BenchError, BenchOptions, BenchReport, Work, bench};
use clutor::gguf::{Gguf, Layout};
use clutor::model::LoadOptions;
use models::trained_model;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The built-in model: 4 layers of 16 experts, 4 used.
fn options() -> BenchOptions {
    BenchOptions {
        load: LoadOptions { n_threads: Some(2), ..Default::default() },
        work: vec![Work::Prompt(24), Work::Decode(5)],
        depths: vec![0],
        n_runs: 3,
        seed: 1,
        bandwidth_bytes: 1 << 20,
    }
}

fn with(change: impl FnOnce(&mut BenchOptions)) -> BenchOptions {
    let mut options = options();
    change(&mut options);
    options
}

fn run(options: &BenchOptions) -> BenchReport {
    bench(&trained_model(), options, &|| false, &mut |_| {}).unwrap()
}

/// Bytes of the file's tensors: the layers and the last norm, the output, a row of the embedding, an expert of each layer.
fn weights() -> (u64, u64, u64, u64) {
    let gguf = Gguf::open(&trained_model()).unwrap();
    let layout = Layout::of(&gguf);
    let bytes = |name: &str| gguf.tensor(name).map(|tensor| tensor.bytes);
    let embedding = gguf.tensor("token_embd.weight").unwrap();
    let output = bytes("output.weight");
    let dense = layout.dense_bytes() - embedding.bytes - output.unwrap_or(0);
    let experts = layout.layers.iter().map(|layer| layer.experts.as_deref().unwrap().expert_bytes(0)).sum();
    (dense, output.unwrap_or(embedding.bytes), embedding.bytes / embedding.shape[0] as u64, experts)
}

#[test]
fn decoding_reads_what_the_file_says_for_every_token() {
    let (dense, output, row, experts) = weights();
    let report = run(&options());
    let decode = &report.measurements[1];
    assert_eq!((decode.work, decode.depth, decode.runs.len()), (Work::Decode(5), 0, 3));
    for run in &decode.runs {
        assert_eq!(run.weight_bytes, 5 * (dense + output + row + 4 * experts));
        assert_eq!((run.record.accesses, run.record.read_bytes), (0, 0), "nothing is streamed");
        assert!(!run.record.elapsed.is_zero());
    }
    assert!(decode.tokens_per_second() > 0.0 && report.bandwidth.all_threads > 0.0 && !report.plan.streaming);
    assert_eq!(report.plan.n_ctx, 24, "room for the longest work and no more");
}

#[test]
fn a_prompt_reads_each_expert_once_for_all_its_tokens() {
    let (dense, output, row, experts) = weights();
    for run in &run(&options()).measurements[0].runs {
        let of_experts = run.weight_bytes - dense - output - 24 * row;
        assert!(of_experts > 4 * experts && of_experts <= 16 * experts, "{of_experts} of {experts} for one each");
    }
}

#[test]
fn streamed_work_is_told_with_what_came_from_the_drive() {
    let options = with(|options| options.load.cache_bytes = Some(2 << 20));
    let report = run(&options);
    assert!(report.plan.streaming);
    for measured in &report.measurements {
        assert!(measured.runs.iter().all(|run| run.record.accesses > 0), "{}", measured.work);
    }
    // Five tokens choose 4 experts in each of 4 layers.
    assert_eq!(report.measurements[1].runs[0].record.accesses, 5 * 4 * 4);
    let read: u64 = report.measurements.iter().flat_map(|m| &m.runs).map(|run| run.record.read_bytes).sum();
    assert!(read > 0, "a cache for a third of the experts cannot have all");
}

#[test]
fn work_is_done_at_every_depth_with_its_prompts_before() {
    let options = with(|options| (options.depths, options.n_runs) = (vec![0, 40, 16], 1));
    let mut last = None;
    let report = bench(&trained_model(), &options, &|| false, &mut |progress| last = Some(progress)).unwrap();
    let done: Vec<_> = report.measurements.iter().map(|m| (m.depth, m.work.to_string())).collect();
    let expected = [(0, "pp24"), (0, "tg5"), (40, "pp24"), (40, "tg5"), (16, "pp24"), (16, "tg5")];
    assert_eq!(done, expected.map(|(depth, name)| (depth, name.to_owned())));
    assert_eq!(report.plan.n_ctx, 64);
    // The way to a depth of 40, and at each depth both kinds of work twice: 16 is a part of 40.
    let last = last.unwrap();
    assert_eq!((last.done, last.total), (40 + 3 * 2 * (24 + 5), 40 + 3 * 2 * (24 + 5)));
}

#[test]
fn the_tokens_are_the_seeds_and_no_two_runs_have_the_same() {
    let read = |seed| -> Vec<u64> {
        run(&with(|options| options.seed = seed)).measurements[0].runs.iter().map(|run| run.weight_bytes).collect()
    };
    let first = read(1);
    assert_eq!(first, read(1));
    assert_ne!(first, read(2));
    assert!(first.iter().any(|bytes| *bytes != first[0]), "runs differ in their experts: {first:?}");
}

#[test]
fn a_context_that_the_model_does_not_have_is_refused() {
    let error = bench(&trained_model(), &with(|options| options.depths = vec![1 << 20]), &|| false, &mut |_| {});
    let error = error.unwrap_err();
    assert!(error.to_string().starts_with("a context of 1048600 tokens is needed, and the model has "), "{error}");
}

#[test]
fn it_stops_within_a_pass_when_it_is_cancelled() {
    let asked = AtomicUsize::new(0);
    // Loading asks a few times; a prompt asks at each layer.
    let cancelled = || asked.fetch_add(1, Ordering::Relaxed) > 20;
    let long = with(|options| options.n_runs = 1000);
    let result = bench(&trained_model(), &long, &cancelled, &mut |_| {});
    assert!(matches!(result, Err(BenchError::Cancelled)), "{:?}", result.map(|report| report.measurements.len()));
    assert!(asked.into_inner() < 40);
}

//! The benchmark measures the engine's own streaming: its counts are those of the policy and of the choices.

#[path = "../support/models.rs"]
mod models;

use clutor::experts::{Prefetch, StreamingOptions};
use clutor::model::{DensePlace, LoadOptions, Model};
use clutor::store::policy::{PolicyKind, Trace, replay};
use clutor::stream::{Choices, StreamError, StreamOptions, StreamReport, Work, stream};
use clutor::workload::{RoutingShape, SyntheticRouting};
use models::trained_model;
use std::fmt::Write;
use std::time::Duration;

const N_TOKENS: usize = 60;

/// The built-in model: 4 layers of 16 experts, 4 used, in a cache for about a third of them.
fn options() -> StreamOptions {
    StreamOptions {
        load: LoadOptions { n_threads: Some(2), cache_bytes: Some(2 << 20), ..Default::default() },
        n_tokens: Some(N_TOKENS),
        choices: Choices::Synthetic(SyntheticRouting { seed: 3, ..Default::default() }),
        accuracy: StreamOptions::DEFAULT_ACCURACY,
        work: Work::Dot,
        n_windows: 6,
    }
}

fn with(change: impl FnOnce(&mut StreamOptions)) -> StreamOptions {
    let mut options = options();
    change(&mut options);
    options
}

fn with_streaming(change: impl FnOnce(&mut StreamingOptions)) -> StreamOptions {
    with(|options| change(&mut options.load.streaming))
}

fn run(options: &StreamOptions) -> StreamReport {
    stream(&trained_model(), options, &|| false, &mut |_| {}).unwrap()
}

/// The choices of [`options`].
fn trace() -> Trace {
    let shape = RoutingShape { n_layers: 4, n_experts: 16, n_used: 4 };
    SyntheticRouting { seed: 3, ..Default::default() }.trace(shape, N_TOKENS)
}

#[test]
fn without_prefetching_the_hit_rate_is_the_policys_own() {
    for policy in PolicyKind::ALL {
        let report = run(&with_streaming(|streaming| {
            (streaming.policy, streaming.prefetch) = (policy, Prefetch::Off);
        }));
        let expected = replay(&trace(), policy, report.plan.cached_experts);
        let store = report.streaming.store;
        assert_eq!((store.accesses, store.hits), (expected.accesses, expected.hits), "{policy}");
        assert_eq!(store.accesses, (N_TOKENS * 4 * 4) as u64);
    }
}

#[test]
fn a_recorded_trace_is_replayed_and_cut_after_as_many_tokens_as_asked_for() {
    let trace = trace();
    let mut csv = "# n_layer=4 n_expert=16\ntoken,layer,rank,expert,weight\n".to_owned();
    for (i, keys) in trace.keys.chunks(4).enumerate() {
        for (rank, key) in keys.iter().enumerate() {
            writeln!(csv, "{},{},{rank},{},0.25", i / 4, i % 4, key % 16).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.csv");
    std::fs::write(&path, &csv).unwrap();
    let replayed = |n_tokens| {
        run(&with(|options| {
            (options.choices, options.n_tokens) = (Choices::Trace(path.clone()), n_tokens);
            options.load.streaming.prefetch = Prefetch::Off;
        }))
    };
    let whole = replayed(None);
    let expected = replay(&trace, PolicyKind::default(), whole.plan.cached_experts);
    assert_eq!((whole.n_tokens, whole.streaming.store.hits), (N_TOKENS, expected.hits));
    assert_eq!(whole.digest, run(&options()).digest);
    assert_eq!(replayed(Some(10)).n_tokens, 10);
    assert_eq!(replayed(Some(10_000)).n_tokens, N_TOKENS);

    std::fs::write(&path, "# n_layer=48 n_expert=128\ntoken,layer,expert\n0,0,1\n").unwrap();
    let other = with(|options| options.choices = Choices::Trace(path));
    let error = stream(&trained_model(), &other, &|| false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("48 layers with 128 experts, and this one has 4 with 16"), "{error}");
}

#[test]
fn the_same_weights_are_worked_on_whatever_the_cache_the_threads_and_the_place_of_dense_weights() {
    for work in [Work::Dot, Work::Checksum] {
        let base = run(&with(|options| options.work = work));
        assert_ne!(base.digest, 0);
        let changes: [&dyn Fn(&mut StreamOptions); 6] = [
            &|options| options.load.dense = DensePlace::Ring,
            &|options| options.load.n_threads = Some(1),
            &|options| options.load.cache_bytes = Some(0),
            &|options| options.load.cache_bytes = None,
            &|options| options.load.streaming.policy = PolicyKind::Lru,
            &|options| options.load.streaming.prefetch = Prefetch::Prev,
        ];
        for (i, change) in changes.iter().enumerate() {
            let report = run(&with(|options| {
                options.work = work;
                change(options);
            }));
            assert_eq!(report.digest, base.digest, "{work:?}, change {i}");
        }
        let seed = SyntheticRouting { seed: 4, ..Default::default() };
        let other = run(&with(|options| (options.work, options.choices) = (work, Choices::Synthetic(seed))));
        assert_ne!(other.digest, base.digest);
    }
}

#[test]
fn dense_weights_in_the_ring_are_read_for_every_token_and_take_less_memory() {
    let off = |dense| {
        run(&with(|options| {
            (options.load.dense, options.load.streaming.prefetch) = (dense, Prefetch::Off);
        }))
    };
    let [resident, ring] = [DensePlace::Resident, DensePlace::Ring].map(off);
    assert_eq!(resident.ring.read_bytes, 0);
    assert!(ring.plan.ring && ring.plan.dense_bytes < resident.plan.dense_bytes);
    assert!(ring.ring.read_bytes > N_TOKENS as u64 * ring.plan.dense_bytes / 2);
    assert_eq!(ring.streaming.store.hits, resident.streaming.store.hits);
    let windows: u64 = ring.windows.iter().map(|window| window.read_bytes).sum();
    let store = ring.streaming.store;
    // The ring reads on while the last look is taken.
    assert!(windows <= store.demand_bytes + ring.ring.read_bytes && windows > store.demand_bytes);
}

#[test]
fn everything_in_the_cache_is_read_once() {
    let report = run(&with(|options| {
        options.load.cache_bytes = None;
        options.load.streaming.prefetch = Prefetch::Off;
    }));
    let mut keys = trace().keys;
    keys.sort_unstable();
    keys.dedup();
    assert_eq!((report.plan.cached_experts, report.streaming.store.misses), (64, keys.len() as u64));
    assert_eq!(report.streaming.store.evictions, 0);
}

#[test]
fn a_budget_is_kept_and_one_too_small_is_an_error_that_names_the_least() {
    let within = |bytes| with(|options| (options.load.cache_bytes, options.load.memory_bytes) = (None, Some(bytes)));
    let small = Model::plan_for(&trained_model(), &LoadOptions { cache_bytes: Some(2 << 20), ..Default::default() });
    let budget = small.unwrap().most_bytes() + (16 << 20);
    let report = run(&within(budget));
    assert!(report.plan.most_bytes() <= budget || !report.plan.reason.text().contains("larger"));
    let error = stream(&trained_model(), &within(1 << 20), &|| false, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("needs at least"), "{error}");
}

#[test]
fn the_prediction_is_as_good_as_stated() {
    for accuracy in [0.0, 0.5, 1.0] {
        let report = run(&with(|options| {
            (options.accuracy, options.n_tokens) = (accuracy, Some(300));
            options.load.streaming.prefetch = Prefetch::Ahead;
        }));
        let prediction = report.streaming.prediction;
        let share = prediction.confirmed as f64 / prediction.chosen as f64;
        // Of four layers one, the first, is always predicted from the token before.
        let first = (share - 0.75 * accuracy) / 0.25;
        assert!((0.15..0.75).contains(&first), "{share} of {accuracy}");
        assert!(report.streaming.store.prefetches > 0 || accuracy < 1.0);
    }
}

#[test]
fn a_burst_without_structure_costs_hits_and_is_recovered_from() {
    let routing = SyntheticRouting { seed: 3, burst: Some(200..260), skew: 2.0, ..Default::default() };
    let report = run(&with(|options| {
        (options.choices, options.n_tokens) = (Choices::Synthetic(routing), Some(400));
        options.load.streaming.prefetch = Prefetch::Off;
    }));
    let burst = report.burst.unwrap();
    assert_eq!(burst.tokens, 200..260);
    assert!(burst.during < burst.before.unwrap() - 0.1 && burst.after.unwrap() > burst.during + 0.1, "{burst:?}");
    assert!(burst.recovered_after.is_some_and(|tokens| tokens < 60), "{burst:?}");
    assert_eq!(report.windows.iter().map(|window| window.n_tokens).sum::<usize>(), 400);

    let late = SyntheticRouting { burst: Some(60..70), ..Default::default() };
    let late = with(|options| options.choices = Choices::Synthetic(late));
    let error = stream(&trained_model(), &late, &|| false, &mut |_| {}).unwrap_err();
    assert!(matches!(error, StreamError::BurstAfterEnd { start: 60, n_tokens: 60 }), "{error}");
}

#[test]
fn a_delay_takes_its_time_for_each_expert_and_can_be_cancelled() {
    let slow = |each, n_tokens| with(|options| (options.work, options.n_tokens) = (Work::Delay(each), Some(n_tokens)));
    let report = run(&slow(Duration::from_micros(500), 10));
    // 10 tokens, 4 layers, 4 experts.
    assert!(report.working >= Duration::from_millis(80) && report.elapsed >= report.working);
    let started = std::time::Instant::now();
    let cancelled = || started.elapsed() > Duration::from_millis(100);
    let error = stream(&trained_model(), &slow(Duration::from_secs(60), 10), &cancelled, &mut |_| {}).unwrap_err();
    assert!(matches!(error, StreamError::Cancelled), "{error}");
    let error = stream(&trained_model(), &with(|options| options.n_tokens = Some(10_000_000)), &|| true, &mut |_| {});
    assert!(matches!(error, Err(StreamError::Cancelled)));
}

#[test]
fn progress_counts_tokens_up_to_the_last() {
    let mut seen = Vec::new();
    stream(&trained_model(), &options(), &|| false, &mut |progress| seen.push(progress)).unwrap();
    assert!(seen.is_sorted_by_key(|progress| progress.done));
    let last = seen.last().unwrap();
    assert_eq!((last.done, last.total), (N_TOKENS, N_TOKENS));
    assert!(last.hit_rate > 0.0 && last.hit_rate <= 1.0, "{last:?}");
}

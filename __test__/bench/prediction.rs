//! How much of the routers' choices is predicted, and what prefetching makes of it on drives of several kinds:
//! `cargo bench --bench prediction`.
//!
//! The held-out text of `__test__/data/text` goes through the trained model one token a pass. The shares of the first
//! table do not depend on the drive, the cache or the machine; the speeds of the second do.

#[path = "../support/held_out.rs"]
mod held_out;
#[path = "../support/models.rs"]
mod models;
#[path = "../support/throttled.rs"]
mod throttled;

use clutor::experts::{PredictionCounts, Prefetch, StreamingOptions};
use clutor::generate::perplexity;
use clutor::model::{LoadOptions, Model};
use clutor::store::{PageCache, Reader};
use held_out::held_out_ids;
use models::{cache_bytes_for, trained_model};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use throttled::Throttled;

const CACHED_PER_CENT: usize = 25;
const WINDOW: usize = 512;
/// Tokens of the first table.
const PREDICTED_TOKENS: usize = 4 * WINDOW;
/// Tokens of a run of the second: past the first trial of `auto` (32), and short of its second (from 288 on).
const TIMED_TOKENS: usize = 280;
/// Runs of the second, of which the median counts; those of all ways take turns.
const RUNS: usize = 3;

/// A drive by its latency in microseconds and its bandwidth in MB/s, 0 without a limit.
const DRIVES: [(&str, u64, u64); 4] = [
    ("memory (page cache)", 0, 0),
    ("2 ms a read, many at once", 2000, 0),
    ("200 MB/s in all", 0, 200),
    ("50 MB/s in all", 0, 50),
];
const WAYS: [Prefetch; 3] = [Prefetch::Off, Prefetch::Ahead, Prefetch::Auto];

fn main() {
    let ids = held_out_ids(&load(Prefetch::Off, None, 0, 0));
    predictions(&ids[..PREDICTED_TOKENS]);
    println!();
    speeds(&ids[..TIMED_TOKENS]);
}

fn load(prefetch: Prefetch, prefetch_n: Option<usize>, latency_us: u64, mb_per_s: u64) -> Model {
    // Through the page cache, where a file of 9 MB stays: the throttle alone makes the drive.
    let streaming = StreamingOptions { prefetch, prefetch_n, page_cache: PageCache::Use, ..Default::default() };
    let cache_bytes = Some(cache_bytes_for(&trained_model(), CACHED_PER_CENT));
    let options = LoadOptions { n_threads: Some(1), cache_bytes, streaming, ..LoadOptions::default() };
    let throttle = |reader: Arc<dyn Reader>| -> Arc<dyn Reader> {
        Arc::new(Throttled::new(reader, Duration::from_micros(latency_us), mb_per_s * 1_000_000))
    };
    Model::load_through(&trained_model(), &options, &throttle, &mut |_| ControlFlow::Continue(()))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn read_through(model: &Model, ids: &[u32]) {
    perplexity(model, ids, WINDOW, 1, &|| false, &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}"));
}

fn predictions(ids: &[u32]) {
    let n_layers = load(Prefetch::Off, None, 0, 0).info().n_layers;
    let layers: String = (0..n_layers).map(|layer| format!(" layer {layer} |")).collect();
    println!("Share of the routers' choices that was predicted, {} tokens:\n", ids.len());
    println!("| way | guesses a layer |{layers} all |\n|---|---|{}---|", "---|".repeat(n_layers));
    let rows = [
        ("prev", Prefetch::Prev, 4),
        ("ahead", Prefetch::Ahead, 4),
        ("ahead", Prefetch::Ahead, 6),
        ("ahead", Prefetch::Ahead, 8),
    ];
    for (name, prefetch, n) in rows {
        let model = load(prefetch, Some(n), 0, 0);
        read_through(&model, ids);
        let counts = model.predictions();
        let all: PredictionCounts = counts.iter().copied().sum();
        print!("| {name} | {n} |");
        for PredictionCounts { confirmed, chosen, .. } in counts.into_iter().chain([all]) {
            print!(" {:.1} % |", 100.0 * confirmed as f64 / chosen as f64);
        }
        println!();
    }
}

fn speeds(ids: &[u32]) {
    println!(
        "Tokens a second, median of {RUNS} runs over {} tokens, {CACHED_PER_CENT} % of the experts cached:\n",
        ids.len()
    );
    println!("| drive | off | ahead | auto | `auto` ended on |\n|---|---|---|---|---|");
    for (drive, latency_us, mb_per_s) in DRIVES {
        let mut speeds = WAYS.map(|_| Vec::new());
        let mut ended_on = 0;
        for _ in 0..RUNS {
            for (prefetch, speeds) in WAYS.into_iter().zip(&mut speeds) {
                let model = load(prefetch, None, latency_us, mb_per_s);
                let start = Instant::now();
                read_through(&model, ids);
                speeds.push(ids.len() as f64 / start.elapsed().as_secs_f64());
                if prefetch == Prefetch::Auto {
                    ended_on += usize::from(model.streaming_report().is_some_and(|report| report.prefetching));
                }
            }
        }
        let [off, ahead, auto] = speeds.map(|mut speeds| {
            speeds.sort_by(f64::total_cmp);
            speeds[RUNS / 2]
        });
        println!("| {drive} | {off:.1} | {ahead:.1} | {auto:.1} | {ended_on} of {RUNS} times |");
    }
}

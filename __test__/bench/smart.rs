//! What SMART-ROUTE gains and costs on the trained model, with a quarter of its experts cached: `cargo bench --bench smart`.
//!
//! The held-out text of `__test__/data/text` goes through the model in windows, one token a pass, as an answer would:
//! what is in memory when a token is routed is what the tokens before it have left there. Each row starts with an empty
//! cache and reads without prefetching; every expert that a layer chose is in memory before the layer ends, so the rows
//! do not depend on the drive's speed or on threads: the table comes out the same on every run.

#[path = "../support/held_out.rs"]
mod held_out;
#[path = "../support/models.rs"]
mod models;

use clutor::experts::{Prefetch, StreamingOptions};
use clutor::generate::perplexity;
use clutor::model::{LoadOptions, Model};
use clutor::routing::{SmartRoute, Substitutions};
use held_out::held_out_ids;
use models::{cache_bytes_for, trained_model};
use std::ops::ControlFlow;

const CACHED_PER_CENT: usize = 25;
/// Tokens of a window: the model's context.
const WINDOW: usize = 512;
/// Windows of the text.
const N_WINDOWS: usize = 8;
const KEPT: [usize; 3] = [1, 2, 3];
const CANDIDATES: [usize; 2] = [8, 16];
const TAUS: [f32; 4] = [0.25, 0.5, 1.0, 2.0];

/// A row of the table.
struct Row {
    hit_rate: f64,
    bytes_per_token: f64,
    perplexity: f64,
    /// Choices that went to a substitute, of all.
    substituted: f64,
    /// Router probability given away, a mean over tokens and layers: of at most 1.
    dropped: f64,
}

fn main() {
    let mut ids = held_out_ids(&load(None));
    ids.truncate(N_WINDOWS * WINDOW);
    let (name, n_tokens) = (trained_model().file_name().unwrap_or_default().to_string_lossy().into_owned(), ids.len());
    println!("{name}: {n_tokens} tokens of held-out text in windows of {WINDOW}, one token a pass;");
    println!("{CACHED_PER_CENT} % of the experts cached, no prefetching\n");
    println!("| J, M, tau | hit rate | KiB a token | perplexity | against off | substituted | probability dropped |");
    println!("|---|---|---|---|---|---|---|");
    let off = run(None, &ids);
    print("off", &off, &off);
    let zero = run(Some(SmartRoute { n_kept: 1, n_candidates: 16, tau: 0.0 }), &ids);
    print("1, 16, 0", &zero, &off);
    assert_eq!(zero.perplexity.to_bits(), off.perplexity.to_bits(), "a tau of 0 is the router itself");
    for n_kept in KEPT {
        for n_candidates in CANDIDATES {
            for tau in TAUS {
                let row = run(Some(SmartRoute { n_kept, n_candidates, tau }), &ids);
                print(&format!("{n_kept}, {n_candidates}, {tau}"), &row, &off);
            }
        }
    }
}

fn load(smart: Option<SmartRoute>) -> Model {
    let streaming = StreamingOptions { prefetch: Prefetch::Off, ..StreamingOptions::default() };
    let cache_bytes = Some(cache_bytes_for(&trained_model(), CACHED_PER_CENT));
    let options = LoadOptions { n_threads: Some(1), cache_bytes, streaming, smart, ..LoadOptions::default() };
    Model::load(&trained_model(), &options, &mut |_| ControlFlow::Continue(()))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn run(smart: Option<SmartRoute>, ids: &[u32]) -> Row {
    let model = load(smart);
    let score = perplexity(&model, ids, WINDOW, 1, &|| false, &mut |_, _| {});
    let perplexity = score.unwrap_or_else(|error| panic!("{error}")).perplexity;
    let store = model.streaming_report().unwrap_or_default().store;
    let Substitutions { slots, substituted, dropped_mass, .. } = model.substitutions().unwrap_or_default();
    let slots = slots.max(1) as f64;
    Row {
        hit_rate: store.hits as f64 / store.accesses as f64,
        bytes_per_token: store.demand_bytes as f64 / model.n_tokens() as f64,
        perplexity,
        substituted: substituted as f64 / slots,
        dropped: dropped_mass / slots * model.info().n_experts_used as f64,
    }
}

fn print(name: &str, row: &Row, off: &Row) {
    let Row { hit_rate, bytes_per_token, perplexity, substituted, dropped } = row;
    println!(
        "| {name} | {:.1} % | {:.0} | {perplexity:.3} | {:+.2} % | {:.1} % | {dropped:.4} |",
        100.0 * hit_rate,
        bytes_per_token / 1024.0,
        100.0 * (perplexity / off.perplexity - 1.0),
        100.0 * substituted,
    );
}

//! Hit rates of every cache policy beside the clairvoyant one: `cargo bench --bench policy [-- TRACE.csv[.gz]…]`.
//!
//! Without arguments, the traces in `__test__/data/traces`. Cold cache, the prompt first, hit rates over the generation.

#[path = "../support/traces.rs"]
mod traces;

use clutor::store::policy::{PolicyKind, Trace, belady, replay};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;
use traces::{read_trace, recorded_traces, slots};

const PER_CENT: [usize; 4] = [5, 10, 20, 30];
/// Share at which speed is measured, and the best of how many runs.
const SPEED_PER_CENT: usize = 10;
const RUNS: usize = 10;

fn main() {
    // `cargo bench` passes `--bench`.
    let given: Vec<PathBuf> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).map(Into::into).collect();
    let default = PolicyKind::default();
    for path in if given.is_empty() { recorded_traces() } else { given } {
        let trace = read_trace(&path);
        let Trace { n_layers, n_experts, .. } = trace;
        let n_generated = trace.keys.len() - trace.n_prompt_keys;
        println!("{}", path.file_name().unwrap_or_default().to_string_lossy());
        println!(
            "{n_layers} layers x {n_experts} experts, {} choices for the prompt, {n_generated} generated",
            trace.n_prompt_keys
        );
        print!("{:<18}", "hit rate, %, at");
        PER_CENT.iter().for_each(|per_cent| print!("{:>7}", format!("{per_cent} %")));
        println!("{:>14}", "M accesses/s");
        print_row("Belady, bypass", &trace, |n_slots| belady(&trace, n_slots).rate());
        for kind in PolicyKind::ALL {
            let mark = if kind == default { " *" } else { "" };
            print_row(&format!("{kind}{mark}"), &trace, |n_slots| replay(&trace, kind, n_slots).rate());
        }
        println!("* the default\n");
    }
}

fn print_row(name: &str, trace: &Trace, rate: impl Fn(usize) -> f64) {
    print!("{name:<18}");
    PER_CENT.iter().for_each(|per_cent| print!("{:>7.1}", 100.0 * rate(slots(trace, *per_cent))));
    let n_slots = slots(trace, SPEED_PER_CENT);
    let seconds = (0..RUNS).map(|_| {
        let start = Instant::now();
        black_box(rate(black_box(n_slots)));
        start.elapsed().as_secs_f64()
    });
    let best = seconds.fold(f64::INFINITY, f64::min);
    println!("{:>14.1}", trace.keys.len() as f64 / best / 1e6);
}

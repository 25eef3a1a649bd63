//! Recorded choices of experts, from CSV files, compressed or not.
#![allow(dead_code)] // Each program that includes this uses what it needs.

use clutor::store::policy::Trace;
use std::path::{Path, PathBuf};

/// The traces that come with the tests, by name.
pub fn recorded_traces() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("__test__/data/traces");
    ["gemma4-26b-a4b", "qwen3-30b-a3b"].map(|name| root.join(format!("{name}.csv.gz"))).to_vec()
}

/// Reads a trace of any format.
pub fn read_trace(path: &Path) -> Trace {
    clutor::workload::read_trace(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The number of slots that is a share of all experts, rounded.
pub fn slots(trace: &Trace, per_cent: usize) -> usize {
    (trace.n_layers * trace.n_experts * per_cent + 50) / 100
}

//! Recorded choices of experts, from CSV files, compressed or not.
#![allow(dead_code)] // Each program that includes this uses what it needs.

use clutor::store::policy::Trace;
use clutor::workload::trace::parse;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The traces that come with the tests, by name.
pub fn recorded_traces() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("__test__/data/traces");
    ["gemma4-26b-a4b", "qwen3-30b-a3b"].map(|name| root.join(format!("{name}.csv.gz"))).to_vec()
}

/// Reads a trace; names that end in `.gz` are decompressed.
pub fn read_trace(path: &Path) -> Trace {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    let read = match path.extension().is_some_and(|extension| extension == "gz") {
        true => flate2::read::GzDecoder::new(file).read_to_string(&mut text),
        false => std::io::BufReader::new(file).read_to_string(&mut text),
    };
    read.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The number of slots that is a share of all experts, rounded.
pub fn slots(trace: &Trace, per_cent: usize) -> usize {
    (trace.n_layers * trace.n_experts * per_cent + 50) / 100
}

//! Traces: which experts a model chose for a text. `docs/traces.md` describes the two formats.
//!
//! A *binary* trace holds the router's logits of every token and layer, from which choices and weights follow; a *CSV*
//! trace holds the choices alone. Either may be compressed with gzip. What a file is shows in its bytes, not in its name.
//! Nothing is believed: every count, id and length is checked before use.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used)]

mod binary;
mod convert;
mod csv;
mod error;
mod file;
mod recorder;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::arithmetic_side_effects)] // A panic is how a test fails.
mod tests;

pub use binary::{Header, LogitsReader};
pub use convert::convert_to_csv;
pub use csv::parse;
pub use error::{ContentError, TraceError};
pub use file::{TraceInfo, TraceKind, inspect_trace, read_trace, read_trace_while, read_trace_with_info};
pub use recorder::TraceRecorder;

/// Most experts of all layers that a trace may have: a hundred times the largest known model's.
const MAX_KEYS: usize = 1 << 22;

/// Most experts of a layer that a token may use: fifty times the largest known model's. Choosing takes the square of it.
const MAX_USED: u32 = 1 << 10;

/// Most choices that are read into memory, where each takes some 24 bytes: 175 000 tokens of a model with 48 layers that
/// uses 8 experts.
const MAX_CHOICES: usize = 1 << 26;

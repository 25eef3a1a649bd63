//! Why a trace cannot be read or written.

use super::{MAX_CHOICES, MAX_KEYS};
use std::path::PathBuf;

/// Why a trace cannot be read or written.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("{path}: {source}", path = path.display())]
    Open { path: PathBuf, source: std::io::Error },

    #[error("{path}: {source}", path = path.display())]
    Content { path: PathBuf, source: ContentError },

    #[error("{path}: the trace cannot be written: {source}", path = path.display())]
    Write { path: PathBuf, source: std::io::Error },

    #[error("{path}: only a binary trace is converted, and this one holds the choices already", path = path.display())]
    NotBinary { path: PathBuf },

    #[error("{path}: the trace would be written onto itself; give another file to write", path = path.display())]
    OntoItself { path: PathBuf },

    #[error("reading the trace was cancelled")]
    Cancelled,
}

/// Why bytes are not a trace.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("{0}")]
    Read(#[from] std::io::Error),

    #[error("line {line}: the header has no column `{column}`; expected token,layer,rank,expert,weight")]
    NoColumn { line: usize, column: &'static str },

    #[error("line {line}: `{column}` is `{found}`, expected a whole number")]
    NotANumber { line: usize, column: &'static str, found: String },

    #[error("line {line}: {column} {found} does not exist, the comments name {n} of them, counted from 0")]
    OutOfRange { line: usize, column: &'static str, found: u32, n: u32 },

    #[error("line {line} is no text, or longer than {most} bytes; the file is not a trace")]
    NotText { line: usize, most: usize },

    #[error("{n_layers} layers of {n_experts} experts are more than the {MAX_KEYS} experts that a trace may have")]
    TooLarge { n_layers: u64, n_experts: u64 },

    #[error("the trace has more than {MAX_CHOICES} choices, the most that are read; cut it into parts")]
    TooLong,

    #[error("the trace holds no choices; expected at least one whole token")]
    Empty,

    #[error("version {found} of the binary format is not known, only {known}; a newer clutor reads it")]
    Version { found: u32, known: u32 },

    #[error("the header of a binary trace is {expected} bytes long, the file ends after {found}; record it again")]
    HeaderTruncated { found: usize, expected: usize },

    #[error("the header is wrong: {field} is {found}, expected {expected}; the file is damaged, record it again")]
    Header { field: &'static str, found: String, expected: String },
}

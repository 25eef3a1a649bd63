//! Trace files of any kind.

use super::binary::{LogitsReader, MAGIC};
use super::{ContentError, TraceError, csv};
use crate::store::policy::Trace;
use flate2::bufread::MultiGzDecoder;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// First bytes of what gzip wrote. Source: RFC 1952, 2.3.1.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// What a trace file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKind {
    /// Router logits, in the binary format.
    Logits,
    /// Choices, as CSV.
    Choices,
}

/// A trace in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceInfo {
    /// What the file holds.
    pub kind: TraceKind,
    /// Layers of the model.
    pub n_layers: usize,
    /// Experts of a layer.
    pub n_experts: usize,
    /// Most experts that a token chose in a layer.
    pub n_used: usize,
    /// Tokens of the prompt in the trace.
    pub prompt_tokens: usize,
    /// Tokens that follow.
    pub tokens: usize,
    /// Choices, of prompt and text.
    pub n_choices: usize,
    /// Bytes after the last whole token of a binary trace that was not written to its end.
    pub left_over_bytes: usize,
}

/// Reads the choices of a trace file: binary, CSV (that of Helldez/BigMoeOnEdge too), or either compressed with gzip.
///
/// # Errors
/// Where the file cannot be read or is not a trace; see [`TraceError`].
pub fn read_trace(path: &Path) -> Result<Trace, TraceError> {
    read_trace_while(path, &|| false)
}

/// As [`read_trace`], and gives up when `cancelled` says so.
///
/// # Errors
/// As [`read_trace`], and where it is cancelled.
pub fn read_trace_while(path: &Path, cancelled: &dyn Fn() -> bool) -> Result<Trace, TraceError> {
    Ok(read(path, cancelled)?.1)
}

/// Says what a trace file holds, which takes reading it.
///
/// # Errors
/// As [`read_trace_while`].
pub fn inspect_trace(path: &Path, cancelled: &dyn Fn() -> bool) -> Result<TraceInfo, TraceError> {
    Ok(read_trace_with_info(path, cancelled)?.1)
}

/// Both at once.
///
/// # Errors
/// As [`read_trace_while`].
pub fn read_trace_with_info(path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(Trace, TraceInfo), TraceError> {
    let (kind, trace, left_over_bytes) = read(path, cancelled)?;
    let info = TraceInfo::of(kind, &trace, left_over_bytes);
    Ok((trace, info))
}

impl TraceInfo {
    fn of(kind: TraceKind, trace: &Trace, left_over_bytes: usize) -> Self {
        let (mut prompt, mut text) = (HashSet::new(), HashSet::new());
        let (mut start, mut n_used) = (0_usize, 0);
        for visit in &trace.visits {
            // Rows of a prompt may be layer by layer, so that tokens come again.
            let tokens = if start < trace.n_prompt_keys { &mut prompt } else { &mut text };
            tokens.insert(visit.token);
            n_used = n_used.max(visit.end.saturating_sub(start));
            start = visit.end;
        }
        Self {
            kind,
            n_layers: trace.n_layers,
            n_experts: trace.n_experts,
            n_used,
            prompt_tokens: prompt.len(),
            tokens: text.len(),
            n_choices: trace.keys.len(),
            left_over_bytes,
        }
    }
}

fn read(path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(TraceKind, Trace, usize), TraceError> {
    let read = |input: Box<dyn BufRead + '_>| match sniff(input)? {
        Source::Binary(input) => {
            LogitsReader::new(input)?.into_trace().map(|(trace, left_over)| (TraceKind::Logits, trace, left_over))
        }
        Source::Csv(input) => csv::read(input).map(|trace| (TraceKind::Choices, trace, 0)),
    };
    open(path, cancelled).and_then(|input| read(input).map_err(|source| in_file(path, source, cancelled)))
}

/// Errors of a file's content, or that the reader was told to stop.
pub(super) fn in_file(path: &Path, source: ContentError, cancelled: &dyn Fn() -> bool) -> TraceError {
    match cancelled() {
        true => TraceError::Cancelled,
        false => TraceError::Content { path: path.to_owned(), source },
    }
}

/// Input whose reads fail once it is cancelled.
pub(super) fn open<'a>(path: &Path, cancelled: &'a dyn Fn() -> bool) -> Result<Box<dyn BufRead + 'a>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Open { path: path.to_owned(), source })?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, Watched { file, cancelled })))
}

/// Input in one of the formats, which its first bytes name.
pub(super) enum Source<'a> {
    Binary(Box<dyn BufRead + 'a>),
    Csv(Box<dyn BufRead + 'a>),
}

pub(super) fn sniff<'a>(input: Box<dyn BufRead + 'a>) -> Result<Source<'a>, ContentError> {
    let (is_gzip, input) = starts_with(input, &GZIP)?;
    let input = match is_gzip {
        true => Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input))),
        false => input,
    };
    let (is_binary, input) = starts_with(input, &MAGIC)?;
    Ok(if is_binary { Source::Binary(input) } else { Source::Csv(input) })
}

/// Whether `input` begins so, and the whole of it again.
fn starts_with<'a>(mut input: Box<dyn BufRead + 'a>, magic: &[u8]) -> std::io::Result<(bool, Box<dyn BufRead + 'a>)> {
    let mut first = Vec::new();
    input.by_ref().take(magic.len() as u64).read_to_end(&mut first)?;
    let starts = first == magic;
    Ok((starts, Box::new(std::io::Cursor::new(first).chain(input))))
}

struct Watched<'a> {
    file: File,
    cancelled: &'a dyn Fn() -> bool,
}

impl Read for Watched<'_> {
    fn read(&mut self, place: &mut [u8]) -> std::io::Result<usize> {
        match (self.cancelled)() {
            true => Err(std::io::Error::other("cancelled")),
            false => self.file.read(place),
        }
    }
}

//! Writes a trace while a text is made.

use super::{Header, TraceError, csv};
use crate::routing::Choice;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Records the routing of one text, pass by pass.
///
/// A pass is collected first and written in one piece once it went through: what a failed pass said is not part of the
/// text, and a file that is cut off misses whole tokens, but for the last.
#[derive(Debug)]
pub struct TraceRecorder {
    path: PathBuf,
    file: File,
    header: Header,
    n_written: usize,
    pass: Pass,
    bytes: Vec<u8>,
}

/// What a pass said, token by token.
#[derive(Debug)]
enum Pass {
    /// `[tokens, n_layers, n_experts]`.
    Logits(Vec<f32>),
    /// `[tokens, n_layers, n_used]`.
    Choices(Vec<Choice>),
}

impl TraceRecorder {
    /// Makes the file, or empties it: CSV of the choices where its name ends in `.csv`, else binary with the logits.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn create(path: &Path, header: Header) -> Result<Self, TraceError> {
        let is_csv = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"));
        let (pass, mut bytes) = (if is_csv { Pass::Choices(Vec::new()) } else { Pass::Logits(Vec::new()) }, Vec::new());
        match pass {
            Pass::Logits(_) => bytes.extend(header.encode()),
            Pass::Choices(_) => csv::write_header(&header, &mut bytes),
        }
        let write = || {
            let mut file = File::create(path)?;
            file.write_all(&bytes)?;
            Ok(file)
        };
        let file = write().map_err(|source| TraceError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file, header, n_written: 0, pass, bytes })
    }

    /// Where it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a pass over the next `n_tokens`, and forgets one that was not committed.
    pub fn begin(&mut self, n_tokens: usize) {
        let Header { n_layers, n_experts, rule, .. } = self.header;
        let n = |width: usize| n_tokens.saturating_mul(n_layers).saturating_mul(width);
        match &mut self.pass {
            Pass::Logits(logits) => logits.resize(n(n_experts), 0.0),
            Pass::Choices(choices) => choices.resize(n(rule.n_used), Choice { expert: 0, weight: 0.0 }),
        }
    }

    /// Takes the router logits, `[tokens, n_experts]`, and the choices as applied, `[tokens, n_used]`, of `layer`.
    pub fn routed(&mut self, layer: usize, router_logits: &[f32], choices: &[Choice]) {
        let Header { n_layers, n_experts, rule, .. } = self.header;
        match &mut self.pass {
            Pass::Logits(pass) => put(pass, router_logits, layer, n_layers, n_experts),
            Pass::Choices(pass) => put(pass, choices, layer, n_layers, rule.n_used),
        }
    }

    /// Writes the pass, whose tokens are `ids`.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn commit(&mut self, ids: &[u32]) -> Result<(), TraceError> {
        let Header { n_layers, n_experts, rule, .. } = self.header;
        self.bytes.clear();
        match &self.pass {
            Pass::Logits(logits) => {
                for (id, logits) in ids.iter().zip(logits.chunks_exact(n_layers.saturating_mul(n_experts))) {
                    self.bytes.extend_from_slice(&id.to_le_bytes());
                    logits.iter().for_each(|logit| self.bytes.extend_from_slice(&logit.to_le_bytes()));
                }
            }
            Pass::Choices(choices) => {
                let tokens = choices.chunks_exact(n_layers.saturating_mul(rule.n_used));
                for (token, (_, choices)) in (self.n_written..).zip(ids.iter().zip(tokens)) {
                    csv::write_token(token, choices, rule.n_used, &mut self.bytes);
                }
            }
        }
        self.n_written = self.n_written.saturating_add(ids.len());
        let written = self.file.write_all(&self.bytes);
        written.map_err(|source| TraceError::Write { path: self.path.clone(), source })
    }
}

/// Copies a layer's rows of `width` to their places among those of all layers.
fn put<T: Copy>(pass: &mut [T], rows: &[T], layer: usize, n_layers: usize, width: usize) {
    let places = pass.chunks_exact_mut(width).skip(layer).step_by(n_layers);
    places.zip(rows.chunks_exact(width)).for_each(|(place, row)| place.copy_from_slice(row));
}

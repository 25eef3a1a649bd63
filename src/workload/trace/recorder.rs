//! Writes a trace while a text is made.

use super::{Header, TraceError, csv};
use crate::routing::{Choice, RoutingRule};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Records the routing of one text, pass by pass.
///
/// A pass is collected first and written once it went through: what a failed pass said is not part of the text.
#[derive(Debug)]
pub struct TraceRecorder {
    path: PathBuf,
    file: File,
    header: Header,
    n_written: usize,
    pass: Pass,
}

/// Memory that is kept from pass to pass. That of a long prompt's, which may be many MiB, is given back.
const KEPT_BYTES: usize = 1 << 20;

/// What a pass said, token by token.
#[derive(Debug)]
enum Pass {
    /// Records as they are written, in words of 4 bytes: `[tokens, 1 + n_layers * n_experts]`.
    Logits(Vec<[u8; 4]>),
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
        let mut first = Vec::new();
        let pass = if is_csv {
            csv::write_header(&header, &mut first);
            Pass::Choices(Vec::new())
        } else {
            first.extend(header.encode());
            Pass::Logits(Vec::new())
        };
        let write = || {
            let mut file = File::create(path)?;
            file.write_all(&first)?;
            Ok(file)
        };
        let file = write().map_err(|source| TraceError::Write { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file, header, n_written: 0, pass })
    }

    /// Where it writes.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins a pass over the next `n_tokens`, and forgets one that was not committed.
    pub fn begin(&mut self, n_tokens: usize) {
        let widths = (self.record_words(), self.choices_of_token());
        match &mut self.pass {
            Pass::Logits(words) => words.resize(n_tokens.saturating_mul(widths.0), [0; 4]),
            Pass::Choices(choices) => {
                choices.resize(n_tokens.saturating_mul(widths.1), Choice { expert: 0, weight: 0.0 });
            }
        }
    }

    /// Takes the router logits, `[tokens, n_experts]`, and the choices as applied, `[tokens, n_used]`, of `layer`.
    pub fn routed(&mut self, layer: usize, router_logits: &[f32], choices: &[Choice]) {
        let Header { n_experts, rule: RoutingRule { n_used, .. }, .. } = self.header;
        let widths = (self.record_words(), self.choices_of_token());
        match &mut self.pass {
            Pass::Logits(words) => {
                // The id comes first.
                let first = layer.saturating_mul(n_experts).saturating_add(1);
                for (record, row) in words.chunks_exact_mut(widths.0).zip(router_logits.chunks_exact(n_experts)) {
                    record.iter_mut().skip(first).zip(row).for_each(|(word, logit)| *word = logit.to_le_bytes());
                }
            }
            Pass::Choices(pass) => {
                let first = layer.saturating_mul(n_used);
                for (token, row) in pass.chunks_exact_mut(widths.1).zip(choices.chunks_exact(n_used)) {
                    token.iter_mut().skip(first).zip(row).for_each(|(place, choice)| *place = *choice);
                }
            }
        }
    }

    /// Writes the pass, whose tokens are `ids`.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn commit(&mut self, ids: &[u32]) -> Result<(), TraceError> {
        let widths = (self.record_words(), self.choices_of_token());
        let written = match &mut self.pass {
            Pass::Logits(words) => {
                for (record, id) in words.chunks_exact_mut(widths.0).zip(ids) {
                    record.iter_mut().take(1).for_each(|word| *word = id.to_le_bytes());
                }
                // In one piece, so that a file which is cut off misses no more than a part of its last token.
                let written = self.file.write_all(words.as_flattened());
                give_back(words);
                written
            }
            Pass::Choices(choices) => {
                let mut file = BufWriter::with_capacity(KEPT_BYTES, &self.file);
                let mut tokens = (self.n_written..).zip(choices.chunks_exact(widths.1));
                let write = |(token, choices)| csv::write_token(token, choices, self.header.rule.n_used, &mut file);
                let written = tokens.try_for_each(write).and_then(|()| file.flush());
                give_back(choices);
                written
            }
        };
        self.n_written = self.n_written.saturating_add(ids.len());
        written.map_err(|source| TraceError::Write { path: self.path.clone(), source })
    }

    fn record_words(&self) -> usize {
        self.header.n_layers.saturating_mul(self.header.n_experts).saturating_add(1)
    }

    fn choices_of_token(&self) -> usize {
        self.header.n_layers.saturating_mul(self.header.rule.n_used)
    }
}

fn give_back<T>(pass: &mut Vec<T>) {
    pass.clear();
    pass.shrink_to(KEPT_BYTES.checked_div(size_of::<T>()).unwrap_or_default());
}

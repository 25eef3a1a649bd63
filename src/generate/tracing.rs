//! Records the routing of those generations of a pass that want it.

use super::GenerateError;
use crate::model::{Model, RoutingObserver};
use crate::routing::Choice;
use crate::workload::trace::{Header, TraceRecorder};
use std::ops::Range;
use std::path::Path;

/// Begins the trace of a generation with `n_prompt` tokens of prompt.
pub(super) fn create(path: &Path, model: &Model, n_prompt: usize) -> Result<TraceRecorder, GenerateError> {
    let config = model.config();
    let (n_layers, n_experts) = (config.n_layers, config.n_experts);
    Ok(TraceRecorder::create(path, Header { n_layers, n_experts, rule: config.routing, n_prompt })?)
}

/// Whether two paths lead to one file, however they are spelled.
pub(super) fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        // One of them is not there yet, or not to be had; making it tells what is wrong with it.
        _ => a == b,
    }
}

/// The traces of a pass: gives each the rows of its own tokens.
pub(super) struct PassTraces<'a> {
    n_tokens: usize,
    traces: Vec<(Range<usize>, &'a mut TraceRecorder)>,
}

impl<'a> PassTraces<'a> {
    /// For a pass over `n_tokens`.
    pub fn new(n_tokens: usize) -> Self {
        Self { n_tokens, traces: Vec::new() }
    }

    /// Adds the trace of the generation that has the tokens `rows` of the batch.
    pub fn add(&mut self, rows: Range<usize>, trace: &'a mut TraceRecorder) {
        trace.begin(rows.len());
        self.traces.push((rows, trace));
    }

    /// What the forward pass is to report to; none where nothing is recorded.
    pub fn observer(&mut self) -> Option<&mut (dyn RoutingObserver + Send)> {
        if self.traces.is_empty() { None } else { Some(self) }
    }
}

impl RoutingObserver for PassTraces<'_> {
    fn routed(&mut self, layer: usize, router_logits: &[f32], choices: &[Choice]) {
        let (n_experts, n_used) = (router_logits.len() / self.n_tokens, choices.len() / self.n_tokens);
        for (rows, trace) in &mut self.traces {
            let (logits, choices) = (
                &router_logits[rows.start * n_experts..rows.end * n_experts],
                &choices[rows.start * n_used..rows.end * n_used],
            );
            trace.routed(layer, logits, choices);
        }
    }
}

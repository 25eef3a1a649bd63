//! The run: choices, then the model, then token after token.

use super::record::{Record, Records};
use super::report::StreamReport;
use super::tokens::Tokens;
use super::work::Worker;
use super::{Choices, StreamError, StreamOptions};
use crate::experts::{Expert, StreamingOptions, StreamingReport};
use crate::gguf::Gguf;
use crate::model::{Config, DensePlace, ForwardError, LoadOptions, Model, ModelError, Walk};
use crate::quant::WeightRows;
use crate::workload::trace::{TraceError, read_trace_while};
use crate::workload::{Guesser, RoutingShape};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// How far a benchmark has got.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamProgress {
    /// Tokens done.
    pub done: usize,
    /// Tokens in all.
    pub total: usize,
    /// Hit rate of the last tokens, at most 32: one token's says little.
    pub hit_rate: f64,
}

/// Tokens whose hit rate is told on the way.
const RECENT_TOKENS: usize = 32;

/// Time between two reports of progress at least.
const REPORT_EVERY: Duration = Duration::from_millis(50);

/// Streams the experts of the model at `path` as tokens would that choose as `options` say.
///
/// Memory is planned as for a model that generates, with what the choices take. `progress` is told the tokens done.
///
/// # Errors
/// Where the model cannot be loaded, its weights or the trace cannot be read, the trace is of another model, or
/// `cancelled` says so.
pub fn stream(
    path: &Path,
    options: &StreamOptions,
    cancelled: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(StreamProgress),
) -> Result<StreamReport, StreamError> {
    let started = Instant::now();
    // Before the plan, which counts what the process holds.
    let tokens = choices(path, options, cancelled)?;
    let load = load_options(path, &options.load)?;
    let model = Model::load(path, &load, &mut |_| match cancelled() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .map_err(|error| match error {
        ModelError::Cancelled => StreamError::Cancelled,
        error => error.into(),
    })?;
    let seed = match &options.choices {
        Choices::Synthetic(routing) => routing.seed,
        Choices::Trace(_) => 0,
    };
    let mut walker = Walker {
        tokens: &tokens,
        token: 0,
        worker: Worker::new(options.work, &model),
        guesser: Guesser::new(seed, options.accuracy, model.config().n_layers),
        cancelled,
    };

    let loading = started.elapsed();
    let started = Instant::now();
    let mut records = Records(Vec::with_capacity(tokens.n_tokens() + 1));
    records.0.push(Record::default());
    let mut reported = started;
    for token in 0..tokens.n_tokens() {
        walker.token = token;
        model.walk(&mut walker, cancelled).map_err(|error| match error {
            ForwardError::Cancelled => StreamError::Cancelled,
            error => error.into(),
        })?;
        let ring = model.ring_report().unwrap_or_default();
        records.0.push(Record::until_now(&streaming_report(&model), ring, started.elapsed()));
        if reported.elapsed() >= REPORT_EVERY || token + 1 == tokens.n_tokens() {
            let done = token + 1;
            let hit_rate = records.over(done.saturating_sub(RECENT_TOKENS)..done).hit_rate();
            progress(StreamProgress { done, total: tokens.n_tokens(), hit_rate });
            reported = Instant::now();
        }
    }
    let burst = match &options.choices {
        Choices::Synthetic(routing) => routing.burst.as_ref().map(|burst| records.burst(burst)),
        Choices::Trace(_) => None,
    };
    Ok(StreamReport {
        info: model.info().clone(),
        plan: model.plan().clone(),
        policy: load.streaming.policy,
        n_tokens: tokens.n_tokens(),
        elapsed: records.0.last().map_or(Duration::ZERO, |record| record.elapsed),
        loading,
        working: walker.worker.busy,
        streaming: streaming_report(&model),
        ring: model.ring_report().unwrap_or_default(),
        windows: records.windows(options.n_windows),
        burst,
        digest: walker.worker.digest,
    })
}

fn streaming_report(model: &Model) -> StreamingReport {
    model.streaming_report().expect("experts are always streamed here")
}

/// The choices of all tokens of the run.
fn choices(path: &Path, options: &StreamOptions, cancelled: &dyn Fn() -> bool) -> Result<Tokens, StreamError> {
    let gguf = Gguf::open(path).map_err(ModelError::from)?;
    let config = Config::read(gguf.metadata())?;
    let (n_layers, n_experts, n_used) = (config.n_layers, config.n_experts, config.routing.n_used);
    match &options.choices {
        Choices::Synthetic(routing) => {
            let n_tokens = options.n_tokens.unwrap_or(StreamOptions::DEFAULT_TOKENS);
            if let Some(burst) = routing.burst.as_ref().filter(|burst| burst.start >= n_tokens) {
                return Err(StreamError::BurstAfterEnd { start: burst.start, n_tokens });
            }
            let shape = RoutingShape { n_layers, n_experts, n_used };
            let trace = routing.trace_while(shape, n_tokens, cancelled).ok_or(StreamError::Cancelled)?;
            Ok(Tokens::of(trace, None))
        }
        Choices::Trace(path) => {
            let trace = read_trace_while(path, cancelled).map_err(|error| match error {
                TraceError::Cancelled => StreamError::Cancelled,
                error => error.into(),
            })?;
            if trace.n_layers > n_layers || trace.n_experts > n_experts {
                let (layers, experts) = (trace.n_layers, trace.n_experts);
                return Err(StreamError::OtherModel { path: path.clone(), layers, experts, n_layers, n_experts });
            }
            Ok(Tokens::of(trace, options.n_tokens))
        }
    }
}

/// The options with which experts are streamed whatever would fit, and nothing is kept for a text.
fn load_options(path: &Path, options: &LoadOptions) -> Result<LoadOptions, ModelError> {
    let StreamingOptions { policy, n_staging, n_io_threads, page_cache, prefetch, prefetch_n, .. } = options.streaming;
    // Only what says how to stream: a benchmark begins cold, and nothing of made-up choices is to be remembered.
    #[allow(clippy::needless_update)]
    let streaming = StreamingOptions {
        policy,
        n_staging,
        n_io_threads,
        page_cache,
        prefetch,
        prefetch_n,
        ..StreamingOptions::default()
    };
    let one_token = LoadOptions { n_ctx: Some(1), longest_text: Some(1), longest_prompt: Some(1), ..options.clone() };
    let mut load = LoadOptions { streaming, smart: None, ..one_token };
    let anywhere = LoadOptions { dense: DensePlace::Auto, ..load.clone() };
    if !Model::plan_for(path, &anywhere)?.streaming {
        // All experts fit: a cache for all of them.
        (load.memory_bytes, load.cache_bytes) = (None, Some(u64::MAX));
    }
    Ok(load)
}

/// Tokens on their way.
struct Walker<'a> {
    tokens: &'a Tokens,
    /// The one that is on its way now.
    token: usize,
    worker: Worker<'a>,
    guesser: Guesser,
    cancelled: &'a (dyn Fn() -> bool + Sync),
}

impl Walk for Walker<'_> {
    fn dense(&mut self, matrices: &[WeightRows<'_>]) {
        self.worker.work(matrices, 0, self.cancelled);
    }

    fn guess(&mut self, layer: usize, n: usize) -> Vec<u32> {
        self.guesser.guess(layer, &self.tokens.experts(self.token, layer), self.tokens.n_experts(), n)
    }

    fn choose(&mut self, layer: usize) -> Vec<u32> {
        self.tokens.experts(self.token, layer)
    }

    fn experts(&mut self, experts: &[Expert<'_>]) {
        let matrices: Vec<_> = experts.iter().flat_map(|expert| [expert.gate, expert.up, expert.down]).collect();
        self.worker.work(&matrices, experts.len(), self.cancelled);
    }
}

//! The runs: the machine's memory first, then the model, then work after work.

use super::report::{BenchReport, Measurement, Run};
use super::weights::{WeightBytes, WeightCounter};
use super::{BenchError, BenchOptions, Work, read_bandwidth};
use crate::gguf::Gguf;
use crate::guard::{Memory, compute_threads};
use crate::model::{BatchToken, Config, ForwardError, LoadOptions, Model, ModelError, Sequence, Workspace};
use crate::stream::Record;
use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

/// How far a benchmark has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchProgress {
    /// Tokens done.
    pub done: usize,
    /// Tokens in all, those included that are not counted.
    pub total: usize,
}

/// Tokens of decoding before the first run that counts; of a prompt all are needed to bring its weights in.
const WARM_UP_TOKENS: usize = 8;

/// Measures how fast the model at `path` computes, and how fast the machine reads memory.
///
/// # Errors
/// Where the model cannot be loaded, its context is too short, its weights cannot be read, or `cancelled` says so.
///
/// # Panics
/// If there is no run, no depth, or work of no token.
pub fn bench(
    path: &Path,
    options: &BenchOptions,
    cancelled: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(BenchProgress),
) -> Result<BenchReport, BenchError> {
    assert!(options.n_runs > 0 && !options.depths.is_empty() && options.work.iter().all(|work| work.n_tokens() > 0));
    // First, and given back before the plan, which counts what the process holds.
    let (weights, file_bytes) = {
        let gguf = Gguf::open(path).map_err(ModelError::from)?;
        (WeightBytes::of(&gguf, Config::read(gguf.metadata())?.n_layers), gguf.file_bytes())
    };
    let n_threads = options.load.n_threads.unwrap_or_else(compute_threads);
    let bandwidth = read_bandwidth(bandwidth_bytes(options, file_bytes), n_threads)?;

    let started = Instant::now();
    let needed = longest_text(options);
    let model = Model::load(path, &load_options(options, needed), &mut |_| match cancelled() {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    })
    .map_err(|error| match error {
        ModelError::Cancelled => BenchError::Cancelled,
        error => error.into(),
    })?;
    let loading = started.elapsed();
    if model.n_ctx() < needed {
        return Err(BenchError::Context { needed, n_ctx: model.n_ctx() });
    }
    let mut runner = Runner {
        weights: &weights,
        sequence: model.new_sequence(),
        workspace: Workspace::new(),
        random: ChaCha8Rng::seed_from_u64(options.seed),
        model: &model,
        cancelled,
        progress,
        progressed: BenchProgress { done: 0, total: total_tokens(options) },
    };
    let mut measurements = Vec::new();
    for &depth in &options.depths {
        runner.fill_to(depth)?;
        for &work in &options.work {
            runner.run(warm_up(work), depth)?;
            let runs = (0..options.n_runs).map(|_| runner.run(work, depth)).collect::<Result<_, _>>()?;
            measurements.push(Measurement { work, depth, runs });
        }
    }
    Ok(BenchReport { info: model.info().clone(), plan: model.plan().clone(), bandwidth, loading, measurements })
}

/// Bytes to measure bandwidth with: no more than the model has, as one that stays in caches is limited by those, and for
/// this moment at most a quarter of the memory that is given or there.
fn bandwidth_bytes(options: &BenchOptions, file_bytes: u64) -> usize {
    let given = options.load.memory_bytes.unwrap_or(u64::MAX);
    let usable = Memory::detect().map_or(given, |memory| memory.available_bytes.min(given)) / 4;
    options.bandwidth_bytes.min(usize::try_from(usable.min(file_bytes)).unwrap_or(usize::MAX))
}

fn longest_text(options: &BenchOptions) -> usize {
    let deepest = options.depths.iter().copied().max().unwrap_or(0);
    deepest + options.work.iter().map(|work| work.n_tokens()).max().unwrap_or(0)
}

/// The options with room for what is measured and no more.
fn load_options(options: &BenchOptions, needed: usize) -> LoadOptions {
    let prompts = options.work.iter().filter(|work| matches!(work, Work::Prompt(_))).map(|work| work.n_tokens());
    let longest_prompt = prompts.chain(options.depths.iter().copied()).max().unwrap_or(0).max(1);
    LoadOptions {
        n_ctx: Some(needed.max(1)),
        longest_text: Some(needed.max(1)),
        longest_prompt: Some(longest_prompt),
        ..options.load.clone()
    }
}

fn warm_up(work: Work) -> Work {
    match work {
        Work::Prompt(n) => Work::Prompt(n),
        Work::Decode(n) => Work::Decode(n.min(WARM_UP_TOKENS)),
    }
}

fn total_tokens(options: &BenchOptions) -> usize {
    let mut filled = 0;
    let fills = options.depths.iter().map(|&depth| depth.saturating_sub(std::mem::replace(&mut filled, depth)));
    let of_work = |work: &Work| warm_up(*work).n_tokens() + options.n_runs * work.n_tokens();
    fills.sum::<usize>() + options.depths.len() * options.work.iter().map(of_work).sum::<usize>()
}

/// A model with one text, whose end is computed over and over.
struct Runner<'a> {
    model: &'a Model,
    weights: &'a WeightBytes,
    sequence: Sequence,
    workspace: Workspace,
    random: ChaCha8Rng,
    cancelled: &'a (dyn Fn() -> bool + Sync),
    progress: &'a mut dyn FnMut(BenchProgress),
    progressed: BenchProgress,
}

impl Runner<'_> {
    /// Makes the text `depth` tokens long.
    fn fill_to(&mut self, depth: usize) -> Result<(), BenchError> {
        self.sequence.truncate(depth);
        let missing = depth - self.sequence.len();
        if missing > 0 {
            self.passes(Work::Prompt(missing), &mut WeightCounter::new(self.weights))?;
        }
        Ok(())
    }

    /// Does `work` behind the first `depth` tokens, and forgets it.
    fn run(&mut self, work: Work, depth: usize) -> Result<Run, BenchError> {
        let mut counter = WeightCounter::new(self.weights);
        let before = self.record(Duration::ZERO);
        let started = Instant::now();
        self.passes(work, &mut counter)?;
        let record = self.record(started.elapsed()).since(&before);
        self.sequence.truncate(depth);
        Ok(Run { weight_bytes: counter.bytes(), record })
    }

    fn record(&self, elapsed: Duration) -> Record {
        let streaming = self.model.streaming_report().unwrap_or_default();
        Record::until_now(&streaming, self.model.ring_report().unwrap_or_default(), elapsed)
    }

    fn passes(&mut self, work: Work, counter: &mut WeightCounter<'_>) -> Result<(), BenchError> {
        let most = match work {
            Work::Prompt(_) => self.model.plan().batch_tokens,
            Work::Decode(_) => 1,
        };
        let mut left = work.n_tokens();
        while left > 0 {
            let batch = self.random_batch(left.min(most));
            left -= batch.len();
            counter.begin_pass(&batch);
            let sequences = &mut [&mut self.sequence];
            self.model.forward(&mut self.workspace, sequences, &batch, Some(counter), self.cancelled).map_err(
                |error| match error {
                    ForwardError::Cancelled => BenchError::Cancelled,
                    error => error.into(),
                },
            )?;
            self.progressed.done += batch.len();
            (self.progress)(self.progressed);
        }
        Ok(())
    }

    /// The next `n` tokens, of which the last one's logits are wanted, as in a text.
    fn random_batch(&mut self, n: usize) -> Vec<BatchToken> {
        let (first, vocab_size) = (self.sequence.len(), self.model.vocab_size() as u64);
        let mut token = |i| BatchToken {
            sequence: 0,
            pos: first + i,
            id: (self.random.next_u64() % vocab_size) as u32,
            wants_logits: i + 1 == n,
        };
        (0..n).map(&mut token).collect()
    }
}

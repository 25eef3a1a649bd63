//! Several generations over one model, carried forward together.

use super::generation::{Generation, Step};
use super::kept::Kept;
use super::tracing::{self, PassTraces};
use super::{GenerateError, GenerateOptions, Outcome, Piece, StopReason};
use crate::model::{BatchToken, ForwardError, Model, Sequence, Workspace};
use crate::workload::trace::TraceRecorder;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Receives what a generation gives. Its methods are called from the thread that steps the scheduler.
pub trait Sink: Send + Sync {
    /// False holds the generation back until it is true again; others go on.
    fn has_room(&self) -> bool;

    /// True ends the generation, between tokens and between the layers of a prompt.
    fn cancelled(&self) -> bool;

    /// Takes the next token.
    fn piece(&mut self, piece: Piece);

    /// Takes the end: how it went, or why it failed. Nothing follows.
    fn finish(self: Box<Self>, outcome: Result<Outcome, GenerateError>);
}

/// What a step found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// At least one generation went on or ended.
    Worked,
    /// There are generations, and all wait for room in their sinks.
    Stalled,
    /// There are no generations.
    Idle,
}

/// Carries generations forward, all that can go on in one forward pass.
///
/// A prompt is read in chunks that leave every other generation its share of a pass. The key/value caches of texts that
/// ended are kept for the next one that begins alike, if there is memory for them. Where that is planned for, all caches
/// together stay within the plan: those of ended texts go first, and then the latest generations wait until others end,
/// and read their texts anew.
#[derive(Debug)]
pub struct Scheduler {
    model: Arc<Model>,
    active: Vec<Active>,
    kept: Kept,
    /// Positions that all caches may hold together: at least a context.
    limit: usize,
    workspace: Workspace,
}

/// A generation with its cache.
struct Active {
    generation: Generation,
    sequence: Sequence,
    sink: Box<dyn Sink>,
    trace: Option<TraceRecorder>,
    reused_tokens: usize,
    started: Instant,
    first_token: Option<Instant>,
}

impl std::fmt::Debug for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Active").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// How a generation ends.
type Ending = Result<StopReason, GenerateError>;

impl Scheduler {
    /// A scheduler without generations.
    pub fn new(model: Arc<Model>) -> Self {
        let limit = model.plan().kv_positions.unwrap_or(usize::MAX);
        Self { model, active: Vec::new(), kept: Kept::default(), limit, workspace: Workspace::new() }
    }

    /// Adds a generation; what is wrong with it goes to its sink at once.
    pub fn submit(&mut self, prompt: Vec<u32>, options: GenerateOptions, sink: Box<dyn Sink>) {
        match self.begin(prompt, options) {
            Ok((generation, trace)) => {
                let sequence = match trace {
                    // What a cache holds cannot be recorded any more.
                    Some(_) => self.model.new_sequence(),
                    None => {
                        let room = self.limit.saturating_sub(self.held());
                        let kept = self.kept.take(generation.tokens(), room);
                        kept.unwrap_or_else(|| self.model.new_sequence())
                    }
                };
                let reused_tokens = sequence.len();
                let started = Instant::now();
                self.active.push(Active {
                    generation,
                    sequence,
                    sink,
                    trace,
                    reused_tokens,
                    started,
                    first_token: None,
                });
            }
            Err(error) => sink.finish(Err(error)),
        }
    }

    /// Checks what is asked for, and makes the trace's file if there is to be one.
    fn begin(
        &self,
        prompt: Vec<u32>,
        options: GenerateOptions,
    ) -> Result<(Generation, Option<TraceRecorder>), GenerateError> {
        let vocab_size = self.model.vocab_size();
        if let Some(&id) = prompt.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(ForwardError::TokenId { id, vocab_size }.into());
        }
        let path = options.trace.clone();
        let generation = Generation::new(prompt, options, self.model.n_ctx())?;
        let Some(path) = path else { return Ok((generation, None)) };
        let mut traces = self.active.iter().filter_map(|other| other.trace.as_ref());
        if traces.any(|trace| tracing::is_same_file(trace.path(), &path)) {
            return Err(GenerateError::TraceInUse { path });
        }
        let trace = tracing::create(&path, &self.model, generation.prompt_tokens())?;
        Ok((generation, Some(trace)))
    }

    /// Number of generations that have not ended.
    pub fn n_active(&self) -> usize {
        self.active.len()
    }

    /// Runs one forward pass over the generations that can go on, and ends those that are done or cancelled.
    pub fn step(&mut self) -> Progress {
        if self.active.is_empty() {
            return Progress::Idle;
        }
        let before = self.active.len();
        self.end_where(|active| match active {
            active if active.sink.cancelled() => Some(Ok(StopReason::Aborted)),
            active if active.generation.wants_nothing() => Some(Ok(StopReason::MaxTokens)),
            _ => None,
        });
        let (running, batch) = self.batch();
        if batch.is_empty() {
            return if self.active.len() < before { Progress::Worked } else { Progress::Stalled };
        }
        match self.forward(&running, &batch) {
            Ok(()) => self.accept(&running, &batch),
            // The next step ends the cancelled ones.
            Err(ForwardError::Cancelled) => {}
            Err(error) => {
                // Submission checked the ids and the length, so this is for all of them alike.
                for &i in running.iter().rev() {
                    self.active.remove(i).sink.finish(Err(error.clone().into()));
                }
            }
        }
        Progress::Worked
    }

    /// The generations that go on, as indices, and their next tokens.
    fn batch(&mut self) -> (Vec<usize>, Vec<BatchToken>) {
        let left = |active: &Active| active.generation.tokens().len() - active.sequence.len();
        let ready = self.ready();
        let shares =
            shares(&ready.iter().map(|&i| left(&self.active[i])).collect::<Vec<_>>(), self.model.plan().batch_tokens);
        let (mut running, mut batch) = (Vec::new(), Vec::new());
        for (i, n) in ready.into_iter().zip(shares).filter(|(_, n)| *n > 0) {
            let active = &self.active[i];
            let left = &active.generation.tokens()[active.sequence.len()..];
            let sequence = running.len();
            batch.extend(left[..n].iter().enumerate().map(|(j, &id)| BatchToken {
                sequence,
                pos: active.sequence.len() + j,
                id,
                // Only the newest token of all says what comes next.
                wants_logits: j + 1 == left.len(),
            }));
            running.push(i);
        }
        (running, batch)
    }

    /// The generations that can go on, oldest first: those whose sinks have room, and whose texts have memory.
    fn ready(&mut self) -> Vec<usize> {
        let mut ready: Vec<usize> = (0..self.active.len()).filter(|&i| self.active[i].sink.has_room()).collect();
        let Some(&oldest) = ready.first() else { return ready };
        // The oldest alone always fits: a text is no longer than a context.
        while self.wanted(&ready) > self.limit && self.kept.drop_oldest() {}
        for i in (0..self.active.len()).rev().filter(|&i| i != oldest) {
            if self.wanted(&ready) <= self.limit {
                break;
            }
            self.active[i].sequence = self.model.new_sequence();
            ready.retain(|&other| other != i);
        }
        ready
    }

    /// Positions of all caches once the texts of `ready` are in theirs.
    fn wanted(&self, ready: &[usize]) -> usize {
        let added =
            |&i: &usize| self.active[i].generation.tokens().len().saturating_sub(self.active[i].sequence.held());
        self.held() + ready.iter().map(added).sum::<usize>()
    }

    /// Positions whose memory all caches take.
    fn held(&self) -> usize {
        self.kept.held() + self.active.iter().map(|active| active.sequence.held()).sum::<usize>()
    }

    /// Makes room for other work of the model that takes `n` positions: lets go of caches where all would be too many.
    pub fn make_way(&mut self, n: usize) {
        let most = self.limit.saturating_sub(n);
        while self.held() > most && self.kept.drop_oldest() {}
        if self.held() > most {
            // They read their texts anew.
            self.active.iter_mut().for_each(|active| active.sequence = self.model.new_sequence());
        }
    }

    fn forward(&mut self, running: &[usize], batch: &[BatchToken]) -> Result<(), ForwardError> {
        let (mut sequences, mut sinks) = (Vec::new(), Vec::new());
        let mut traces = PassTraces::new(batch.len());
        for (i, active) in self.active.iter_mut().enumerate() {
            if running.contains(&i) {
                if let Some(trace) = &mut active.trace {
                    let rows = new_rows(batch, sequences.len(), trace);
                    if !rows.is_empty() {
                        traces.add(rows, trace);
                    }
                }
                sequences.push(&mut active.sequence);
                sinks.push(&active.sink);
            }
        }
        // A pass is given up only where nobody wants it any more.
        let cancelled = || sinks.iter().all(|sink| sink.cancelled());
        self.model.forward(&mut self.workspace, &mut sequences, batch, traces.observer(), &cancelled)
    }

    /// Gives each generation that asked for logits its next token.
    fn accept(&mut self, running: &[usize], batch: &[BatchToken]) {
        let vocab_size = self.model.vocab_size();
        let mut ended = self.write_traces(running, batch);
        let asking = batch.iter().filter(|token| token.wants_logits).map(|token| running[token.sequence]);
        for (i, logits) in asking.zip(self.workspace.logits().chunks_exact(vocab_size)) {
            if ended[i].is_some() {
                continue;
            }
            let active = &mut self.active[i];
            let step = active.generation.accept(&self.model, logits);
            active.first_token.get_or_insert_with(Instant::now);
            match step {
                Step::Piece(piece) => active.sink.piece(piece),
                Step::Last(piece, reason) => {
                    piece.into_iter().for_each(|piece| active.sink.piece(piece));
                    ended[i] = Some(Ok(reason));
                }
            }
        }
        let mut ended = ended.into_iter();
        self.end_where(|_| ended.next().flatten());
    }

    /// Writes what the pass added to traces. Gives for each active generation the end that this has brought.
    fn write_traces(&mut self, running: &[usize], batch: &[BatchToken]) -> Vec<Option<Ending>> {
        let mut ended: Vec<Option<Ending>> = self.active.iter().map(|_| None).collect();
        for (sequence, &i) in running.iter().enumerate() {
            if let Some(trace) = &mut self.active[i].trace {
                let rows = new_rows(batch, sequence, trace);
                let ids: Vec<u32> = batch[rows].iter().map(|token| token.id).collect();
                if !ids.is_empty() {
                    ended[i] = trace.commit(&ids).err().map(|error| Err(error.into()));
                }
            }
        }
        ended
    }

    /// Ends each generation for which `ending` has one; asked once for each, in order.
    fn end_where(&mut self, mut ending: impl FnMut(&Active) -> Option<Ending>) {
        let mut going_on = Vec::with_capacity(self.active.len());
        for active in std::mem::take(&mut self.active) {
            match ending(&active) {
                Some(Ok(reason)) => self.end(active, reason),
                Some(Err(error)) => active.sink.finish(Err(error)),
                None => going_on.push(active),
            }
        }
        self.active = going_on;
    }

    fn end(&mut self, mut active: Active, reason: StopReason) {
        let now = Instant::now();
        let first = active.first_token.unwrap_or(now);
        let micros = |from: Instant, to: Instant| to.duration_since(from).as_micros() as u64;
        let outcome = Outcome {
            reason,
            text: active.generation.flush(reason),
            prompt_tokens: active.generation.prompt_tokens(),
            reused_tokens: active.reused_tokens,
            tokens: active.generation.answer_tokens(),
            prompt_us: micros(active.started, first),
            decode_us: micros(first, now),
        };
        let held = active.generation.tokens()[..active.sequence.len()].to_vec();
        self.kept.keep(held, active.sequence, self.model.n_ctx());
        active.sink.finish(Ok(outcome));
    }
}

/// The tokens of a batch that belong to `sequence`, which follow each other, less those that `trace` has: a text that had
/// to make way is read anew.
fn new_rows(batch: &[BatchToken], sequence: usize, trace: &TraceRecorder) -> Range<usize> {
    let first = batch.partition_point(|token| token.sequence < sequence);
    let end = batch.partition_point(|token| token.sequence <= sequence);
    let known = batch[first..end].iter().take_while(|token| token.pos < trace.n_tokens()).count();
    first + known..end
}

/// Divides the `room` of a pass among generations that have `left` tokens each to run: those that want less than an even
/// share get what they want, and the others share the rest.
fn shares(left: &[usize], mut room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|&i| left[i]);
    let mut shares = vec![0; left.len()];
    for (served, &i) in order.iter().enumerate() {
        shares[i] = left[i].min(room.div_ceil(left.len() - served));
        room -= shares[i];
    }
    shares
}

#[cfg(test)]
mod tests;

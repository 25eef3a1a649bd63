//! The thread that owns a model: it loads it, then carries out commands, one after the other, between decoding steps.

use super::error::{NodeError, failure};
use super::mailbox::{Array, Mailbox};
use super::outbox::{Outbox, OutboxSink};
use super::shapes::{Event, Failure, PerplexityScore};
use crate::generate::{self, GenerateOptions, Progress, Scheduler};
use crate::gguf::Gguf;
use crate::model::{self, LoadOptions, Model, ModelError};
use crate::tokenizer::Tokenizer;
use crossbeam_channel::{Receiver, Sender};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, JoinHandle};

/// What a file turned into.
pub(super) enum Loaded {
    Model(Arc<Model>),
    Vocabulary(Box<Tokenizer>),
}

impl Loaded {
    pub(super) fn tokenizer(&self) -> Result<&Tokenizer, NodeError> {
        match self {
            Self::Model(model) => Ok(model.tokenizer()?),
            Self::Vocabulary(tokenizer) => Ok(tokenizer),
        }
    }

    pub(super) fn model(&self) -> Result<&Arc<Model>, NodeError> {
        match self {
            Self::Model(model) => Ok(model),
            Self::Vocabulary(_) => Err(NodeError::OnlyVocabulary),
        }
    }
}

/// A text, its bytes (perhaps not UTF-8), or ids.
pub(super) enum Input {
    Text(String),
    Bytes(Vec<u8>),
    Ids(Vec<u32>),
}

impl Input {
    fn into_ids(self, tokenizer: Result<&Tokenizer, NodeError>, special: bool) -> Result<Vec<u32>, NodeError> {
        match self {
            Self::Text(text) => Ok(tokenizer?.encode(&text, special)),
            Self::Bytes(bytes) => Ok(tokenizer?.encode_bytes(&bytes, special)),
            Self::Ids(ids) => Ok(ids),
        }
    }

    /// As `into_ids`, with the begin token before a text where the model was trained with one. Ids stay as they are.
    fn into_prompt(self, tokenizer: Result<&Tokenizer, NodeError>, special: bool) -> Result<Vec<u32>, NodeError> {
        let tokenizer = match self {
            Self::Ids(ids) => return Ok(ids),
            Self::Text(_) | Self::Bytes(_) => tokenizer?,
        };
        let mut ids = self.into_ids(Ok(tokenizer), special)?;
        let known = tokenizer.special_ids();
        if let Some(bos) = known.bos.filter(|&bos| known.add_bos && ids.first() != Some(&bos)) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }
}

pub(super) enum Command {
    Generate {
        prompt: Input,
        special: bool,
        options: GenerateOptions,
        outbox: Arc<Outbox>,
    },
    Ask {
        request: u32,
        question: Question,
        cancelled: Arc<AtomicBool>,
    },
    /// A generation has room again, or was cancelled.
    Look,
}

/// Work that gives one answer.
pub(super) enum Question {
    Tokenize { input: Input, special: bool },
    Logits { ids: Vec<u32>, batch: usize },
    Perplexity { input: Input, window: usize, batch: usize },
}

/// What the JavaScript thread holds of a model. The model itself is freed by its own thread, which is the last to let go
/// of it once this is dropped.
pub(super) struct Engine {
    pub(super) commands: Sender<Command>,
    pub(super) loaded: Arc<OnceLock<Loaded>>,
    closing: Arc<AtomicBool>,
}

impl Engine {
    /// Tells the thread to stop within one layer.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // Fails only if the thread has ended, which is what is wanted.
        let _ended = self.commands.send(Command::Look);
    }
}

/// What is to be loaded.
pub(super) struct Task {
    pub(super) request: u32,
    pub(super) path: PathBuf,
    pub(super) options: LoadOptions,
    pub(super) vocabulary_only: bool,
    pub(super) cancelled: Arc<AtomicBool>,
}

/// Starts the thread of the model that `task` describes.
pub(super) fn start(task: Task, mailbox: Arc<Mailbox>) -> std::io::Result<(Engine, JoinHandle<()>)> {
    let (commands, received) = crossbeam_channel::unbounded();
    let loaded = Arc::new(OnceLock::new());
    let closing = Arc::new(AtomicBool::new(false));
    let engine = Engine { commands, loaded: Arc::clone(&loaded), closing: Arc::clone(&closing) };
    let request = task.request;
    let thread = Builder::new().name("clutor-engine".to_owned()).spawn(move || {
        let session = Session { mailbox: Arc::clone(&mailbox), closing, received };
        if session.load(task, &loaded)
            && let Some(loaded) = loaded.get()
        {
            session.serve(loaded);
        }
        drop((session, loaded));
        mailbox.ended(request);
    })?;
    Ok((engine, thread))
}

struct Session {
    mailbox: Arc<Mailbox>,
    closing: Arc<AtomicBool>,
    received: Receiver<Command>,
}

impl Session {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Loads, reports, and says whether there is a model now.
    fn load(&self, task: Task, place: &OnceLock<Loaded>) -> bool {
        let Task { request, path, options, vocabulary_only, cancelled } = task;
        let loaded = caught(|| {
            if vocabulary_only {
                let tokenizer = model::read_tokenizer(Gguf::open(&path)?.metadata())?;
                return Ok(Loaded::Vocabulary(Box::new(tokenizer.ok_or(ModelError::NoTokenizer)?)));
            }
            let mut progress = |progress: model::LoadProgress| {
                self.mailbox.progress(request, progress.done_bytes, progress.total_bytes);
                self.go_on(&cancelled)
            };
            Ok(Loaded::Model(Arc::new(Model::load(&path, &options, &mut progress)?)))
        });
        match loaded {
            Ok(loaded) => {
                let info = match &loaded {
                    Loaded::Model(model) => Some(model.info().into()),
                    Loaded::Vocabulary(_) => None,
                };
                let stored = place.set(loaded).is_ok();
                self.mailbox.done(request, Event { info, ..Event::default() });
                stored
            }
            Err(failure) => {
                self.mailbox.failed(request, failure);
                false
            }
        }
    }

    /// Carries out commands until the model is closed: all that wait, then one step of the generations.
    fn serve(&self, loaded: &Loaded) {
        let new_scheduler = || loaded.model().ok().map(|model| Scheduler::new(Arc::clone(model)));
        let mut scheduler = new_scheduler();
        let mut busy = false;
        while !self.is_closing() {
            // With nothing to compute, wait: every drain of a full outbox sends a command.
            let mut next = if busy { self.received.try_recv().ok() } else { self.received.recv().ok() };
            if next.is_none() && !busy {
                break; // Nobody is left who could send one.
            }
            while let Some(command) = next {
                self.carry_out(command, loaded, scheduler.as_mut());
                next = self.received.try_recv().ok();
            }
            let Some(running) = scheduler.as_mut() else { continue };
            match caught(|| Ok(running.step())) {
                Ok(progress) => busy = matches!(progress, Progress::Worked),
                Err(_) => {
                    // What a panic left behind is not to be trusted: dropping it fails its generations. The reason has
                    // gone to stderr, as every panic's does.
                    scheduler = new_scheduler();
                    busy = false;
                }
            }
        }
        self.end(scheduler);
    }

    /// Ends what is still running or waiting.
    fn end(&self, scheduler: Option<Scheduler>) {
        if let Some(mut scheduler) = scheduler {
            // `closing` cancels every generation, so each step ends some.
            while matches!(caught(|| Ok(scheduler.step())), Ok(Progress::Worked)) {}
        }
        for command in self.received.try_iter() {
            match command {
                Command::Generate { outbox, .. } => outbox.end(Err(failure(&NodeError::Disposed))),
                Command::Ask { request, .. } => self.mailbox.failed(request, failure(&NodeError::Disposed)),
                Command::Look => {}
            }
        }
    }

    fn carry_out(&self, command: Command, loaded: &Loaded, scheduler: Option<&mut Scheduler>) {
        match command {
            Command::Generate { prompt, special, options, outbox } => {
                let submitted = caught(|| {
                    let scheduler = scheduler.ok_or(NodeError::OnlyVocabulary)?;
                    let ids = prompt.into_prompt(loaded.tokenizer(), special)?;
                    let sink = OutboxSink { outbox: Arc::clone(&outbox), closing: Arc::clone(&self.closing) };
                    scheduler.submit(ids, options, Box::new(sink));
                    Ok(())
                });
                if let Err(failure) = submitted {
                    outbox.end(Err(failure));
                }
            }
            Command::Ask { request, question, cancelled } => {
                let answered = caught(|| {
                    if self.go_on(&cancelled).is_break() {
                        return Err(NodeError::Cancelled);
                    }
                    self.answer(request, question, loaded, scheduler, &cancelled)
                });
                if let Err(failure) = answered {
                    self.mailbox.failed(request, failure);
                }
            }
            Command::Look => {}
        }
    }

    fn answer(
        &self,
        request: u32,
        question: Question,
        loaded: &Loaded,
        scheduler: Option<&mut Scheduler>,
        cancelled: &AtomicBool,
    ) -> Result<(), NodeError> {
        let make_way = |n| scheduler.into_iter().for_each(|scheduler: &mut Scheduler| scheduler.make_way(n));
        let stopped = || self.go_on(cancelled).is_break();
        match question {
            Question::Tokenize { input, special } => {
                let ids = input.into_ids(loaded.tokenizer(), special)?;
                self.mailbox.done_with(request, vec![(vec![ids.len() as u32], Array::U32(ids))]);
            }
            Question::Logits { ids, batch } => {
                let model = loaded.model()?;
                let n_tokens = ids.len() as u64;
                make_way(ids.len());
                let mut progress = |done: usize| self.mailbox.progress(request, done as u64, n_tokens);
                let recording = generate::logits(model, &ids, batch, &stopped, &mut progress)?;
                self.mailbox.done_with(request, recording_arrays(recording, model));
            }
            Question::Perplexity { input, window, batch } => {
                let model = loaded.model()?;
                let ids = input.into_ids(loaded.tokenizer(), false)?;
                let n_ctx = model.n_ctx();
                if window.min(ids.len()) > n_ctx {
                    return Err(NodeError::Window { window, n_ctx });
                }
                let n_tokens = ids.len() as u64;
                make_way(window.min(ids.len()));
                let mut progress = |done: usize, _mean: f64| self.mailbox.progress(request, done as u64, n_tokens);
                let score = generate::perplexity(model, &ids, window, batch, &stopped, &mut progress)?;
                let perplexity =
                    PerplexityScore { nll: score.nll, perplexity: score.perplexity, tokens: score.tokens as i64 };
                self.mailbox.done(request, Event { perplexity: Some(perplexity), ..Event::default() });
            }
        }
        Ok(())
    }

    fn go_on(&self, cancelled: &AtomicBool) -> ControlFlow<()> {
        if cancelled.load(Ordering::Acquire) || self.is_closing() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// The arrays of `recording`: logits `[tokens, vocab]`, router logits `[tokens, layers, experts]`, chosen experts and
/// their weights `[tokens, layers, k]`.
fn recording_arrays(recording: generate::Recording, model: &Model) -> Vec<(Vec<u32>, Array)> {
    let info = model.info();
    let n_tokens = recording.n_tokens as u32;
    let n_layers = info.n_layers as u32;
    let chosen = vec![n_tokens, n_layers, info.n_experts_used as u32];
    vec![
        (vec![n_tokens, info.vocab_size as u32], Array::F32(recording.logits)),
        (vec![n_tokens, n_layers, info.n_experts as u32], Array::F32(recording.router_logits)),
        (chosen.clone(), Array::I32(recording.topk)),
        (chosen, Array::F32(recording.weights)),
    ]
}

/// Runs `work`; a panic becomes a failure, since it must not unwind into the thread's start.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, NodeError>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(&error)),
        Err(panic) => {
            let what = panic.downcast_ref::<String>().map(String::as_str);
            let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Err(failure(&NodeError::Panicked { what: what.to_owned() }))
        }
    }
}

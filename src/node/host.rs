//! The engine's face to one JavaScript environment.

use super::bench::{BenchOptions, bench_options};
use super::chat;
use super::engine::{self, Command, Engine, Input, Loaded, Question, Task, caught};
use super::error::{Code, NodeError, failure, thrown};
use super::inspection;
use super::mailbox::{Mailbox, Progress};
use super::options::load_options;
use super::outbox::Outbox;
use super::shapes::{ChatOptions, ChatTemplateInfo, Drained, Event, GenerateOptions, LoadOptions, ModelCounts};
use super::stream::{StreamOptions, stream_options};
use super::traces;
use crate::bench;
use crate::model::Model;
use crate::stream;
use crate::tokenizer::Tokenizer;
use napi::Env;
use napi::bindgen_prelude::{BufferSlice, Either, Function, Uint8Array, Uint32Array};
use napi_derive::napi;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Models, generations and questions of one environment. Each has a number that JavaScript chose: a request's, and a
/// model keeps the number of the request that loaded it.
#[napi]
pub struct Host {
    registry: Arc<Registry>,
}

/// Takes what is done, of how much, and the hit rate where there is one.
type Told<'a> = dyn FnMut(usize, usize, Option<f64>) + 'a;

struct Registry {
    mailbox: Arc<Mailbox>,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    engines: HashMap<u32, Engine>,
    generations: HashMap<u32, (u32, Arc<Outbox>)>,
    questions: HashMap<u32, Arc<AtomicBool>>,
    threads: HashMap<u32, JoinHandle<()>>,
}

#[napi]
impl Host {
    /// `wake` is called without arguments when `take` has something. It does not keep the process alive.
    #[napi(constructor)]
    pub fn new(env: Env, wake: Function<'_, (), ()>) -> napi::Result<Self> {
        let registry =
            Arc::new(Registry { mailbox: Arc::new(Mailbox::new(&wake)?), tables: Mutex::new(Tables::default()) });
        // Registered after the wake-up function's own hook, so it runs before that: hooks run last in, first out.
        env.add_env_cleanup_hook(Arc::clone(&registry), |registry| registry.stop())?;
        Ok(Self { registry })
    }

    /// Starts loading; answers with `info`, or without for a vocabulary.
    #[napi(catch_unwind)]
    pub fn load(&self, request: u32, path: String, options: LoadOptions) {
        let cancelled = self.registry.question(request);
        let mailbox = &self.registry.mailbox;
        let vocabulary_only = options.vocabulary_only;
        let options = match load_options(options) {
            Ok(options) => options,
            Err(error) => return mailbox.failed(request, failure(&error)),
        };
        let task = Task { request, path: PathBuf::from(path), options, vocabulary_only, cancelled };
        match engine::start(task, Arc::clone(mailbox)) {
            Ok((engine, thread)) => {
                let mut tables = self.registry.lock();
                tables.engines.insert(request, engine);
                tables.threads.insert(request, thread);
            }
            Err(source) => mailbox.failed(request, failure(&NodeError::Thread { source })),
        }
    }

    /// Reads a file's header; answers with `inspection`.
    #[napi(catch_unwind)]
    pub fn inspect(&self, request: u32, path: String) {
        self.registry.look(request, "clutor-inspect", move || {
            let inspection = inspection::inspect(&PathBuf::from(path))?;
            Ok(Event { inspection: Some(inspection), ..Event::default() })
        });
    }

    /// Reads a file's header and says where its bytes would go; answers with `plan`.
    #[napi(catch_unwind)]
    pub fn plan(&self, request: u32, path: String, options: LoadOptions) {
        self.registry.look(request, "clutor-plan", move || {
            let plan = Model::plan_for(&PathBuf::from(path), &load_options(options)?)?;
            Ok(Event { plan: Some((&plan).into()), ..Event::default() })
        });
    }

    /// Reads a trace; answers with `trace`.
    #[napi(catch_unwind)]
    pub fn inspect_trace(&self, request: u32, path: String) {
        self.registry.study(request, move |cancelled| traces::inspect(&PathBuf::from(path), cancelled));
    }

    /// Writes a binary trace's choices to the CSV file `out`; answers with the number of tokens, as `done`.
    #[napi(catch_unwind)]
    pub fn convert_trace(&self, request: u32, path: String, out: String) {
        let out = PathBuf::from(out);
        self.registry.study(request, move |cancelled| traces::convert(&PathBuf::from(path), &out, cancelled));
    }

    /// Replays a trace through cache policies (all where none is named), for caches of `shares` of all experts; answers
    /// with `simulation`.
    #[napi(catch_unwind)]
    pub fn simulate_trace(&self, request: u32, path: String, policies: Option<Vec<String>>, shares: Vec<f64>) {
        let question = traces::Question { path: PathBuf::from(path), policies, shares };
        self.registry.study(request, move |cancelled| traces::simulate(&question, cancelled));
    }

    /// Streams experts without a model's arithmetic; answers with `stream`, and with the tokens done as they are.
    #[napi(catch_unwind)]
    pub fn stream(&self, request: u32, path: String, options: StreamOptions) {
        self.registry.measure(request, "clutor-stream", move |cancelled, progress| {
            let options = stream_options(options)?;
            let mut progress = |now: stream::StreamProgress| progress(now.done, now.total, Some(now.hit_rate));
            let report = stream::stream(&PathBuf::from(path), &options, cancelled, &mut progress)?;
            Ok(Event { stream: Some(report.into()), ..Event::default() })
        });
    }

    /// Measures how fast a model computes; answers with `bench`, and with the tokens done as they are.
    #[napi(catch_unwind)]
    pub fn bench(&self, request: u32, path: String, options: BenchOptions) {
        self.registry.measure(request, "clutor-bench", move |cancelled, progress| {
            let options = bench_options(options)?;
            let mut progress = |now: bench::BenchProgress| progress(now.done, now.total, None);
            let report = bench::bench(&PathBuf::from(path), &options, cancelled, &mut progress)?;
            Ok(Event { bench: Some(report.into()), ..Event::default() })
        });
    }

    /// What a model did so far, at once.
    #[napi(catch_unwind)]
    pub fn counts(&self, model: u32) -> Result<ModelCounts, napi::Error<Code>> {
        self.registry.with_loaded(model, |loaded| Ok(ModelCounts::from(&**loaded.model()?)))
    }

    /// The template of a model for conversations without tools, if it has one.
    #[napi(catch_unwind)]
    pub fn chat_template(&self, model: u32) -> Result<Option<ChatTemplateInfo>, napi::Error<Code>> {
        self.registry.with_loaded(model, |loaded| Ok(chat::info(loaded.model()?)))
    }

    /// Starts rendering a conversation, whose messages come as JSON; answers with `chat`.
    #[napi(catch_unwind)]
    pub fn render_chat(&self, request: u32, model: u32, messages: String, options: ChatOptions) {
        let place = self.registry.lock().engines.get(&model).map(|engine| Arc::clone(&engine.loaded));
        let loaded = place.as_deref().and_then(|place| place.get()).ok_or(NodeError::Disposed);
        let rendering = loaded.and_then(|loaded| chat::Rendering::new(loaded.model()?, &messages, options));
        self.registry
            .look(request, "clutor-chat", move || Ok(Event { chat: Some(rendering?.render()?), ..Event::default() }));
    }

    /// Starts a generation; `pieces` events say when to `drain` it.
    #[napi(catch_unwind)]
    pub fn generate(&self, request: u32, model: u32, prompt: Either<String, Uint32Array>, options: GenerateOptions) {
        let outbox = Arc::new(Outbox::new(request, Arc::clone(&self.registry.mailbox)));
        let special = options.special;
        let command = Command::Generate {
            prompt: text_or_ids(prompt),
            special,
            options: options.into(),
            outbox: Arc::clone(&outbox),
        };
        let mut tables = self.registry.lock();
        if tables.send(model, command) {
            tables.generations.insert(request, (model, outbox));
        } else {
            tables.generations.insert(request, (model, Arc::clone(&outbox)));
            drop(tables);
            outbox.end(Err(failure(&NodeError::Disposed)));
        }
    }

    /// At most `limit` pieces of a generation; with the last ones also its end, after which it is forgotten.
    #[napi(catch_unwind)]
    pub fn drain(&self, request: u32, limit: u32) -> Option<Drained> {
        let mut tables = self.registry.lock();
        let (model, outbox) = tables.generations.get(&request)?;
        let (model, (drained, was_full)) = (*model, outbox.drain(limit as usize));
        if drained.outcome.is_some() || drained.failure.is_some() {
            tables.generations.remove(&request);
        } else if was_full && !drained.ids.is_empty() {
            tables.send(model, Command::Look);
        }
        Some(drained)
    }

    /// Starts tokenizing; answers with one array of u32 ids.
    #[napi(catch_unwind)]
    pub fn tokenize_later(&self, request: u32, model: u32, text: Either<String, Uint8Array>, special: bool) {
        self.registry.ask(request, model, Question::Tokenize { input: text_or_bytes(text), special });
    }

    /// Starts computing logits; answers with the arrays logits, router logits, chosen experts (i32), weights.
    #[napi(catch_unwind)]
    pub fn logits(&self, request: u32, model: u32, ids: Uint32Array, batch: u32) {
        self.registry.ask(request, model, Question::Logits { ids: ids.to_vec(), batch: batch as usize });
    }

    /// Starts computing a perplexity; answers with `perplexity`.
    #[napi(catch_unwind)]
    pub fn perplexity(&self, request: u32, model: u32, text: Either<String, Uint32Array>, window: u32, batch: u32) {
        let (window, batch) = (window as usize, batch as usize);
        self.registry.ask(request, model, Question::Perplexity { input: text_or_ids(text), window, batch });
    }

    /// Ids of a text, at once.
    #[napi(catch_unwind)]
    pub fn tokenize(
        &self,
        model: u32,
        text: Either<String, Uint8Array>,
        special: bool,
    ) -> Result<Vec<u32>, napi::Error<Code>> {
        self.registry.with_tokenizer(model, |tokenizer| {
            Ok(match text {
                Either::A(text) => tokenizer.encode(&text, special),
                Either::B(bytes) => tokenizer.encode_bytes(&bytes, special),
            })
        })
    }

    /// Bytes of tokens, at once; control tokens show only with `special`. Fails for an id outside the vocabulary.
    #[napi(catch_unwind)]
    pub fn detokenize<'env>(
        &self,
        env: &'env Env,
        model: u32,
        ids: Uint32Array,
        special: bool,
    ) -> Result<BufferSlice<'env>, napi::Error<Code>> {
        let bytes = self.registry.with_tokenizer(model, |tokenizer| {
            let vocab_size = tokenizer.vocab_size();
            match ids.iter().find(|&&id| id as usize >= vocab_size) {
                Some(&id) => Err(NodeError::TokenId { id, vocab_size }),
                None => Ok(tokenizer.decode(&ids, special)),
            }
        })?;
        BufferSlice::copy_from(env, bytes)
            .map_err(|error| napi::Error::new(Code::from("INTERNAL"), error.reason.clone()))
    }

    /// Stops a load, a generation or a question, as soon as its thread looks.
    #[napi(catch_unwind)]
    pub fn cancel(&self, request: u32) {
        let tables = self.registry.lock();
        if let Some(cancelled) = tables.questions.get(&request) {
            cancelled.store(true, Ordering::Release);
        }
        if let Some((model, outbox)) = tables.generations.get(&request) {
            outbox.cancel();
            tables.send(*model, Command::Look);
        }
    }

    /// News since the last call.
    #[napi(catch_unwind)]
    pub fn take(&self) -> Vec<Event> {
        let events = self.registry.mailbox.take();
        let mut tables = self.registry.lock();
        for event in &events {
            match event.kind.as_str() {
                "done" | "failed" => {
                    tables.questions.remove(&event.request);
                }
                "ended" => {
                    tables.engines.remove(&event.request);
                    if let Some(thread) = tables.threads.remove(&event.request) {
                        join(thread); // It is returning already.
                    }
                }
                _ => {}
            }
        }
        events
    }

    /// A copy of at most `len` bytes from `offset` on of the array with index `array` of an answer.
    #[napi(catch_unwind)]
    pub fn copy_out<'env>(
        &self,
        env: &'env Env,
        request: u32,
        array: u32,
        offset: i64,
        len: u32,
    ) -> napi::Result<BufferSlice<'env>> {
        let range_start = usize::try_from(offset).unwrap_or(usize::MAX);
        self.registry
            .mailbox
            .copy_out(request, array as usize, range_start, len as usize, |bytes| BufferSlice::copy_from(env, bytes))
    }

    /// Frees the arrays of an answer.
    #[napi(catch_unwind)]
    pub fn free_arrays(&self, request: u32) {
        self.registry.mailbox.free_arrays(request);
    }

    /// Starts closing a model; its `ended` event says when all is freed.
    #[napi(catch_unwind)]
    pub fn dispose(&self, model: u32) {
        let engine = self.registry.lock().engines.remove(&model);
        if let Some(engine) = engine {
            engine.close();
        }
    }
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn question(&self, request: u32) -> Arc<AtomicBool> {
        let cancelled = Arc::new(AtomicBool::new(false));
        self.lock().questions.insert(request, Arc::clone(&cancelled));
        cancelled
    }

    fn ask(&self, request: u32, model: u32, question: Question) {
        let cancelled = self.question(request);
        if !self.lock().send(model, Command::Ask { request, question, cancelled }) {
            self.mailbox.failed(request, failure(&NodeError::Disposed));
        }
    }

    /// Answers from a file's header, which `look` reads on a thread of its own.
    fn look(&self, request: u32, thread: &str, look: impl FnOnce() -> Result<Event, NodeError> + Send + 'static) {
        let mailbox = Arc::clone(&self.mailbox);
        let spawned = Builder::new().name(thread.to_owned()).spawn(move || {
            match caught(look) {
                Ok(answer) => mailbox.done(request, answer),
                Err(failure) => mailbox.failed(request, failure),
            }
            mailbox.ended(request);
        });
        match spawned {
            Ok(thread) => {
                self.lock().threads.insert(request, thread);
            }
            Err(source) => self.mailbox.failed(request, failure(&NodeError::Thread { source })),
        }
    }

    /// Answers with what `measure` finds, which is told when to stop and tells what is done of what, and perhaps a hit rate.
    fn measure(
        &self,
        request: u32,
        thread: &str,
        measure: impl FnOnce(&(dyn Fn() -> bool + Sync), &mut Told<'_>) -> Result<Event, NodeError> + Send + 'static,
    ) {
        let cancelled = self.question(request);
        let mailbox = Arc::clone(&self.mailbox);
        self.look(request, thread, move || {
            let mut progress = |done: usize, total: usize, hit_rate: Option<f64>| {
                mailbox.streamed(request, Progress { done: done as u64, total: total as u64, hit_rate });
            };
            measure(&|| cancelled.load(Ordering::Acquire), &mut progress)
        });
    }

    /// Answers from a trace, until it is cancelled.
    fn study(&self, request: u32, study: impl FnOnce(&dyn Fn() -> bool) -> Result<Event, NodeError> + Send + 'static) {
        let cancelled = self.question(request);
        self.look(request, "clutor-trace", move || study(&|| cancelled.load(Ordering::Acquire)));
    }

    fn with_tokenizer<R>(
        &self,
        model: u32,
        work: impl FnOnce(&Tokenizer) -> Result<R, NodeError>,
    ) -> Result<R, napi::Error<Code>> {
        self.with_loaded(model, |loaded| work(loaded.tokenizer()?))
    }

    fn with_loaded<R>(
        &self,
        model: u32,
        work: impl FnOnce(&Loaded) -> Result<R, NodeError>,
    ) -> Result<R, napi::Error<Code>> {
        let loaded = self.lock().engines.get(&model).map(|engine| Arc::clone(&engine.loaded));
        let loaded = loaded.as_deref().and_then(|place| place.get()).ok_or(NodeError::Disposed);
        loaded.and_then(work).map_err(thrown)
    }

    /// Stops and joins every thread: the environment is going away, and perhaps this library's code with it.
    fn stop(&self) {
        let tables = std::mem::take(&mut *self.lock());
        for engine in tables.engines.values() {
            engine.close();
        }
        tables.questions.values().for_each(|cancelled| cancelled.store(true, Ordering::Release));
        drop(tables.engines);
        tables.threads.into_values().for_each(join);
    }
}

impl Tables {
    /// Sends a command to a model's thread, unless that has ended.
    fn send(&self, model: u32, command: Command) -> bool {
        self.engines.get(&model).is_some_and(|engine| engine.commands.send(command).is_ok())
    }
}

fn join(thread: JoinHandle<()>) {
    // An error is a panic outside `caught`: its message went to stderr, and there is nothing left to clean up.
    let _panicked = thread.join();
}

fn text_or_ids(input: Either<String, Uint32Array>) -> Input {
    match input {
        Either::A(text) => Input::Text(text),
        Either::B(ids) => Input::Ids(ids.to_vec()),
    }
}

fn text_or_bytes(input: Either<String, Uint8Array>) -> Input {
    match input {
        Either::A(text) => Input::Text(text),
        Either::B(bytes) => Input::Bytes(bytes.to_vec()),
    }
}

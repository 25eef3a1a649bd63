//! Answers on their way to JavaScript: any thread posts, the JavaScript thread takes.

use super::shapes::{Event, Failure};
use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Calls a JavaScript function without arguments. Weak: it does not keep the process alive.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true>;

/// Answers and bulk results of one environment. Progress and news of pieces are merged, so that their number is bounded
/// by the number of requests, however seldom JavaScript looks.
pub(super) struct Mailbox {
    contents: Mutex<Contents>,
    wake: Wake,
}

#[derive(Default)]
struct Contents {
    answers: Vec<Event>,
    progress: BTreeMap<u32, Progress>,
    /// Generations whose outbox has something.
    ready: BTreeSet<u32>,
    arrays: HashMap<u32, Vec<Array>>,
    /// A wake-up is under way, another would find nothing more.
    woken: bool,
}

/// How far a request has got.
#[derive(Clone, Copy)]
pub(super) struct Progress {
    pub done: u64,
    pub total: u64,
    /// Of a benchmark of streaming.
    pub hit_rate: Option<f64>,
}

/// A bulk result, waiting to be copied out.
pub(super) enum Array {
    F32(Vec<f32>),
    I32(Vec<i32>),
    U32(Vec<u32>),
}

impl Array {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::F32(values) => bytemuck::cast_slice(values),
            Self::I32(values) => bytemuck::cast_slice(values),
            Self::U32(values) => bytemuck::cast_slice(values),
        }
    }
}

impl Mailbox {
    pub(super) fn new(wake: &Function<'_, (), ()>) -> napi::Result<Self> {
        let wake = wake.build_threadsafe_function::<()>().weak::<true>().callee_handled::<false>().build()?;
        Ok(Self { contents: Mutex::default(), wake })
    }

    pub(super) fn done(&self, request: u32, answer: Event) {
        // Progress that still waits is taken first, so a watcher sees the whole.
        self.post(|contents| contents.answers.push(Event { request, kind: "done".to_owned(), ..answer }));
    }

    /// Answers with `arrays` of the given shapes, which wait for `copy_out`.
    pub(super) fn done_with(&self, request: u32, arrays: Vec<(Vec<u32>, Array)>) {
        let (shapes, arrays) = arrays.into_iter().unzip();
        self.lock().arrays.insert(request, arrays);
        self.done(request, Event { arrays: Some(shapes), ..Event::default() });
    }

    pub(super) fn failed(&self, request: u32, failure: Failure) {
        self.post(|contents| {
            contents.progress.remove(&request);
            contents.answers.push(Event {
                request,
                kind: "failed".to_owned(),
                failure: Some(failure),
                ..Event::default()
            });
        });
    }

    /// Says that the thread of model `model` has freed everything and is about to return.
    pub(super) fn ended(&self, model: u32) {
        self.post(|contents| {
            contents.answers.push(Event { request: model, kind: "ended".to_owned(), ..Event::default() });
        });
    }

    pub(super) fn progress(&self, request: u32, done: u64, total: u64) {
        self.streamed(request, Progress { done, total, hit_rate: None });
    }

    /// As [`progress`](Self::progress), of a benchmark of streaming.
    pub(super) fn streamed(&self, request: u32, progress: Progress) {
        self.post(|contents| {
            contents.progress.insert(request, progress);
        });
    }

    pub(super) fn pieces(&self, request: u32) {
        self.post(|contents| {
            contents.ready.insert(request);
        });
    }

    /// Everything that came since the last call, progress first.
    pub(super) fn take(&self) -> Vec<Event> {
        let mut contents = self.lock();
        contents.woken = false;
        let progress = std::mem::take(&mut contents.progress).into_iter().map(|(request, progress)| Event {
            request,
            kind: "progress".to_owned(),
            done: Some(progress.done as i64),
            total: Some(progress.total as i64),
            hit_rate: progress.hit_rate,
            ..Event::default()
        });
        let ready = std::mem::take(&mut contents.ready).into_iter().map(|request| Event {
            request,
            kind: "pieces".to_owned(),
            ..Event::default()
        });
        progress.chain(ready).chain(std::mem::take(&mut contents.answers)).collect()
    }

    /// Shows `copy` at most `len` bytes from `offset` on of a bulk result; none where there are none.
    pub(super) fn copy_out<R>(
        &self,
        request: u32,
        array: usize,
        offset: usize,
        len: usize,
        copy: impl FnOnce(&[u8]) -> R,
    ) -> R {
        let contents = self.lock();
        let bytes = contents.arrays.get(&request).and_then(|arrays| arrays.get(array)).map_or(&[][..], Array::bytes);
        let rest = bytes.get(offset..).unwrap_or_default();
        copy(&rest[..rest.len().min(len)])
    }

    pub(super) fn free_arrays(&self, request: u32) {
        let freed = self.lock().arrays.remove(&request);
        drop(freed); // After the lock is gone: freeing may take a while.
    }

    fn post(&self, put: impl FnOnce(&mut Contents)) {
        let mut contents = self.lock();
        put(&mut contents);
        let wake = !std::mem::replace(&mut contents.woken, true);
        drop(contents);
        if wake {
            // The queue has no limit, so the only other answer is that the environment is closing: then nobody is left
            // to read, and the clean-up hook stops the threads.
            let _closing: Status = self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// A panic of a poster leaves the contents whole: each change is one insertion.
    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

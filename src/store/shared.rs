//! What callers and I/O threads share: the state behind its mutex, and how they sleep and wake.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::StoreError;
use super::arena::Arena;
use super::extent::ExpertTable;
use super::io::{Cause, Reader};
use super::state::{Done, Job, ReadFailure, State, Wake};
use super::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// How long a wait sleeps before it asks again whether it was cancelled.
const SLICE: Duration = Duration::from_millis(10);

pub(super) struct Shared {
    pub(super) experts: Arc<ExpertTable>,
    pub(super) arena: Arc<Arena>,
    pub(super) reader: Arc<dyn Reader>,
    state: Mutex<State>,
    /// Reads have been queued, or the store is going away.
    work: Condvar,
    /// An expert is there or has failed, or room has come free.
    done: Condvar,
    /// The state's `stopping`, for those who are in the middle of a read.
    stopping: AtomicBool,
}

impl Shared {
    pub(super) fn new(experts: Arc<ExpertTable>, arena: Arc<Arena>, reader: Arc<dyn Reader>, state: State) -> Self {
        Self {
            experts,
            arena,
            reader,
            state: Mutex::new(state),
            work: Condvar::new(),
            done: Condvar::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// Locks the state. A panic under the lock does not close the store: it is a bug somewhere, and those who wait must
    /// not hang because of it.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until an expert is done.
    pub(super) fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.done.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until `poll` gives something, and counts the time.
    pub(super) fn wait_for<T>(
        &self,
        cancelled: &dyn Fn() -> bool,
        mut poll: impl FnMut(&State) -> Option<T>,
    ) -> Result<T, StoreError> {
        if let Some(found) = poll(&self.lock()) {
            return Ok(found);
        }
        let since = Instant::now();
        let result = loop {
            // Not under the lock: it is the caller's code.
            if cancelled() {
                break Err(StoreError::Cancelled);
            }
            let state = self.lock();
            if let Some(found) = poll(&state) {
                break Ok(found);
            }
            let (state, _) = self.done.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner);
            if let Some(found) = poll(&state) {
                break Ok(found);
            }
        };
        self.lock().add_wait_us(micros(since));
        result
    }

    /// Sleeps until there is a read to do; `None` when the store is going away.
    pub(super) fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.is_stopping() {
                return None;
            }
            if let Some(job) = state.next_job() {
                return Some(job);
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Books a read as done.
    pub(super) fn finish(&self, done: Done, read: Result<u64, ReadFailure>, since: Instant) {
        let wake = self.lock().finish(done, read, micros(since));
        self.wake(wake);
    }

    /// Ends a ticket.
    pub(super) fn release(&self, slot: usize) {
        let wake = self.lock().release(slot);
        self.wake(wake);
    }

    /// Wakes those whom a change concerns. Not under the lock, which they need first.
    pub(super) fn wake(&self, wake: Wake) {
        if wake == Wake::Waiters {
            self.done.notify_all();
        }
    }

    /// Wakes the I/O threads.
    pub(super) fn wake_readers(&self) {
        self.work.notify_all();
    }

    /// Tells the I/O threads to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.lock().stop();
        self.work.notify_all();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// What to tell those who wait for the expert `key`.
    pub(super) fn error(&self, key: u32, failure: ReadFailure) -> StoreError {
        let (layer, expert) = self.experts.place(key);
        let path = Path::to_path_buf(self.reader.path(failure.file));
        match failure.cause {
            Cause::System(source) => StoreError::Read { path, layer, expert, source },
            Cause::EndOfFile(end) => StoreError::EndOfFile { path, layer, expert, end },
            Cause::Panicked => StoreError::Panicked { path, layer, expert },
        }
    }
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}

//! Hand-offs that cost a microsecond: threads that wait for the next one by spinning, and sleep only after a while.
//!
//! Decoding has hundreds of hand-offs for each token, with a few microseconds of serial work between them. Threads that go
//! to sleep in each such gap and are woken again cost a third of the time on a virtual machine.
#![allow(unsafe_code)] // A task borrows from the caller's stack, and threads that outlive the call run it; see `Job`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::yield_now;

/// A hand-off: lives on the stack of the thread that leads it.
///
/// Others may use it between two changes of [`Team::word`]: they enter by raising the number inside while the word is
/// open, and leave by lowering it. The leader closes the word and waits for that number to fall to zero before its stack
/// goes, so a job outlives every use.
struct Job<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    n_tasks: usize,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Job<'_> {
    /// Runs tasks until none is left. A panic is kept for the leader, and ends the job early.
    fn work(&self) {
        let tasks = AssertUnwindSafe(|| {
            loop {
                let i = self.next.fetch_add(1, Ordering::Relaxed);
                if i >= self.n_tasks {
                    return;
                }
                (self.task)(i);
            }
        });
        if let Err(panic) = catch_unwind(tasks) {
            self.next.store(self.n_tasks, Ordering::Relaxed);
            *lock(&self.panic) = Some(panic);
        }
    }
}

/// Threads that [`serve`](Self::serve) the one that [`run`](Self::run)s tasks.
#[derive(Debug)]
pub(super) struct Team {
    /// Number of the hand-off in the upper half; then whether it is open, whether the team is dismissed, and how many
    /// threads are inside beside the leader.
    word: AtomicU64,
    job: AtomicPtr<Job<'static>>,
    leader: Mutex<()>,
    n_sleeping: AtomicUsize,
    sleep: Mutex<()>,
    woken: Condvar,
}

const OPEN: u64 = 1 << 31;
const DISMISSED: u64 = 1 << 30;
const INSIDE: u64 = DISMISSED - 1;
const NUMBER: u64 = 1 << 32;
/// Looks for the next hand-off before a thread sleeps: some 50 µs, more than the serial work between two of them.
const SPINS: usize = 2000;
/// Looks for the last of the others before the leader gives its processor to them.
const PATIENCE: usize = 10_000;

impl Team {
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(0),
            job: AtomicPtr::new(ptr::null_mut()),
            leader: Mutex::new(()),
            n_sleeping: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Runs `task(0)` to `task(n_tasks - 1)`, with those who serve, and returns when all are done. A task that runs tasks
    /// itself, or a second leader, does so alone.
    pub fn run(&self, n_tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let Some(leading) = try_lock(&self.leader) else {
            return (0..n_tasks).for_each(task);
        };
        let job = Job { task, n_tasks, next: AtomicUsize::new(0), panic: Mutex::new(None) };
        self.job.store(ptr::from_ref(&job).cast_mut().cast(), Ordering::Relaxed);
        // Nobody is inside while there is no open job, and only the leader opens one.
        let number = (self.word.load(Ordering::Relaxed) & !(NUMBER - 1)).wrapping_add(NUMBER);
        let dismissed = self.word.load(Ordering::Relaxed) & DISMISSED;
        self.change(|word| *word = number | OPEN | dismissed);
        job.work();
        self.word.fetch_and(!OPEN, Ordering::Relaxed);
        let mut looks = 0;
        // Acquire, so that what the others did is seen.
        while self.word.load(Ordering::Acquire) & INSIDE != 0 {
            looks += 1;
            if looks < PATIENCE { std::hint::spin_loop() } else { yield_now() }
        }
        drop(leading);
        let panic = lock(&job.panic).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Takes part in what is run, until the team is dismissed.
    pub fn serve(&self) {
        let mut seen = 0;
        while let Some(word) = self.next(seen) {
            // Acquire, so that the job is seen as it was published.
            if self.word.compare_exchange(word, word + 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
                continue; // Another one entered first, or the job is closed.
            }
            seen = word & !(NUMBER - 1);
            // SAFETY: this thread is inside, so the job that was published with this number lives until it leaves.
            unsafe { &*self.job.load(Ordering::Relaxed) }.work();
            // Release, so that the leader sees what was done.
            self.word.fetch_sub(1, Ordering::Release);
        }
    }

    /// Lets those who serve go, now and until [`gather`](Self::gather).
    pub fn dismiss(&self) {
        let _leading = lock(&self.leader);
        self.change(|word| *word |= DISMISSED);
    }

    /// From now on threads may serve.
    pub fn gather(&self) {
        let _leading = lock(&self.leader);
        self.change(|word| *word &= !DISMISSED);
    }

    /// Whether threads may serve.
    pub fn is_gathered(&self) -> bool {
        self.word.load(Ordering::Relaxed) & DISMISSED == 0
    }

    /// Waits for a job that this thread has not seen; `None` once the team is dismissed.
    fn next(&self, seen: u64) -> Option<u64> {
        let look = |order| {
            let word = self.word.load(order);
            if word & DISMISSED != 0 {
                return Some(None);
            }
            (word & OPEN != 0 && word & !(NUMBER - 1) != seen).then_some(Some(word))
        };
        for _ in 0..SPINS {
            if let Some(found) = look(Ordering::Relaxed) {
                return found;
            }
            std::hint::spin_loop();
        }
        let mut sleep = lock(&self.sleep);
        // In one order with the change of the word and the look at this number in `change`: either it sees a sleeper, who
        // waits by the time that it has the lock, or this thread sees the word that it wrote.
        self.n_sleeping.fetch_add(1, Ordering::SeqCst);
        let found = loop {
            if let Some(found) = look(Ordering::SeqCst) {
                break found;
            }
            sleep = self.woken.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        };
        self.n_sleeping.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// Changes the word, as the leader, while nobody is inside, and wakes those who sleep.
    fn change(&self, change: impl FnOnce(&mut u64)) {
        let mut word = self.word.load(Ordering::Relaxed);
        change(&mut word);
        self.word.store(word, Ordering::SeqCst);
        if self.n_sleeping.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.sleep));
            self.woken.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, unless somebody holds it.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

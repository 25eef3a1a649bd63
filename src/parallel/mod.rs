//! The pool of compute threads and its hand-offs. Uses nothing.

use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

/// A private pool of compute threads, one per model.
///
/// Work is handed over as numbered tasks that are independent of each other: which thread runs which task, and in what
/// order, cannot change a result.
///
/// Dropping the pool waits until its threads are gone: this code may be unloaded right after. It must not be dropped by
/// one of its own threads.
#[derive(Debug)]
pub struct Pool {
    /// Present until the pool is dropped: it must go before the threads can be joined.
    threads: Option<rayon::ThreadPool>,
    handles: Vec<JoinHandle<()>>,
}

/// The threads could not be started.
#[derive(Debug, thiserror::Error)]
#[error("cannot start {n_threads} compute threads; ask for fewer threads")]
pub struct PoolError {
    n_threads: usize,
    #[source]
    source: rayon::ThreadPoolBuildError,
}

impl Pool {
    /// Starts `n_threads` threads, at least one.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(n_threads: usize) -> Result<Self, PoolError> {
        let n_threads = n_threads.max(1);
        let handles = Mutex::new(Vec::with_capacity(n_threads));
        let built = rayon::ThreadPoolBuilder::new().num_threads(n_threads).spawn_handler(|worker| {
            let name = format!("clutor-compute-{}", worker.index());
            let handle = std::thread::Builder::new().name(name).spawn(|| worker.run())?;
            handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            Ok(())
        });
        match built.build() {
            Ok(threads) => {
                let handles = handles.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(Self { threads: Some(threads), handles })
            }
            Err(source) => Err(PoolError { n_threads, source }),
        }
    }

    /// Number of threads.
    pub fn n_threads(&self) -> usize {
        self.handles.len()
    }

    fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.threads {
            Some(threads) => threads.install(work),
            None => unreachable!("the threads are there until the pool is dropped"),
        }
    }

    /// Runs `work` on a thread of the pool: hand-offs from there cost less than from outside.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.install(work)
    }

    /// Runs `task(0)` to `task(n_tasks - 1)` and returns when all are done.
    pub fn run(&self, n_tasks: usize, task: impl Fn(usize) + Sync) {
        if n_tasks <= 1 || self.n_threads() == 1 {
            return (0..n_tasks).for_each(task);
        }
        self.install(|| (0..n_tasks).into_par_iter().with_max_len(1).for_each(&task));
    }

    /// Gives each of `items` to `task`, in parallel, and returns when all are done.
    pub fn for_each<T: Send>(&self, items: Vec<T>, task: impl Fn(usize, T) + Sync) {
        if items.len() <= 1 || self.n_threads() == 1 {
            return items.into_iter().enumerate().for_each(|(i, item)| task(i, item));
        }
        self.install(|| items.into_par_iter().enumerate().for_each(|(i, item)| task(i, item)));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.threads = None; // Tells the threads to return.
        for handle in self.handles.drain(..) {
            // An error is a panic in a task, which its caller has seen.
            let _panicked = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn every_task_runs_once() {
        for n_threads in [1, 3] {
            let pool = Pool::new(n_threads).unwrap();
            let runs: Vec<_> = (0..100).map(|_| AtomicUsize::new(0)).collect();
            pool.enter(|| pool.run(100, |i| _ = runs[i].fetch_add(1, Ordering::Relaxed)));
            assert!(runs.iter().all(|n| n.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_dropped_pool_leaves_no_thread_behind() {
        struct Leaving(Arc<AtomicUsize>);
        impl Drop for Leaving {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        thread_local!(static LEAVING: RefCell<Option<Leaving>> = const { RefCell::new(None) });

        let (entered, left) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let pool = Pool::new(4).unwrap();
        pool.run(1000, |_| {
            LEAVING.with_borrow_mut(|leaving| {
                if leaving.is_none() {
                    entered.fetch_add(1, Ordering::Relaxed);
                    *leaving = Some(Leaving(Arc::clone(&left)));
                }
            });
        });
        drop(pool);
        assert!(entered.load(Ordering::Relaxed) > 0);
        assert_eq!(left.load(Ordering::Relaxed), entered.load(Ordering::Relaxed));
    }

    #[test]
    fn items_keep_their_numbers() {
        let pool = Pool::new(2).unwrap();
        let mut out = vec![0; 50];
        pool.for_each(out.iter_mut().collect(), |i, out| *out = i);
        assert_eq!(out, (0..50).collect::<Vec<_>>());
    }
}

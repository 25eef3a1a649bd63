//! The pool of compute threads and its hand-offs. Uses nothing.

use rayon::prelude::*;

/// A private pool of compute threads, one per model.
///
/// Work is handed over as numbered tasks that are independent of each other: which thread runs which task, and in what
/// order, cannot change a result.
#[derive(Debug)]
pub struct Pool {
    threads: rayon::ThreadPool,
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
        rayon::ThreadPoolBuilder::new()
            .num_threads(n_threads)
            .thread_name(|i| format!("clutor-compute-{i}"))
            .build()
            .map(|threads| Self { threads })
            .map_err(|source| PoolError { n_threads, source })
    }

    /// Number of threads.
    pub fn n_threads(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Runs `work` on a thread of the pool: hand-offs from there cost less than from outside.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.threads.install(work)
    }

    /// Runs `task(0)` to `task(n_tasks - 1)` and returns when all are done.
    pub fn run(&self, n_tasks: usize, task: impl Fn(usize) + Sync) {
        if n_tasks <= 1 || self.n_threads() == 1 {
            return (0..n_tasks).for_each(task);
        }
        self.threads.install(|| (0..n_tasks).into_par_iter().with_max_len(1).for_each(&task));
    }

    /// Gives each of `items` to `task`, in parallel, and returns when all are done.
    pub fn for_each<T: Send>(&self, items: Vec<T>, task: impl Fn(usize, T) + Sync) {
        if items.len() <= 1 || self.n_threads() == 1 {
            return items.into_iter().enumerate().for_each(|(i, item)| task(i, item));
        }
        self.threads.install(|| items.into_par_iter().enumerate().for_each(|(i, item)| task(i, item)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn items_keep_their_numbers() {
        let pool = Pool::new(2).unwrap();
        let mut out = vec![0; 50];
        pool.for_each(out.iter_mut().collect(), |i, out| *out = i);
        assert_eq!(out, (0..50).collect::<Vec<_>>());
    }
}

//! The pool of compute threads and its hand-offs. Uses nothing.

mod team;

use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use team::{Team, try_lock};

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
    /// Those of the threads that wait for hand-offs while one of them is in [`enter`](Self::enter).
    team: Team,
    entered: Mutex<()>,
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
                let team = Team::new();
                team.dismiss();
                Ok(Self { threads: Some(threads), handles, team, entered: Mutex::new(()) })
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

    /// Runs `work` on a thread of the pool, with the others standing by: hand-offs from there cost little. One thread at a
    /// time has them; for a second one this is a plain call.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.n_threads() == 1 {
            return self.install(work);
        }
        let Some(_entered) = try_lock(&self.entered) else {
            return self.install(work);
        };
        self.team.gather();
        self.install(|| {
            rayon::in_place_scope(|scope| {
                (1..self.n_threads()).for_each(|_| scope.spawn(|_| self.team.serve()));
                // Also where the work panics, as the scope waits for those who serve.
                let _dismissed = Dismissed(&self.team);
                work()
            })
        })
    }

    /// Runs `task(0)` to `task(n_tasks - 1)` and returns when all are done.
    pub fn run(&self, n_tasks: usize, task: impl Fn(usize) + Sync) {
        if n_tasks <= 1 || self.n_threads() == 1 {
            return (0..n_tasks).for_each(task);
        }
        if self.team.is_gathered() {
            return self.team.run(n_tasks, &task);
        }
        self.install(|| (0..n_tasks).into_par_iter().with_max_len(1).for_each(&task));
    }

    /// Gives each of `items` to `task`, in parallel, and returns when all are done.
    pub fn for_each<T: Send>(&self, items: Vec<T>, task: impl Fn(usize, T) + Sync) {
        if items.len() <= 1 || self.n_threads() == 1 {
            return items.into_iter().enumerate().for_each(|(i, item)| task(i, item));
        }
        if self.team.is_gathered() {
            let items: Vec<Mutex<Option<T>>> = items.into_iter().map(|item| Mutex::new(Some(item))).collect();
            return self.team.run(items.len(), &|i| {
                let item = items[i].lock().unwrap_or_else(PoisonError::into_inner).take();
                task(i, item.expect("each task runs once"));
            });
        }
        self.install(|| items.into_par_iter().enumerate().for_each(|(i, item)| task(i, item)));
    }
}

/// Dismisses a team when it is dropped.
struct Dismissed<'a>(&'a Team);

impl Drop for Dismissed<'_> {
    fn drop(&mut self) {
        self.0.dismiss();
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
    fn hand_offs_within_a_pass_run_every_task_once() {
        for n_threads in [1, 2, 5] {
            let pool = Pool::new(n_threads).unwrap();
            for _ in 0..20 {
                pool.enter(|| {
                    for n_tasks in 0..300 {
                        let runs: Vec<_> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
                        pool.run(n_tasks, |i| _ = runs[i].fetch_add(1, Ordering::Relaxed));
                        assert!(runs.iter().all(|n| n.load(Ordering::Relaxed) == 1));
                    }
                    let mut out = vec![0; 50];
                    pool.for_each(out.iter_mut().collect(), |i, out| *out = i);
                    assert_eq!(out, (0..50).collect::<Vec<_>>());
                });
            }
        }
    }

    #[test]
    fn threads_that_fell_asleep_are_woken_for_the_next_hand_off() {
        let pool = Pool::new(3).unwrap();
        pool.enter(|| {
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(2));
                let threads = Mutex::new(std::collections::HashSet::new());
                // Three tasks that wait for each other need three threads.
                let barrier = std::sync::Barrier::new(3);
                pool.run(3, |_| {
                    barrier.wait();
                    threads.lock().unwrap().insert(std::thread::current().id());
                });
                assert_eq!(threads.into_inner().unwrap().len(), 3);
            }
        });
    }

    #[test]
    fn a_task_may_run_tasks_and_two_threads_may_be_in_a_pass() {
        let pool = Pool::new(3).unwrap();
        let sum = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.enter(|| pool.run(8, |_| pool.run(4, |i| _ = sum.fetch_add(i, Ordering::Relaxed))));
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 2 * 50 * 8 * 6);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_pool_works_on() {
        let pool = Pool::new(2).unwrap();
        for bad in 0..40 {
            let pass = || pool.enter(|| pool.run(40, |i| assert_ne!(i, bad, "as asked")));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(pass)).is_err());
        }
        let runs = AtomicUsize::new(0);
        pool.enter(|| pool.run(40, |_| _ = runs.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(runs.into_inner(), 40);
    }

    #[test]
    fn items_keep_their_numbers() {
        let pool = Pool::new(2).unwrap();
        let mut out = vec![0; 50];
        pool.for_each(out.iter_mut().collect(), |i, out| *out = i);
        assert_eq!(out, (0..50).collect::<Vec<_>>());
    }
}

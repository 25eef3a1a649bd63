//! The schedule checker's locks, atomics and threads.

pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub(super) use shuttle::thread::{Builder, JoinHandle};

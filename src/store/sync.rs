//! The locks, atomics and threads of the store, in one place, so that a schedule checker can take theirs in tests.

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::{Builder, JoinHandle};

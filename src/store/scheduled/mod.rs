//! The store once more, over the locks and threads of a schedule checker.
//!
//! The same files as the store's, but `sync` is another one: `shuttle` runs the threads one at a time, switches between
//! them at every lock, condition variable and atomic in an order drawn from a seed, and reports deadlocks and panics with the
//! seed. It knows no time-outs, so a wake-up that is lost is found rather than slept over.

// What holds no locks is not compiled again, only found under the same names.
use super::{StoreError, counters, extent, io, memory, plan, policy};

#[path = "../arena.rs"]
mod arena;
#[path = "../shared.rs"]
mod shared;
#[path = "../state.rs"]
mod state;
#[path = "../store.rs"]
mod store;
mod sync;
#[path = "../ticket.rs"]
mod ticket;
#[path = "../worker.rs"]
mod worker;

mod schedules;

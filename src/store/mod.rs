//! Serves experts from disk with bounded memory: the cache, its slots and the threads that read.
//!
//! A [`Store`] owns one arena of equal slots, allocated once. [`Store::request`] gives a [`Ticket`] that pins an expert
//! and, where it is absent, queues its reads; [`Store::wait`] blocks until they are done and lends the bytes, in place.
//! Which experts stay is up to [`policy`], which knows nothing of reads; where bytes come from is up to a [`Reader`],
//! so that tests can put faults in.
//!
//! One mutex guards all that changes (`state.rs`: the policy, the slots and the queues of reads). It is held for
//! book-keeping only, never during a read. Two condition variables go with it: one wakes the I/O threads, one wakes those
//! who wait for an expert. A slot's life:
//!
//! ```text
//!  empty ──request, prefetch──► reading ──last range read──► ready ──evicted──► empty
//!                                 │  └──a range failed, the others ended──► failed ──last ticket dropped──► empty
//!                                 └──its tickets dropped, or the prefetch cancelled, before a read began──► empty
//! ```

pub mod policy;

mod arena;
mod counters;
mod error;
mod extent;
mod io;
mod memory;
mod plan;
mod shared;
mod state;
#[allow(clippy::module_inception)] // The module holds the type of its name.
mod store;
mod sync;
mod ticket;
mod worker;

#[cfg(test)]
#[allow(clippy::duplicate_mod, dead_code)] // The same files over other locks; not all of them is called there.
mod scheduled;
#[cfg(test)]
mod tests;

pub use counters::Counters;
pub use error::StoreError;
pub use extent::{ExpertExtent, ExpertTable, FileRange};
pub use io::{ALIGNMENT, FileReader, PageCache, Reader};
pub use memory::anonymous_memory;
pub use plan::{Budget, Plan};
pub use store::{Store, StoreOptions};
pub use ticket::{ExpertBytes, Served, Ticket};

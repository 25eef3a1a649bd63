//! The Node-API binding. Uses everything; nothing uses it.
//!
//! ```text
//!  JavaScript thread                                        one engine thread per model
//!  ───────────────────                                      ───────────────────────────
//!  Host::generate, load, … ──── Command (channel) ────────► EngineThread: Scheduler, logits, perplexity, …
//!  Host::take ◄── Mailbox ◄──── answers, progress ─────────┘        │
//!  Host::drain ◄── Outbox (bounded, one per generation) ◄───────────┘
//!         ▲
//!         └── one weak wake-up per environment, which says only "come and look"
//! ```
//!
//! - A [`Host`] belongs to one JavaScript environment (the main thread, or a worker). A clean-up hook stops and joins its
//!   threads before the environment goes away, so no thread outlives the code that it runs.
//! - No method waits for anything: each posts a command, and JavaScript collects the answers.
//! - Nothing is shared with JavaScript: results are copied into buffers that JavaScript owns.
//! - Wrong arguments are the wrapper's business (`js/core`); what is checked here keeps the process safe.
#![allow(missing_docs)] // The wrapper documents what users see; the macros also generate public items.

mod bench;
mod chat;
mod engine;
mod error;
mod host;
mod inspection;
mod mailbox;
mod options;
mod outbox;
mod shapes;
mod statistics;
mod stream;
mod traces;

/// Version of this library, which must be the JavaScript package's.
#[napi_derive::napi]
pub fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Names of the kernel paths that this processor can run, scalar first, the fastest last.
#[napi_derive::napi(catch_unwind)]
pub fn kernels() -> Vec<String> {
    crate::kernels::available().iter().map(|path| path.name().to_owned()).collect()
}

/// Bytes of memory that this process may ever use, limits of control groups included; none where the system does not say.
#[napi_derive::napi(catch_unwind)]
pub fn usable_memory() -> Option<i64> {
    crate::guard::Memory::detect().map(|memory| memory.total_bytes as i64)
}

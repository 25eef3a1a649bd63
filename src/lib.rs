//! Runs mixture-of-experts language models from GGUF files on a CPU.
//!
//! [`model`] is the place to start reading; `ARCHITECTURE.md` draws the whole.

pub mod bench;
pub mod chat;
pub mod experts;
pub mod generate;
pub mod gguf;
pub mod guard;
pub mod kernels;
pub mod math;
pub mod model;
#[cfg(feature = "node")]
mod node;
pub mod parallel;
pub mod quant;
pub mod routing;
pub mod sampling;
pub mod store;
pub mod stream;
pub mod tokenizer;
pub mod workload;

//! How fast a model computes, beside what the machine's memory gives: prompts and decoding, resident or streamed.
//!
//! [`bench`] runs it. Names and work are those of llama.cpp's `llama-bench`: `pp512` is a prompt of 512 tokens, `tg128`
//! are 128 tokens one after the other, `@ d4096` behind 4096 others. Tokens are random, so that no text falls into a loop
//! in which a few experts do all the work.

mod bandwidth;
mod error;
mod options;
mod report;
mod run;
mod weights;

pub use bandwidth::{Bandwidth, BandwidthError, read_bandwidth};
pub use error::BenchError;
pub use options::{BenchOptions, Work};
pub use report::{BenchReport, Measurement, Run};
pub use run::{BenchProgress, bench};

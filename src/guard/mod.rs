//! How much memory and how many processors this process may use.

mod cpu;
mod memory;

pub use cpu::compute_threads;
pub use memory::{Memory, MemorySource, process_bytes};

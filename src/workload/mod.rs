//! Recorded choices of experts, to judge cache policies by.

pub mod trace;

pub use trace::read_trace;

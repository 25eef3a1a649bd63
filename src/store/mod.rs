//! Serves experts from disk with bounded memory.

pub mod policy;

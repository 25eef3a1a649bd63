//! What a GGUF file holds: metadata, tensors, shards, and which bytes are experts. Knows no arithmetic.
//!
//! [`Gguf::open`] reads the header of one file, or of every shard of a set, and checks all of it against the files'
//! sizes; tensor bytes stay on disk. [`Layout::of`] then says which of them are dense and which belong to which
//! expert, and [`Summary::of`] gathers what `inspect` prints.
//!
//! A file is untrusted: every count, length and offset is checked before use, memory stays within a small multiple of
//! the file's size, and nothing here panics on what a file says.
//!
//! Source of the format: the GGUF specification, `docs/gguf.md` in the ggml repository.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::unwrap_used))]

mod error;
mod file;
mod header;
mod layout;
mod memory;
mod metadata;
mod reader;
mod shards;
mod summary;
mod tensor;
mod value;

#[cfg(test)]
#[path = "../../__test__/support/gguf_writer.rs"]
mod writer;

#[cfg(test)]
mod tests;

pub use error::GgufError;
pub use file::Gguf;
pub use layout::{ExpertSlice, Experts, Layer, Layout, Projection};
pub use memory::GgufMemory;
pub use metadata::Metadata;
pub use shards::Shard;
pub use summary::{Summary, TypeUse};
pub use tensor::TensorInfo;
pub use value::{Array, NumberArray, StringArray, Value, ValueType};

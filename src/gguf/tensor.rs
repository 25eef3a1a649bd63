//! One entry of the tensor table.

use crate::quant::TensorType;

/// Where a tensor lies and how it is laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name as in the file, for example `blk.0.ffn_up_exps.weight`.
    pub name: String,
    /// Element type.
    pub ty: TensorType,
    /// Dimensions, outermost first; one to four, none of them 0. The last is a row, a whole number of blocks of `ty`.
    pub shape: Vec<usize>,
    /// Bytes of the whole tensor.
    pub bytes: u64,
    /// Index into [`Gguf::shards`](super::Gguf::shards).
    pub shard: usize,
    /// Where it starts, in bytes from the beginning of the shard's file.
    pub offset: u64,
}

impl TensorInfo {
    /// Number of elements.
    pub fn n_elements(&self) -> u64 {
        // The reader checked that the product fits.
        self.shape.iter().fold(1, |n: u64, dim| n.saturating_mul(*dim as u64))
    }

    /// First byte after the tensor in the shard's file.
    pub fn end(&self) -> u64 {
        // The reader checked that the tensor lies within the file.
        self.offset.saturating_add(self.bytes)
    }
}

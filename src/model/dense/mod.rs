//! The bytes of the tensors that every token reads.

mod owned;
mod parts;
mod read;
mod ring;

pub use owned::OwnedTensors;
pub use parts::Parts;
pub use read::{Cause, fill};
pub use ring::{Ring, RingReport};

use super::weights::Matrix;
use super::{ForwardError, ModelError};
use crate::gguf::{GgufMemory, TensorInfo};
use ring::{RingPass, RingTurn};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// Where dense tensors are while experts are streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DensePlace {
    /// In memory, unless it cannot hold them beside the smallest cache of experts; in the ring then.
    #[default]
    Auto,
    /// In memory.
    Resident,
    /// Two layers' in memory at a time, read again in every pass: for memories that hold no more.
    Ring,
}

/// The dense tensors of a loaded model.
#[derive(Debug)]
pub enum Dense {
    /// In the files, which are in memory whole.
    Whole(Arc<GgufMemory>),
    /// In memory of our own. Page cache, which the system may drop under pressure, is no place for what every token
    /// needs while the experts are streamed.
    Owned(OwnedTensors),
    /// On the drive but for two parts.
    Ring(Ring),
}

impl Dense {
    /// The bytes of `tensor`.
    ///
    /// # Errors
    /// Where it has to be read, and cannot be.
    ///
    /// # Panics
    /// If it is not dense, or of another model.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<Cow<'_, [u8]>, ModelError> {
        let TensorInfo { shard, offset, bytes, .. } = *tensor;
        match self {
            Self::Whole(files) => Ok(Bytes::Whole(files).range(shard, offset, bytes).into()),
            Self::Owned(owned) => Ok(Bytes::Owned(owned).range(shard, offset, bytes).into()),
            Self::Ring(ring) => Ok(ring.tensor(tensor)?.into()),
        }
    }

    /// Waits until a pass may begin: in a ring passes take turns. Not to be called by a compute thread, which may be in the
    /// middle of another pass.
    pub fn turn(&self) -> Turn<'_> {
        match self {
            Self::Whole(files) => Turn::Kept(Bytes::Whole(files)),
            Self::Owned(owned) => Turn::Kept(Bytes::Owned(owned)),
            Self::Ring(ring) => Turn::Ring(ring.turn()),
        }
    }
}

/// The right to one pass at a time.
pub enum Turn<'a> {
    /// There is no need to wait.
    Kept(Bytes<'a>),
    /// Others wait as long as this is held.
    Ring(RingTurn<'a>),
}

impl Turn<'_> {
    /// Begins a pass through the layers, and through the output if it wants logits.
    pub fn pass(&mut self, wants_logits: bool) -> DensePass<'_> {
        match self {
            Self::Kept(bytes) => DensePass::Kept(*bytes),
            Self::Ring(turn) => DensePass::Ring(turn.pass(wants_logits)),
        }
    }
}

/// The dense tensors on the way of one pass through the layers.
pub enum DensePass<'a> {
    /// All are in memory.
    Kept(Bytes<'a>),
    /// Each layer's come into memory when it is entered.
    Ring(RingPass<'a>),
}

impl DensePass<'_> {
    /// Row `row` of `matrix`, which need not be in memory. `scratch` holds it where it is read.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn row<'b>(&'b self, matrix: &Matrix, row: usize, scratch: &'b mut Vec<u8>) -> Result<&'b [u8], ForwardError> {
        match self {
            Self::Kept(bytes) => Ok(matrix.rows(*bytes).row(row)),
            Self::Ring(pass) => pass.row(&matrix.chunk(row..row + 1), scratch),
        }
    }

    /// Brings the tensors of `layer` into memory; those of the layer before may be gone then.
    ///
    /// # Errors
    /// Where they cannot be read, or the wait is cancelled.
    pub fn enter_layer(&mut self, layer: usize, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<(), ForwardError> {
        match self {
            Self::Kept(_) => Ok(()),
            Self::Ring(pass) => pass.enter(layer, cancelled),
        }
    }

    /// The tensors that are in memory now: those of the layer or the rows of the output that were entered last.
    pub fn bytes(&self) -> Bytes<'_> {
        match self {
            Self::Kept(bytes) => *bytes,
            Self::Ring(pass) => pass.bytes(),
        }
    }

    /// The tensors of the layer after the one entered, if they are in memory already.
    pub fn bytes_ahead(&mut self) -> Option<Bytes<'_>> {
        match self {
            Self::Kept(bytes) => Some(*bytes),
            Self::Ring(pass) => pass.bytes_ahead(),
        }
    }

    /// How many pieces the output matrix comes in.
    pub fn n_output_chunks(&self) -> usize {
        match self {
            Self::Kept(_) => 1,
            Self::Ring(pass) => pass.output_chunks().len(),
        }
    }

    /// Brings a piece of the output matrix, which has `rows` rows, into memory, and says which rows those are.
    ///
    /// # Errors
    /// Where it cannot be read, or the wait is cancelled.
    pub fn enter_output(
        &mut self,
        chunk: usize,
        rows: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<Range<usize>, ForwardError> {
        match self {
            Self::Kept(_) => Ok(0..rows),
            Self::Ring(pass) => pass.enter_output(chunk, cancelled),
        }
    }
}

/// Dense tensors in memory.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// All of the model's, in its files.
    Whole(&'a GgufMemory),
    /// All of the model's, in memory of our own.
    Owned(&'a OwnedTensors),
    /// One part's.
    Part(&'a parts::Part, &'a [u8]),
}

impl<'a> Bytes<'a> {
    /// `bytes` bytes of shard `shard` from `offset`: a whole dense tensor, or the rows of the output of one part.
    ///
    /// # Panics
    /// If they are not here.
    pub fn range(self, shard: usize, offset: u64, bytes: u64) -> &'a [u8] {
        match self {
            Self::Whole(files) => files.range(shard, offset, bytes),
            Self::Owned(owned) => owned.range(shard, offset, bytes),
            Self::Part(part, memory) => &memory[part.place(shard, offset, bytes)],
        }
    }
}

//! Dense tensors in memory of our own.

use super::read::read_exact;
use crate::gguf::{Gguf, Layout, TensorInfo};
use crate::model::ModelError;
use crate::parallel::Pool;
use crate::store::{Reader, anonymous_memory};
use memmap2::MmapMut;
use std::collections::HashMap;
use std::io;
use std::ops::Range;

/// Copies of the dense tensors, behind each other in one region: in huge pages where the system has them, as every token
/// reads all of it.
#[derive(Debug)]
pub struct OwnedTensors {
    memory: MmapMut,
    /// Where each is, by shard and offset in the file.
    places: HashMap<(usize, u64), Range<usize>>,
}

/// Bytes of one read: large enough for the drive, small enough that buffers are no matter.
const READ_BYTES: usize = 4 << 20;
/// A cache line.
const TENSOR_ALIGNMENT: usize = 64;

impl OwnedTensors {
    /// Reads all dense tensors with `reader`, whose files are the shards of `gguf`. `progress` is told the bytes read.
    ///
    /// # Errors
    /// Where a tensor cannot be read to its end, or `progress` says that nobody waits any more.
    pub fn read(
        gguf: &Gguf,
        layout: &Layout,
        reader: &dyn Reader,
        pool: &Pool,
        progress: &mut dyn FnMut(u64) -> Result<(), ModelError>,
    ) -> Result<Self, ModelError> {
        let in_layers = layout.layers.iter().flat_map(|layer| &layer.dense);
        let dense: Vec<&TensorInfo> =
            layout.outside.iter().chain(in_layers).filter_map(|&i| gguf.tensors().get(i)).collect();
        let (mut places, mut end) = (HashMap::new(), 0usize);
        for tensor in &dense {
            let start = end.next_multiple_of(TENSOR_ALIGNMENT);
            end = usize::try_from(tensor.bytes)
                .ok()
                .and_then(|bytes| start.checked_add(bytes))
                .ok_or_else(|| unreadable(tensor, io::ErrorKind::OutOfMemory.into()))?;
            places.insert((tensor.shard, tensor.offset), start..end);
        }
        let memory = anonymous_memory(end.max(1));
        let mut memory = memory.map_err(|source| ModelError::Memory { bytes: end as u64, source })?;
        for tensor in dense {
            let bytes = &mut memory[places[&(tensor.shard, tensor.offset)].clone()];
            // A read for each thread at a time, so that progress can be told and nobody waits long to break off.
            for (i, step) in bytes.chunks_mut(READ_BYTES * pool.n_threads()).enumerate() {
                let first = tensor.offset + (i * READ_BYTES * pool.n_threads()) as u64;
                let failure = std::sync::Mutex::new(None);
                let n = step.len() as u64;
                pool.for_each(step.chunks_mut(READ_BYTES).collect(), |j, part: &mut [u8]| {
                    let offset = first + (j * READ_BYTES) as u64;
                    if let Err(cause) = read_exact(reader, tensor.shard, offset, part) {
                        *failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(cause);
                    }
                });
                if let Some(cause) = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
                    return Err(unreadable(tensor, cause.into()));
                }
                progress(n)?;
            }
        }
        Ok(Self { memory, places })
    }

    /// The bytes of the tensor at `offset` of shard `shard`.
    ///
    /// # Panics
    /// If there is none of `bytes` bytes.
    pub fn range(&self, shard: usize, offset: u64, bytes: u64) -> &[u8] {
        let tensor = &self.memory[self.places[&(shard, offset)].clone()];
        assert_eq!(tensor.len() as u64, bytes, "dense tensors are read as a whole");
        tensor
    }
}

fn unreadable(tensor: &TensorInfo, source: io::Error) -> ModelError {
    ModelError::Read { tensor: tensor.name.clone(), source }
}

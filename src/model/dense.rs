//! The bytes of the tensors that every token reads.

use super::ModelError;
use crate::gguf::{Gguf, Layout, MappedGguf, TensorInfo};
use crate::parallel::Pool;
use crate::store::Reader;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Where dense tensors are.
#[derive(Debug)]
pub enum Dense {
    /// In the mapped files, beside everything else.
    Mapped(Arc<MappedGguf>),
    /// In memory of our own. Page cache, which the system may drop under pressure, is no place for what every token
    /// needs while the experts are streamed.
    Owned(OwnedTensors),
}

impl Dense {
    /// `bytes` bytes of shard `shard` from `offset`: a whole dense tensor.
    ///
    /// # Panics
    /// If there is no such tensor.
    pub fn range(&self, shard: usize, offset: u64, bytes: u64) -> &[u8] {
        match self {
            Self::Mapped(files) => files.range(shard, offset, bytes),
            Self::Owned(owned) => {
                let tensor = &owned.tensors[&(shard, offset)];
                assert_eq!(tensor.len() as u64, bytes, "dense tensors are read as a whole");
                tensor
            }
        }
    }

    /// The bytes of `tensor`.
    ///
    /// # Panics
    /// If it is not dense, or of another model.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> &[u8] {
        self.range(tensor.shard, tensor.offset, tensor.bytes)
    }
}

/// Copies of the dense tensors, by shard and offset.
#[derive(Debug)]
pub struct OwnedTensors {
    tensors: HashMap<(usize, u64), Box<[u8]>>,
}

/// Bytes of one read: large enough for the drive, small enough that buffers are no matter.
const READ_BYTES: usize = 4 << 20;

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
        let dense = layout.outside.iter().chain(in_layers).filter_map(|&i| gguf.tensors().get(i));
        let mut tensors = HashMap::new();
        for tensor in dense {
            let mut bytes = vec![0; usize::try_from(tensor.bytes).map_err(|_| unreadable(tensor, out_of_memory()))?];
            // A read for each thread at a time, so that progress can be told and nobody waits long to break off.
            for (i, step) in bytes.chunks_mut(READ_BYTES * pool.n_threads()).enumerate() {
                let first = tensor.offset + (i * READ_BYTES * pool.n_threads()) as u64;
                let failure = std::sync::Mutex::new(None);
                let n = step.len() as u64;
                pool.for_each(step.chunks_mut(READ_BYTES).collect(), |j, part: &mut [u8]| {
                    let offset = first + (j * READ_BYTES) as u64;
                    if let Err(error) = read_exact(reader, tensor.shard, offset, part) {
                        *failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
                    }
                });
                if let Some(error) = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
                    return Err(unreadable(tensor, error));
                }
                progress(n)?;
            }
            tensors.insert((tensor.shard, tensor.offset), bytes.into_boxed_slice());
        }
        Ok(Self { tensors })
    }
}

fn unreadable(tensor: &TensorInfo, source: io::Error) -> ModelError {
    ModelError::Read { tensor: tensor.name.clone(), source }
}

fn out_of_memory() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

/// Fills `out` from byte `offset` of a file, through a buffer that is aligned as the reader wants it.
fn read_exact(reader: &dyn Reader, file: usize, offset: u64, out: &mut [u8]) -> io::Result<()> {
    let alignment = reader.alignment();
    let head = (offset % alignment as u64) as usize;
    let len = (head + out.len()).next_multiple_of(alignment);
    let mut buffer = vec![0; len + alignment];
    let start = buffer.as_ptr().align_offset(alignment);
    let buffer = &mut buffer[start..start + len];
    let (first, needed) = (offset - head as u64, head + out.len());
    let mut done = 0;
    while done < needed {
        match reader.read_at(file, first + done as u64, &mut buffer[done..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    out.copy_from_slice(&buffer[head..needed]);
    Ok(())
}

//! The files of a model as memory.
#![allow(unsafe_code)] // A memory map is only sound while nobody shortens the file; see `MappedGguf`.

use memmap2::Mmap;

use super::shards::Shard;
use super::{GgufError, TensorInfo};

/// All files of a model, mapped read-only. Pages are read when they are first touched.
///
/// The maps belong to the opened files, so renaming or replacing a path is harmless. Shortening a file in place while
/// it is mapped makes the system end the process when the lost pages are touched, as with any memory map.
#[derive(Debug)]
pub struct MappedGguf {
    maps: Vec<Mmap>,
}

impl MappedGguf {
    pub(super) fn new(shards: &[Shard]) -> Result<Self, GgufError> {
        let map = |shard: &Shard| {
            // SAFETY: the map is only read, as bytes, for which any content is valid. That the content stays the same
            // is up to whoever may write to the model file; nothing here relies on reading a byte twice alike.
            let map = unsafe { Mmap::map(&shard.file) };
            let map = map.map_err(|source| GgufError::Io { path: shard.path.clone(), action: "map", source })?;
            let now = map.len() as u64;
            if now < shard.len {
                return Err(GgufError::Changed { path: shard.path.clone(), opened: shard.len, now });
            }
            Ok(map)
        };
        Ok(Self { maps: shards.iter().map(map).collect::<Result<_, _>>()? })
    }

    /// The bytes of `tensor`.
    ///
    /// # Panics
    /// If `tensor` comes from another model.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> &[u8] {
        self.range(tensor.shard, tensor.offset, tensor.bytes)
    }

    /// `bytes` bytes of shard `shard` from byte `offset` of its file, for example those of an
    /// [`ExpertSlice`](super::ExpertSlice).
    ///
    /// # Panics
    /// If there are no such bytes.
    pub fn range(&self, shard: usize, offset: u64, bytes: u64) -> &[u8] {
        self.get(shard, offset, bytes).expect("the range comes from this model")
    }

    fn get(&self, shard: usize, offset: u64, bytes: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset).ok()?;
        let end = usize::try_from(offset.checked_add(bytes)?).ok()?;
        self.maps.get(shard)?.get(start..end)
    }

    /// The map of each shard, for advice to the system.
    pub fn maps(&self) -> &[Mmap] {
        &self.maps
    }
}

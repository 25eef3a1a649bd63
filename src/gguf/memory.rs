//! The files of a model as memory.
#![allow(unsafe_code)] // A memory map is only sound while nobody shortens the file; see `GgufMemory::map`.

use memmap2::{Mmap, MmapMut};

use std::io;

use super::shards::Shard;
use super::{GgufError, TensorInfo};

/// All files of a model, each as one read-only region: mapped, or copied.
#[derive(Debug)]
pub struct GgufMemory {
    /// A region for each shard, byte for byte the file.
    regions: Vec<Mmap>,
}

impl GgufMemory {
    /// Maps the files. Pages are read when they are first touched.
    ///
    /// The maps belong to the opened files, so renaming or replacing a path is harmless. Shortening a file in place while
    /// it is mapped makes the system end the process when the lost pages are touched, as with any memory map.
    pub(super) fn map(shards: &[Shard]) -> Result<Self, GgufError> {
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
        Ok(Self { regions: shards.iter().map(map).collect::<Result<_, _>>()? })
    }

    /// Takes copies of the files, in order. Bytes behind a file's end are never looked at.
    ///
    /// # Errors
    /// If the system does not make them read-only.
    pub fn copied(copies: Vec<MmapMut>) -> io::Result<Self> {
        Ok(Self { regions: copies.into_iter().map(MmapMut::make_read_only).collect::<Result<_, _>>()? })
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
        self.regions.get(shard)?.get(start..end)
    }

    /// The region of each shard.
    pub fn regions(&self) -> &[Mmap] {
        &self.regions
    }
}

//! Opens a model: one file, or every shard of a set.

use std::path::Path;

use super::error::shown;
use super::header::{self, Header};
use super::metadata::{Metadata, find_by_name, sorted_by_name};
use super::shards::{Shard, ShardName};
use super::{GgufError, GgufMemory, TensorInfo};

/// An open model: what its headers say, checked, and its files.
#[derive(Debug)]
pub struct Gguf {
    version: u32,
    alignment: u64,
    metadata: Metadata,
    tensors: Vec<TensorInfo>,
    /// Indices into `tensors`, in the order of the names.
    by_name: Vec<u32>,
    shards: Vec<Shard>,
}

impl Gguf {
    /// Opens the model at `path`. Any shard of a split model opens the whole set.
    ///
    /// Reads and checks the headers only, never tensor data; a file cut short is found here all the same, from its
    /// length. The other shards are looked for beside `path` as given, so links into a store of blobs work.
    ///
    /// # Errors
    /// Where a file cannot be read, is not GGUF version 2 or 3 in little-endian order, contradicts itself or its
    /// length, or a shard of a set is missing.
    pub fn open(path: &Path) -> Result<Self, GgufError> {
        let shard = Shard::open(path)?;
        let header = header::parse(path, &shard.file, shard.len)?;
        // Tools that join shards leave a count of 0 behind.
        match header.metadata.get_u64("split.count")?.unwrap_or(0) {
            0 | 1 => Self::assemble(vec![(shard, header)]),
            count => Self::open_set(shard, header, count),
        }
    }

    /// Opens the others of the `count` shards that `shard` belongs to.
    fn open_set(shard: Shard, header: Header, count: u64) -> Result<Self, GgufError> {
        let path = shard.path.clone();
        let number = header.metadata.get_u64("split.no")?.unwrap_or(0).saturating_add(1);
        let misnamed = || GgufError::ShardName { path: path.clone(), number, count };
        let name = path.file_name().and_then(|name| name.to_str()).and_then(ShardName::parse).ok_or_else(misnamed)?;
        if name.count != count || name.number != number || number > count {
            return Err(misnamed());
        }

        let path_of = |number| path.with_file_name(name.sibling(number));
        let missing = |number: &u64| !path_of(*number).exists();
        if let Some(first) = (1..=count).find(missing) {
            // Sets have tens of shards; the cap keeps a crafted count from asking the file system for ever.
            let others = (first..=count).skip(1).take(10_000).filter(missing).count();
            return Err(GgufError::ShardMissing { path: path_of(first), others, count });
        }

        let mut named = Some((shard, header));
        let mut files = Vec::new();
        for index in 0..count {
            let place = index.saturating_add(1);
            let (shard, header) = match named.take_if(|_| place == number) {
                Some(named) => named,
                None => {
                    let shard = Shard::open(&path_of(place))?;
                    let header = header::parse(&shard.path, &shard.file, shard.len)?;
                    (shard, header)
                }
            };
            check_shard(&shard, &header, "split.count", count)?;
            check_shard(&shard, &header, "split.no", index)?;
            files.push((shard, header));
        }
        let gguf = Self::assemble(files)?;
        if let Some(announced) = gguf.metadata.get_u64("split.tensors.count")?
            && announced != gguf.tensors.len() as u64
        {
            let n_tensors = gguf.tensors.len();
            return Err(GgufError::ShardTensors { path, announced, n_tensors });
        }
        Ok(gguf)
    }

    /// Joins the files of a model, in order; the first one's metadata speaks for all.
    fn assemble(files: Vec<(Shard, Header)>) -> Result<Self, GgufError> {
        let mut files = files.into_iter();
        let Some((shard, first)) = files.next() else { unreachable!("a model has at least one file") };
        let mut shards = vec![shard];
        let mut tensors = first.tensors;
        for (shard, mut header) in files {
            for tensor in &mut header.tensors {
                tensor.shard = shards.len();
            }
            tensors.append(&mut header.tensors);
            shards.push(shard);
        }
        let by_name = match sorted_by_name(&tensors, |tensor| &tensor.name) {
            Ok(order) => order,
            Err(twice) => {
                // Each file was checked on its own, so the second one is in a later file.
                let second = tensors.iter().filter(|tensor| tensor.name == twice).map(|tensor| tensor.shard).max();
                let shard = second.and_then(|shard| shards.get(shard)).or(shards.first());
                return Err(GgufError::DuplicateTensor {
                    path: shard.map(|shard| shard.path.clone()).unwrap_or_default(),
                    tensor: shown(twice.as_bytes()),
                });
            }
        };
        let Header { version, alignment, metadata, .. } = first;
        Ok(Self { version, alignment, metadata, tensors, by_name, shards })
    }

    /// Version of the format, 2 or 3; the first shard's.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Alignment of tensor data in bytes, a power of two; the first shard's.
    pub fn alignment(&self) -> u64 {
        self.alignment
    }

    /// Keys and values; the first shard's.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// All tensors, shard by shard, in the order of their tables.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// The tensor called `name`, by binary search.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        find_by_name(&self.tensors, &self.by_name, |tensor| &tensor.name, name)
    }

    /// The files, in order; one where the model is not split.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Bytes of all files together.
    pub fn file_bytes(&self) -> u64 {
        self.shards.iter().fold(0, |sum: u64, shard| sum.saturating_add(shard.len))
    }

    /// Maps all files into memory, read-only.
    ///
    /// # Errors
    /// Where the system refuses, or a file is shorter than when it was opened.
    pub fn map(&self) -> Result<GgufMemory, GgufError> {
        GgufMemory::map(&self.shards)
    }
}

/// Checks that a shard's `key` is what its place in the set needs.
fn check_shard(shard: &Shard, header: &Header, key: &'static str, expected: u64) -> Result<(), GgufError> {
    let found = header.metadata.get_u64(key)?;
    if found == Some(expected) {
        return Ok(());
    }
    let found = found.map_or("nothing".into(), |found| found.to_string());
    Err(GgufError::ShardMismatch { path: shard.path.clone(), key, found, expected })
}

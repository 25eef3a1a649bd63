//! Brings a whole model into memory, in huge pages where that can be had: reading weights through small ones takes up to
//! twice the time, most of all in a virtual machine.

use super::dense::{Cause, fill};
use super::{LoadProgress, ModelError};
use crate::gguf::{Gguf, GgufMemory, Shard};
use crate::parallel::Pool;
use crate::store::{ALIGNMENT, FileReader, PageCache, anonymous_memory};
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// How a model that fits comes into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residency {
    /// Mapped where the page cache can have it in huge pages, else copied.
    #[default]
    Auto,
    /// Mapped: at once there if the page cache has it, and shared with other processes.
    Map,
    /// Copied into memory of our own.
    Copy,
}

/// Bytes brought in between two reports of progress.
const STEP_BYTES: usize = 64 << 20;
/// Bytes of one read: large enough for the drive, small enough to even out the threads.
const READ_BYTES: usize = 4 << 20;
/// A touch per page brings it in; pages are 4 KiB or larger.
const PAGE_BYTES: usize = 4096;
/// Threads that touch pages: they wait for the drive, not for a processor.
const TOUCHING_THREADS: usize = 8;
/// Smallest model for which pages matter: less stays in the processor's caches, of bytes and of pages.
const HUGE_PAGES_FROM: u64 = 64 << 20;

/// Brings `gguf` into memory.
pub fn bring(
    gguf: &Gguf,
    residency: Residency,
    pool: &Pool,
    progress: &mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
) -> Result<GgufMemory, ModelError> {
    let mut told = Told { done_bytes: 0, total_bytes: gguf.file_bytes(), progress };
    match residency {
        Residency::Copy => return copy(gguf, pool, &mut told),
        Residency::Auto if gguf.file_bytes() >= HUGE_PAGES_FROM && !first_step_is_huge(gguf)? => {
            // What came into the page cache in small pages, as when the file was downloaded, stays so until it is read
            // anew; and not every system has other ones for files.
            gguf.shards().iter().take(1).for_each(|shard| drop_cached(shard, STEP_BYTES as u64));
            if !first_step_is_huge(gguf)? {
                return copy(gguf, pool, &mut told);
            }
            gguf.shards().iter().for_each(|shard| drop_cached(shard, shard.len));
        }
        Residency::Auto | Residency::Map => {}
    }
    let files = gguf.map()?;
    advise_huge_pages(&files);
    for map in files.regions() {
        for step in map.chunks(STEP_BYTES) {
            touch(step);
            told.more(step.len())?;
        }
    }
    Ok(files)
}

/// Copies the files into memory of our own. What the page cache has is taken from there; the rest is read past it, so that
/// no second copy stays behind.
fn copy(gguf: &Gguf, pool: &Pool, told: &mut Told<'_>) -> Result<GgufMemory, ModelError> {
    let reader = FileReader::open(gguf.shards(), PageCache::Take)?;
    let mut copies = Vec::with_capacity(gguf.shards().len());
    for (file, shard) in gguf.shards().iter().enumerate() {
        let memory = |source| ModelError::Memory { bytes: shard.len, source };
        let len = usize::try_from(shard.len).map_err(|_| memory(io::ErrorKind::OutOfMemory.into()))?;
        let mut copy = anonymous_memory(len.max(1).next_multiple_of(ALIGNMENT)).map_err(memory)?;
        for (i, step) in copy.chunks_mut(STEP_BYTES).enumerate() {
            let start = i * STEP_BYTES;
            let failure = Mutex::new(None);
            pool.for_each(step.chunks_mut(READ_BYTES).collect(), |j, part: &mut [u8]| {
                let offset = start + j * READ_BYTES;
                let needed = part.len().min(len - offset);
                if let Err(cause) = fill(&reader, file, offset as u64, part, needed) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(cause);
                }
            });
            match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
                None => told.more(step.len().min(len - start))?,
                Some(cause) => return Err(unreadable(&shard.path, cause)),
            }
        }
        copies.push(copy);
    }
    let bytes = gguf.file_bytes();
    GgufMemory::copied(copies).map_err(|source| ModelError::Memory { bytes, source })
}

fn unreadable(path: &Path, cause: Cause) -> ModelError {
    ModelError::ReadFile { path: path.to_owned(), source: cause.into() }
}

/// Touches every page, so that the first token does not wait for page faults.
fn touch(bytes: &[u8]) {
    let part = bytes.len().div_ceil(TOUCHING_THREADS).max(READ_BYTES);
    std::thread::scope(|scope| {
        for part in bytes.chunks(part) {
            scope.spawn(|| {
                for page in part.chunks(PAGE_BYTES) {
                    std::hint::black_box(page[0]);
                }
            });
        }
    });
}

/// Asks for huge pages; page cache that is read from now on may then come in them.
fn advise_huge_pages(files: &GgufMemory) {
    #[cfg(target_os = "linux")]
    for map in files.regions() {
        if let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "no huge pages for the mapped model");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = files;
}

/// Whether the beginning of the first file, mapped and touched, lies in huge pages for the most part. A file is written,
/// or read, in one go, so it speaks for the rest.
#[cfg(target_os = "linux")]
fn first_step_is_huge(gguf: &Gguf) -> Result<bool, ModelError> {
    let files = gguf.map()?;
    advise_huge_pages(&files);
    let Some(map) = files.regions().first() else { return Ok(true) };
    touch(&map[..map.len().min(STEP_BYTES)]);
    // Where the system does not tell, copying would be a guess.
    let Ok(smaps) = std::fs::read_to_string("/proc/self/smaps") else { return Ok(true) };
    let found = mapped_and_huge_kib(&smaps, map.as_ptr().addr());
    tracing::debug!(?found, "KiB mapped and in huge pages, of the first step");
    Ok(found.is_none_or(|(mapped, huge)| huge >= mapped / 2))
}

/// True: elsewhere nobody tells.
#[cfg(not(target_os = "linux"))]
fn first_step_is_huge(_: &Gguf) -> Result<bool, ModelError> {
    Ok(true)
}

/// KiB of the mapping at `address` that are in memory, and that are so in huge pages of a file, by `/proc/self/smaps`.
#[cfg(target_os = "linux")]
fn mapped_and_huge_kib(smaps: &str, address: usize) -> Option<(u64, u64)> {
    let start = |line: &str| usize::from_str_radix(line.split_once('-')?.0, 16).ok();
    let mut fields = smaps.lines().skip_while(|line| start(line) != Some(address)).skip(1);
    let mut field = |name| {
        let line = fields.find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    // In the order in which the system has them.
    Some((field("Rss:")?, field("FilePmdMapped:")?))
}

/// Lets the system drop the first `bytes` bytes of a file from the page cache, but for what a process has mapped.
fn drop_cached(shard: &Shard, bytes: u64) {
    #[cfg(target_os = "linux")]
    if let Some(bytes) = std::num::NonZeroU64::new(bytes)
        && let Err(error) = rustix::fs::fadvise(&shard.file, 0, Some(bytes), rustix::fs::Advice::DontNeed)
    {
        tracing::debug!(%error, "the page cache was not dropped");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (shard, bytes);
}

/// Progress that somebody is told.
struct Told<'a> {
    done_bytes: u64,
    total_bytes: u64,
    progress: &'a mut dyn FnMut(LoadProgress) -> ControlFlow<()>,
}

impl Told<'_> {
    fn more(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.done_bytes += bytes as u64;
        let Self { done_bytes, total_bytes, .. } = *self;
        match (self.progress)(LoadProgress { done_bytes, total_bytes }) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(ModelError::Cancelled),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_of_a_mapping_are_read_from_what_the_system_says_of_it() {
        let smaps = "7f0000000000-7f0000200000 r--s 00000000 08:01 1 /a.gguf\nRss:  8 kB\nFilePmdMapped:  0 kB\n\
                     7f0000400000-7f0000800000 r--s 00000000 08:01 2 /b.gguf\nSize: 4096 kB\nRss:   3072 kB\n\
                     Pss: 3072 kB\nFilePmdMapped:     2048 kB\n";
        assert_eq!(mapped_and_huge_kib(smaps, 0x7f0000400000), Some((3072, 2048)));
        assert_eq!(mapped_and_huge_kib(smaps, 0x7f0000000000), Some((8, 0)));
        assert_eq!(mapped_and_huge_kib(smaps, 0x1000), None);
    }
}

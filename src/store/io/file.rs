//! Model files, read past the system's page cache where that is possible.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::gguf::Shard;

use super::super::StoreError;
use super::{ALIGNMENT, Reader};

/// Whether what is read stays in the system's page cache too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageCache {
    /// Leave the page cache alone: other programs keep theirs, and a container is not charged for it. Unbuffered reads
    /// where the file system has them, else pages are dropped after use.
    #[default]
    Bypass,
    /// Read through it: what the store evicts may then still be in memory, where there is plenty.
    Use,
    /// As `Bypass`, but what it holds already is copied from there: for files that are read once.
    Take,
}

/// The files of a model.
///
/// They are the files that were opened with the model, whatever happens to their paths.
#[derive(Debug)]
pub struct FileReader {
    files: Vec<ModelFile>,
}

#[derive(Debug)]
struct ModelFile {
    path: PathBuf,
    plain: File,
    /// The same file without the page cache in between, where the file system can.
    direct: Option<File>,
    /// Set when a direct read was refused after all.
    direct_refused: AtomicBool,
    page_cache: PageCache,
}

impl FileReader {
    /// Opens the files of `shards` anew, so that advice and cursors are not shared with others.
    ///
    /// # Errors
    /// If the system refuses. That it has no unbuffered reads is no error.
    pub fn open(shards: &[Shard], page_cache: PageCache) -> Result<Self, StoreError> {
        let open = |shard: &Shard| {
            ModelFile::open(shard, page_cache).map_err(|source| StoreError::Open { path: shard.path.clone(), source })
        };
        Ok(Self { files: shards.iter().map(open).collect::<Result<_, _>>()? })
    }

    /// Whether all files are read directly, past the page cache.
    pub fn is_direct(&self) -> bool {
        self.files.iter().all(|file| file.direct.is_some() && !file.direct_refused.load(Ordering::Relaxed))
    }
}

impl Reader for FileReader {
    fn read_at(&self, file: usize, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.files.get(file).ok_or(io::ErrorKind::NotFound)?.read_at(offset, buf)
    }

    /// Always [`ALIGNMENT`], so that a plan does not depend on the file system.
    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn path(&self, file: usize) -> &Path {
        self.files.get(file).map_or(Path::new(""), |file| &file.path)
    }
}

impl ModelFile {
    fn open(shard: &Shard, page_cache: PageCache) -> io::Result<Self> {
        let plain = system::reopen(shard, system::PLAIN)?;
        let direct = match page_cache {
            PageCache::Bypass | PageCache::Take => system::open_direct(shard, &plain),
            PageCache::Use => None,
        };
        system::advise_random(&plain);
        Ok(Self { path: shard.path.clone(), plain, direct, direct_refused: AtomicBool::new(false), page_cache })
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if self.page_cache == PageCache::Take {
            // Whole units, so that a direct read can go on from there.
            let n = system::read_cached(&self.plain, offset, buf) / ALIGNMENT * ALIGNMENT;
            if n > 0 {
                return Ok(n);
            }
        }
        if let Some(direct) = &self.direct
            && is_aligned(offset, buf)
            && !self.direct_refused.load(Ordering::Relaxed)
        {
            match read_at(direct, offset, buf) {
                // Some file systems let a file be opened for direct reads and refuse the reads themselves.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                    tracing::debug!(path = %self.path.display(), %error, "direct read refused; reading buffered");
                }
                read => return read,
            }
        }
        let n = read_at(&self.plain, offset, buf)?;
        if self.page_cache != PageCache::Use {
            system::advise_done(&self.plain, offset, n);
        }
        Ok(n)
    }
}

fn is_aligned(offset: u64, buf: &[u8]) -> bool {
    offset.is_multiple_of(ALIGNMENT as u64)
        && buf.len().is_multiple_of(ALIGNMENT)
        && buf.as_ptr().addr().is_multiple_of(ALIGNMENT)
}

fn read_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_at(file, buf, offset);
    #[cfg(windows)]
    return std::os::windows::fs::FileExt::seek_read(file, buf, offset);
}

#[cfg(unix)]
mod system {
    //! What differs between systems. Advice that is refused changes speed only, so it is passed over with a debug line.

    use std::fs::{File, OpenOptions};
    use std::io;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::path::Path;

    use crate::gguf::Shard;

    pub(super) const PLAIN: i32 = 0;

    /// Opens the file of `shard` once more, with extra flags for the system. The path serves only if it still leads to the
    /// same file.
    pub(super) fn reopen(shard: &Shard, flags: i32) -> io::Result<File> {
        let held = shard.file.metadata()?;
        let is_same = |found: &std::fs::Metadata| (found.dev(), found.ino()) == (held.dev(), held.ino());
        let open = |path: &Path| OpenOptions::new().read(true).custom_flags(flags).open(path);
        // Looked at before it is opened too: opening a named pipe that took the path's place would block.
        if std::fs::metadata(&shard.path).is_ok_and(|found| is_same(&found)) {
            let file = open(&shard.path)?;
            if is_same(&file.metadata()?) {
                return Ok(file);
            }
        }
        by_descriptor(shard, flags)
    }

    /// Opens the held file itself, without its path.
    #[cfg(target_os = "linux")]
    fn by_descriptor(shard: &Shard, flags: i32) -> io::Result<File> {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", shard.file.as_raw_fd());
        match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            // Without /proc: the same open file, which cannot take other flags.
            Err(_) if flags == PLAIN => shard.file.try_clone(),
            opened => opened,
        }
    }

    /// The held file itself; other systems cannot open it anew.
    #[cfg(not(target_os = "linux"))]
    fn by_descriptor(shard: &Shard, _flags: i32) -> io::Result<File> {
        shard.file.try_clone()
    }

    /// The file of `shard`, unbuffered; `None` where the file system refuses to open it so, or to read it.
    #[cfg(target_os = "linux")]
    pub(super) fn open_direct(shard: &Shard, _plain: &File) -> Option<File> {
        use super::{ALIGNMENT, read_at};
        let opened = reopen(shard, rustix::fs::OFlags::DIRECT.bits() as i32).and_then(|file| {
            let mut memory = vec![0; 2 * ALIGNMENT];
            let start = memory.as_ptr().align_offset(ALIGNMENT);
            loop {
                match read_at(&file, 0, &mut memory[start..start + ALIGNMENT]) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    read => return read.map(|_| file),
                }
            }
        });
        opened
            .inspect_err(|error| {
                tracing::debug!(path = %shard.path.display(), %error, "no direct reads; reading buffered");
            })
            .ok()
    }

    /// None: elsewhere there is no such flag. macOS stops keeping what is read through `plain` instead.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open_direct(shard: &Shard, plain: &File) -> Option<File> {
        #[cfg(target_vendor = "apple")]
        if let Err(error) = rustix::fs::fcntl_nocache(plain, true) {
            tracing::debug!(path = %shard.path.display(), %error, "the page cache cannot be bypassed");
        }
        let _ = (shard, plain);
        None
    }

    /// Copies what the page cache has of the bytes from `offset` on, and says how many that are. It never waits for a
    /// drive; where it cannot be told what is there, that is nothing.
    #[cfg(target_os = "linux")]
    pub(super) fn read_cached(file: &File, offset: u64, buf: &mut [u8]) -> usize {
        let buffers = &mut [io::IoSliceMut::new(buf)];
        rustix::io::preadv2(file, buffers, offset, rustix::io::ReadWriteFlags::NOWAIT).unwrap_or(0)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn read_cached(_file: &File, _offset: u64, _buf: &mut [u8]) -> usize {
        0
    }

    /// Tells the system not to read ahead: an expert is read whole, and what follows it is another one.
    pub(super) fn advise_random(file: &File) {
        #[cfg(target_os = "linux")]
        if let Err(error) = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::Random) {
            tracing::debug!(%error, "advice on random reads refused");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = file;
    }

    /// Tells the system that the pages of `n` bytes from `offset` are not needed any more.
    pub(super) fn advise_done(file: &File, offset: u64, n: usize) {
        #[cfg(target_os = "linux")]
        if let Some(n) = std::num::NonZeroU64::new(n as u64)
            && let Err(error) = rustix::fs::fadvise(file, offset, Some(n), rustix::fs::Advice::DontNeed)
        {
            tracing::debug!(%error, "advice to drop pages refused");
        }
        #[cfg(not(target_os = "linux"))]
        let _ = (file, offset, n);
    }
}

#[cfg(windows)]
mod system {
    //! Plain reads through the page cache.

    use std::fs::File;
    use std::io;

    use crate::gguf::Shard;

    pub(super) const PLAIN: i32 = 0;

    pub(super) fn reopen(shard: &Shard, _flags: i32) -> io::Result<File> {
        shard.file.try_clone()
    }

    pub(super) fn open_direct(_shard: &Shard, _plain: &File) -> Option<File> {
        None
    }

    pub(super) fn read_cached(_file: &File, _offset: u64, _buf: &mut [u8]) -> usize {
        0
    }

    pub(super) fn advise_random(_file: &File) {}

    pub(super) fn advise_done(_file: &File, _offset: u64, _n: usize) {}
}

//! One file of a model, and how the files of a set find each other.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::GgufError;

/// One file of a model, kept open: renaming or replacing its path does not change what is read.
#[derive(Debug)]
pub struct Shard {
    /// The path that it was opened under.
    pub path: PathBuf,
    /// Bytes in the file when it was opened.
    pub len: u64,
    /// The open file. Its cursor is shared; use [`read_exact_at`](Self::read_exact_at) or other positioned reads.
    pub file: File,
}

impl Shard {
    /// Opens a regular file for reading.
    pub(super) fn open(path: &Path) -> Result<Self, GgufError> {
        let io = |action| move |source| GgufError::Io { path: path.into(), action, source };
        // Looked at before it is opened, because opening a named pipe blocks until someone writes to it.
        if !std::fs::metadata(path).map_err(io("open"))?.is_file() {
            return Err(GgufError::NotAFile { path: path.into() });
        }
        let file = File::open(path).map_err(io("open"))?;
        let len = file.metadata().map_err(io("read the length of"))?.len();
        Ok(Self { path: path.into(), len, file })
    }

    /// Fills `out` from the bytes that start at `offset`, without moving a cursor; may be called from many threads.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` where the file ends before `out` is full.
    pub fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        #[cfg(unix)]
        {
            std::os::unix::fs::FileExt::read_exact_at(&self.file, out, offset)
        }
        #[cfg(windows)]
        {
            let (mut out, mut offset) = (out, offset);
            while !out.is_empty() {
                match std::os::windows::fs::FileExt::seek_read(&self.file, out, offset) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(n) => {
                        out = out.get_mut(n..).unwrap_or_default();
                        offset = offset.saturating_add(n as u64);
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        }
    }
}

/// What the name of a shard says: `<stem>-<number>-of-<count>.gguf`, numbers from 1, five digits at least.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShardName<'a> {
    stem: &'a str,
    pub(super) number: u64,
    pub(super) count: u64,
}

impl<'a> ShardName<'a> {
    /// Reads the name of a file without its folder; `None` where it is not the name of a shard.
    pub(super) fn parse(name: &'a str) -> Option<Self> {
        let number = |digits: &str| {
            let plain = digits.len() >= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
            if plain { digits.parse().ok() } else { None }
        };
        let (stem, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, shard) = stem.rsplit_once('-')?;
        Some(Self { stem, number: number(shard)?, count: number(count)? })
    }

    /// The name of another shard of the same set; `number` counts from 1.
    pub(super) fn sibling(&self, number: u64) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_shard_tells_its_place() {
        let name = ShardName::parse("Qwen3-30B-of-x-00002-of-00003.gguf").unwrap();
        assert_eq!((name.stem, name.number, name.count), ("Qwen3-30B-of-x", 2, 3));
        assert_eq!(name.sibling(3), "Qwen3-30B-of-x-00003-of-00003.gguf");
    }

    #[test]
    fn other_names_are_not_shards() {
        for name in
            ["model.gguf", "m-1-of-3.gguf", "m-00001-of-00003.bin", "m-0000a-of-00003.gguf", "00001-of-00003.gguf"]
        {
            assert_eq!(ShardName::parse(name), None, "{name}");
        }
    }
}

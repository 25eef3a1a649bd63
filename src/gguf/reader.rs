//! Reads the header of one file forwards, never past its end and never more than it may hold.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::GgufError;

/// Most bytes that a header may take. The largest vocabularies take about 20 MB; the limit keeps a sparse file of a
/// terabyte from asking for as much memory.
const MAX_HEADER_BYTES: u64 = 256 << 20;

/// A forward reader that knows how much of the file is left.
pub(super) struct HeaderReader<'a> {
    path: &'a Path,
    input: BufReader<&'a File>,
    /// What is being read, for messages.
    section: &'static str,
    pos: u64,
    len: u64,
}

impl<'a> HeaderReader<'a> {
    /// Starts at the beginning of `file`, which has `len` bytes; its cursor must be there.
    pub(super) fn new(path: &'a Path, file: &'a File, len: u64) -> Self {
        Self { path, input: BufReader::with_capacity(64 << 10, file), section: "fixed header", pos: 0, len }
    }

    pub(super) fn path(&self) -> &'a Path {
        self.path
    }

    /// Names what comes next, for messages.
    pub(super) fn enter(&mut self, section: &'static str) {
        self.section = section;
    }

    /// Bytes read so far.
    pub(super) fn pos(&self) -> u64 {
        self.pos
    }

    /// Bytes left, of the file or of what a header may take.
    pub(super) fn remaining(&self) -> u64 {
        self.len.min(MAX_HEADER_BYTES).saturating_sub(self.pos)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        let end = self.end_of(N as u64)?;
        self.fill(&mut bytes, end)?;
        Ok(bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of things that take at least `min_bytes` (not 0) each, checked against the bytes left.
    pub(super) fn check_count(&self, count: u64, min_bytes: u64, what: &str) -> Result<usize, GgufError> {
        let room = self.remaining();
        count
            .checked_mul(min_bytes)
            .filter(|bytes| *bytes <= room)
            .and_then(|_| usize::try_from(count).ok())
            .ok_or_else(|| GgufError::Count { path: self.path.into(), what: what.into(), count, room })
    }

    /// Appends `len` bytes to `out`; nothing is allocated before `len` is known to be in the file.
    pub(super) fn append(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), GgufError> {
        let end = self.end_of(len)?;
        let start = out.len();
        // `end_of` bounds `len` by the header's limit, which any `usize` holds.
        out.resize(start.saturating_add(len as usize), 0);
        self.fill(out.get_mut(start..).unwrap_or_default(), end)
    }

    /// A string: its length in 64 bits, then its bytes.
    pub(super) fn string(&mut self) -> Result<Box<[u8]>, GgufError> {
        let len = self.u64()?;
        let mut bytes = Vec::new();
        self.append(len, &mut bytes)?;
        Ok(bytes.into_boxed_slice())
    }

    /// The name of a key or tensor, of at most `limit` bytes. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn name(&mut self, limit: u64, what: impl FnOnce() -> String) -> Result<String, GgufError> {
        let len = self.u64()?;
        if len > limit {
            return Err(GgufError::NameTooLong { path: self.path.into(), what: what(), len, limit });
        }
        let mut bytes = Vec::new();
        self.append(len, &mut bytes)?;
        Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
    }

    /// Where the next `len` bytes end, if the header may hold them.
    fn end_of(&self, len: u64) -> Result<u64, GgufError> {
        let end = self.pos.saturating_add(len);
        if end > self.len {
            return Err(self.truncated(end));
        }
        if end > MAX_HEADER_BYTES {
            return Err(GgufError::HeaderTooLarge {
                path: self.path.into(),
                section: self.section,
                limit: MAX_HEADER_BYTES,
            });
        }
        Ok(end)
    }

    fn fill(&mut self, out: &mut [u8], end: u64) -> Result<(), GgufError> {
        match self.input.read_exact(out) {
            Ok(()) => {
                self.pos = end;
                Ok(())
            }
            // The file shrank after its length was taken.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(self.truncated(end)),
            Err(source) => Err(GgufError::Io { path: self.path.into(), action: "read", source }),
        }
    }

    fn truncated(&self, end: u64) -> GgufError {
        GgufError::Truncated { path: self.path.into(), section: self.section, end, len: self.len }
    }
}

//! Reads ranges of model files whole.

use crate::store::{ALIGNMENT, Reader};
use std::io;

/// Why a range could not be read.
#[derive(Debug)]
pub enum Cause {
    /// What the system said.
    System(io::Error),
    /// The file ends at this byte.
    EndOfFile(u64),
}

impl From<Cause> for io::Error {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::System(error) => error,
            Cause::EndOfFile(end) => Self::new(
                io::ErrorKind::UnexpectedEof,
                format!("the file ends at byte {end}; it was cut short while in use, fetch it again"),
            ),
        }
    }
}

/// Fills at least the first `needed` bytes of `buf` from byte `offset` of a file; `offset`, the address and the length
/// of `buf` are aligned as the reader wants it. The file may end after those.
pub fn fill(reader: &dyn Reader, file: usize, offset: u64, buf: &mut [u8], needed: usize) -> Result<(), Cause> {
    let mut done = 0;
    while done < needed {
        match reader.read_at(file, offset + done as u64, &mut buf[done..]) {
            Ok(0) => return Err(Cause::EndOfFile(offset + done as u64)),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Cause::System(error)),
        }
    }
    Ok(())
}

/// Fills `out` from byte `offset` of a file, through a buffer that is aligned as every reader wants it.
pub fn read_exact(reader: &dyn Reader, file: usize, offset: u64, out: &mut [u8]) -> Result<(), Cause> {
    let head = (offset % ALIGNMENT as u64) as usize;
    let needed = head + out.len();
    let len = needed.next_multiple_of(ALIGNMENT);
    let mut buffer = vec![0; len + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut buffer[start..start + len];
    fill(reader, file, offset - head as u64, buffer, needed)?;
    out.copy_from_slice(&buffer[head..needed]);
    Ok(())
}

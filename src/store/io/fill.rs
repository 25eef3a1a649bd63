//! Reads one range whole.

use std::io;
use std::sync::Arc;

use super::super::extent::Span;
use super::Reader;

/// Most bytes of one call: some systems refuse 2 GiB and more, and Linux stops short of it.
const MAX_CALL: usize = 1 << 30;

/// Why a range could not be read.
#[derive(Clone, Debug)]
pub(in super::super) enum Cause {
    /// What the system said.
    System(Arc<io::Error>),
    /// The file ends at this byte.
    EndOfFile(u64),
    /// The reader panicked.
    Panicked,
}

/// Reads `span` into `buf`, which is as long as its place in the slot, and gives the number of bytes read.
///
/// Calls that stop short are continued and interrupted ones made again, unless `stopping` says that nobody needs the
/// bytes any more. The file may end in the slack after the matrix, not before.
pub(in super::super) fn fill(
    reader: &dyn Reader,
    span: &Span,
    buf: &mut [u8],
    stopping: impl Fn() -> bool,
) -> Result<u64, Cause> {
    let mut done = 0;
    while done < span.needed {
        let end = buf.len().min(done + MAX_CALL);
        match reader.read_at(span.file, span.offset + done as u64, &mut buf[done..end]) {
            Ok(0) => return Err(Cause::EndOfFile(span.offset + done as u64)),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !stopping() => {}
            Err(error) => return Err(Cause::System(Arc::new(error))),
        }
    }
    Ok(done as u64)
}

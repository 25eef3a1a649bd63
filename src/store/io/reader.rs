//! Where the bytes of experts come from.

use std::io;
use std::path::Path;

/// The largest alignment that a reader may have, and that of files: a page, and a block of the drives of today.
pub const ALIGNMENT: usize = 4096;

/// Files that can be read at any place, by several threads at once.
pub trait Reader: Send + Sync {
    /// Reads from byte `offset` of file number `file` into `buf` and says how many bytes it got: fewer where the file
    /// ends or the system stops short, none at the end of the file.
    ///
    /// `offset`, the length of `buf` and its address are multiples of [`alignment`](Self::alignment), except in a call
    /// that goes on where one has stopped short.
    ///
    /// # Errors
    /// What the system says. A call that is `Interrupted` is made again.
    fn read_at(&self, file: usize, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// What reads have to be aligned to, in bytes: a power of two, at most [`ALIGNMENT`].
    fn alignment(&self) -> usize;

    /// The path of file number `file`, for messages.
    fn path(&self, file: usize) -> &Path;
}

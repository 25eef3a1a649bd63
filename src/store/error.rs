//! What can go wrong in the store, with the words that the user reads.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Why the store could not be made or an expert not be served.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{path}: cannot open the model file for reading experts: {source}")]
    Open { path: PathBuf, source: io::Error },

    #[error("{path}: cannot read expert {expert} of layer {layer}: {source}")]
    Read { path: PathBuf, layer: usize, expert: u32, source: Arc<io::Error> },

    #[error(
        "{path}: the file ends at byte {end}, inside expert {expert} of layer {layer}; it was cut short while in use, \
         fetch it again"
    )]
    EndOfFile { path: PathBuf, layer: usize, expert: u32, end: u64 },

    #[error("{path}: the thread that read expert {expert} of layer {layer} panicked; this is a bug, please report it")]
    Panicked { path: PathBuf, layer: usize, expert: u32 },

    #[error("the wait for an expert was cancelled")]
    Cancelled,

    #[error(
        "all {n_buffers} buffers for experts are in use at once; let some go before requesting more, or give the cache \
         more memory"
    )]
    AllPinned { n_buffers: usize },

    #[error("expert {expert} of layer {layer} goes past the addresses that this machine has; the file is damaged")]
    Extent { layer: usize, expert: usize },

    #[error("cannot reserve {bytes} bytes for the cache of experts; ask for a smaller one: {source}")]
    Memory { bytes: u64, source: io::Error },

    #[error("{found} I/O threads were asked for; 1 to {most} are possible")]
    IoThreads { found: usize, most: usize },

    #[error("cannot start an I/O thread; ask for fewer: {source}")]
    Thread { source: io::Error },
}

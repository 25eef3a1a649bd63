//! Large regions of memory.

use memmap2::MmapMut;
use std::io;

/// Smallest region for which the system is asked for huge pages: two of the usual size, 2 MiB.
#[cfg(target_os = "linux")]
const HUGE_PAGES_FROM: usize = 4 << 20;

/// Zeroed memory that the system provides as it is touched: in huge pages where it has them, as reading weights through
/// small ones takes up to twice the time.
///
/// # Errors
/// If the system has no such room.
pub fn anonymous_memory(bytes: usize) -> io::Result<MmapMut> {
    let memory = MmapMut::map_anon(bytes)?;
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_PAGES_FROM
        && let Err(error) = memory.advise(memmap2::Advice::HugePage)
    {
        // Kernels without huge pages refuse; everything works, with more entries in the page tables.
        tracing::debug!(%error, "no huge pages for {bytes} bytes");
    }
    Ok(memory)
}

//! How fast this machine reads memory: the limit of decoding, which reads every weight once for each token.

use crate::parallel::{Pool, PoolError};
use crate::store::anonymous_memory;
use std::hint::black_box;
use std::io;
use std::time::Instant;

/// How fast memory is read, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Bytes that were read over and over: more than caches hold, or they would be measured.
    pub buffer_bytes: usize,
    /// By one thread.
    pub one_thread: f64,
    /// Threads of `all_threads`.
    pub n_threads: usize,
    /// By so many threads together.
    pub all_threads: f64,
}

/// Walks over the buffer; the fastest counts, as others use the machine too.
const N_WALKS: usize = 5;
/// Parts of the buffer for each thread: one that was interrupted leaves the rest of its share to others.
const PARTS_PER_THREAD: usize = 8;

/// Reads `bytes` bytes with one thread, and then with `n_threads`, in memory such as that of weights.
///
/// # Errors
/// Where the system has no such memory, or not as many threads.
pub fn read_bandwidth(bytes: usize, n_threads: usize) -> Result<Bandwidth, BandwidthError> {
    let memory_error = |source| BandwidthError::Memory { mib: bytes >> 20, source };
    let mut memory = anonymous_memory(bytes.max(1)).map_err(memory_error)?;
    let all = Pool::new(n_threads)?;
    let part = bytes.div_ceil(all.n_threads() * PARTS_PER_THREAD).next_multiple_of(LINE).max(LINE);
    // Untouched pages would all be the same one of zeros.
    all.for_each(memory.chunks_mut(part).collect(), |i, part: &mut [u8]| part.fill(i as u8 | 1));
    let parts: Vec<&[u8]> = memory.chunks(part).collect();
    let walk = |pool: &Pool| {
        let fastest = (0..N_WALKS).map(|_| {
            let started = Instant::now();
            pool.enter(|| pool.run(parts.len(), |i| _ = black_box(sum(parts[i]))));
            started.elapsed().as_secs_f64()
        });
        bytes as f64 / fastest.fold(f64::INFINITY, f64::min)
    };
    let one_thread = walk(&Pool::new(1)?);
    let all_threads = if all.n_threads() == 1 { one_thread } else { walk(&all) };
    Ok(Bandwidth { buffer_bytes: bytes, one_thread, n_threads: all.n_threads(), all_threads })
}

/// Why bandwidth could not be measured.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum BandwidthError {
    #[error("no {mib} MiB of memory to measure bandwidth with: {source}")]
    Memory { mib: usize, source: io::Error },

    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// The sum of all of `part`, as words but for its ends. Eight sums side by side, which the compiler keeps in vector
/// registers as long as nothing but indices says which is which.
fn sum(part: &[u8]) -> u64 {
    let (start, lines, end) = bytemuck::pod_align_to::<u8, [u64; LINE / 8]>(part);
    let mut sums = [0u64; LINE / 8];
    for line in lines {
        for i in 0..LINE / 8 {
            sums[i] = sums[i].wrapping_add(line[i]);
        }
    }
    let words = sums.iter().fold(0u64, |sum, one| sum.wrapping_add(*one));
    start.iter().chain(end).fold(words, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_the_sum() {
        let mut bytes: Vec<u8> = (0..200).collect();
        let before = sum(&bytes);
        for i in 0..bytes.len() {
            bytes[i] ^= 1;
            assert_ne!(sum(&bytes), before, "byte {i}");
            bytes[i] ^= 1;
        }
    }

    #[test]
    fn any_size_and_number_of_threads_gives_a_figure() {
        for (bytes, n_threads) in [(0, 1), (1, 2), (3 << 20, 1), ((4 << 20) + 77, 3)] {
            let found = read_bandwidth(bytes, n_threads).unwrap();
            assert_eq!((found.buffer_bytes, found.n_threads), (bytes, n_threads));
            assert!(found.one_thread.is_finite() && found.all_threads.is_finite(), "{found:?}");
            assert_eq!(found.one_thread > 0.0, bytes > 0, "{found:?}");
        }
    }
}

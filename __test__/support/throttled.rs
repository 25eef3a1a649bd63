//! A drive of any speed.

use clutor::store::Reader;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Reads that take as long as a slower drive would.
pub struct Throttled {
    reader: Arc<dyn Reader>,
    latency: Duration,
    /// Of all reads together; 0 without a limit.
    bytes_per_s: u64,
    /// When what was asked for so far has passed.
    free_at: Mutex<Instant>,
}

impl Throttled {
    /// `reader`, each read of which takes `latency` longer, and all of which share `bytes_per_s`.
    pub fn new(reader: Arc<dyn Reader>, latency: Duration, bytes_per_s: u64) -> Self {
        Self { reader, latency, bytes_per_s, free_at: Mutex::new(Instant::now()) }
    }
}

impl Reader for Throttled {
    fn read_at(&self, file: usize, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let asked = Instant::now();
        let n = self.reader.read_at(file, offset, buf)?;
        let mut passed = asked;
        if self.bytes_per_s > 0 {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            passed = asked.max(*free_at) + Duration::from_secs_f64(n as f64 / self.bytes_per_s as f64);
            *free_at = passed;
        }
        sleep((passed + self.latency).saturating_duration_since(Instant::now()));
        Ok(n)
    }

    fn alignment(&self) -> usize {
        self.reader.alignment()
    }

    fn path(&self, file: usize) -> &Path {
        self.reader.path(file)
    }
}

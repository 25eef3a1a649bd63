//! A ring of three parts over a reader that fails as it is told.

use super::super::parts::Part;
use super::*;
use crate::store::ALIGNMENT;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a part, which is a page of its own, far from the others.
const PART: u64 = ALIGNMENT as u64;

/// A file whose bytes are the number of the part that they belong to.
#[derive(Default)]
struct Faulty {
    /// Reads of the part with this number fail, this many times.
    failing: Mutex<Option<(u64, u32)>>,
    fault: Fault,
    n_reads: AtomicU64,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    Input,
    End,
    Panic,
    /// Not a failure: the call is to be made again.
    Interrupted,
}

fn offset(part: u64) -> u64 {
    part << 30
}

impl Reader for Faulty {
    fn read_at(&self, _: usize, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.n_reads.fetch_add(1, Ordering::Relaxed);
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((part, left)) = &mut *failing
            && *part == offset >> 30
            && *left > 0
        {
            *left -= 1;
            match self.fault {
                Fault::Input => return Err(io::Error::from_raw_os_error(5)),
                Fault::End => return Ok(0),
                Fault::Panic => {
                    drop(failing);
                    panic!("a bug in a reader");
                }
                Fault::Interrupted => return Err(io::ErrorKind::Interrupted.into()),
            }
        }
        // Short reads are gone on with.
        let n = buf.len().min(1000);
        buf[..n].fill((offset >> 30) as u8);
        Ok(n)
    }

    fn alignment(&self) -> usize {
        ALIGNMENT
    }

    fn path(&self, _: usize) -> &Path {
        Path::new("model.gguf")
    }
}

fn ring(reader: Faulty) -> (Ring, Arc<Faulty>) {
    let parts = (0..3).map(|part| Part::of(vec![(0, offset(part), PART)])).collect();
    let parts = Parts { parts, n_layers: 3, ..Parts::default() };
    let reader = Arc::new(reader);
    (Ring::new(Arc::clone(&reader) as Arc<dyn Reader>, parts).unwrap(), reader)
}

fn enter(ring: &Ring, part: usize) -> Result<(), ForwardError> {
    let mut turn = ring.turn();
    let mut pass = turn.pass(false);
    pass.enter(part, &|| false)?;
    let bytes = pass.bytes().range(0, offset(part as u64), PART);
    assert!(bytes.iter().all(|&byte| byte == part as u8));
    Ok(())
}

#[test]
fn parts_come_in_order_round_and_round_and_out_of_order_too() {
    let (ring, reader) =
        ring(Faulty { failing: Mutex::new(Some((1, 3))), fault: Fault::Interrupted, ..Faulty::default() });
    for part in [0, 1, 2, 0, 1, 2, 0, 0, 2, 1] {
        enter(&ring, part).unwrap();
    }
    assert!(ring.report().read_bytes >= 8 * PART);
    drop(ring);
    assert_eq!(Arc::strong_count(&reader), 1, "the thread is gone");
}

#[test]
fn a_part_that_is_read_ahead_can_be_seen_before_it_is_entered() {
    let (ring, _) = ring(Faulty::default());
    let mut turn = ring.turn();
    let mut pass = turn.pass(false);
    pass.enter(0, &|| false).unwrap();
    while pass.bytes_ahead().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(pass.bytes_ahead().unwrap().range(0, offset(1), PART)[0], 1);
    assert_eq!(pass.bytes().range(0, offset(0), PART)[0], 0);
}

#[test]
fn a_read_ahead_that_failed_is_read_once_more() {
    for fault in [Fault::Input, Fault::End, Fault::Panic] {
        let (ring, _) = ring(Faulty { failing: Mutex::new(Some((1, 1))), fault, ..Faulty::default() });
        for part in [0, 1, 2] {
            enter(&ring, part).unwrap();
        }
    }
}

#[test]
fn a_read_that_keeps_failing_fails_each_pass_with_its_reason_until_it_works() {
    for (fault, words) in [
        (Fault::Input, "model.gguf: cannot read the dense weights of layer 1: "),
        (Fault::End, "model.gguf: the file ends at byte 1073741824, inside the dense weights of layer 1"),
        (Fault::Panic, "the thread that read the dense weights of layer 1 panicked"),
    ] {
        let (ring, reader) = ring(Faulty { failing: Mutex::new(Some((1, u32::MAX))), fault, ..Faulty::default() });
        for _ in 0..3 {
            enter(&ring, 0).unwrap();
            let error = enter(&ring, 1).unwrap_err().to_string();
            assert!(error.starts_with(words), "{error}");
        }
        *reader.failing.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for part in [0, 1, 2] {
            enter(&ring, part).unwrap();
        }
    }
}

#[test]
fn a_wait_that_is_cancelled_ends_and_the_read_serves_the_next_pass() {
    struct Slow(Arc<Mutex<()>>);
    impl Reader for Slow {
        fn read_at(&self, _: usize, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            let _held = self.0.lock().unwrap();
            buf.fill((offset >> 30) as u8);
            Ok(buf.len())
        }
        fn alignment(&self) -> usize {
            ALIGNMENT
        }
        fn path(&self, _: usize) -> &Path {
            Path::new("model.gguf")
        }
    }
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let parts = (0..2).map(|part| Part::of(vec![(0, offset(part), PART)])).collect();
    let ring = Ring::new(Arc::new(Slow(Arc::clone(&gate))), Parts { parts, n_layers: 2, ..Parts::default() }).unwrap();
    let mut turn = ring.turn();
    assert!(matches!(turn.pass(false).enter(1, &|| true), Err(ForwardError::Cancelled)));
    drop((held, turn));
    enter(&ring, 0).unwrap();
    enter(&ring, 1).unwrap();
}

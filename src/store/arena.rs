//! The memory of all slots: one region, lent out slot by slot.
#![allow(unsafe_code)] // A slot is filled by other threads than those that use it, without a copy; see `Arena`.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use memmap2::MmapRaw;

use super::memory::anonymous_memory;
use super::sync::{AtomicUsize, Ordering};

/// One region of memory, cut into equal slots.
///
/// Starts on a page and holds zeros at first; the system provides pages as they are touched, and takes all of them back
/// when the last loan and the arena are gone.
///
/// A slot is lent either as disjoint [`Fill`]s, each of which may write its part, or as [`View`]s, any number of which may
/// read all of it. `loans` counts both, so that this holds whatever the rest of the store does: a wrong order of events is a
/// panic, never a data race.
#[derive(Debug)]
pub(super) struct Arena {
    memory: MmapRaw,
    slot_bytes: usize,
    /// For each slot, `FILL` for each [`Fill`] and 1 for each [`View`] that is out.
    loans: Box<[AtomicUsize]>,
}

/// What a [`Fill`] adds to `loans`: more than all views together.
const FILL: usize = 1 << (usize::BITS / 2);

impl Arena {
    /// Reserves `n_slots` slots of `slot_bytes` bytes, at least one byte in all.
    ///
    /// # Errors
    /// If the system has no such room.
    pub(super) fn new(n_slots: usize, slot_bytes: usize) -> io::Result<Self> {
        let bytes = n_slots.checked_mul(slot_bytes).ok_or(io::ErrorKind::OutOfMemory)?;
        let memory = MmapRaw::from(anonymous_memory(bytes)?);
        Ok(Self { memory, slot_bytes, loans: (0..n_slots).map(|_| AtomicUsize::new(0)).collect() })
    }

    /// Lends `ranges` of a slot, ascending and disjoint, for writing.
    ///
    /// # Panics
    /// If any of the slot is lent already, or the ranges are out of order or outside of the slot.
    pub(super) fn fill(self: &Arc<Self>, slot: usize, ranges: &[Range<usize>]) -> Vec<Fill> {
        let mut end = 0;
        for range in ranges {
            assert!(end <= range.start && range.start <= range.end, "ranges ascend and do not overlap");
            end = range.end;
        }
        assert!(end <= self.slot_bytes, "ranges lie in the slot");
        // Acquire, so that what former viewers read stays before what is written now.
        let free = self.loans[slot].compare_exchange(0, ranges.len() * FILL, Ordering::Acquire, Ordering::Relaxed);
        assert!(free.is_ok(), "slot {slot} is in use and cannot be filled");
        ranges.iter().map(|range| Fill { arena: Arc::clone(self), slot, range: range.clone() }).collect()
    }

    /// Lends a slot for reading.
    ///
    /// # Panics
    /// If it is being filled.
    pub(super) fn view(self: &Arc<Self>, slot: usize) -> View {
        // Acquire, so that what was filled in is seen.
        let lent = self.loans[slot].fetch_add(1, Ordering::Acquire);
        if lent >= FILL {
            self.loans[slot].fetch_sub(1, Ordering::Relaxed);
            panic!("slot {slot} is being filled and cannot be read");
        }
        View { arena: Arc::clone(self), slot }
    }

    /// The first byte of a slot.
    fn start(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.loans.len());
        // SAFETY: the region has `loans.len() * slot_bytes` bytes, as `new` asked for, so the sum stays inside it.
        unsafe { self.memory.as_mut_ptr().add(slot * self.slot_bytes) }
    }
}

/// A part of a slot that its holder alone may read and write.
#[derive(Debug)]
pub(super) struct Fill {
    arena: Arc<Arena>,
    slot: usize,
    range: Range<usize>,
}

impl Deref for Fill {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Arena::fill` checked that the range lies in the slot, that nobody else had any of the slot, and that
        // the parts lent together are disjoint; `loans` keeps others out until this is dropped. The memory was zeroed by
        // the system, so all of it is initialised.
        unsafe { std::slice::from_raw_parts(self.arena.start(self.slot).add(self.range.start), self.range.len()) }
    }
}

impl DerefMut for Fill {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only reference made through this loan.
        unsafe { std::slice::from_raw_parts_mut(self.arena.start(self.slot).add(self.range.start), self.range.len()) }
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        // Release, so that whoever views the slot next sees what was written.
        self.arena.loans[self.slot].fetch_sub(FILL, Ordering::Release);
    }
}

/// A slot that its holder may read.
#[derive(Debug)]
pub(super) struct View {
    arena: Arc<Arena>,
    slot: usize,
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `Arena::view` checked that no `Fill` of the slot was out, and `fill` lends none while this counts in
        // `loans`; so nobody writes. The slot lies in the region, whose memory the system zeroed.
        unsafe { std::slice::from_raw_parts(self.arena.start(self.slot), self.arena.slot_bytes) }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Release, so that reads stay before what the next fill writes.
        self.arena.loans[self.slot].fetch_sub(1, Ordering::Release);
    }
}

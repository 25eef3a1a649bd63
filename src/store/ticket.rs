//! A requested expert, and its bytes.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::arena::View;
use super::shared::Shared;

/// How a request was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Served {
    /// From the cache; perhaps an earlier request's read of it is still going on.
    Hit,
    /// From a staging slot, by a prefetch that was in time.
    Staged,
    /// From a staging slot whose read is still going on.
    LatePrefetch,
    /// By a read into a slot of the cache.
    Miss,
    /// By a read into a buffer outside the policy, because nothing could be evicted.
    Bypass,
}

/// A requested expert. It stays in memory until this is dropped.
///
/// Dropping it before the expert was read takes the read back, if it has not begun and nobody else wants it.
pub struct Ticket {
    shared: Arc<Shared>,
    slot: usize,
    key: u32,
    served: Served,
    /// Set once the expert was seen to be there.
    view: OnceLock<View>,
}

impl Ticket {
    /// For a slot that the state has counted this ticket in.
    pub(super) fn new(shared: Arc<Shared>, slot: usize, key: u32, served: Served) -> Self {
        Self { shared, slot, key, served, view: OnceLock::new() }
    }

    /// Layer of the expert.
    pub fn layer(&self) -> usize {
        self.shared.experts.place(self.key).0
    }

    /// Number of the expert in its layer.
    pub fn expert(&self) -> u32 {
        self.shared.experts.place(self.key).1
    }

    /// How the request was served.
    pub fn served(&self) -> Served {
        self.served
    }

    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    pub(super) fn key(&self) -> u32 {
        self.key
    }

    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// The expert's bytes, if it was seen to be there before.
    pub(super) fn seen(&self) -> Option<ExpertBytes<'_>> {
        Some(ExpertBytes { ticket: self, slot: self.view.get()? })
    }

    /// The expert's bytes. The state must have said that it is there.
    pub(super) fn see(&self) -> ExpertBytes<'_> {
        let view = self.shared.arena.view(self.slot);
        // Not `get_or_init`, whose lock the view could be waited for under: if another thread was faster, its view serves.
        let _second = self.view.set(view);
        match self.seen() {
            Some(bytes) => bytes,
            None => unreachable!("set just before"),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("layer", &self.layer())
            .field("expert", &self.expert())
            .field("served", &self.served)
            .finish_non_exhaustive()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Before the slot may go to another expert.
        drop(self.view.take());
        self.shared.release(self.slot);
    }
}

/// The bytes of an expert in its slot.
#[derive(Clone, Copy)]
pub struct ExpertBytes<'t> {
    ticket: &'t Ticket,
    slot: &'t [u8],
}

impl<'t> ExpertBytes<'t> {
    /// Bytes of matrix number `matrix`, in the order of the expert's [`ExpertExtent`](super::ExpertExtent). They start as
    /// many bytes past a multiple of the reader's alignment as in the file.
    ///
    /// # Panics
    /// If it has no such matrix.
    pub fn matrix(&self, matrix: usize) -> &'t [u8] {
        let shared = &self.ticket.shared;
        let extent = shared.experts.extent(self.ticket.key);
        let span = extent.spans(shared.reader.alignment()).nth(matrix);
        &self.slot[span.expect("the expert has this matrix").matrix()]
    }

    /// Number of matrices.
    pub fn n_matrices(&self) -> usize {
        self.ticket.shared.experts.extent(self.ticket.key).ranges().len()
    }
}

impl fmt::Debug for ExpertBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpertBytes").field(self.ticket).finish()
    }
}

//! Where each expert lies in the model's files, and how its matrices lie in a slot.

use std::ops::Range;

use super::StoreError;
use super::io::ALIGNMENT;

/// Consecutive bytes of one file: a matrix of an expert.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileRange {
    /// Number of the file, as the reader counts them.
    pub file: usize,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The bytes of one expert: up to four matrices (gate, up and down, or as the caller orders them).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpertExtent {
    ranges: [FileRange; Self::MAX],
    n_ranges: u8,
}

impl ExpertExtent {
    /// Most matrices that one expert has.
    pub const MAX: usize = 4;

    /// An expert of these matrices, in this order; none where a layer has no such expert.
    ///
    /// # Panics
    /// If there are more than [`MAX`](Self::MAX).
    pub fn new(matrices: &[FileRange]) -> Self {
        let mut ranges = [FileRange::default(); Self::MAX];
        ranges[..matrices.len()].copy_from_slice(matrices);
        Self { ranges, n_ranges: matrices.len() as u8 }
    }

    /// Its matrices, in order.
    pub fn ranges(&self) -> &[FileRange] {
        &self.ranges[..usize::from(self.n_ranges)]
    }

    /// Its reads: one for each matrix, aligned out, back to back in the slot.
    ///
    /// `alignment` is a power of two, at most [`ALIGNMENT`].
    pub(super) fn spans(&self, alignment: usize) -> impl Iterator<Item = Span> {
        let mut at = 0;
        self.ranges().iter().map(move |range| {
            // Cannot overflow: `ExpertTable::new` has checked for the largest alignment.
            let head = (range.offset % alignment as u64) as usize;
            let needed = head + range.len as usize;
            let slot = at..at + needed.next_multiple_of(alignment);
            at = slot.end;
            Span { file: range.file, offset: range.offset - head as u64, needed, head, slot }
        })
    }

    /// Bytes of a slot that holds it; `None` where they cannot be addressed.
    fn slot_bytes(&self) -> Option<usize> {
        self.ranges().iter().try_fold(0usize, |sum, range| {
            let slack = 2 * ALIGNMENT as u64;
            range.offset.checked_add(range.len)?.checked_add(slack)?;
            let bytes = usize::try_from(range.len.checked_add(slack)?).ok()?;
            sum.checked_add(bytes).filter(|sum| isize::try_from(*sum).is_ok())
        })
    }
}

/// One read: a matrix with its ends moved out to the reader's alignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Number of the file.
    pub(super) file: usize,
    /// First byte in the file, aligned.
    pub(super) offset: u64,
    /// Bytes from `offset` to the end of the matrix. The read asks for all of `slot`, but the file may end after these.
    pub(super) needed: usize,
    /// Bytes before the matrix.
    pub(super) head: usize,
    /// Where the read lands in the slot, aligned at both ends.
    pub(super) slot: Range<usize>,
}

impl Span {
    /// Where the matrix itself lies in the slot.
    pub(super) fn matrix(&self) -> Range<usize> {
        self.slot.start + self.head..self.slot.start + self.needed
    }
}

/// The extents of all experts of a model.
#[derive(Clone, Debug)]
pub struct ExpertTable {
    n_experts: usize,
    /// `[n_layers, n_experts]`.
    extents: Vec<ExpertExtent>,
}

impl ExpertTable {
    /// Makes the table from `extents`, `[n_layers, n_experts]`. Layers that have fewer experts, or none, fill up with
    /// empty extents.
    ///
    /// # Errors
    /// If an expert's ranges go past what 64-bit files or this machine's memory can address.
    ///
    /// # Panics
    /// If `extents` is not a whole number of layers, or has more than `u32::MAX` experts.
    pub fn new(n_experts: usize, extents: Vec<ExpertExtent>) -> Result<Self, StoreError> {
        assert!(n_experts > 0 && extents.len() % n_experts == 0, "extents are [n_layers, n_experts]");
        assert!(u32::try_from(extents.len()).is_ok(), "keys are 32 bits wide");
        if let Some(wrong) = extents.iter().position(|extent| extent.slot_bytes().is_none()) {
            return Err(StoreError::Extent { layer: wrong / n_experts, expert: wrong % n_experts });
        }
        Ok(Self { n_experts, extents })
    }

    /// Number of layers.
    pub fn n_layers(&self) -> usize {
        self.extents.len() / self.n_experts
    }

    /// Number of experts of a layer.
    pub fn n_experts(&self) -> usize {
        self.n_experts
    }

    /// Number of experts of all layers that have bytes.
    pub fn n_present(&self) -> usize {
        self.extents.iter().filter(|extent| !extent.ranges().is_empty()).count()
    }

    /// Bytes of a slot that holds any of the experts, for a reader of this alignment: at least one aligned piece.
    pub fn slot_bytes(&self, alignment: usize) -> usize {
        let of_one = |extent: &ExpertExtent| extent.spans(alignment).last().map_or(0, |span| span.slot.end);
        self.extents.iter().map(of_one).max().unwrap_or(0).max(alignment)
    }

    /// The number under which the policy knows an expert.
    pub(super) fn key(&self, layer: usize, expert: u32) -> u32 {
        let expert = expert as usize;
        assert!(layer < self.n_layers() && expert < self.n_experts, "no expert {expert} in layer {layer}");
        let key = layer * self.n_experts + expert;
        assert!(!self.extents[key].ranges().is_empty(), "layer {layer} has no expert {expert}");
        key as u32 // Fits: `new` has checked that all keys do.
    }

    /// Layer and expert of a key.
    pub(super) fn place(&self, key: u32) -> (usize, u32) {
        let n_experts = self.n_experts as u32;
        ((key / n_experts) as usize, key % n_experts)
    }

    pub(super) fn extent(&self, key: u32) -> &ExpertExtent {
        &self.extents[key as usize]
    }
}

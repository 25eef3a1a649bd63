//! What the ring has in memory at a time: the matrices of one layer, or some rows of the output.

use crate::gguf::{Gguf, Layout, TensorInfo};
use crate::store::ALIGNMENT;
use std::ops::Range;

/// The dense matrices of a model, in the order in which a pass needs them: one part for each layer, then the output's.
#[derive(Debug, Default)]
pub struct Parts {
    pub(super) parts: Vec<Part>,
    pub(super) n_layers: usize,
    /// Rows of the output in each part after the layers'.
    pub(super) output: Vec<Range<usize>>,
}

/// Ranges of the files that are in memory together.
#[derive(Debug, Default)]
pub struct Part {
    places: Vec<Place>,
    pub(super) reads: Vec<Read>,
}

/// A range of a file, and where it lies in the part's memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    shard: usize,
    offset: u64,
    bytes: u64,
    at: usize,
}

/// One read, aligned at both ends.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Read {
    pub shard: usize,
    pub offset: u64,
    /// Bytes from `offset` that must be there; the file may end after these.
    pub needed: usize,
    /// Where it lands in the part's memory.
    pub at: Range<usize>,
}

/// A gap between two ranges that is read along: about what a request of its own costs a drive.
const GAP_BYTES: u64 = 128 << 10;
/// Least bytes of a piece of the output, so that small layers do not make many small reads of it.
const LEAST_OUTPUT_BYTES: u64 = 256 << 10;

impl Parts {
    /// The parts of a model with `n_layers` layers. Vectors are not in them: norms are kept in memory, decoded.
    pub fn of(gguf: &Gguf, layout: &Layout, n_layers: usize) -> Self {
        let matrices = |layer: usize| -> Vec<(usize, u64, u64)> {
            let dense = layout.layer(layer).map_or(&[][..], |layer| &layer.dense);
            let tensors = dense.iter().filter_map(|&i| gguf.tensors().get(i)).filter(|tensor| tensor.shape.len() > 1);
            tensors.map(|tensor| (tensor.shard, tensor.offset, tensor.bytes)).collect()
        };
        let mut parts = Self {
            parts: (0..n_layers).map(|layer| Part::of(matrices(layer))).collect(),
            n_layers,
            output: Vec::new(),
        };
        // Tied models have their output in the embedding.
        if let Some(output) = gguf.tensor("output.weight").or_else(|| gguf.tensor("token_embd.weight")) {
            parts.cut_output(output);
        }
        parts
    }

    /// Cuts the output into pieces that need no more memory than a layer.
    fn cut_output(&mut self, output: &TensorInfo) {
        let &[rows, _] = &output.shape[..] else { return };
        let row_bytes = output.bytes / rows.max(1) as u64;
        let room = (self.slot_bytes() as u64).max(LEAST_OUTPUT_BYTES).saturating_sub(2 * ALIGNMENT as u64);
        let step = usize::try_from(room / row_bytes.max(1)).unwrap_or(usize::MAX).clamp(1, rows.max(1));
        for first in (0..rows).step_by(step) {
            let rows = first..rows.min(first.saturating_add(step));
            let offset = output.offset + row_bytes * rows.start as u64;
            self.parts.push(Part::of(vec![(output.shard, offset, row_bytes * rows.len() as u64)]));
            self.output.push(rows);
        }
    }

    /// Bytes of memory that any of the parts fits in.
    pub fn slot_bytes(&self) -> usize {
        self.parts.iter().map(Part::slot_bytes).max().unwrap_or(0).max(ALIGNMENT)
    }

    /// Rows of the output that each part after the layers' has.
    pub fn output(&self) -> &[Range<usize>] {
        &self.output
    }

    /// Part number `part`: a layer's number, or that and one for each piece of the output.
    pub(super) fn part(&self, part: usize) -> &Part {
        &self.parts[part]
    }

    pub(super) fn n_layers(&self) -> usize {
        self.n_layers
    }

    /// What comes after `part` in a pass that wants logits, or does not. After the last comes the next pass's first.
    pub(super) fn next(&self, part: usize, wants_logits: bool) -> usize {
        let end = if wants_logits { self.parts.len() } else { self.n_layers };
        (part + 1) % end.max(1)
    }

    /// What a part is, for messages.
    pub(super) fn what(&self, part: usize) -> String {
        match part.checked_sub(self.n_layers) {
            None => format!("the dense weights of layer {part}"),
            Some(_) => "the output's weights".to_owned(),
        }
    }
}

impl Part {
    /// A part of `(shard, offset, bytes)`.
    pub(super) fn of(mut ranges: Vec<(usize, u64, u64)>) -> Self {
        ranges.sort_unstable();
        let mut part = Self::default();
        let align = ALIGNMENT as u64;
        for (shard, offset, bytes) in ranges {
            let end = offset.saturating_add(bytes);
            let last = part
                .reads
                .last_mut()
                .filter(|read| read.shard == shard && offset <= read.offset + read.needed as u64 + GAP_BYTES);
            let start = match last {
                Some(read) => {
                    read.needed = (end - read.offset) as usize;
                    read.at.end = read.at.start + read.needed.next_multiple_of(ALIGNMENT);
                    read.at.start + (offset - read.offset) as usize
                }
                None => {
                    let first = part.slot_bytes();
                    let head = offset % align;
                    let needed = (head + bytes) as usize;
                    let at = first..first + needed.next_multiple_of(ALIGNMENT);
                    part.reads.push(Read { shard, offset: offset - head, needed, at });
                    first + head as usize
                }
            };
            part.places.push(Place { shard, offset, bytes, at: start });
        }
        part
    }

    fn slot_bytes(&self) -> usize {
        self.reads.last().map_or(0, |read| read.at.end)
    }

    /// Where a range of the files lies in the part's memory.
    ///
    /// # Panics
    /// If it is not in this part.
    pub(super) fn place(&self, shard: usize, offset: u64, bytes: u64) -> Range<usize> {
        let is_it = |place: &&Place| (place.shard, place.offset, place.bytes) == (shard, offset, bytes);
        let place = self.places.iter().find(is_it).expect("a part is asked for what it has");
        place.at..place.at + place.bytes as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_together_and_all_reads_are_aligned() {
        let far = 1 << 30;
        let part = Part::of(vec![(0, 9000, 100), (0, 5000, 1000), (1, 5000, 10), (0, far, 4096)]);
        let reads: Vec<_> =
            part.reads.iter().map(|read| (read.shard, read.offset, read.needed, read.at.clone())).collect();
        assert_eq!(reads, [(0, 4096, 5004, 0..8192), (0, far, 4096, 8192..12288), (1, 4096, 914, 12288..16384)]);
        assert_eq!(part.place(0, 5000, 1000), 904..1904);
        assert_eq!(part.place(0, 9000, 100), 4904..5004);
        assert_eq!(part.place(1, 5000, 10), 12288 + 904..12288 + 914);
    }

    #[test]
    fn a_pass_that_wants_no_logits_leaves_the_output_out() {
        let parts = Parts { parts: (0..5).map(|_| Part::default()).collect(), n_layers: 3, output: vec![0..4, 4..6] };
        assert_eq!([0, 2, 3, 4].map(|part| parts.next(part, true)), [1, 3, 4, 0]);
        assert_eq!([0, 1, 2].map(|part| parts.next(part, false)), [1, 2, 0]);
    }
}

//! All experts in memory: slices of the files.

use super::{Expert, ExpertSource, ExpertsError, Fetch, LayerExperts};
use crate::gguf::{ExpertSlice, GgufMemory};
use crate::quant::{TensorType, WeightRows};
use std::sync::Arc;

/// Experts as parts of the files in memory.
#[derive(Debug)]
pub struct Resident {
    files: Arc<GgufMemory>,
    layers: Vec<LayerExperts>,
}

impl Resident {
    /// Serves `layers` from `files`.
    pub fn new(files: Arc<GgufMemory>, layers: Vec<LayerExperts>) -> Self {
        Self { files, layers }
    }

    fn expert(&self, layer: usize, expert: u32) -> Expert<'_> {
        let [gate, up, down] = self.layers[layer].slices[expert as usize].each_ref().map(|slice| self.rows(slice));
        Expert { gate, up, down }
    }

    fn rows(&self, slice: &ExpertSlice) -> WeightRows<'_> {
        let bytes = self.files.range(slice.shard, slice.offset, slice.bytes);
        WeightRows::new(slice.ty, bytes, slice.rows, slice.cols)
    }
}

impl ExpertSource for Resident {
    fn types(&self, layer: usize) -> [TensorType; 3] {
        self.layers[layer].types
    }

    fn fetch<'a>(
        &'a self,
        layer: usize,
        wanted: &[(u32, u32)],
        _: &'a (dyn Fn() -> bool + Sync),
    ) -> Box<dyn Fetch + 'a> {
        let experts = wanted.iter().map(|&(expert, _)| self.expert(layer, expert)).enumerate().collect();
        Box::new(AllAtOnce { experts })
    }
}

/// Nothing to wait for.
struct AllAtOnce<'a> {
    experts: Vec<(usize, Expert<'a>)>,
}

impl Fetch for AllAtOnce<'_> {
    fn ready(&mut self) -> Result<Vec<(usize, Expert<'_>)>, ExpertsError> {
        Ok(std::mem::take(&mut self.experts))
    }
}

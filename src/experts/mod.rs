//! Where a chosen expert's bytes come from.
//!
//! The forward pass asks for the experts that a layer's tokens chose and cannot tell where they are. [`Resident`] has
//! them all in memory; [`Streaming`] reads them through the store.

mod prefetch;
mod resident;
mod streaming;
mod warm;

pub use prefetch::{PredictionCounts, Prefetch};
pub use resident::Resident;
pub use streaming::{Streaming, StreamingOptions, StreamingReport, expert_table};
pub use warm::{Hot, WarmError, WarmFile};

use crate::gguf::ExpertSlice;
use crate::quant::{TensorType, WeightRows};
use crate::store::StoreError;
use std::sync::Arc;

/// The three matrices of one expert.
#[derive(Clone, Copy, Debug)]
pub struct Expert<'a> {
    /// `[expert_dim, embed_dim]`.
    pub gate: WeightRows<'a>,
    /// `[expert_dim, embed_dim]`.
    pub up: WeightRows<'a>,
    /// `[embed_dim, expert_dim]`.
    pub down: WeightRows<'a>,
}

/// Where the experts of one layer lie in the model's files.
#[derive(Clone, Debug)]
pub struct LayerExperts {
    /// Element types of gate, up and down; the same for all experts of the layer.
    pub types: [TensorType; 3],
    /// Gate, up and down of each expert.
    pub slices: Vec<[ExpertSlice; 3]>,
}

/// Gives the experts of a layer to the forward pass.
pub trait ExpertSource: Send + Sync + std::fmt::Debug {
    /// Element types of gate, up and down in `layer`.
    fn types(&self, layer: usize) -> [TensorType; 3];

    /// Takes the beginning of a pass of `n_tokens` tokens.
    fn begin_pass(&self, _n_tokens: u32) {}

    /// Begins to bring experts of `layer` into memory: `wanted` are `(expert, n_tokens)`, each expert once, with how many
    /// tokens of the pass chose it. `cancelled` is asked while it waits.
    fn fetch<'a>(
        &'a self,
        layer: usize,
        wanted: &[(u32, u32)],
        cancelled: &'a (dyn Fn() -> bool + Sync),
    ) -> Box<dyn Fetch + 'a>;

    /// How many experts per token a guess at the next layer's should have; `None` where guesses are of no use.
    fn looks_ahead(&self) -> Option<usize> {
        None
    }

    /// Takes a guess at the experts that `layer`, the next one, will choose.
    fn expect(&self, _layer: usize, _experts: Vec<u32>) {}

    /// Sets which experts of `layer` are in memory now, `[n_experts]`.
    fn residents(&self, _layer: usize, resident: &mut [bool]) {
        resident.fill(true);
    }

    /// Takes the end of a pass.
    fn end_pass(&self) {}

    /// How good predictions were in each layer; nothing where nothing is read.
    fn predictions(&self) -> Vec<PredictionCounts> {
        Vec::new()
    }

    /// What was read and how well it was predicted; `None` where nothing is read.
    fn report(&self) -> Option<StreamingReport> {
        None
    }
}

/// Experts on their way into memory. Dropping it gives up those that are not there yet.
pub trait Fetch {
    /// The experts that came into memory since the last call, at least one, each with its index in the list that was
    /// asked for, in the order of the list; none where all were given. What an earlier call gave may be gone.
    ///
    /// # Errors
    /// Where an expert cannot be read, or the wait is cancelled.
    fn ready(&mut self) -> Result<Vec<(usize, Expert<'_>)>, ExpertsError>;
}

/// Why an expert could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExpertsError {
    /// It could not be read.
    #[error(transparent)]
    Store(Arc<StoreError>),

    /// The caller wants it no more.
    #[error("the wait for an expert was cancelled")]
    Cancelled,
}

impl From<StoreError> for ExpertsError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled,
            error => Self::Store(Arc::new(error)),
        }
    }
}

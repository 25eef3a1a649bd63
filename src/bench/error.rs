//! Why a benchmark does not run.

use super::bandwidth::BandwidthError;
use crate::model::{ForwardError, ModelError};

/// Why a benchmark does not run.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Bandwidth(#[from] BandwidthError),

    #[error(transparent)]
    Model(#[from] ModelError),

    #[error(transparent)]
    Forward(#[from] ForwardError),

    #[error(
        "a context of {needed} tokens is needed, and the model has {n_ctx}; measure shorter texts, or less deep ones"
    )]
    Context { needed: usize, n_ctx: usize },

    #[error("the benchmark was cancelled")]
    Cancelled,
}

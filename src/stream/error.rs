//! Why a benchmark does not run.

use crate::model::{ForwardError, ModelError};
use crate::workload::trace::TraceError;
use std::path::PathBuf;

/// Why a benchmark does not run.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error(transparent)]
    Model(#[from] ModelError),

    #[error(transparent)]
    Forward(#[from] ForwardError),

    #[error(transparent)]
    Trace(#[from] TraceError),

    #[error(
        "{path}: the trace is of a model of {layers} layers with {experts} experts, and this one has {n_layers} with \
         {n_experts}; replay it with a model that it fits", path = path.display()
    )]
    OtherModel { path: PathBuf, layers: usize, experts: usize, n_layers: usize, n_experts: usize },

    #[error(
        "the burst of structureless routing begins at token {start}, after the last of {n_tokens}; begin it earlier"
    )]
    BurstAfterEnd { start: usize, n_tokens: usize },

    #[error("the benchmark was cancelled")]
    Cancelled,
}

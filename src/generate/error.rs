//! Why a generation cannot begin or go on.

use crate::model::ForwardError;
use crate::sampling::SamplingError;
use crate::workload::trace::TraceError;
use std::path::PathBuf;

/// Why a generation cannot begin or go on.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    #[error("the prompt is empty; the model needs at least one token to start from")]
    EmptyPrompt,

    #[error(
        "the prompt has {prompt_tokens} tokens, but the context holds {n_ctx} with the answer; shorten it or ask for a \
         longer context"
    )]
    PromptTooLong { prompt_tokens: usize, n_ctx: usize },

    #[error("a text of {tokens} tokens is longer than the context of {n_ctx}; shorten it or ask for a longer context")]
    TextTooLong { tokens: usize, n_ctx: usize },

    #[error("the logits of {tokens} tokens take {mib} MiB, more than this process may still use; give fewer tokens")]
    TooLarge { tokens: usize, mib: u64 },

    #[error("a window of {window} tokens is too short to predict anything in; use 2 or more")]
    Window { window: usize },

    #[error("the text has {tokens} tokens, too few to predict anything; give at least 2")]
    TextTooShort { tokens: usize },

    #[error(transparent)]
    Sampling(#[from] SamplingError),

    #[error("{path}: another generation is writing its trace to this file; give each its own", path = path.display())]
    TraceInUse { path: PathBuf },

    #[error(transparent)]
    Trace(#[from] TraceError),

    #[error(transparent)]
    Forward(#[from] ForwardError),
}

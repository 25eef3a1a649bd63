//! Why a model does not load or a forward pass does not run.

use crate::experts::ExpertsError;
use crate::gguf::GgufError;
use crate::kernels::KernelsError;
use crate::parallel::PoolError;
use crate::quant::TensorType;
use crate::store::StoreError;
use crate::tokenizer::TokenizerError;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a model could not be loaded.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Gguf(#[from] GgufError),

    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),

    #[error(transparent)]
    Kernels(#[from] KernelsError),

    #[error(transparent)]
    Pool(#[from] PoolError),

    #[error("the architecture `{name}` is not supported; supported are {supported}")]
    Architecture { name: String, supported: String },

    #[error("the metadata key `{key}` is {value}: {why}")]
    Contradiction { key: String, value: String, why: String },

    #[error("the tensor `{tensor}` is missing; the file is not a complete model of its architecture, get another one")]
    MissingTensor { tensor: String },

    #[error(
        "the tensor `{tensor}` has the shape {found:?}, but {expected:?} follows from the metadata (outermost first)"
    )]
    Shape { tensor: String, found: Vec<usize>, expected: Vec<usize> },

    #[error("the tensor `{tensor}` has the type {ty}, which the engine cannot multiply with; use another quantization")]
    UnsupportedType { tensor: String, ty: TensorType },

    #[error(
        "the tensor `{tensor}` is not part of the architecture `{architecture}`, and leaving it out would change the text"
    )]
    UnknownTensor { tensor: String, architecture: &'static str },

    #[error(
        "the model needs at least {needed_mib} MiB of memory with its smallest cache of experts, but {usable_mib} MiB are \
         {limit}; give that much{hint}, ask for a shorter context, or use a smaller quantization"
    )]
    TooLarge { needed_mib: u64, usable_mib: u64, limit: &'static str, hint: &'static str },

    #[error("the tensor `{tensor}` cannot be read: {source}")]
    Read { tensor: String, source: std::io::Error },

    #[error("{path}: cannot be read: {source}")]
    ReadFile { path: PathBuf, source: std::io::Error },

    #[error("cannot reserve {bytes} bytes for weights: {source}")]
    Memory { bytes: u64, source: std::io::Error },

    #[error("cannot start a thread that reads dense weights: {source}")]
    RingThread { source: std::io::Error },

    #[error(
        "dense weights can be read anew for every token only while experts are streamed, and here everything is kept in \
         memory; leave `ring` out, or give less memory"
    )]
    RingWithoutStreaming,

    #[error(
        "a cache of type `q8_0` has blocks of 32, and the heads of this model are {head_dim} wide; use the cache type `f16`"
    )]
    CacheBlocks { head_dim: usize },

    #[error(transparent)]
    Store(#[from] StoreError),

    #[error("SMART-ROUTE prefers experts that are in memory, and here all are; leave it out, or give less memory")]
    SmartWithoutStreaming,

    #[error(
        "SMART-ROUTE's J is {n_kept} and its M is {n_candidates}, of {n_experts} experts and {n_used} used; J must be at \
             most the experts used, M at least that and at most all, and tau a finite number of at least 0"
    )]
    Smart { n_kept: usize, n_candidates: usize, n_experts: usize, n_used: usize },

    #[error("a vocabulary of {tokens} tokens does not fit an embedding of {rows} rows")]
    Vocabulary { tokens: usize, rows: usize },

    #[error("the file has no tokenizer (no key `tokenizer.ggml.tokens`); pass token ids instead of text")]
    NoTokenizer,

    #[error("loading was cancelled")]
    Cancelled,
}

/// Why a forward pass could not run.
#[allow(missing_docs)] // The fields are what their messages say.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("the token id {id} is outside the vocabulary of {vocab_size} tokens")]
    TokenId { id: u32, vocab_size: usize },

    #[error("position {pos} is beyond the context of {n_ctx} tokens; ask for a longer context or start anew")]
    ContextFull { pos: usize, n_ctx: usize },

    #[error("there is no memory for the keys and values of {n_tokens} tokens; use a shorter text")]
    Memory { n_tokens: usize },

    #[error(transparent)]
    Experts(ExpertsError),

    #[error("{path}: cannot read {what}: {source}")]
    Read { path: PathBuf, what: String, source: Arc<std::io::Error> },

    #[error("{path}: the file ends at byte {end}, inside {what}; it was cut short while in use, fetch it again")]
    EndOfFile { path: PathBuf, what: String, end: u64 },

    #[error("the thread that read {what} panicked; this is a bug, please report it")]
    ReadPanicked { what: String },

    #[error("the pass was cancelled")]
    Cancelled,
}

impl From<ExpertsError> for ForwardError {
    fn from(error: ExpertsError) -> Self {
        match error {
            ExpertsError::Cancelled => Self::Cancelled,
            error => Self::Experts(error),
        }
    }
}

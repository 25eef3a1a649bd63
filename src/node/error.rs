//! Each way to fail, and its code. Codes are part of the API: they stay, messages may change.

use super::shapes::Failure;
use crate::generate::GenerateError;
use crate::gguf::GgufError;
use crate::model::ModelError;
use crate::tokenizer::TokenizerError;

/// Anything that can fail behind the binding.
#[derive(Debug, thiserror::Error)]
pub(super) enum NodeError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Generate(#[from] GenerateError),
    #[error("the model was disposed of; load it again")]
    Disposed,
    #[error("the work was cancelled")]
    Cancelled,
    #[error("only the vocabulary of this file was loaded; load it with Model.load to compute")]
    OnlyVocabulary,
    #[error("cannot start a thread: {source}; the limit of threads of this process or container is reached")]
    Thread { source: std::io::Error },
    #[error("the engine failed inside: {what}; please report it")]
    Panicked { what: String },
}

/// The `code` of an error that is thrown.
pub(super) type Code = String;

/// What JavaScript is told.
pub(super) fn failure(error: &NodeError) -> Failure {
    Failure { code: code(error).to_owned(), message: error.to_string() }
}

/// `error` as an exception with its code.
pub(super) fn thrown(error: NodeError) -> napi::Error<Code> {
    napi::Error::new(code(&error).to_owned(), error.to_string())
}

fn code(error: &NodeError) -> &'static str {
    match error {
        NodeError::Disposed => "DISPOSED",
        NodeError::Cancelled => "CANCELLED",
        NodeError::OnlyVocabulary => "NO_WEIGHTS",
        NodeError::Thread { .. } => "THREAD",
        NodeError::Panicked { .. } => "INTERNAL",
        NodeError::Gguf(_) => "GGUF",
        NodeError::Model(ModelError::Cancelled) => "CANCELLED",
        NodeError::Model(_) => "MODEL",
        NodeError::Tokenizer(_) => "TOKENIZER",
        NodeError::Generate(_) => "GENERATE",
    }
}

//! Each way to fail, and its code. Codes are part of the API: they stay, messages may change.

use super::shapes::Failure;
use crate::bench::{BandwidthError, BenchError};
use crate::chat::ChatError;
use crate::experts::ExpertsError;
use crate::generate::GenerateError;
use crate::gguf::GgufError;
use crate::model::{ForwardError, ModelError};
use crate::store::StoreError;
use crate::store::policy::UnknownPolicy;
use crate::stream::StreamError;
use crate::tokenizer::TokenizerError;
use crate::workload::trace::{ContentError, TraceError};
use std::io::ErrorKind;

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
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Bench(#[from] BenchError),
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    #[error(transparent)]
    Chat(#[from] ChatError),
    #[error("the file has no chat template, and none is known for `{architecture}`; pass a template of your own")]
    NoChatTemplate { architecture: &'static str },
    #[error("the {what} of a conversation cannot be read: {source}")]
    ChatJson { what: &'static str, source: serde_json::Error },
    #[error("the model was disposed of; load it again")]
    Disposed,
    #[error("the work was cancelled")]
    Cancelled,
    #[error("only the vocabulary of this file was loaded; load it with Model.load to compute")]
    OnlyVocabulary,
    #[error("token id {id} is outside the vocabulary of {vocab_size} tokens")]
    TokenId { id: u32, vocab_size: usize },
    #[error("a window of {window} tokens is more than the context of {n_ctx}; use a window of 2 to {n_ctx} tokens")]
    Window { window: usize, n_ctx: usize },
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
        NodeError::Policy(_) | NodeError::Window { .. } => "INVALID_OPTION",
        NodeError::Chat(error) => chat_code(error),
        NodeError::NoChatTemplate { .. } => "NO_CHAT_TEMPLATE",
        NodeError::ChatJson { .. } => "INVALID_MESSAGES",
        NodeError::TokenId { .. } => "INVALID_PROMPT",
        NodeError::Disposed => "DISPOSED",
        NodeError::Cancelled => "CANCELLED",
        NodeError::OnlyVocabulary => "NO_WEIGHTS",
        NodeError::Thread { .. } => "THREAD",
        NodeError::Panicked { .. } => "INTERNAL",
        NodeError::Model(error) => model_code(error),
        NodeError::Generate(error) => match error {
            GenerateError::EmptyPrompt => "INVALID_PROMPT",
            GenerateError::PromptTooLong { .. } | GenerateError::TextTooLong { .. } => "PROMPT_TOO_LONG",
            GenerateError::TooLarge { .. } => "OUT_OF_MEMORY",
            GenerateError::Window { .. } | GenerateError::Sampling(_) | GenerateError::TraceInUse { .. } => {
                "INVALID_OPTION"
            }
            GenerateError::Trace(error) => trace_code(error),
            GenerateError::TextTooShort { .. } => "INVALID_PROMPT",
            GenerateError::Forward(error) => forward_code(error),
        },
        NodeError::Stream(error) => match error {
            StreamError::Model(error) => model_code(error),
            StreamError::Forward(error) => forward_code(error),
            StreamError::Trace(error) => trace_code(error),
            StreamError::OtherModel { .. } | StreamError::BurstAfterEnd { .. } => "INVALID_OPTION",
            StreamError::Cancelled => "CANCELLED",
        },
        NodeError::Bench(error) => match error {
            BenchError::Bandwidth(BandwidthError::Memory { .. }) => "OUT_OF_MEMORY",
            BenchError::Bandwidth(BandwidthError::Pool(_)) => "THREAD",
            BenchError::Model(error) => model_code(error),
            BenchError::Forward(error) => forward_code(error),
            BenchError::Context { .. } => "INVALID_OPTION",
            BenchError::Cancelled => "CANCELLED",
        },
        NodeError::Gguf(error) => gguf_code(error),
        NodeError::Trace(error) => trace_code(error),
        NodeError::Tokenizer(error) => tokenizer_code(error),
    }
}

fn chat_code(error: &ChatError) -> &'static str {
    match error {
        ChatError::Raised { .. } => "INVALID_MESSAGES",
        ChatError::SourceTooLong { .. }
        | ChatError::Syntax { .. }
        | ChatError::Render { .. }
        | ChatError::OutOfFuel { .. }
        | ChatError::OutputTooLong { .. } => "CHAT_TEMPLATE",
        ChatError::Thread { .. } => "THREAD",
        ChatError::Panicked => "INTERNAL",
    }
}

fn model_code(error: &ModelError) -> &'static str {
    match error {
        ModelError::Gguf(error) => gguf_code(error),
        ModelError::Tokenizer(error) => tokenizer_code(error),
        ModelError::Kernels(_) => "KERNELS",
        ModelError::Pool(_) | ModelError::RingThread { .. } => "THREAD",
        ModelError::Architecture { .. } | ModelError::UnsupportedType { .. } | ModelError::UnknownTensor { .. } => {
            "UNSUPPORTED"
        }
        ModelError::Contradiction { .. }
        | ModelError::MissingTensor { .. }
        | ModelError::Shape { .. }
        | ModelError::Vocabulary { .. } => "INVALID_FILE",
        ModelError::TooLarge { .. } | ModelError::Memory { .. } => "OUT_OF_MEMORY",
        ModelError::Read { .. } | ModelError::ReadFile { .. } => "FILE_READ",
        ModelError::Store(error) => store_code(error),
        ModelError::SmartWithoutStreaming
        | ModelError::Smart { .. }
        | ModelError::RingWithoutStreaming
        | ModelError::CacheBlocks { .. } => "INVALID_OPTION",
        ModelError::NoTokenizer => "NO_TOKENIZER",
        ModelError::Cancelled => "CANCELLED",
    }
}

fn forward_code(error: &ForwardError) -> &'static str {
    match error {
        ForwardError::TokenId { .. } => "INVALID_PROMPT",
        ForwardError::ContextFull { .. } => "PROMPT_TOO_LONG",
        ForwardError::Memory { .. } => "OUT_OF_MEMORY",
        ForwardError::Experts(ExpertsError::Store(error)) => store_code(error),
        ForwardError::Read { .. } | ForwardError::EndOfFile { .. } => "FILE_READ",
        ForwardError::ReadPanicked { .. } => "INTERNAL",
        ForwardError::Experts(ExpertsError::Cancelled) | ForwardError::Cancelled => "CANCELLED",
    }
}

fn gguf_code(error: &GgufError) -> &'static str {
    match error {
        GgufError::Io { source, .. } if source.kind() == ErrorKind::NotFound => "FILE_NOT_FOUND",
        GgufError::Io { .. } | GgufError::NotAFile { .. } => "FILE_READ",
        GgufError::ShardMissing { .. } => "FILE_NOT_FOUND",
        GgufError::Changed { .. } => "FILE_CHANGED",
        GgufError::BigEndian { .. } | GgufError::Version { .. } | GgufError::TensorType { .. } => "UNSUPPORTED",
        GgufError::Magic { .. }
        | GgufError::Truncated { .. }
        | GgufError::HeaderTooLarge { .. }
        | GgufError::Count { .. }
        | GgufError::NameTooLong { .. }
        | GgufError::ValueType { .. }
        | GgufError::NestedTooDeep { .. }
        | GgufError::Bool { .. }
        | GgufError::DuplicateKey { .. }
        | GgufError::MissingKey { .. }
        | GgufError::WrongType { .. }
        | GgufError::OutOfRange { .. }
        | GgufError::Alignment { .. }
        | GgufError::DuplicateTensor { .. }
        | GgufError::Dimensions { .. }
        | GgufError::EmptyTensor { .. }
        | GgufError::TensorTooLarge { .. }
        | GgufError::RowBlocks { .. }
        | GgufError::Misaligned { .. }
        | GgufError::TensorOutOfBounds { .. }
        | GgufError::Overlap { .. }
        | GgufError::ShardName { .. }
        | GgufError::ShardTensors { .. }
        | GgufError::ShardMismatch { .. } => "INVALID_FILE",
    }
}

fn store_code(error: &StoreError) -> &'static str {
    match error {
        StoreError::Open { .. } | StoreError::Read { .. } | StoreError::EndOfFile { .. } => "FILE_READ",
        StoreError::Extent { .. } => "INVALID_FILE",
        StoreError::Memory { .. } | StoreError::AllPinned { .. } => "OUT_OF_MEMORY",
        StoreError::IoThreads { .. } => "INVALID_OPTION",
        StoreError::Thread { .. } => "THREAD",
        StoreError::Cancelled => "CANCELLED",
        StoreError::Panicked { .. } => "INTERNAL",
    }
}

fn trace_code(error: &TraceError) -> &'static str {
    match error {
        TraceError::Open { source, .. } if source.kind() == ErrorKind::NotFound => "FILE_NOT_FOUND",
        TraceError::Open { .. } | TraceError::Content { source: ContentError::Read(_), .. } => "FILE_READ",
        TraceError::Content { source: ContentError::Version { .. }, .. } => "UNSUPPORTED",
        TraceError::Content { .. } | TraceError::NotBinary { .. } => "INVALID_FILE",
        TraceError::Write { .. } | TraceError::OntoItself { .. } => "FILE_WRITE",
        TraceError::Cancelled => "CANCELLED",
    }
}

fn tokenizer_code(error: &TokenizerError) -> &'static str {
    match error {
        TokenizerError::UnknownModel { .. } | TokenizerError::UnknownPreTokenizer { .. } => "UNSUPPORTED",
        TokenizerError::NoTokens => "NO_TOKENIZER",
        TokenizerError::TooManyTokens { .. }
        | TokenizerError::TokenTypeCount { .. }
        | TokenizerError::NoMerges
        | TokenizerError::MalformedMerge { .. }
        | TokenizerError::MergeOfUnknownToken { .. }
        | TokenizerError::IdOutOfRange { .. }
        | TokenizerError::AddedTokens(_) => "INVALID_FILE",
    }
}

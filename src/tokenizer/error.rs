//! What can be wrong with the tables of a file.

/// Why a tokenizer cannot be made from the tables of a file. Each message names the GGUF key at fault.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The kind of tokenizer is not byte-level BPE.
    #[error(
        "tokenizer.ggml.model is `{found}`, which is not supported; byte-level BPE (`gpt2`) is, so use a model with that"
    )]
    UnknownModel {
        /// The value in the file.
        found: String,
    },
    /// The rule that cuts text into pieces is not known. Another rule would give other tokens, so none is guessed.
    #[error("tokenizer.ggml.pre is `{found}`, which is not supported; supported are {supported}")]
    UnknownPreTokenizer {
        /// The value in the file.
        found: String,
        /// The supported values, for the message.
        supported: String,
    },
    /// The vocabulary is absent or empty.
    #[error(
        "tokenizer.ggml.tokens is missing or empty, so text cannot be turned into tokens; use a complete model file"
    )]
    NoTokens,
    /// The vocabulary exceeds 32-bit offsets.
    #[error(
        "tokenizer.ggml.tokens holds {n_tokens} tokens with {bytes} bytes, too many for 32 bits; the file is damaged"
    )]
    TooManyTokens {
        /// Entries in the table.
        n_tokens: usize,
        /// Bytes of their texts together.
        bytes: usize,
    },
    /// There is not one type per token.
    #[error(
        "tokenizer.ggml.token_type has {found} entries, but tokenizer.ggml.tokens has {expected}; the file is damaged"
    )]
    TokenTypeCount {
        /// Entries in the table of types.
        found: usize,
        /// Entries in the vocabulary.
        expected: usize,
    },
    /// The table of merges is absent or empty.
    #[error("tokenizer.ggml.merges is missing or empty, but `gpt2` tokenizers need it; convert the model again")]
    NoMerges,
    /// A merge is not two parts with a space between.
    #[error(
        "tokenizer.ggml.merges: entry {index} is `{merge}`, expected two tokens separated by a space; the file is damaged"
    )]
    MalformedMerge {
        /// Place in the table, counted from 0.
        index: usize,
        /// The entry, ill-formed UTF-8 replaced.
        merge: String,
    },
    /// A merge takes or gives a token that does not exist.
    #[error(
        "tokenizer.ggml.merges: entry {index} is `{merge}`, but `{missing}` is not in tokenizer.ggml.tokens; the file is damaged"
    )]
    MergeOfUnknownToken {
        /// Place in the table, counted from 0.
        index: usize,
        /// The entry, ill-formed UTF-8 replaced.
        merge: String,
        /// The part or the result that is not a token, as text.
        missing: String,
    },
    /// A special token is not in the vocabulary.
    #[error("{key} is {id}, but tokenizer.ggml.tokens has {n_tokens} entries; the file is damaged")]
    IdOutOfRange {
        /// The key that holds the id.
        key: &'static str,
        /// The id in the file.
        id: u32,
        /// Entries in the vocabulary.
        n_tokens: usize,
    },
    /// No matcher could be built for the control and user-defined tokens.
    #[error("tokenizer.ggml.tokens: the control and user-defined tokens are too many or too long to search for")]
    AddedTokens(#[from] aho_corasick::BuildError),
}

//! The input of a tokenizer: the tables of a GGUF file, borrowed.

/// The tables that define a tokenizer, as they stand in a GGUF file.
#[derive(Debug, Clone)]
pub struct Tables<'a> {
    /// Kind of tokenizer; only `gpt2` (byte-level BPE) is supported. GGUF key `tokenizer.ggml.model`.
    pub model: &'a str,
    /// Name of the rule that cuts text into pieces. GGUF key `tokenizer.ggml.pre`.
    pub pre: &'a str,
    /// Texts by id: normal tokens in the byte-level alphabet, added ones as they are. `tokenizer.ggml.tokens`.
    pub tokens: Vec<&'a [u8]>,
    /// Types by id (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte); empty where the file has none,
    /// and then all tokens are normal. `tokenizer.ggml.token_type`.
    pub token_types: Vec<i32>,
    /// Pairs `left right` in the byte-level alphabet, most important first. `tokenizer.ggml.merges`.
    pub merges: Vec<&'a [u8]>,
    /// Ids with a meaning.
    pub special: SpecialIds,
}

/// Tokens with a meaning, and whether a text is to begin or end with one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begin of sequence. GGUF key `tokenizer.ggml.bos_token_id`.
    pub bos: Option<u32>,
    /// End of sequence. GGUF key `tokenizer.ggml.eos_token_id`.
    pub eos: Option<u32>,
    /// End of turn. GGUF key `tokenizer.ggml.eot_token_id`.
    pub eot: Option<u32>,
    /// End of message, where a tool is to answer. GGUF key `tokenizer.ggml.eom_token_id`.
    pub eom: Option<u32>,
    /// Stands for bytes that are not in the vocabulary. GGUF key `tokenizer.ggml.unknown_token_id`.
    pub unk: Option<u32>,
    /// Padding. GGUF key `tokenizer.ggml.padding_token_id`.
    pub pad: Option<u32>,
    /// Whether the model was trained with `bos` before every text. GGUF key `tokenizer.ggml.add_bos_token`.
    pub add_bos: bool,
    /// Whether the model was trained with `eos` after every text. GGUF key `tokenizer.ggml.add_eos_token`.
    pub add_eos: bool,
}

impl SpecialIds {
    /// The ids that are set, each with its GGUF key.
    pub(super) fn with_keys(&self) -> impl Iterator<Item = (&'static str, u32)> {
        [
            ("tokenizer.ggml.bos_token_id", self.bos),
            ("tokenizer.ggml.eos_token_id", self.eos),
            ("tokenizer.ggml.eot_token_id", self.eot),
            ("tokenizer.ggml.eom_token_id", self.eom),
            ("tokenizer.ggml.unknown_token_id", self.unk),
            ("tokenizer.ggml.padding_token_id", self.pad),
        ]
        .into_iter()
        .filter_map(|(key, id)| id.map(|id| (key, id)))
    }
}

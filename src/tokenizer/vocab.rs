//! The tokens: their bytes, in one buffer, and what kind each is.

use crate::tokenizer::{Tables, TokenizerError, byte_level};

/// What a token is for. The numbers of GGUF's `tokenizer.ggml.token_type` are in [`Kind::of_type`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Made by merges from bytes.
    Normal,
    /// Steers the model; only a caller who asks for it gets it from text.
    Control,
    /// Found in any text before the merges.
    UserDefined,
    /// A row of the embedding that no text leads to.
    Unused,
}

impl Kind {
    fn of_type(token_type: i32) -> Self {
        match token_type {
            // "Unknown" is shown and hidden like a control token.
            2 | 3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            _ => Self::Normal,
        }
    }
}

/// The vocabulary of a model.
#[derive(Debug)]
pub(super) struct Vocab {
    /// The bytes of all tokens, by id.
    bytes: Vec<u8>,
    /// `[vocab_size + 1]`: token `id` is `bytes[offsets[id]..offsets[id + 1]]`.
    offsets: Vec<u32>,
    kinds: Vec<Kind>,
}

impl Vocab {
    /// Undoes the byte-level alphabet of the normal tokens.
    pub fn new(tables: &Tables) -> Result<Self, TokenizerError> {
        let n_tokens = tables.tokens.len();
        if n_tokens == 0 {
            return Err(TokenizerError::NoTokens);
        }
        if !tables.token_types.is_empty() && tables.token_types.len() != n_tokens {
            return Err(TokenizerError::TokenTypeCount { found: tables.token_types.len(), expected: n_tokens });
        }
        // Undoing the alphabet only shortens, so this bounds the offsets too.
        let spelled_bytes = tables.tokens.iter().map(|token| token.len()).sum();
        // The largest number is kept free: it marks empty places in tables of ids.
        if n_tokens >= u32::MAX as usize || spelled_bytes >= u32::MAX as usize {
            return Err(TokenizerError::TooManyTokens { n_tokens, bytes: spelled_bytes });
        }

        let kinds: Vec<Kind> = match tables.token_types.is_empty() {
            true => vec![Kind::Normal; n_tokens],
            false => tables.token_types.iter().map(|&token_type| Kind::of_type(token_type)).collect(),
        };
        let mut bytes = Vec::with_capacity(spelled_bytes);
        let mut offsets = Vec::with_capacity(n_tokens + 1);
        offsets.push(0);
        for (token, kind) in tables.tokens.iter().zip(&kinds) {
            match kind {
                Kind::Normal => byte_level::undo(token, &mut bytes),
                Kind::Control | Kind::UserDefined | Kind::Unused => bytes.extend_from_slice(token),
            }
            offsets.push(bytes.len() as u32);
        }
        bytes.shrink_to_fit();
        Ok(Self { bytes, offsets, kinds })
    }

    /// Number of tokens, unused ones included.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The bytes of token `id`, or `None` beyond the vocabulary.
    pub fn bytes(&self, id: u32) -> Option<&[u8]> {
        let id = id as usize;
        let end = *self.offsets.get(id + 1)?;
        Some(&self.bytes[self.offsets[id] as usize..end as usize])
    }

    /// The kind of token `id`, or `None` beyond the vocabulary.
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.kinds.get(id as usize).copied()
    }

    /// All tokens in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8], Kind)> {
        (0u32..).zip(self.offsets.windows(2)).zip(&self.kinds).map(|((id, ends), &kind)| {
            let bytes = &self.bytes[ends[0] as usize..ends[1] as usize];
            (id, bytes, kind)
        })
    }
}

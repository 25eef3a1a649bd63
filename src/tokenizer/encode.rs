//! The tokenizer: all steps put together.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::tokenizer::added::{AddedTokens, Part};
use crate::tokenizer::ends::end_tokens;
use crate::tokenizer::merges::Merges;
use crate::tokenizer::piece_cache::PieceCache;
use crate::tokenizer::pretokenize::PreTokenizer;
use crate::tokenizer::token_index::TokenIndex;
use crate::tokenizer::vocab::{Kind, Vocab};
use crate::tokenizer::{SpecialIds, Tables, TokenizerError};

/// Turns text into token ids and back.
///
/// It is made once per model, never changes, and can be shared by threads.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    merges: Merges,
    pre: PreTokenizer,
    added: AddedTokens,
    /// Present where a piece that is a token as a whole is that token, whatever the merges would give.
    whole_pieces: Option<TokenIndex>,
    special: SpecialIds,
    /// In ascending order.
    ends: Vec<u32>,
}

impl Tokenizer {
    /// Makes a tokenizer from the tables of a file.
    ///
    /// # Errors
    /// If the model or the pre-tokenizer is not supported (none is ever used in the place of another), if tokens or
    /// merges are missing or do not fit together, or if a special id is not in the vocabulary.
    pub fn new(tables: Tables) -> Result<Self, TokenizerError> {
        if tables.model != "gpt2" {
            return Err(TokenizerError::UnknownModel { found: tables.model.to_owned() });
        }
        let pre = PreTokenizer::named(tables.pre).ok_or_else(|| TokenizerError::UnknownPreTokenizer {
            found: tables.pre.to_owned(),
            supported: PreTokenizer::names().collect::<Vec<_>>().join(", "),
        })?;
        let vocab = Vocab::new(&tables)?;
        for (key, id) in tables.special.with_keys() {
            if vocab.kind(id).is_none() {
                return Err(TokenizerError::IdOutOfRange { key, id, n_tokens: vocab.len() });
            }
        }
        let index = TokenIndex::new(&vocab);
        let merges = Merges::new(&tables.merges, &vocab, &index)?;
        let added = AddedTokens::new(&vocab)?;
        let ends = end_tokens(&vocab, &tables.special);
        let whole_pieces = pre.takes_whole_pieces().then_some(index);
        Ok(Self { vocab, merges, pre, added, whole_pieces, special: tables.special, ends })
    }

    /// The tokens of `text`, without begin or end tokens added.
    ///
    /// With `special`, control tokens written in the text become their ids; without, they are text like any other,
    /// which is what text from users needs. User-defined tokens are recognised in both cases.
    pub fn encode(&self, text: &str, special: bool) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        self.added.split(text, special, |part| match part {
            Part::Token(id) => ids.push(id),
            Part::Text(text) => self.encode_text(&self.normalize(text), &mut ids),
        });
        ids
    }

    /// The tokens of bytes that should be UTF-8: each maximal ill-formed piece counts as U+FFFD, as in
    /// [`String::from_utf8_lossy`].
    pub fn encode_bytes(&self, bytes: &[u8], special: bool) -> Vec<u32> {
        self.encode(&String::from_utf8_lossy(bytes), special)
    }

    /// The bytes of token `id`, or `None` beyond the vocabulary: what a normal token adds to a text, and the written
    /// form of any other.
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.vocab.bytes(id)
    }

    /// The bytes that token `id` adds to a text: nothing for unused tokens and ids beyond the vocabulary, and for
    /// control tokens only with `show_special`.
    pub fn text_bytes(&self, id: u32, show_special: bool) -> &[u8] {
        let is_shown = match self.vocab.kind(id) {
            Some(Kind::Normal | Kind::UserDefined) => true,
            Some(Kind::Control) => show_special,
            Some(Kind::Unused) | None => false,
        };
        if is_shown { self.vocab.bytes(id).unwrap_or_default() } else { &[] }
    }

    /// The bytes of a text, exactly; each token adds its [`text_bytes`](Self::text_bytes).
    pub fn decode(&self, ids: &[u32], show_special: bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 * ids.len());
        for &id in ids {
            bytes.extend_from_slice(self.text_bytes(id, show_special));
        }
        bytes
    }

    /// The text of `ids`; each maximal piece of ill-formed UTF-8 becomes U+FFFD.
    pub fn decode_text(&self, ids: &[u32], show_special: bool) -> String {
        String::from_utf8_lossy(&self.decode(ids, show_special)).into_owned()
    }

    /// Number of tokens, unused ones included; ids are below it.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The tokens with a meaning, as the file names them.
    pub fn special_ids(&self) -> &SpecialIds {
        &self.special
    }

    /// Whether token `id` steers the model and is no text (GGUF types 2 and 3).
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.kind(id) == Some(Kind::Control)
    }

    /// Whether token `id` ends an answer; see [`end_ids`](Self::end_ids).
    pub fn is_end(&self, id: u32) -> bool {
        self.ends.binary_search(&id).is_ok()
    }

    /// The tokens that end an answer, in ascending order: the file's end of sequence, turn and message, and the control
    /// tokens that are known to end a turn in some chat format, such as `<|im_end|>`.
    pub fn end_ids(&self) -> &[u32] {
        &self.ends
    }

    /// Brings text into the form that the model was trained on. ASCII and most other text is in it already.
    fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.pre.is_nfc() || is_nfc_quick(text.chars()) == IsNormalized::Yes {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.nfc().collect())
        }
    }

    /// Appends the tokens of a stretch of text without added tokens.
    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) {
        let bytes = text.as_bytes();
        let mut cache = PieceCache::for_text(bytes.len());
        self.pre.split(text, |piece| match &mut cache {
            Some(cache) if piece.len() <= PieceCache::MAX_PIECE => {
                cache.encode(bytes, piece.clone(), ids, |ids| self.encode_piece(&bytes[piece], ids));
            }
            _ => self.encode_piece(&bytes[piece], ids),
        });
    }

    fn encode_piece(&self, piece: &[u8], ids: &mut Vec<u32>) {
        let whole = self.whole_pieces.as_ref().and_then(|index| index.get(&self.vocab, piece));
        match whole {
            Some(id) if self.vocab.kind(id) == Some(Kind::Normal) => ids.push(id),
            _ => self.merges.encode(piece, self.special.unk, ids),
        }
    }
}

//! Text to token ids and back, exactly as the model was trained.
//!
//! Byte-level byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909; on bytes as in GPT-2, Radford et al. 2019),
//! driven by the tables that a GGUF file carries:
//!
//! ```text
//!  text ─► added tokens cut out ─► NFC ─► pre-tokenizer: pieces ─► merges within each piece ─► ids
//!          (added)                        (pretokenize)            (merges)
//!  ids ─► bytes of each token (vocab) ─► StreamDecoder: whole characters only ─► text
//! ```
//!
//! Every step takes time in proportion to the text, also where it is one long run.
//! The module takes plain tables ([`Tables`]) and knows nothing of the file they came from.

mod added;
mod byte_level;
mod encode;
mod ends;
mod error;
mod merges;
mod piece_cache;
mod pretokenize;
mod stream;
mod tables;
#[cfg(test)]
mod tests;
mod token_index;
mod vocab;

pub use encode::Tokenizer;
pub use error::TokenizerError;
pub use stream::StreamDecoder;
pub use tables::{SpecialIds, Tables};

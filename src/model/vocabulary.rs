//! The tokenizer's tables, as they stand in a file's metadata.

use super::ModelError;
use crate::gguf::Metadata;
use crate::tokenizer::{SpecialIds, Tables, Tokenizer};

/// Makes the tokenizer of a file, with or without tensors; `None` where the file has no vocabulary.
///
/// # Errors
/// Where a table is missing, of the wrong type, or not one that the tokenizer knows.
pub fn read_tokenizer(metadata: &Metadata) -> Result<Option<Tokenizer>, ModelError> {
    let Some(tokens) = metadata.get_strings("tokenizer.ggml.tokens")? else { return Ok(None) };
    let model = metadata.require_str("tokenizer.ggml.model")?;
    let pre = metadata.get_str("tokenizer.ggml.pre")?.unwrap_or_default();
    let merges = metadata.get_strings("tokenizer.ggml.merges")?;
    let id = |key: &str| metadata.get_u32(&format!("tokenizer.ggml.{key}_token_id"));
    let flag = |key: &str| metadata.get_bool(&format!("tokenizer.ggml.add_{key}_token"));
    let tables = Tables {
        model: &model,
        pre: &pre,
        tokens: tokens.iter().collect(),
        token_types: metadata.get_i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
        merges: merges.map(|merges| merges.iter().collect()).unwrap_or_default(),
        special: SpecialIds {
            bos: id("bos")?,
            eos: id("eos")?,
            eot: id("eot")?,
            eom: id("eom")?,
            unk: id("unknown")?,
            pad: id("padding")?,
            add_bos: flag("bos")?.unwrap_or(false),
            add_eos: flag("eos")?.unwrap_or(false),
        },
    };
    Ok(Some(Tokenizer::new(tables)?))
}

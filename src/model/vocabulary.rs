//! The tokenizer's tables, as they stand in a file's metadata.

use super::ModelError;
use crate::gguf::Metadata;
use crate::tokenizer::{SpecialIds, Tables, Tokenizer};
use std::borrow::Cow;

/// The chat templates of a file, as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatTemplateTexts {
    /// For any conversation.
    pub default: Option<String>,
    /// For conversations with tools, where the file has a template of its own for them.
    pub tool_use: Option<String>,
}

/// Reads a file's chat templates.
///
/// # Errors
/// Where one is not a string.
pub fn read_chat_templates(metadata: &Metadata) -> Result<ChatTemplateTexts, ModelError> {
    let text = |key: &str| metadata.get_str(key).map(|text| text.map(Cow::into_owned));
    Ok(ChatTemplateTexts {
        default: text("tokenizer.chat_template")?,
        tool_use: text("tokenizer.chat_template.tool_use")?,
    })
}

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

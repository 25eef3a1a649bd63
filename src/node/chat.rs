//! Chat templates of a loaded model.

use super::error::NodeError;
use super::shapes::{ChatOptions, ChatTemplateInfo};
use crate::chat::{ChatTemplate, Conversation, Limits, SpecialTexts, default_for};
use crate::model::Model;
use serde_json::{Map, Value};

/// Everything that rendering needs, apart from the model: a thread that renders must not keep it alive.
pub(super) struct Rendering {
    source: String,
    special: SpecialTexts,
    conversation: Conversation,
}

/// The template for conversations without tools, and where it comes from; `None` where there is none.
pub(super) fn info(model: &Model) -> Option<ChatTemplateInfo> {
    let of_file = model.chat_templates().default.clone();
    let of_file = of_file.map(|source| ChatTemplateInfo { name: "file".to_owned(), source });
    of_file.or_else(|| {
        let default = default_for(model.info().architecture)?;
        Some(ChatTemplateInfo { name: default.name.to_owned(), source: default.source.to_owned() })
    })
}

impl Rendering {
    /// Takes what is needed from `model`, and the messages from JSON.
    pub(super) fn new(model: &Model, messages: &str, options: ChatOptions) -> Result<Self, NodeError> {
        let tools = options.tools.map(|tools| list("tools", &tools)).transpose()?;
        let for_tools = tools.as_ref().and_then(|_| model.chat_templates().tool_use.clone());
        let of_model = || info(model).map(|info| info.source);
        let source = options.template.or(for_tools).or_else(of_model);
        let source = source.ok_or_else(|| NodeError::NoChatTemplate { architecture: model.info().architecture })?;
        let variables: Map<String, Value> = serde_json::from_str(&options.variables)
            .map_err(|source| NodeError::ChatJson { what: "variables", source })?;
        Ok(Self {
            source,
            special: special_texts(model),
            conversation: Conversation {
                messages: list("messages", messages)?,
                tools,
                add_generation_prompt: options.add_generation_prompt,
                variables,
                now_seconds: options.now_seconds,
            },
        })
    }

    /// The text.
    pub(super) fn render(&self) -> Result<String, NodeError> {
        Ok(ChatTemplate::new(&self.source)?.render(&self.conversation, &self.special, &Limits::default())?)
    }
}

fn special_texts(model: &Model) -> SpecialTexts {
    let Ok(tokenizer) = model.tokenizer() else { return SpecialTexts::default() };
    let text = |id: Option<u32>| id.map(|id| tokenizer.decode_text(&[id], true));
    let ids = tokenizer.special_ids();
    SpecialTexts { bos: text(ids.bos), eos: text(ids.eos), unk: text(ids.unk), pad: text(ids.pad) }
}

fn list(what: &'static str, json: &str) -> Result<Vec<Value>, NodeError> {
    serde_json::from_str(json).map_err(|source| NodeError::ChatJson { what, source })
}

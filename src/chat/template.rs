//! A template, and what it is rendered with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;

use minijinja::machinery::{CompiledTemplate, TemplateConfig, eval, make_string_output};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Value};
use serde_json::{Map, Value as Json};

use super::ChatError;
use super::dialect::for_engine;
use super::functions::environment;
use super::operators::replace_operators;
use super::strftime::strftime;

/// Bytes of a template. The longest in use have about 30 000.
const MAX_SOURCE_BYTES: usize = 1 << 20;

/// Name of a template, for messages of the engine.
const NAME: &str = "chat_template";

/// Expressions and values are gone through by recursion. Its depth is limited, but this allows for all limits together.
const STACK_BYTES: usize = 64 << 20;

/// What a template may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Fuel for the template itself. A unit pays for a step, or for 64 bytes of text made or looked at.
    pub fuel: u64,
    /// Fuel for each byte of the conversation: long ones take more steps.
    pub fuel_per_byte: u64,
    /// Bytes of the text beyond twelve times the conversation's.
    pub output_bytes: usize,
}

impl Default for Limits {
    /// Under a second, and some 64 MB: a hundred times what templates in use need.
    fn default() -> Self {
        Self { fuel: 1_000_000, fuel_per_byte: 1, output_bytes: 4 << 20 }
    }
}

/// Texts of the special tokens, which templates know as `bos_token` and so on. What a model has not is undefined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The names say it.
pub struct SpecialTexts {
    pub bos: Option<String>,
    pub eos: Option<String>,
    pub unk: Option<String>,
    pub pad: Option<String>,
}

/// What a template is rendered with.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The messages, in order; usually objects with `role` and `content`.
    pub messages: Vec<Json>,
    /// Descriptions of the functions that the model may call.
    pub tools: Option<Vec<Json>>,
    /// Whether the text ends where the model's answer begins.
    pub add_generation_prompt: bool,
    /// Further variables, such as `enable_thinking`. They come before the special tokens, and after all else.
    pub variables: Map<String, Json>,
    /// Seconds from 1970-01-01 00:00 on the wall's clock, for templates that name the date: the caller has the clock.
    pub now_seconds: i64,
}

impl Default for Conversation {
    fn default() -> Self {
        Self { messages: Vec::new(), tools: None, add_generation_prompt: true, variables: Map::new(), now_seconds: 0 }
    }
}

/// A valid chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    source: String,
}

impl ChatTemplate {
    /// Takes `source`.
    ///
    /// # Errors
    /// Where it is not a valid template, or longer than any in use.
    pub fn new(source: &str) -> Result<Self, ChatError> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(ChatError::SourceTooLong { len: source.len(), max: MAX_SOURCE_BYTES });
        }
        let source = for_engine(source);
        on_own_stack(|| compile(&source).map(drop))?.map_err(ChatError::from_parsing)?;
        Ok(Self { source })
    }

    /// The text of a conversation.
    ///
    /// # Errors
    /// Where the template refuses it ([`ChatError::Raised`]), fails, or goes beyond `limits`.
    pub fn render(
        &self,
        conversation: &Conversation,
        special: &SpecialTexts,
        limits: &Limits,
    ) -> Result<String, ChatError> {
        let input_bytes = json_bytes(conversation);
        let fuel = limits.fuel.saturating_add(limits.fuel_per_byte.saturating_mul(input_bytes as u64));
        let max = limits.output_bytes.saturating_add(input_bytes.saturating_mul(12));
        let now_seconds = conversation.now_seconds;
        let rendered = on_own_stack(|| {
            // Every value takes some bytes.
            let mut environment = environment(input_bytes);
            environment.set_fuel(Some(fuel));
            environment.add_function("strftime_now", move |format: &str| strftime(format, now_seconds));
            let compiled = compile(&self.source)?;
            let mut text = String::new();
            let mut output = make_string_output(&mut text);
            let (instructions, blocks) = (&compiled.instructions, &compiled.blocks);
            eval(&environment, instructions, context(conversation, special), blocks, &mut output, AutoEscape::None)?;
            Ok(text)
        })?;
        let text = rendered.map_err(|error| ChatError::from_rendering(error, fuel))?;
        if text.len() > max {
            return Err(ChatError::OutputTooLong { max });
        }
        Ok(text)
    }
}

fn compile(source: &str) -> Result<CompiledTemplate<'_>, minijinja::Error> {
    let config = TemplateConfig {
        syntax_config: SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?,
        default_auto_escape: Arc::new(|_| AutoEscape::None),
    };
    let mut compiled = CompiledTemplate::new(NAME, source, &config)?;
    replace_operators(&mut compiled.instructions)?;
    Ok(compiled)
}

/// Does `work` where recursion has room.
fn on_own_stack<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, ChatError> {
    let thread = thread::Builder::new().name("clutor-template".to_owned()).stack_size(STACK_BYTES);
    thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, work).map_err(|source| ChatError::Thread { source })?;
        thread.join().map_err(|_panic| ChatError::Panicked)
    })
}

/// The variables as transformers names them: `tools` and `documents` are there also where there are none.
fn context(conversation: &Conversation, special: &SpecialTexts) -> Value {
    let mut context: BTreeMap<&str, Value> = BTreeMap::new();
    let specials = [
        ("bos_token", &special.bos),
        ("eos_token", &special.eos),
        ("unk_token", &special.unk),
        ("pad_token", &special.pad),
    ];
    context.extend(specials.into_iter().filter_map(|(name, text)| Some((name, Value::from(text.as_deref()?)))));
    context.insert("documents", Value::from(()));
    context.extend(conversation.variables.iter().map(|(name, value)| (name.as_str(), to_value(value))));
    context.insert("messages", conversation.messages.iter().map(to_value).collect());
    context.insert(
        "tools",
        conversation.tools.as_ref().map_or(Value::from(()), |tools| tools.iter().map(to_value).collect()),
    );
    context.insert("add_generation_prompt", Value::from(conversation.add_generation_prompt));
    Value::from_pairs(context)
}

/// Lists and objects become lists and maps in the same order; numbers keep whether they are whole.
fn to_value(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match number.as_i128() {
            Some(whole) => Value::from(whole),
            None => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => items.iter().map(to_value).collect(),
        Json::Object(entries) => Value::from_pairs(entries.iter().map(|(key, value)| (key.as_str(), to_value(value)))),
    }
}

/// About how many bytes of text a template is given.
fn json_bytes(conversation: &Conversation) -> usize {
    let lists = conversation.messages.iter().chain(conversation.tools.iter().flatten());
    lists.chain(conversation.variables.values()).map(size_of_json).sum()
}

fn size_of_json(value: &Json) -> usize {
    match value {
        Json::String(text) => text.len(),
        Json::Array(items) => items.iter().map(|item| 2 + size_of_json(item)).sum(),
        Json::Object(entries) => entries.iter().map(|(key, value)| key.len() + 4 + size_of_json(value)).sum(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 8,
    }
}

//! From a conversation to the text that a model was trained to continue, and from its answer to thinking and text.
//!
//! ```text
//!  messages, tools, variables ─► ChatTemplate ─► prompt ─► (generate) ─► ReasoningSplitter ─► reasoning, text
//!                                  source: the file's `tokenizer.chat_template`, or a default of the architecture
//! ```
//!
//! Templates are programs in Jinja, written for Python's library as Hugging Face's transformers set it up; what they
//! give must be the same to the byte. They come from untrusted files: a template sees only what it is given, and what
//! it may do is counted ([`Limits`]). The module takes plain strings and knows nothing of the file they came from.

mod containers;
mod defaults;
mod dialect;
mod error;
mod functions;
mod json;
mod number;
mod operators;
mod reasoning;
mod strftime;
mod template;
#[cfg(test)]
mod tests;

pub use defaults::{DefaultTemplate, default_for};
pub use error::ChatError;
pub use reasoning::{Part, PartKind, ReasoningSplitter, opens_reasoning, without_reasoning};
pub use template::{ChatTemplate, Conversation, Limits, SpecialTexts};

//! Prompt to text: the loop around the forward pass.
//!
//! [`Scheduler`] carries several generations forward together, one pass at a time. [`logits`] and [`perplexity`] run a
//! text that is given through the model.

mod error;
mod evaluate;
mod generation;
mod scheduler;
mod stop;
mod tracing;

pub use error::GenerateError;
pub use evaluate::{Perplexity, Recording, logits, perplexity};
pub use generation::{GenerateOptions, Outcome, Piece, StopReason};
pub use scheduler::{Progress, Scheduler, Sink};

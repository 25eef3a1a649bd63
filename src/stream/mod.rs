//! The streaming engine as a benchmark, without the model's arithmetic: real weights from the real drive, through the
//! model's own store, cache, prediction and ring, and choices of experts that are synthetic or recorded.
//!
//! [`stream`] runs it. A token goes [the way of a forward pass](crate::model::Walk); what it does with the weights is
//! [`Work`]: real dot products, a checksum, or waiting.

mod error;
mod options;
mod record;
mod report;
mod run;
mod tokens;
mod work;

pub use error::StreamError;
pub use options::{Choices, StreamOptions, Work};
pub use record::Record;
pub use report::{Burst, StreamReport, Window};
pub use run::{StreamProgress, stream};

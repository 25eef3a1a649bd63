//! Reading: from where, and how a whole range is read by calls that may stop short.

mod file;
mod fill;
mod reader;

pub use file::{FileReader, PageCache};
pub(super) use fill::{Cause, fill};
pub use reader::{ALIGNMENT, Reader};

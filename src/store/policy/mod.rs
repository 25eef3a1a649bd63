//! Decides which experts stay in memory. No I/O, no threads, no clock: time is the order of the calls.
//!
//! [`Cache`] hands out slot numbers for keys (`layer * n_experts + expert`) and owns what all policies share: staging,
//! pins, counts. Which key makes way for another is up to one `Order` per policy, chosen by [`PolicyKind`]. [`replay()`]
//! runs a [`Trace`] of choices through a cache, and [`belady`] gives what no policy can exceed.

mod cache;
mod frequency;
mod heap;
mod kind;
mod lfu;
mod list;
mod lru;
mod order;
mod replay;
mod tiny_lfu;

#[cfg(test)]
mod tests;

pub use cache::{Access, Cache, Statistics};
pub use kind::{PolicyKind, UnknownPolicy};
pub use replay::{HitRates, Trace, Visit, belady, replay};

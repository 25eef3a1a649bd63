//! Normalisation, rotary embedding, softmax, silu: short, f32, cited. Uses nothing.
//!
//! Everything here is a fixed sequence of IEEE operations: no call into the system's libm, no sum in an order that
//! depends on the machine. The bodies are `#[inline(always)]` so that a kernel path can compile them for its own
//! instruction set; fused multiply-add is explicit, so the bits are the same on each.

mod exp;
mod lanes;
mod norm;
mod rope;

pub use exp::{exp, silu, silu_mul, softmax, softmax_part};
pub use lanes::{LANES, WIDE_LANES, sum_eight, sum_lanes, sum_wide, sum_wide_lanes};
pub use norm::rms_norm;
pub use rope::{Rope, RopeScaling, rotate};

//! Recorded choices of experts, to judge cache policies by.

mod simulate;
pub mod trace;

pub use simulate::{SimulatedCache, SimulatedPolicy, Simulation, simulate};
pub use trace::read_trace;

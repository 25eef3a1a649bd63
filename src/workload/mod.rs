//! Choices of experts without a model: recorded ones, and synthetic ones. To judge cache policies and drives by.

mod simulate;
mod synthetic;
pub mod trace;

pub use simulate::{SimulatedCache, SimulatedPolicy, Simulation, simulate};
pub use synthetic::{Guesser, RoutingShape, SyntheticRouting};
pub use trace::read_trace;

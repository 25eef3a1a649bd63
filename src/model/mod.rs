//! Configuration, weights and the forward pass.

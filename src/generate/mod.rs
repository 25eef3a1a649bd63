//! Prompt to text: the loop around the forward pass.

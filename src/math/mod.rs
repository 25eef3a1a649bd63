//! Normalisation, rotary embedding, softmax, silu: short, f32, cited. Uses nothing.

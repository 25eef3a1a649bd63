//! What a GGUF file holds: metadata, tensors, shards, and which bytes are experts. Knows no arithmetic.

//! From logits to the next token.

//! Chooses experts from router logits. It never reads.

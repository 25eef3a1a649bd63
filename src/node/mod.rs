//! The Node-API binding. Uses everything; nothing uses it.

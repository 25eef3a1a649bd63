//! The pool of compute threads and its hand-offs. Uses nothing.

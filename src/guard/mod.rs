//! How much memory and how many processors this process may use.

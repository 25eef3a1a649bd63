//! Where a chosen expert's bytes come from.

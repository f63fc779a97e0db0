//! Whole files, read and judged.

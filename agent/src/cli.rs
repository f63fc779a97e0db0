//! The commands.

pub mod validate;

pub mod plan;

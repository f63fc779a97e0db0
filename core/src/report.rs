//! Outside shapes of a result. The JSON views derive serde here, so that domain types need not.
//!
//! [`json::Run`] is the one value behind every report: it is what a drill leaves, and what a written result reads back to.

pub mod json;

pub mod text;

pub mod chart;

pub mod rows;

pub mod risen;

pub mod cascade;

pub mod compare;

pub mod markup;

pub mod markdown;

pub mod junit;

pub mod html;

#[cfg(test)]
pub(crate) mod tests;

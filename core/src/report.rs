//! Outside shapes of a result. The JSON views derive serde here, so that domain types need not.

pub mod json;

pub mod text;

pub mod chart;

#[cfg(test)]
mod tests;

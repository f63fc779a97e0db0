//! The pure domain of stormdrill: what a drill is, what was observed, and what follows from it.
//!
//! Nothing here does I/O, reads a clock, or knows of async, aya, netlink or HTTP servers. Time is an
//! argument, in nanoseconds of the kernel's monotonic clock. The crate builds and tests on any OS.

pub mod units;

mod wording;

pub use wording::harmless;

mod yaml;

pub mod edge;

pub mod playbook;

pub mod plan;

pub mod fault;

pub mod expectation;

pub mod event;

pub mod status;

pub mod window;

pub mod machine;

pub mod retry;

pub mod track;

pub mod sampling;

pub mod stats;

pub mod judge;

pub mod result;

pub mod report;

pub mod audit;

pub mod predict;

#[cfg(test)]
mod simulated;

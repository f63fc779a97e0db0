//! The lab: small real HTTP/1.1 services with chosen retry policies, and an open-loop load generator.
//!
//! It is the demo's system and the tests' ground truth. Every part counts what it served and what it sent, so that what
//! stormdrill's kernel programs counted can be compared with it to the last request. Nothing here knows about eBPF.

pub mod caller;
pub mod chain;
pub mod cli;
pub mod clock;
pub mod counts;
pub mod headers;
pub mod load;
mod lock;
pub mod policy;
pub mod pool;
pub mod rig;
pub mod service;
pub mod stop;
pub mod store;

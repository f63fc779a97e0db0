//! What the probe counts on real servers behind netem: thirty percent lost both ways, packets that overtake each other, and packets that come twice.
//! `cargo xtask test --only vm_observe`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
#[path = "servers/loss.rs"]
mod loss;
mod servers;

//! What the end-to-end tests share: the real `stormdrill` and the real lab as processes of their own, and readers of what they print.
//!
//! Nothing here waits for a time. Processes are waited for by the lines that they print, and a limit is there only so that a broken test ends.

#![allow(dead_code, reason = "each test target uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

pub(crate) mod agent;
pub(crate) mod client;
pub(crate) mod daemon;
pub(crate) mod json;
pub(crate) mod links;
pub(crate) mod nginx;
pub(crate) mod nobody;
pub(crate) mod playbook;
pub(crate) mod process;
pub(crate) mod services;

//! The tracker on whole scenarios: events in, windows out.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests state what they expect")]

mod bounds;
mod databases;
mod faults;
mod grpc;
mod pairing;
mod properties;
mod retries;
mod scene;
mod streams;
mod windows;

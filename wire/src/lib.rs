//! What crosses the boundary between kernel and user space, and the recognisers that both sides run.
//!
//! No standard library, no allocation, no panic: the same code is compiled into the kernel programs, tested on the host
//! and fuzzed there.
#![cfg_attr(not(test), no_std)]
// See `ring::hide`.
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

pub mod abi;
pub mod conn;
pub mod detect;
pub mod fault;
pub mod flow;
pub mod http1;
pub mod http2;
pub mod mysql;
pub mod passive;
pub mod postgres;
pub mod read;
pub mod recogniser;
pub mod redis;
pub mod replay;
pub mod ring;
pub mod sampling;

//! What crosses the kernel boundary, and what kernel and host must decide alike.
#![no_std]

pub mod fault;

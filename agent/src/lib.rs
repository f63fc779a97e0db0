//! The stormdrill agent: what touches the kernel, the network and the terminal.

pub mod fault;

pub mod netns;

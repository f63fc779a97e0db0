//! The agent: everything of stormdrill that touches the host.

pub mod playbook_file;

pub mod diagnostic;

pub mod cli;

//! What people see: progress while a drill runs, and its result.

pub mod log;

pub mod progress;

pub mod chart;

pub mod table;

pub mod terminal;

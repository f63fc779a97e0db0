//! Faults in the kernel: how they are put in, how they end, and what they leave behind, which is nothing.
//!
//! The interface's own tree is never touched. A `clsact` filter selects packets and either acts on them itself (drop, rewrite) or sends
//! them through an ifb device of the drill's own, with netem on it. Every fault has a lease that the kernel checks: an agent that dies or
//! hangs ends it. Only this module opens a netlink socket for changes.

pub mod plane;

mod mechanism;

pub mod capability;

pub mod clean;

pub mod netem;

mod distribution;

pub mod distribution_file;

pub mod tbf;

pub mod connect;

pub mod selection;

pub mod members;

pub mod elsewhere;

pub mod host;

pub mod own_ports;

pub mod preview;

pub mod spared;

pub mod interface;

mod hook_plan;

mod tally;

pub mod lease;

pub mod install;

pub mod object;

pub mod journal;

pub(crate) mod ending;

pub(crate) mod namespace;

pub mod name;

pub mod filter;

pub mod qdisc;

pub mod link;

pub mod netlink;

pub mod tlv;

//! stormdrill: the agent on a service's host, as a library; the `stormdrill` command is a thin `main` over it.

pub mod exit;

pub mod clock;

pub mod playbook_file;

pub mod diagnostic;

pub mod cli;

pub mod probe;

mod cgroup_link;

pub mod cgroup;

pub mod netns;

pub mod fault;

pub mod host;

pub mod session;

pub mod driver;

pub mod signals;

pub mod priority;

pub mod memory;

pub mod load;

pub mod drill;

pub mod claim;

pub mod config;

pub mod metrics;

pub mod etcd;

pub mod daemon;

pub mod notify;

pub mod tls;

pub mod api;

pub mod client;

pub mod report;

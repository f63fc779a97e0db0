//! A playbook: the file that describes a drill, checked and ready to plan.
//!
//! It is read in two passes: `raw` (the file's shape, with the place of every value) and `check` (meaning and
//! cross-references). All problems are collected and reported together.

use std::time::Duration;

use crate::edge::EdgeSpec;
use crate::expectation::Expectation;
use crate::fault::FaultSpec;
use crate::retry::marker::MarkerHeader;

pub mod problem;

pub mod serve;

mod node;

mod raw;

mod set;

mod fields;

mod check;

use problem::{Problem, Problems};

/// Reads a playbook.
///
/// # Errors
/// All problems that were found, in the order of their places.
pub fn parse(source: &str) -> Result<Playbook, Vec<Problem>> {
    parse_with(source, &[])
}

/// Reads a playbook with overrides, each a dotted path and a value: `("phases.fault", "10s")`.
///
/// An override's value is one scalar, or a list or mapping if it starts with `[` or `{`. Paths go through lists by
/// position from 0; the position behind the last adds an item.
///
/// # Errors
/// As [`parse`]; the place of a problem in an override counts bytes of `path=value`.
pub fn parse_with(source: &str, overrides: &[(&str, &str)]) -> Result<Playbook, Vec<Problem>> {
    let texts: Vec<String> = overrides.iter().map(|(path, value)| format!("{path}={value}")).collect();
    let mut problems = Problems::new(source, &texts);
    let playbook = raw::read(source, &mut problems).and_then(|mut root| {
        set::apply(&mut root, overrides, &mut problems);
        check::check(&root, &mut problems)
    });
    match playbook {
        Some(playbook) if problems.is_empty() => Ok(playbook),
        _ => Err(problems.into_sorted()),
    }
}

/// A checked playbook.
#[derive(Debug, Clone, PartialEq)]
pub struct Playbook {
    /// `name`, `[a-z0-9-]`.
    pub name: String,
    /// `description`, free text.
    pub description: Option<String>,
    /// Ingress edges first, then downstream edges, each in file order. A position here is the [`crate::edge::EdgeId`].
    pub edges: Vec<EdgeSpec>,
    /// Where it is observed.
    pub scope: Scope,
    /// `observe.window`, default 10 s.
    pub window: Duration,
    /// `observe.marker`: a header of the service's own that carries an attempt number.
    pub marker: Option<MarkerHeader>,
    /// `load`, if stormdrill makes the traffic itself.
    pub load: Option<Load>,
    /// `phases`.
    pub phases: Phases,
    /// `faults`, in file order.
    pub faults: Vec<FaultSpec>,
    /// `guards`, in file order.
    pub guards: Vec<Guard>,
    /// `expect`, in file order.
    pub expect: Vec<Expectation>,
}

/// Which sockets are observed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Scope {
    /// Every socket of the host.
    #[default]
    Host,
    /// The sockets of one cgroup and its descendants; a path below the cgroup2 root.
    Cgroup(String),
    /// The sockets of the cgroup that a process is in.
    Pid(u32),
}

/// Planned lengths of the phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// Before the fault.
    pub baseline: Duration,
    /// With the fault.
    pub fault: Duration,
    /// After the fault.
    pub recovery: Duration,
}

/// Open-loop load on an HTTP URL.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// `http://HOST:PORT/PATH`.
    pub url: String,
    /// Requests a second.
    pub rate: f64,
    /// When a request is given up.
    pub timeout: Duration,
}

/// One line of `guards:`; when it holds for long enough, the drill is aborted.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// The line, as the author wrote it.
    pub text: String,
    /// Edge by name.
    pub edge: Option<String>,
    /// What is measured.
    pub metric: crate::expectation::Metric,
    /// Comparison that must *not* hold.
    pub op: crate::expectation::Op,
    /// Its limit.
    pub value: f64,
    /// For how many windows in a row, at least 1.
    pub windows: u32,
}

#[cfg(test)]
mod tests;

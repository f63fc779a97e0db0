//! What can go wrong with the probe.

use std::io;
use std::path::PathBuf;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use aya::programs::links::LinkError;
use thiserror::Error;

/// Why the probe could not be attached or read.
#[derive(Debug, Error)]
pub enum ProbeError {
    /// The process may not load programs.
    #[error("load the probe: not permitted; run as root or give CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    NotPermitted(#[source] Box<EbpfError>),
    /// The kernel or the loader refused the object.
    #[error("load the probe")]
    Load(#[source] Box<EbpfError>),
    /// The object lacks a part; it was built from other sources.
    #[error("load the probe: its object has no {name}")]
    Missing {
        /// The program or map.
        name: &'static str,
    },
    /// A program was refused.
    #[error("load the program {program}")]
    Program {
        /// Which.
        program: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// A program could not be attached.
    #[error("attach {program} to the cgroup {cgroup}")]
    Attach {
        /// Which.
        program: &'static str,
        /// Where.
        cgroup: PathBuf,
        /// What the kernel said.
        #[source]
        source: Box<ProgramError>,
    },
    /// The kernel attached a program without a link, so that it would outlive this process (before 5.7).
    #[error("attach {program} by a link")]
    NoLink {
        /// Which.
        program: &'static str,
        /// What was given instead.
        #[source]
        source: Box<LinkError>,
    },
    /// The cgroup's directory cannot be opened.
    #[error("open the cgroup {cgroup}")]
    Cgroup {
        /// Where.
        cgroup: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A map cannot be read or written.
    #[error("use the map {map}")]
    Map {
        /// Which.
        map: &'static str,
        /// What the kernel said.
        #[source]
        source: MapError,
    },
    /// More edges than the kernel tells apart.
    #[error("observe {given} edges: at most {most} can be told apart")]
    TooManyEdges {
        /// How many were asked for.
        given: usize,
        /// The limit.
        most: usize,
    },
    /// The list of open sockets cannot be had.
    #[error("list the connections that are open already")]
    Sockets(#[source] io::Error),
}

//! The static auditor: reads the configuration of gateways, meshes and clients, and says what one request can become.
//!
//! Each file is one layer of a request's path, in order from the edge to the dependency. What a file says is read into
//! [`Policy`] values (`nginx`, `haproxy`, `envoy`, … do that, and find what is wrong on the way), and the layers
//! together give the worst case ([`worst`]). Nothing is executed, resolved or looked up: what a file does not say is
//! either the system's documented default or unknown.

use std::collections::HashSet;
use std::time::Duration;

pub mod kind;

pub mod layer;

pub mod finding;

pub mod worst;

mod stated;

mod source;

mod tree;

mod yaml;

mod proto;

mod detect;

mod nginx;

mod grpc;

mod retry_on;

mod envoy;

mod haproxy;

mod kubernetes;

mod spring;

mod aws;

mod chain;

pub mod text;

pub mod json;

use envoy::GATEWAY as ENVOY_ANSWERS;
use finding::{Finding, Severity};
use layer::{Layer, Policy};
use source::Source;
use worst::Way;

pub use stated::{StatedError, stated};

/// A stretch of one of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Position among the inputs, from 0.
    pub input: usize,
    /// First byte.
    pub start: usize,
    /// End, exclusive; never before `start`, and on a character boundary.
    pub end: usize,
}

impl Place {
    /// Line and column of the first byte, both from one, the column in characters. `text` is the input's text.
    #[must_use]
    pub fn line_and_column(&self, text: &str) -> (usize, usize) {
        let before = text.get(..self.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

/// The kinds of file that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// nginx.conf, or the output of `nginx -T`.
    Nginx,
    /// haproxy.cfg.
    Haproxy,
    /// Envoy's bootstrap, a part of it, or a `config_dump`.
    Envoy,
    /// Manifests: Istio, Linkerd, ingress-nginx, Traefik's Middleware.
    Kubernetes,
    /// A gRPC service config in JSON.
    Grpc,
    /// Traefik's dynamic configuration in YAML.
    Traefik,
    /// Spring Boot's application.yaml, with Resilience4j or Spring Cloud Gateway.
    Spring,
    /// The AWS SDKs' `~/.aws/config`.
    Aws,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] =
        [Self::Nginx, Self::Haproxy, Self::Envoy, Self::Kubernetes, Self::Grpc, Self::Traefik, Self::Spring, Self::Aws];

    /// Its name in flags and output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::Envoy => "envoy",
            Self::Kubernetes => "kubernetes",
            Self::Grpc => "grpc",
            Self::Traefik => "traefik",
            Self::Spring => "spring",
            Self::Aws => "aws",
        }
    }
}

/// One input, in the order of the path.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A file to read.
    File(File),
    /// A layer that has no file; [`stated`] reads one.
    Stated(Layer),
}

/// A file and how to read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// What messages call it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// What it is; `None` to find out.
    pub format: Option<Format>,
    /// Only the routes whose name contains this.
    pub only: Option<String>,
}

/// Why a file could not be audited. Texts are lower-case fragments without a final period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Where.
    pub place: Place,
    /// The headline.
    pub message: String,
    /// What to say at the place itself.
    pub label: String,
    /// What to do.
    pub help: Option<String>,
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// The layers, from the edge to the dependency.
    pub layers: Vec<Layer>,
    /// What each kind of failure leads to, the worst first. Empty if some layer has no routes.
    pub ways: Vec<Way>,
    /// In the order of the inputs and of the places in them; what concerns the layers together comes last.
    pub findings: Vec<Finding>,
}

impl Audit {
    /// The worst severity that was found.
    #[must_use]
    pub fn worst_severity(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.rule.severity()).max()
    }
}

/// Audits the layers of one path. `max_calls` is the largest worst case that is accepted, at least 1.
///
/// # Errors
/// Every file that could not be read as what it is.
pub fn audit(inputs: Vec<Input>, max_calls: Option<u64>) -> Result<Audit, Vec<Refused>> {
    let (mut layers, mut findings, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (input, given) in inputs.into_iter().enumerate() {
        match given {
            Input::Stated(layer) => layers.push(layer),
            Input::File(file) => match read(input, &file) {
                Ok((layer, found)) => {
                    layers.push(layer);
                    findings.extend(found);
                }
                Err(error) => refused.push(error),
            },
        }
    }
    if !refused.is_empty() {
        return Err(refused);
    }
    let ways = worst::ways(&layers);
    findings.sort_by_key(|finding: &Finding| finding.place);
    findings.extend(chain::findings(&layers, &ways, max_calls));
    Ok(Audit { layers, ways, findings })
}

fn read(input: usize, file: &File) -> Result<(Layer, Vec<Finding>), Refused> {
    let mut source = Source::new(input, &file.text);
    let format = match file.format {
        Some(format) => format,
        None => detect::format(&file.text).ok_or_else(|| {
            source
                .refuse(0..0, "this is no configuration that is known here")
                .help(format!("name its kind with `--format`, one of {}", crate::wording::listed(&Format::ALL.map(Format::as_str))))
        })?,
    };
    let mut policies: Vec<Policy> = match format {
        Format::Nginx => nginx::read(&mut source)?,
        Format::Haproxy => haproxy::read(&mut source)?,
        Format::Envoy => envoy::read(&mut source)?,
        Format::Kubernetes => kubernetes::read(&mut source)?,
        Format::Grpc => grpc::read(&mut source)?,
        Format::Traefik => kubernetes::traefik::read(&mut source)?,
        Format::Spring => spring::read(&mut source)?,
        Format::Aws => aws::read(&mut source)?,
    };
    if let Some(only) = &file.only {
        let names: Vec<String> = policies.iter().map(|policy| policy.name.clone()).collect();
        policies.retain(|policy| policy.name.contains(only.as_str()));
        if policies.is_empty() {
            let names: Vec<&str> = names.iter().take(20).map(String::as_str).collect();
            return Err(source
                .refuse(0..0, format!("no route's name contains `{only}`"))
                .help(format!("its routes are {}", crate::wording::listed(&names))));
        }
    } else if policies.is_empty() {
        return Err(source
            .refuse(0..0, format!("nothing in this {} configuration passes requests on", format.as_str()))
            .help("give the file that has the routes; for nginx, the output of `nginx -T` has every included file"));
    }
    let mut findings = source.into_findings();
    if file.only.is_some() {
        // What is wrong elsewhere in the file is not on this path.
        let kept: HashSet<Place> = policies.iter().filter_map(|policy| policy.place).collect();
        findings.retain(|finding| finding.policy.is_none_or(|place| kept.contains(&place)));
    }
    let findings = findings.into_iter().map(|found| found.finding).collect();
    Ok((Layer { name: file.name.clone(), format: Some(format), policies }, findings))
}

/// A duration as people write it, shortened to milliseconds.
fn shown(duration: Duration) -> String {
    crate::units::duration::print(duration)
}

#[cfg(test)]
mod tests;

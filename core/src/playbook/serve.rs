//! The configuration of `stormdrill serve`: a file of its own that is read just as a playbook is, with a place for every problem.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::problem::{Problem, Problems};
use super::{Scope, check, raw};
use crate::edge::EdgeSpec;
use crate::retry::marker::MarkerHeader;

/// Reads a configuration. An empty text is one, of defaults only.
///
/// # Errors
/// All problems that were found, in the order of their places.
pub fn parse(source: &str) -> Result<Config, Vec<Problem>> {
    let mut problems = Problems::new(source, &[]);
    let config = raw::read(source, &mut problems).and_then(|root| check::serve::check(&root, &mut problems));
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(problems.into_sorted()),
    }
}

/// What the daemon does, and for whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `listen`: addresses of the API; loopback unless there is a token. Default `127.0.0.1:9464`. May be empty.
    pub listen: Vec<SocketAddr>,
    /// `socket`: the Unix socket of the local command line; `None` is the default beside the journal.
    pub socket: Option<PathBuf>,
    /// `token_file`: the file whose first line is the bearer token that TCP clients have to know.
    pub token_file: Option<PathBuf>,
    /// `tls`: the certificate that TCP clients see; without it they speak plain HTTP.
    pub tls: Option<Tls>,
    /// `state_dir`: where results are kept. Default `/var/lib/stormdrill`.
    pub state_dir: PathBuf,
    /// `playbooks`: the folder from which drills can be started by name.
    pub playbooks: Option<PathBuf>,
    /// `observe`: edges that are counted all the time; `None` observes only what drills do.
    pub observe: Option<Observe>,
    /// `retention`: how many results are kept, 1 to 10,000. Default 100.
    pub retention: usize,
    /// `limits`.
    pub limits: Limits,
    /// `etcd`: what the daemons of several hosts share; `None` is a host of its own.
    pub etcd: Option<Etcd>,
}

/// A certificate, in files of PEM that are read at the start and at each reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, its chain behind it.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// An etcd in which hosts see each other's drills, and find playbooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Etcd {
    /// URLs, at least one; they are tried in turn.
    pub endpoints: Vec<String>,
    /// What all keys begin with, without a slash at the end. Default `/stormdrill`.
    pub prefix: String,
    /// The authorities to trust, for https; the system's if not given.
    pub ca: Option<PathBuf>,
    /// `cert` and `key`: the certificate that it is shown, for https.
    pub identity: Option<Tls>,
    /// `user` and `password_file`.
    pub user: Option<EtcdUser>,
}

/// As whom etcd is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdUser {
    /// The user's name.
    pub name: String,
    /// The file whose first line is the password; read each time that it is needed.
    pub password_file: PathBuf,
}

impl Etcd {
    /// What keys begin with if nothing is said.
    pub const PREFIX: &str = "/stormdrill";
}

/// What is always observed.
#[derive(Debug, Clone, PartialEq)]
pub struct Observe {
    /// The edges, as in a playbook.
    pub edges: Vec<EdgeSpec>,
    /// Where.
    pub scope: Scope,
    /// How long a window is.
    pub window: Duration,
    /// A header of the service's own that carries an attempt number.
    pub marker: Option<MarkerHeader>,
}

/// How much the daemon takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Drills at a time, 1 to 16.
    pub drills: usize,
    /// Connections at a time on all TCP addresses, 8 to 10,000; further ones are refused.
    pub connections: usize,
    /// Largest body in bytes, 1 KiB to 1 MiB.
    pub body_bytes: usize,
    /// Requests a second that one address may keep up, 1 to 100,000; twice as many at once.
    pub requests: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { drills: 4, connections: 256, body_bytes: 256 * 1024, requests: 100 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 9464))],
            socket: None,
            token_file: None,
            tls: None,
            state_dir: PathBuf::from("/var/lib/stormdrill"),
            playbooks: None,
            observe: None,
            retention: 100,
            limits: Limits::default(),
            etcd: None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        parse(text).unwrap_err().into_iter().map(|p| format!("{}: {}", p.place.line_and_column(text).0, p.message)).collect()
    }

    #[test]
    fn nothing_is_a_configuration_of_defaults() {
        assert_eq!(parse("").unwrap(), Config::default());
        assert_eq!(parse("# only a comment\n").unwrap(), Config::default());
    }

    #[test]
    fn every_key_is_read() {
        let config = parse(
            "listen: [127.0.0.1:1, \"[::1]:2\"]\nsocket: /s\ntoken_file: /t\nstate_dir: /d\nplaybooks: /p\nretention: 7\n\
             limits: {drills: 2, connections: 9, body_bytes: 2048, requests: 5}\n\
             tls: {cert: /c, key: /k}\netcd: {endpoints: http://a:1, prefix: /x/, ca: /a, cert: /c, key: /k, user: u, password_file: /w}\n\
             observe: {ingress: {web: {port: 80}}, window: 2s}\n",
        )
        .unwrap();
        assert_eq!(config.listen, ["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()]);
        assert_eq!((config.retention, config.limits.drills, config.limits.body_bytes), (7, 2, 2048));
        assert_eq!((config.limits.requests, config.tls.clone()), (5, Some(Tls { cert: "/c".into(), key: "/k".into() })));
        let user = Some(EtcdUser { name: "u".to_owned(), password_file: "/w".into() });
        let etcd = Etcd {
            endpoints: vec!["http://a:1".to_owned()],
            prefix: "/x".to_owned(),
            ca: Some("/a".into()),
            identity: config.tls.clone(),
            user,
        };
        assert_eq!(config.etcd, Some(etcd));
        let observe = config.observe.unwrap();
        assert_eq!((observe.edges[0].name.as_str(), observe.window), ("web", Duration::from_secs(2)));
    }

    #[test]
    fn a_single_address_needs_no_list() {
        assert_eq!(parse("listen: 127.0.0.1:0").unwrap().listen, ["127.0.0.1:0".parse().unwrap()]);
        assert_eq!(parse("listen: []").unwrap().listen, []);
    }

    #[test]
    fn problems_are_reported_together_each_with_its_line() {
        assert_eq!(
            messages("lisen: 127.0.0.1:1\netcd: {endpoints: [a]}\ntls: {cert: /c}\nretention: 0\nlisten: here\nlimits: {drills: many}\n"),
            [
                "1: the configuration has no key `lisen`",
                "2: `endpoints`: `a` is no URL",
                "3: `tls` lacks `key`",
                "4: `retention` is 0, and can be 1 to 10000",
                "5: `listen`: `here` is no address with a port",
                "6: `drills`: `many` is no whole number",
            ]
        );
    }

    #[test]
    fn what_belongs_together_is_asked_for_together() {
        assert_eq!(
            messages("etcd:\n  endpoints: http://a\n  cert: /c\n  password_file: /p\n"),
            ["1: `etcd` lacks `key`", "1: `etcd` lacks `user`"]
        );
    }

    #[test]
    fn an_address_that_others_can_reach_needs_a_token() {
        assert_eq!(messages("listen: 0.0.0.0:9464"), ["1: `0.0.0.0:9464` is no loopback address, and there is no `token_file`"]);
        assert!(parse("listen: 0.0.0.0:9464\ntoken_file: /t").is_ok());
    }
}

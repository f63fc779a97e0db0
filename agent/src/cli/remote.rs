//! Which daemon a command speaks to; and the two shortest such commands, `stormdrill status` and `stormdrill abort`.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use hyper::{Method, StatusCode};
use serde_json::Value;
use thiserror::Error;

use super::{output, serve};
use crate::client::{Answer, Client, ClientError};
use crate::exit::Exit;
use crate::report::log;
use crate::tls::Files;

/// Where the daemon is.
#[derive(Debug, Args)]
pub(super) struct Server {
    /// The daemon's Unix socket; `api.sock` in the state directory if not given.
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    socket: Option<PathBuf>,
    /// The daemon's address, instead of its socket: http://HOST:PORT or https://HOST:PORT.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    trust: Trust,
}

/// What it takes to be let in, and to trust who answers.
#[derive(Debug, Args)]
pub(super) struct Trust {
    /// Its first line is the bearer token, for an address.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificate authorities to trust, PEM; the system's if not given.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Trust {
    /// A client of the daemon at a URL or, without one, at the socket in the state directory.
    pub(super) fn client(&self, url: Option<&str>, socket: Option<&Path>, state_dir: &Path) -> Result<Client, ClientError> {
        match (url, socket) {
            (Some(url), _) => Client::url(url, self.token_file.as_deref(), &Files { authorities: self.ca.as_deref(), identity: None }),
            (None, Some(socket)) => Ok(Client::socket(socket)),
            (None, None) => Ok(Client::socket(&serve::default_socket(state_dir))),
        }
    }
}

impl Server {
    pub(super) fn client(&self, state_dir: &Path) -> Result<Client, ClientError> {
        self.trust.client(self.url.as_deref(), self.socket.as_deref(), state_dir)
    }
}

/// Why the daemon gave no answer.
#[derive(Debug, Error)]
enum RemoteError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// Prints the drills, newest first.
pub(super) fn status(server: &Server, state_dir: &Path, as_json: bool) -> Exit {
    match ask(server, state_dir, Method::GET, "/v1/drills?limit=20") {
        Ok((Answer { status: StatusCode::OK, .. }, drills)) => {
            output::stdout(&if as_json { format!("{drills:#}\n") } else { table(&drills) });
            Exit::Pass
        }
        Ok((answer, _)) => refused(&answer),
        Err(error) => failed(&error),
    }
}

/// Ends a drill; returns when its faults are gone.
pub(super) fn abort(server: &Server, state_dir: &Path, id: &str) -> Exit {
    if !id.chars().all(|c| c.is_ascii_alphanumeric()) {
        log::complain("a drill's id has letters and digits only; `stormdrill status` lists them");
        return Exit::Usage;
    }
    match ask(server, state_dir, Method::DELETE, &format!("/v1/drills/{id}")) {
        Ok((Answer { status: StatusCode::OK, .. }, drill)) => {
            output::stdout(&line(&drill));
            if drill["state"] == "failed" { Exit::Environment } else { Exit::Pass }
        }
        Ok((answer, _)) => {
            let exit = refused(&answer);
            if answer.status == StatusCode::NOT_FOUND { Exit::Usage } else { exit }
        }
        Err(error) => failed(&error),
    }
}

fn table(answer: &Value) -> String {
    let drills = answer["drills"].as_array().map_or(&[][..], Vec::as_slice);
    if drills.is_empty() {
        return "no drill has run yet\n".to_owned();
    }
    drills.iter().map(line).collect()
}

fn line(drill: &Value) -> String {
    let text = |key: &str| drill[key].as_str().unwrap_or("-").to_owned();
    let phase = drill["phase"].as_str().map(|phase| format!(" ({phase})")).unwrap_or_default();
    let outcome = drill["verdict"].as_str().or(drill["reason"].as_str()).map(|outcome| format!("  {outcome}")).unwrap_or_default();
    format!("{}  {}  {}  {}{phase}{outcome}\n", text("id"), text("started_at"), text("playbook"), text("state"))
}

fn refused(answer: &Answer) -> Exit {
    log::complain(&answer.refusal());
    Exit::Environment
}

fn failed(error: &RemoteError) -> Exit {
    log::complain(&log::chain(error));
    Exit::Environment
}

fn ask(server: &Server, state_dir: &Path, method: Method, path: &str) -> Result<(Answer, Value), RemoteError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RemoteError::Runtime)?;
    let answer = runtime.block_on(server.client(state_dir)?.ask(method, path, None))?;
    let value = answer.json()?;
    Ok((answer, value))
}

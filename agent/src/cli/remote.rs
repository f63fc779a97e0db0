//! `stormdrill status` and `stormdrill abort`: through the daemon's Unix socket.

use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use thiserror::Error;
use tokio::net::UnixStream;

use super::output;
use crate::exit::Exit;
use crate::report::log;

/// Why the daemon gave no answer.
#[derive(Debug, Error)]
enum RemoteError {
    #[error("connect to {}: is `stormdrill serve` running?", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error("make the request")]
    Request(#[source] hyper::http::Error),
    #[error("ask the daemon")]
    Ask(#[source] hyper::Error),
    #[error("read the daemon's answer")]
    Answer(#[source] serde_json::Error),
}

/// Prints the drills, newest first.
pub(super) fn status(socket: &Path, as_json: bool) -> Exit {
    match ask(socket, Method::GET, "/v1/drills?limit=20") {
        Ok((StatusCode::OK, answer)) => {
            output::stdout(&if as_json { format!("{answer:#}\n") } else { table(&answer) });
            Exit::Pass
        }
        Ok((_, problem)) => refused(&problem),
        Err(error) => failed(&error),
    }
}

/// Ends a drill; returns when its faults are gone.
pub(super) fn abort(socket: &Path, id: &str) -> Exit {
    if !id.chars().all(|c| c.is_ascii_alphanumeric()) {
        log::complain("a drill's id has letters and digits only; `stormdrill status` lists them");
        return Exit::Usage;
    }
    match ask(socket, Method::DELETE, &format!("/v1/drills/{id}")) {
        Ok((StatusCode::OK, drill)) => {
            output::stdout(&line(&drill));
            if drill["state"] == "failed" { Exit::Environment } else { Exit::Pass }
        }
        Ok((StatusCode::NOT_FOUND, problem)) => {
            refused(&problem);
            Exit::Usage
        }
        Ok((_, problem)) => refused(&problem),
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

fn refused(problem: &Value) -> Exit {
    let detail = problem["detail"].as_str().or(problem["title"].as_str()).unwrap_or("the daemon refused");
    log::complain(detail);
    Exit::Environment
}

fn failed(error: &RemoteError) -> Exit {
    log::complain(&log::chain(error));
    Exit::Environment
}

fn ask(socket: &Path, method: Method, path: &str) -> Result<(StatusCode, Value), RemoteError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RemoteError::Runtime)?;
    runtime.block_on(async {
        let connected = UnixStream::connect(socket).await;
        let stream = connected.map_err(|source| RemoteError::Connect { socket: socket.to_owned(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(RemoteError::Ask)?;
        let connection = tokio::spawn(connection);
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.body(Empty::<Bytes>::new()).map_err(RemoteError::Request)?;
        let answer = sender.send_request(request).await.map_err(RemoteError::Ask)?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(RemoteError::Ask)?.to_bytes();
        connection.abort();
        let value = serde_json::from_slice(&body).map_err(RemoteError::Answer)?;
        Ok((status, value))
    })
}

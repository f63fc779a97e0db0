//! `stormdrill run --remote`: a daemon carries the drill out; here it is watched, ended by a signal, and its result delivered as if it had
//! run here.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report;
use thiserror::Error;
use tokio::sync::mpsc;

use super::{RunError, deliver};
use crate::client::{Answer, Client, ClientError, Event};
use crate::exit::Exit;
use crate::report::{log, progress};
use crate::signals;

/// Between two tries to go on with a stream that broke.
const BREATH: Duration = Duration::from_secs(1);
/// After so many tries in vain the daemon is given up; the drill may go on there.
const TRIES: u32 = 30;

/// Why a drill on a daemon has no result here.
#[derive(Debug, Error)]
enum RemoteError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("read the playbook again")]
    Playbook(#[source] io::Error),
    #[error("the daemon refused: {0}")]
    Refused(String),
    #[error("drill {id} is no longer followed, and may go on: `stormdrill abort {id}` ends it")]
    Lost { id: String, source: ClientError },
    #[error("read the drill's result")]
    Result(#[source] report::json::ReadError),
    #[error(transparent)]
    Deliver(#[from] RunError),
}

pub(super) fn run(playbook: &Playbook, args: &super::super::Run, url: Option<&str>, state_dir: &Path) -> Exit {
    let client = match args.trust.client(url, args.socket.as_deref(), state_dir) {
        Ok(client) => client,
        Err(error) => {
            log::complain(&log::chain(&error));
            return Exit::Usage;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RemoteError::Runtime);
    match runtime.and_then(|runtime| runtime.block_on(drill(playbook, args, &client))) {
        Ok(exit) => exit,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

async fn drill(playbook: &Playbook, args: &super::super::Run, client: &Client) -> Result<Exit, RemoteError> {
    let mut signals = signals::reasons().map_err(RemoteError::Runtime)?;
    let id = start(args, client).await?;
    {
        let mut progress = progress::Stderr::new(&playbook.edges);
        progress.show_note(&format!("drill {id} on {}", client.describe()));
        watch(client, &id, &mut signals, &mut progress).await?;
    }
    let answer = client.ask(Method::GET, &format!("/v1/drills/{id}"), None).await?;
    if answer.status != StatusCode::OK {
        return Err(RemoteError::Refused(answer.refusal()));
    }
    let drill = answer.json()?;
    let result = &drill["result"];
    if !result.is_null() {
        let run = report::json::read_run(&result.to_string()).map_err(RemoteError::Result)?;
        deliver(&run, args)?;
    }
    Ok(exit(&drill))
}

/// The exit code that `stormdrill run` would have had.
fn exit(drill: &Value) -> Exit {
    match (drill["state"].as_str(), drill["verdict"].as_str()) {
        (Some("finished"), Some("pass")) => Exit::Pass,
        (Some("finished"), Some("fail")) => Exit::Fail,
        (Some("finished"), _) => Exit::CannotTell,
        (Some("aborted"), _) => Exit::Aborted,
        _ => {
            log::complain(drill["reason"].as_str().unwrap_or("the drill failed, and the daemon does not say why"));
            Exit::Environment
        }
    }
}

async fn start(args: &super::super::Run, client: &Client) -> Result<String, RemoteError> {
    // The text goes to the daemon as it is; what it would refuse was found before.
    let text = fs::read_to_string(&args.playbook).map_err(RemoteError::Playbook)?;
    let set: serde_json::Map<String, Value> = args.set.iter().map(|set| (set.path.clone(), json!(set.value))).collect();
    let body = json!({ "playbook": text, "set": set }).to_string();
    let answer = client.ask(Method::POST, "/v1/drills", Some(("application/json", body))).await?;
    if answer.status != StatusCode::CREATED {
        return Err(RemoteError::Refused(answer.refusal()));
    }
    let drill = answer.json()?;
    drill["id"].as_str().map(str::to_owned).ok_or_else(|| RemoteError::Refused("the answer names no drill".to_owned()))
}

/// Follows the drill to its end, across broken connections. A signal ends the drill; then, too, the end is waited for.
async fn watch(
    client: &Client,
    id: &str,
    signals: &mut mpsc::Receiver<String>,
    progress: &mut progress::Stderr,
) -> Result<(), RemoteError> {
    let mut seen = 0;
    let mut tries = 0;
    let abort = async |reason: &str| {
        log::complain(&format!("{reason}: the drill is being ended, and its faults removed"));
        // It answers when they are gone. If it does not, the events say what becomes of the drill.
        client.ask(Method::DELETE, &format!("/v1/drills/{id}"), None).await.map(drop)
    };
    loop {
        let lost = 'stream: {
            let mut events = match client.events(id, seen).await {
                Ok(Ok(events)) => events,
                Ok(Err(answer)) if answer.status == StatusCode::SERVICE_UNAVAILABLE => break 'stream None,
                Ok(Err(answer)) => return Err(RemoteError::Refused(answer.refusal())),
                Err(error) => break 'stream Some(error),
            };
            loop {
                let event = tokio::select! {
                    event = events.next() => event,
                    Some(reason) = signals.recv() => {
                        if let Err(error) = abort(&reason).await {
                            break 'stream Some(error);
                        }
                        continue;
                    }
                };
                match event {
                    Ok(Some(event)) => {
                        (seen, tries) = (event.id, 0);
                        show(&event, progress);
                        if event.kind == "end" {
                            return Ok(());
                        }
                    }
                    // The stream of a drill that has ended says nothing any more.
                    Ok(None) if is_over(client, id).await => return Ok(()),
                    Ok(None) => break 'stream None,
                    Err(error) => break 'stream Some(error),
                }
            }
        };
        tries += 1;
        if let Some(source) = lost.filter(|_| tries > TRIES) {
            return Err(RemoteError::Lost { id: id.to_owned(), source });
        }
        tokio::select! {
            () = tokio::time::sleep(BREATH) => {}
            Some(reason) = signals.recv() => drop(abort(&reason).await),
        }
    }
}

async fn is_over(client: &Client, id: &str) -> bool {
    let answer = client.ask(Method::GET, &format!("/v1/drills/{id}"), None).await;
    answer.is_ok_and(|Answer { status, body }| {
        let drill: Value = serde_json::from_slice(&body).unwrap_or_default();
        status == StatusCode::OK && drill["state"] != "running"
    })
}

fn show(event: &Event, progress: &mut progress::Stderr) {
    let text = |key: &str| event.data[key].as_str().unwrap_or_default();
    match event.kind.as_str() {
        "phase" => progress.show_phase(text("phase"), event.data["seconds"].as_f64()),
        "window" => {
            let edges = event.data["edges"].as_array().map_or(&[][..], Vec::as_slice);
            progress.show_window(
                text("phase"),
                edges.iter().map(|edge| (edge["qps"].as_f64().unwrap_or_default(), edge["retry_ratio"].as_f64())),
            );
        }
        "note" => progress.show_note(text("text")),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_one_of_a_drill_that_ran_here() {
        for (state, verdict, expected) in [
            ("finished", Some("pass"), Exit::Pass),
            ("finished", Some("fail"), Exit::Fail),
            ("finished", Some("vacuous"), Exit::CannotTell),
            ("finished", Some("invalid"), Exit::CannotTell),
            ("aborted", None, Exit::Aborted),
            ("failed", None, Exit::Environment),
        ] {
            assert_eq!(exit(&json!({ "state": state, "verdict": verdict, "reason": null })), expected, "{state} {verdict:?}");
        }
    }
}

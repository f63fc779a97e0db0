//! `stormdrill top`: the daemon's edges and drills in a terminal, once a second, and keys to act on them.
//!
//! The terminal is given back whatever ends the command: a key, a signal, an error, a panic.

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Duration;

use hyper::{Method, StatusCode};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::mpsc;

use super::remote::Server;
use crate::client::{Client, ClientError};
use crate::exit::Exit;
use crate::report::log;
use crate::signals;

mod model;

mod view;

use model::{Action, Model};

/// How often the daemon is asked.
const EVERY: Duration = Duration::from_secs(1);

/// Why nothing is shown.
#[derive(Debug, Error)]
enum TopError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("use the terminal")]
    Terminal(#[source] io::Error),
}

pub(super) fn run(server: &Server, state_dir: &Path) -> Exit {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        log::complain("`top` needs a terminal; `stormdrill status` prints what runs");
        return Exit::Usage;
    }
    match top(server, state_dir) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

fn top(server: &Server, state_dir: &Path) -> Result<(), TopError> {
    let client = server.client(state_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(TopError::Runtime)?;
    runtime.block_on(async {
        // Asked once before the screen is taken: who has no daemon reads why in peace.
        let mut model = Model::new(client.describe());
        let (edges, drills) = state(&client).await?;
        model.see(&edges, &drills);
        let mut signals = signals::reasons().map_err(TopError::Runtime)?;
        let mut terminal = ratatui::try_init().map_err(TopError::Terminal)?;
        let ended = look(&client, &mut model, &mut signals, &mut terminal).await;
        ratatui::restore();
        ended
    })
}

/// What comes from tasks of the loop's own.
enum News {
    State(Box<Result<(Value, Value), ClientError>>),
    Playbooks(Vec<String>),
    Done(String),
}

async fn look(
    client: &Client,
    model: &mut Model,
    signals: &mut mpsc::Receiver<String>,
    terminal: &mut DefaultTerminal,
) -> Result<(), TopError> {
    let mut keys = keys();
    let (tell, mut news) = mpsc::channel(8);
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| view::draw(model, frame)).map_err(TopError::Terminal)?;
        tokio::select! {
            Some(_) = signals.recv() => return Ok(()),
            event = keys.recv() => match event {
                Some(Event::Key(key)) => match model.key(key) {
                    Some(Action::Quit) => return Ok(()),
                    Some(action) => act(client, action, tell.clone()),
                    None => {}
                },
                // A new size is drawn with the next turn.
                Some(_) => {}
                None => return Ok(()),
            },
            _ = tick.tick() => {
                let (client, tell) = (client.clone(), tell.clone());
                tokio::spawn(async move { tell.send(News::State(Box::new(state(&client).await))).await });
            }
            Some(news) = news.recv() => match news {
                News::State(state) => match *state {
                    Ok((edges, drills)) => model.see(&edges, &drills),
                    Err(error) => model.lose(log::chain(&error)),
                },
                News::Playbooks(names) => model.offer(names),
                News::Done(message) => model.tell(message),
            },
        }
    }
}

/// Keys, read by a thread of their own, which ends with the process.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn state(client: &Client) -> Result<(Value, Value), ClientError> {
    let edges = client.ask(Method::GET, "/v1/edges", None).await?;
    let drills = client.ask(Method::GET, "/v1/drills?limit=30", None).await?;
    for answer in [&edges, &drills] {
        if answer.status != StatusCode::OK {
            return Err(ClientError::Refused(answer.refusal()));
        }
    }
    Ok((edges.json()?, drills.json()?))
}

/// Does it beside the loop, so that the screen goes on: an abort takes until the faults are gone.
fn act(client: &Client, action: Action, tell: mpsc::Sender<News>) {
    let client = client.clone();
    tokio::spawn(async move {
        let news = match action {
            Action::Quit => return,
            Action::Abort(id) => {
                let said = client.ask(Method::DELETE, &format!("/v1/drills/{id}"), None).await;
                News::Done(outcome(said, &format!("drill {id} has ended, its faults are gone")))
            }
            Action::Start(name) => {
                let body = json!({ "name": name }).to_string();
                let said = client.ask(Method::POST, "/v1/drills", Some(("application/json", body))).await;
                News::Done(outcome(said, &format!("drill `{name}` has begun")))
            }
            Action::List => match client.ask(Method::GET, "/v1/playbooks", None).await.and_then(|answer| answer.json()) {
                Ok(answer) => {
                    let all = answer["playbooks"].as_array().map_or(&[][..], Vec::as_slice);
                    let good = all.iter().filter(|playbook| playbook["valid"] == true);
                    News::Playbooks(good.filter_map(|playbook| playbook["name"].as_str().map(str::to_owned)).collect())
                }
                Err(error) => News::Done(log::chain(&error)),
            },
        };
        // Nobody listens any more once the command ends.
        let _ = tell.send(news).await;
    });
}

fn outcome(said: Result<crate::client::Answer, ClientError>, good: &str) -> String {
    match said {
        Ok(answer) if answer.status.is_success() => good.to_owned(),
        Ok(answer) => answer.refusal(),
        Err(error) => log::chain(&error),
    }
}

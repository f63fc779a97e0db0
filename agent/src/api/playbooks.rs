//! `/v1/playbooks`: the playbooks that drills can be started from by name, and the check of any other.

use std::fs;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use stormdrill_core::edge::is_name;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::playbook::problem::Source;

use super::App;
use super::body::{self, is_yaml, media_type};
use super::operation::{Answer, JSON, Operation, YAML};
use super::problem::{Kind, Problem, internal};
use crate::daemon::cluster;
use crate::playbook_file::{self, Override, ReadError, Rejected};

/// Most files of the folder that are looked at.
const MAX_FILES: usize = 500;
/// Most problems of a playbook that are told: a small text can have tens of thousands.
pub(super) const MAX_PROBLEMS: usize = 100;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation {
            method: "get",
            path: "/v1/playbooks",
            id: "listPlaybooks",
            summary: "The playbooks in the configured folder, and those in etcd",
            parameters: &[],
            body: &[],
            answers: &[Answer { status: 200, description: "By name.", media: JSON, schema: "Playbooks" }],
            problems: &[Kind::Internal, Kind::Unavailable],
            route: get(list),
        },
        Operation {
            method: "post",
            path: "/v1/playbooks/validate",
            id: "validatePlaybook",
            summary: "Check a playbook without running it",
            parameters: &[],
            body: &[(YAML, "Anything")],
            answers: &[Answer { status: 200, description: "Good or not, and what is wrong.", media: JSON, schema: "Validation" }],
            problems: &[Kind::BadRequest, Kind::SlowBody, Kind::BodyTooLarge, Kind::UnsupportedMedia],
            route: post(validate),
        },
    ]
}

async fn list(State(app): State<App>) -> Result<Response, Problem> {
    let mut playbooks = match app.daemon().config().playbooks.clone() {
        None => Vec::new(),
        Some(folder) => app.check(move || names(&folder)).await?.map_err(|error| {
            Problem::new(Kind::Unavailable, format!("the folder that the configuration names in `playbooks` cannot be read: {error}"))
        })?,
    };
    if let Some(etcd) = app.daemon().etcd()? {
        for (name, text) in cluster::playbooks(&etcd).await?.into_iter().take(MAX_FILES) {
            // What is in the folder is what this host's people mean by the name.
            if is_name(&name) && !playbooks.iter().any(|playbook| playbook["name"] == name.as_str()) {
                playbooks.push(describe(&name, &parse(&app, text, Vec::new()).await?));
            }
        }
    }
    playbooks.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    Ok(body::json(StatusCode::OK, &json!({ "playbooks": playbooks })))
}

fn describe(name: &str, read: &Result<Playbook, ReadError>) -> Value {
    let description = read.as_ref().ok().and_then(|playbook| playbook.description.clone());
    json!({ "name": name, "valid": read.is_ok(), "description": description })
}

fn names(folder: &Path) -> std::io::Result<Vec<Value>> {
    let names: Vec<String> = fs::read_dir(folder)?
        .take(MAX_FILES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".yaml").map(str::to_owned))
        .filter(|name| is_name(name) && path(folder, name).is_file())
        .collect();
    Ok(names.iter().map(|name| describe(name, &playbook_file::read(&path(folder, name), &[]))).collect())
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.yaml"))
}

async fn validate(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    if !is_yaml(&media_type(&headers)) {
        return Err(Problem::new(Kind::UnsupportedMedia, "send a playbook as application/yaml"));
    }
    let text = body::text(&headers, body, app.daemon().config().limits.body_bytes).await?;
    let answer = match parse(&app, text, Vec::new()).await? {
        Ok(playbook) => json!({
            "valid": true,
            "playbook": playbook.name,
            "problems": [],
        }),
        Err(ReadError::Rejected { rejected }) => json!({ "valid": false, "playbook": null, "problems": problems(&rejected) }),
        Err(error) => return Err(internal(&error)),
    };
    Ok(body::json(StatusCode::OK, &answer))
}

async fn parse(app: &App, text: String, overrides: Vec<Override>) -> Result<Result<Playbook, ReadError>, Problem> {
    app.check(move || playbook_file::parse(Path::new("request"), text, &overrides)).await
}

/// The playbook that came with the request.
pub(super) async fn given(app: &App, text: String, overrides: Vec<Override>) -> Result<Playbook, Problem> {
    parse(app, text, overrides).await?.map_err(refused)
}

/// The playbook of that name, with overrides: the folder's, else etcd's.
pub(super) async fn named(app: &App, name: &str, overrides: Vec<Override>) -> Result<Playbook, Problem> {
    // Only a name can be a path's last part here; `..` and `/` are none.
    if is_name(name) {
        let path = app.daemon().config().playbooks.as_deref().map(|folder| path(folder, name));
        if let Some(path) = path.filter(|path| path.is_file()) {
            return app.check(move || playbook_file::read(&path, &overrides)).await?.map_err(refused);
        }
        if let Some(etcd) = app.daemon().etcd()?
            && let Some(text) = cluster::playbook(&etcd, name).await?
        {
            return given(app, text, overrides).await;
        }
    }
    Err(Problem::new(Kind::NotFound, "there is no playbook of that name"))
}

fn refused(error: ReadError) -> Problem {
    match error {
        ReadError::Rejected { rejected } => {
            let count = rejected.problems.len();
            let detail = format!("{count} {}", if count == 1 { "problem" } else { "problems" });
            Problem::new(Kind::BadPlaybook, detail).with("problems", problems(&rejected))
        }
        error => internal(&error),
    }
}

fn problems(rejected: &Rejected) -> Value {
    let one = |problem: &stormdrill_core::playbook::problem::Problem| {
        let (source, (line, column)) = match problem.place.source {
            Source::File => ("file".to_owned(), problem.place.line_and_column(&rejected.text)),
            Source::Set(index) => {
                let set = rejected.overrides.get(index);
                (
                    set.map_or_else(String::new, |set| format!("set:{}", set.path)),
                    problem.place.line_and_column(&set.map_or_else(String::new, |set| format!("{}={}", set.path, set.value))),
                )
            }
        };
        json!({
            "code": problem.code.as_str(),
            "message": problem.message,
            "source": source,
            "line": line,
            "column": column,
            "label": problem.label,
            "help": problem.help,
        })
    };
    rejected.problems.iter().take(MAX_PROBLEMS).map(one).collect()
}

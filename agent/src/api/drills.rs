//! `/v1/drills`: start, list, look at, end.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use stormdrill_core::fault::FaultCounts;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::report;

use super::App;
use super::body::{self, is_yaml, media_type};
use super::operation::{Answer, ID, JSON, Operation, Parameter, YAML};
use super::problem::{Kind, Problem, internal};
use super::{edges, playbooks};
use crate::clock;
use crate::daemon::store::{Record, Request};
use crate::playbook_file::Override;

/// Longest `Idempotency-Key`.
const MAX_KEY: usize = 255;
/// Drills on a page.
const PAGE: usize = 50;
const MAX_PAGE: usize = 500;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation {
            method: "post",
            path: "/v1/drills",
            id: "startDrill",
            summary: "Start a drill: of a playbook as YAML; or as JSON of one in the configured folder, or of a text, with overrides",
            parameters: &[Parameter {
                name: "Idempotency-Key",
                place: "header",
                schema: r#"{"type": "string", "minLength": 1, "maxLength": 255}"#,
                description: "A repeated request with the same key finds the drill that the first one started.",
            }],
            body: &[(YAML, "Playbook"), (JSON, "NamedPlaybook")],
            answers: &[
                Answer { status: 201, description: "It runs; Location says where.", media: JSON, schema: "Drill" },
                Answer { status: 200, description: "The same request started it before.", media: JSON, schema: "Drill" },
            ],
            problems: &[
                Kind::BadRequest,
                Kind::NotFound,
                Kind::SlowBody,
                Kind::Overlap,
                Kind::BodyTooLarge,
                Kind::UnsupportedMedia,
                Kind::BadPlaybook,
                Kind::KeyReused,
                Kind::TooMany,
                Kind::Internal,
                Kind::Unavailable,
            ],
            route: post(start),
        },
        Operation {
            method: "get",
            path: "/v1/drills",
            id: "listDrills",
            summary: "The drills, newest first",
            parameters: &[
                Parameter {
                    name: "limit",
                    place: "query",
                    schema: r#"{"type": "integer", "minimum": 1, "maximum": 500, "default": 50}"#,
                    description: "At most so many.",
                },
                Parameter {
                    name: "after",
                    place: "query",
                    schema: r#"{"type": "string"}"#,
                    description: "Goes on behind this drill: `next` of the page before.",
                },
            ],
            body: &[],
            answers: &[Answer { status: 200, description: "A page.", media: JSON, schema: "Drills" }],
            problems: &[Kind::BadRequest],
            route: get(list),
        },
        Operation {
            method: "get",
            path: "/v1/drills/{id}",
            id: "getDrill",
            summary: "One drill; once it has ended, with its result",
            parameters: &[ID],
            body: &[],
            answers: &[Answer { status: 200, description: "The drill.", media: JSON, schema: "Drill" }],
            problems: &[Kind::NotFound, Kind::Internal],
            route: get(one),
        },
        Operation {
            method: "get",
            path: "/v1/drills/{id}/report",
            id: "drillReport",
            summary: "The report of a drill that has ended, as a page",
            parameters: &[ID],
            body: &[],
            answers: &[Answer { status: 200, description: "The page.", media: "text/html", schema: "Text" }],
            problems: &[Kind::NotFound, Kind::Internal],
            route: get(report),
        },
        Operation {
            method: "delete",
            path: "/v1/drills/{id}",
            id: "abortDrill",
            summary: "End a drill early; answers when its faults are gone. One that has ended is left as it is",
            parameters: &[ID],
            body: &[],
            answers: &[Answer { status: 200, description: "The drill, ended.", media: JSON, schema: "Drill" }],
            problems: &[Kind::NotFound, Kind::Internal],
            route: delete(abort),
        },
    ]
}

/// A drill as clients see it.
pub(super) fn view(app: &App, record: &Record) -> Map<String, Value> {
    let live = app.daemon().drills.get(&record.id).and_then(|(_, live)| live);
    let now = live.as_ref().map(|live| live.now()).unwrap_or_default();
    let edges = live.map(|live| edges::view(&live.edges, now.window.as_ref())).unwrap_or_default();
    let fault = |(kind, counts): (&&str, &FaultCounts)| json!({ "kind": kind, "selected": counts.selected, "hit": counts.hit });
    let view = json!({
        "id": record.id,
        "playbook": record.playbook,
        "state": record.state,
        "phase": now.phase.map(|(name, _)| name.as_str()),
        "phase_seconds_left": now.phase.and_then(|(_, until_ns)| until_ns).map(|at_ns| clock::until(at_ns).as_secs_f64()),
        "started_at": record.started_at,
        "ended_at": record.ended_at,
        "verdict": record.verdict,
        "reason": record.reason,
        "edges": edges,
        "faults": now.faults.iter().map(fault).collect::<Vec<_>>(),
    });
    match view {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// A playbook by name, or as a text, with overrides.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: Option<String>,
    playbook: Option<String>,
    #[serde(default)]
    set: Map<String, Value>,
}

async fn start(State(app): State<App>, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let key = key(&headers)?;
    let media = media_type(&headers);
    if !is_yaml(&media) && media != JSON {
        return Err(Problem::new(Kind::UnsupportedMedia, "send a playbook as application/yaml, or `{\"name\": …}` as application/json"));
    }
    let text = body::text(&headers, body, app.daemon().config().limits.body_bytes).await?;
    let request = key.map(|key| Request { key, digest: digest(&media, &text) });
    let playbook = if is_yaml(&media) { playbooks::given(&app, text, Vec::new()).await? } else { named(&app, &text).await? };
    let started = app.daemon().begin(playbook, request).await?;
    let status = if started.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = body::json(status, &view(&app, &started.record));
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/drills/{}", started.record.id)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(key) if (1..=MAX_KEY).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(Problem::new(Kind::BadRequest, format!("Idempotency-Key is 1 to {MAX_KEY} characters of ASCII"))),
    }
}

/// FNV-1a: told to a client's own requests apart, not a defence. It is kept on disk, so it must not change with the compiler.
fn digest(media: &str, text: &str) -> u64 {
    let bytes = media.bytes().chain([0]).chain(text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

async fn named(app: &App, text: &str) -> Result<Playbook, Problem> {
    let bad = |detail: String| Problem::new(Kind::BadRequest, detail);
    let Named { name, playbook, set } =
        serde_json::from_str(text).map_err(|error| bad(format!("the body is not of this shape: {error}")))?;
    let mut overrides = Vec::new();
    for (path, value) in set {
        let value = match value {
            Value::String(text) => text,
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => return Err(bad(format!("`set`: the value of `{path}` is no text and no number"))),
        };
        overrides.push(Override { path, value });
    }
    match (name, playbook) {
        (Some(name), None) => playbooks::named(app, &name, overrides).await,
        (None, Some(text)) => playbooks::given(app, text, overrides).await,
        _ => Err(bad("either `name` or `playbook` is needed, and not both".to_owned())),
    }
}

async fn list(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let limit = body::number(query.as_deref(), "limit", PAGE, MAX_PAGE)?;
    let all = app.daemon().drills.list();
    let begin = match body::query(query.as_deref(), "after") {
        None => 0,
        Some(id) => match all.iter().position(|record| record.id == id) {
            Some(index) => index + 1,
            None => return Err(Problem::new(Kind::BadRequest, "`after` names no drill that is kept")),
        },
    };
    let page: Vec<&Record> = all.iter().skip(begin).take(limit).collect();
    let next = (begin + page.len() < all.len()).then(|| page.last().map(|record| record.id.clone())).flatten();
    let drills: Vec<_> = page.into_iter().map(|record| view(&app, record)).collect();
    Ok(body::json(StatusCode::OK, &json!({ "drills": drills, "next": next })))
}

pub(super) fn unknown() -> Problem {
    Problem::new(Kind::NotFound, "there is no drill of that id, or it is kept no longer")
}

/// The id in a path. One that is no text, as `%ff`, is no drill's either.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Path::from_request_parts(parts, state).await.map(|Path(id)| Self(id)).map_err(|_| unknown())
    }
}

async fn one(State(app): State<App>, Id(id): Id) -> Result<Response, Problem> {
    let (record, _) = app.daemon().drills.get(&id).ok_or_else(unknown)?;
    with_result(&app, record).await
}

async fn report(State(app): State<App>, Id(id): Id) -> Result<Response, Problem> {
    app.daemon().drills.get(&id).ok_or_else(unknown)?;
    let daemon = Arc::clone(&app.0.daemon);
    let page = app.read(move || {
        let result = daemon.drills.result(&id)?;
        let result = result.ok_or_else(|| Problem::new(Kind::NotFound, "the drill has no result, or not yet"))?;
        let run = report::json::read_run(&result).map_err(|error| internal(&error))?;
        Ok::<_, Problem>(report::html::render(&run))
    });
    let mut response = body::typed(StatusCode::OK, "text/html; charset=utf-8", page.await??);
    // The page is whole in itself; whatever a playbook's texts contain, nothing of it runs or is fetched.
    let policy = HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; img-src data:");
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}

async fn abort(State(app): State<App>, Id(id): Id) -> Result<Response, Problem> {
    let record = app.daemon().drills.abort(&id, "aborted through the API").await.ok_or_else(unknown)?;
    with_result(&app, record).await
}

async fn with_result(app: &App, record: Record) -> Result<Response, Problem> {
    let (daemon, mut view) = (Arc::clone(&app.0.daemon), view(app, &record));
    let answer = app.read(move || {
        let result = daemon.drills.result(&record.id)?;
        let result = result.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Value::Null);
        view.insert("result".to_owned(), result);
        Ok(body::json(StatusCode::OK, &view))
    });
    answer.await?
}

//! `/v1/drills/{id}/events`: a drill as it happens, as server-sent events.
//!
//! Each stream begins with where the drill stands: the first numbered event may be seconds away, while the probe attaches or a window is open,
//! and silence looks like a daemon that hangs. That event has no number, so that it does not move a client's `Last-Event-ID`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::{StreamExt as _, stream};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::App;
use super::drills::{Id, unknown, view};
use super::operation::{Answer, ID, Operation, Parameter};
use super::problem::{Kind, Problem};
use crate::daemon::log::{EventLog, Next};

/// A line now and then, so that a client that is gone is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What the events' data hold.
const STREAM: &str = "The stream. Members of the data: `state` has state, phase and phase_seconds_left; `phase` has phase and seconds; `window` is \
    one of a result's `windows`; `note` has text; `end` has state, verdict and reason. Comments keep the stream open.";

pub(super) fn operations() -> Vec<Operation> {
    vec![Operation {
        method: "get",
        path: "/v1/drills/{id}/events",
        id: "drillEvents",
        summary: "The drill as it happens: `state` at once, where it stands; then events `phase`, `window`, `note` and, as the last one, `end`, each with a number. Data are JSON",
        parameters: &[
            ID,
            Parameter {
                name: "Last-Event-ID",
                place: "header",
                schema: r#"{"type": "integer", "minimum": 0}"#,
                description: "Goes on behind this number.",
            },
        ],
        body: &[],
        answers: &[
            Answer { status: 200, description: STREAM, media: "text/event-stream", schema: "Anything" },
            Answer { status: 204, description: "The drill has ended and all was told: do not ask again.", media: "", schema: "" },
        ],
        problems: &[Kind::BadRequest, Kind::NotFound],
        route: get(events),
    }]
}

struct Reader {
    log: Arc<EventLog>,
    seen: u64,
    changed: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

async fn events(State(app): State<App>, Id(id): Id, headers: HeaderMap) -> Result<Response, Problem> {
    let seen = match headers.get("last-event-id") {
        None => 0,
        Some(value) => value
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| Problem::new(Kind::BadRequest, "Last-Event-ID is the number of an event"))?,
    };
    let log = app.daemon().drills.log(&id).ok_or_else(unknown)?;
    let (record, _) = app.daemon().drills.get(&id).ok_or_else(unknown)?;
    if log.after(seen) == Next::End {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    // Streams are held open by clients: they get a share of the connections, and others find one free.
    let permit = app.stream_permit().ok_or_else(|| Problem::new(Kind::Busy, "as many streams as may be are open"))?;
    let drill = view(&app, &record);
    let state = json!({ "state": drill["state"], "phase": drill["phase"], "phase_seconds_left": drill["phase_seconds_left"] });
    let state = Event::default().event("state").data(state.to_string());
    let reader = Reader { changed: log.subscribe(), log, seen, _permit: permit };
    let rest = stream::unfold(reader, |mut reader| async move {
        loop {
            // Marks the present state as seen before it is looked at: what comes later wakes the wait below.
            reader.changed.borrow_and_update();
            match reader.log.after(reader.seen) {
                Next::Event(event) => {
                    reader.seen = event.id;
                    let event = Event::default().id(event.id.to_string()).event(event.kind).data(event.data);
                    return Some((Ok::<_, Infallible>(event), reader));
                }
                Next::End => return None,
                Next::Wait => reader.changed.changed().await.ok()?,
            }
        }
    });
    let stream = stream::iter([Ok(state)]).chain(rest);
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

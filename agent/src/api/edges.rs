//! `/v1/edges` and `/v1/connections`: what is observed all the time.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use serde_json::{Value, json};
use stormdrill_core::edge::EdgeSpec;
use stormdrill_core::report::json::window::WindowView;

use super::App;
use super::body;
use super::operation::{Answer, JSON, Operation, Parameter};
use super::problem::{Kind, Problem, internal};
use crate::probe::connections;

const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        Operation {
            method: "get",
            path: "/v1/edges",
            id: "listEdges",
            summary: "The edges that are observed all the time, with their last final window",
            parameters: &[],
            body: &[],
            answers: &[Answer { status: 200, description: "In the order of the configuration.", media: JSON, schema: "Edges" }],
            problems: &[],
            route: get(edges),
        },
        Operation {
            method: "get",
            path: "/v1/connections",
            id: "listConnections",
            summary: "Established connections of those edges",
            parameters: &[
                Parameter {
                    name: "limit",
                    place: "query",
                    schema: r#"{"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}"#,
                    description: "At most so many.",
                },
                Parameter { name: "edge", place: "query", schema: r#"{"type": "string"}"#, description: "Of this edge only." },
            ],
            body: &[],
            answers: &[Answer { status: 200, description: "In no order.", media: JSON, schema: "Connections" }],
            problems: &[Kind::BadRequest, Kind::Internal],
            route: get(list),
        },
    ]
}

fn observed(app: &App) -> Vec<EdgeSpec> {
    app.daemon().config().observe.as_ref().map(|observe| observe.edges.clone()).unwrap_or_default()
}

async fn edges(State(app): State<App>) -> Response {
    let latest = app.daemon().latest();
    let edges = observed(&app);
    let index = latest.as_ref().map(|window| window.index);
    body::json(StatusCode::OK, &json!({ "edges": view(&edges, latest.as_ref()), "window_index": index }))
}

/// Edges as clients see them, each with its part of a window.
pub(super) fn view(edges: &[EdgeSpec], window: Option<&WindowView>) -> Vec<Value> {
    let one = |edge: &EdgeSpec| {
        json!({
            "name": edge.name,
            "role": edge.role.as_str(),
            "address": edge.address.map(|address| address.to_string()),
            "port": edge.ports.map(|ports| ports.to_string()),
            "protocol": edge.protocol.map(|protocol| protocol.as_str()),
            "window": window.and_then(|window| window.edges.iter().find(|view| view.name == edge.name)),
        })
    };
    edges.iter().map(one).collect()
}

async fn list(State(app): State<App>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let limit = body::number(query.as_deref(), "limit", PAGE, MAX_PAGE)?;
    let edges = observed(&app);
    let wanted = match body::query(query.as_deref(), "edge") {
        None => None,
        Some(name) => match edges.iter().position(|edge| edge.name == name) {
            Some(index) => Some(index),
            None => return Err(Problem::new(Kind::BadRequest, "`edge` names no edge that is observed all the time")),
        },
    };
    if edges.is_empty() {
        return Ok(body::json(StatusCode::OK, &json!({ "connections": [], "total": 0 })));
    }
    let found = tokio::task::spawn_blocking(move || connections(&edges).map(|found| (found, edges))).await;
    let (mut found, edges) = match found {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(internal(&error)),
        Err(error) => return Err(internal(&error)),
    };
    found.retain(|connection| wanted.is_none_or(|index| connection.edge == index));
    let total = found.len();
    let one = |connection: &crate::probe::Connection| {
        let edge = edges.get(connection.edge);
        json!({
            "edge": edge.map(|edge| edge.name.as_str()),
            "role": edge.map(|edge| edge.role.as_str()),
            "local": connection.local.to_string(),
            "peer": connection.peer.to_string(),
        })
    };
    let shown: Vec<Value> = found.iter().take(limit).map(one).collect();
    Ok(body::json(StatusCode::OK, &json!({ "connections": shown, "total": total })))
}

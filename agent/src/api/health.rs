//! `/healthz`, `/readyz`, `/metrics`, `/openapi.json`: for machines that look after the daemon.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;

use super::App;
use super::body::typed;
use super::operation::{Answer, JSON, Operation};
use super::problem::{Kind, Problem, internal};

const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn operations() -> Vec<Operation> {
    let probe = |path, id, summary, problems, route| Operation {
        method: "get",
        path,
        id,
        summary,
        parameters: &[],
        body: &[],
        answers: &[Answer { status: 200, description: "It does.", media: "text/plain", schema: "Text" }],
        problems,
        route,
    };
    vec![
        probe(
            "/healthz",
            "health",
            "Whether the daemon answers; needs no token",
            &[],
            get(|| async { typed(StatusCode::OK, TEXT, "ok\n".to_owned()) }),
        ),
        probe("/readyz", "ready", "Whether everything that the daemon should do works", &[Kind::Unavailable], get(ready)),
        probe("/metrics", "metrics", "The metrics, for Prometheus", &[Kind::Internal], get(metrics)),
        Operation {
            method: "get",
            path: "/openapi.json",
            id: "openapi",
            summary: "This document",
            parameters: &[],
            body: &[],
            answers: &[Answer { status: 200, description: "OpenAPI 3.1.", media: JSON, schema: "Anything" }],
            problems: &[],
            route: get(|State(app): State<App>| async move { typed(StatusCode::OK, JSON, app.document().to_owned()) }),
        },
    ]
}

async fn ready(State(app): State<App>) -> Result<Response, Problem> {
    match app.daemon().ready() {
        Ok(()) => Ok(typed(StatusCode::OK, TEXT, "ready\n".to_owned())),
        Err(reason) => Err(Problem::new(Kind::Unavailable, reason)),
    }
}

async fn metrics(State(app): State<App>) -> Result<Response, Problem> {
    match app.daemon().metrics.render() {
        Ok(text) => Ok(typed(StatusCode::OK, PROMETHEUS, text)),
        Err(error) => Err(internal(&error)),
    }
}

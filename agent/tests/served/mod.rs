//! A daemon without a kernel: drills that wait to be ended, and a router that is asked without a socket.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde_json::Value;
use stormdrill::api::{self, App};
use stormdrill::daemon::Daemon;
use stormdrill::daemon::carry::Carry;
use stormdrill::drill::{Carried, DrillError};
use stormdrill::driver::Progress;
use stormdrill_core::judge::Verdict;
use stormdrill_core::machine::End;
use stormdrill_core::playbook::Playbook;
use stormdrill_core::playbook::serve::Config;
use stormdrill_core::result::{DataQuality, DrillResult};
use stormdrill_core::window::PhaseName;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tower::ServiceExt as _;

/// Carries out a drill called `quick` at once, one called `panics` badly, and any other until it is aborted; one called `attaches` gets to no phase.
pub(crate) struct Pretended;

impl Carry for Pretended {
    fn carry_out(
        &self,
        playbook: &Playbook,
        id: &str,
        _servers: &[String],
        mut abort: mpsc::Receiver<String>,
        progress: &mut dyn Progress,
    ) -> Result<Carried, DrillError> {
        if playbook.name != "attaches" {
            progress.phase(PhaseName::Baseline, None);
        }
        assert_ne!(playbook.name, "panics");
        let aborted = if playbook.name == "quick" { None } else { abort.blocking_recv() };
        let end = aborted.clone().map_or(End::Complete, End::Aborted);
        let result = DrillResult {
            id: id.to_owned(),
            playbook: playbook.name.clone(),
            description: None,
            guards: Vec::new(),
            host: "h".to_owned(),
            kernel: "k".to_owned(),
            version: "v".to_owned(),
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            verdict: Some(Verdict::Pass),
            aborted,
            judgements: Vec::new(),
            phases: Vec::new(),
            faults: Vec::new(),
            edges: playbook.edges.clone(),
            windows: Vec::new(),
            quality: DataQuality {
                events_lost: 0,
                sampling: 1.0,
                unknown_role_connections: 0,
                unparsed_connections: 0,
                missed: Default::default(),
            },
        };
        Ok(Carried { end, result })
    }
}

/// A daemon's API.
pub(crate) struct Api {
    router: Router,
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) dir: Arc<TempDir>,
}

impl Api {
    pub(crate) fn new() -> Self {
        Self::with("", None)
    }

    /// With these lines of configuration, and a token.
    pub(crate) fn with(config: &str, token: Option<&str>) -> Self {
        Self::in_dir(Arc::new(tempfile::tempdir().unwrap()), config, token)
    }

    /// One that finds what another one left.
    pub(crate) fn restarted(&self) -> Self {
        Self::in_dir(Arc::clone(&self.dir), "", None)
    }

    fn in_dir(dir: Arc<TempDir>, config: &str, token: Option<&str>) -> Self {
        let mut config: Config = stormdrill_core::playbook::serve::parse(config).unwrap();
        config.state_dir = dir.path().join("state");
        config.playbooks.get_or_insert_with(|| dir.path().to_owned());
        let daemon = Arc::new(Daemon::without_probe(config, Box::new(Pretended)).unwrap());
        Self { router: api::router(App::new(Arc::clone(&daemon), token.map(str::to_owned))), daemon, dir }
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Asks, and gives status and JSON.
    pub(crate) async fn ask(&self, method: &str, path: &str) -> (u16, Value) {
        read(self.send(request(method, path, &[], "")).await).await
    }

    /// Starts a drill of a playbook, with further headers.
    pub(crate) async fn start(&self, playbook: &str, headers: &[(&str, &str)]) -> (u16, Value) {
        let mut all = vec![("content-type", "application/yaml")];
        all.extend(headers);
        read(self.send(request("POST", "/v1/drills", &all, playbook)).await).await
    }

    /// Starts one that has to start, and gives its id.
    pub(crate) async fn started(&self, playbook: &str) -> String {
        let (status, drill) = self.start(playbook, &[]).await;
        assert_eq!(status, 201, "{drill:#}");
        drill["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a drill has ended, by its last event.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        self.daemon.drills.log(id).unwrap().ended().await;
        self.ask("GET", &format!("/v1/drills/{id}")).await.1
    }

    pub(crate) fn write(&self, name: &str, playbook: &str) {
        std::fs::write(self.dir.path().join(name), playbook).unwrap();
    }

    pub(crate) fn drills_dir(&self) -> std::path::PathBuf {
        Path::new(self.dir.path()).join("state/drills")
    }
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", "127.0.0.1:9464");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// Status and JSON of an answer; every answer that is no success has to be a problem.
pub(crate) async fn read(response: Response) -> (u16, Value) {
    let status = response.status();
    let media = response.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    if status.is_client_error() || status.is_server_error() {
        assert_eq!(media.as_deref(), Some("application/problem+json"));
        assert_eq!(value["status"], status.as_u16());
        assert!(value["type"].as_str().unwrap().starts_with("urn:stormdrill:problem:"), "{value}");
    }
    assert_ne!(status, StatusCode::INTERNAL_SERVER_ERROR, "{value}");
    (status.as_u16(), value)
}

/// A playbook that is aimed at a port of this host.
pub(crate) fn playbook(name: &str, port: u16) -> String {
    format!(
        "version: 1\nname: {name}\nobserve: {{downstream: {{store: {{address: 127.0.0.1, port: {port}, protocol: http}}}}, window: 1s}}\n\
         phases: {{baseline: 5s, fault: 5s, recovery: 5s}}\nfaults: [{{loss: 30%, to: store}}]\n"
    )
}

//! The HTTP API: handlers that turn requests into calls of the daemon, and answers into JSON. Only this module tree names axum.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::Router;
use axum::middleware;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::daemon::Daemon;

mod operation;

mod problem;

mod body;

mod rate;

mod guard;

mod drills;

mod events;

mod playbooks;

mod edges;

mod health;

mod page;

mod schema;

mod openapi;

pub mod listen;

use problem::Problem;
use rate::Buckets;

pub use guard::Peer;
pub use problem::Kind;

/// What handlers share.
#[derive(Debug, Clone)]
pub struct App(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    daemon: Arc<Daemon>,
    token: RwLock<Option<Arc<str>>>,
    streams: Arc<Semaphore>,
    checks: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    buckets: Mutex<Buckets>,
    document: String,
}

impl App {
    /// The API of a daemon. With a token, clients on TCP have to know it.
    #[must_use]
    pub fn new(daemon: Arc<Daemon>, token: Option<String>) -> Self {
        let streams = Arc::new(Semaphore::new((daemon.config().limits.connections / 2).max(1)));
        let token = RwLock::new(token.map(Arc::from));
        let (checks, reads) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        Self(Arc::new(Shared { daemon, token, streams, checks, reads, buckets: Mutex::default(), document: document() }))
    }

    fn daemon(&self) -> &Daemon {
        &self.0.daemon
    }

    fn token(&self) -> Option<Arc<str>> {
        self.0.token.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on clients have to know this token.
    pub fn set_token(&self, token: Option<String>) {
        *self.0.token.write().unwrap_or_else(PoisonError::into_inner) = token.map(Arc::from);
    }

    /// Whether a client may ask once more just now.
    fn may_ask(&self, client: IpAddr) -> bool {
        let rate = self.daemon().config().limits.requests;
        let mut buckets = self.0.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(client, rate, crate::clock::monotonic_ns())
    }

    fn document(&self) -> &str {
        &self.0.document
    }

    /// Checks a playbook, which may take long, beside the thread that answers all clients; one at a time, so that clients cost the host a processor
    /// at most.
    async fn check<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        beside(&self.0.checks, work).await
    }

    /// The same for what reads a result, which has a part for each window of the drill; no check holds it up.
    async fn read<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
        beside(&self.0.reads, work).await
    }

    fn stream_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.streams).try_acquire_owned().ok()
    }
}

/// Does a work on a thread of its own when it has its turn. It goes on though the client may leave.
async fn beside<T: Send + 'static>(turns: &Arc<Semaphore>, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    let turn = Arc::clone(turns).acquire_owned().await.map_err(|error| problem::internal(&error))?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    done.await.map_err(|error| problem::internal(&error))
}

fn operations() -> Vec<operation::Operation> {
    let groups = [drills::operations(), events::operations(), playbooks::operations(), edges::operations(), health::operations()];
    groups.into_iter().flatten().collect()
}

/// The OpenAPI 3.1 document.
#[must_use]
pub fn document() -> String {
    openapi::document(&operations())
}

/// Everything that the API answers.
pub fn router(app: App) -> Router {
    let mut router = Router::new();
    for operation in operations() {
        router = router.route(operation.path, operation.route);
    }
    page::routes(router)
        .method_not_allowed_fallback(|| async { Problem::new(Kind::MethodNotAllowed, "see /openapi.json for what can be done here") })
        .fallback(|| async { Problem::new(Kind::NotFound, "see /openapi.json for what there is") })
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

//! One layer of a chain: a service that answers with what the next one answers, and 503 when that fails.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderMap, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, StatusCode};

use super::report::LayerReport;
use super::{CallerGone, ChainConfig, Deadlines};
use crate::caller::{Call, Caller, CallerConfig, Outcome};
use crate::clock::Clock;
use crate::counts::{Arrival, Counter, StatusCounts};
use crate::headers;
use crate::policy::deadline::Deadline;
use crate::pool::Pool;
use crate::service::{Handler, Listening, ServiceError, read_body};

/// A layer opens as many connections as it has calls under way; the file descriptors are the limit.
const CONNECTIONS: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Counts {
    connections: Counter,
    requests: Counter,
    answers: StatusCounts,
    callers_gone: Counter,
}

/// A layer's state.
#[derive(Debug)]
pub(super) struct Layer {
    name: String,
    caller: Arc<Caller>,
    caller_gone: CallerGone,
    deadlines: Deadlines,
    clock: Clock,
    /// The start of the ids that this layer gives to requests without one.
    tag: String,
    made_ids: Counter,
    counts: Counts,
}

impl Layer {
    pub(super) fn new(name: &str, next: SocketAddr, caller: CallerConfig, chain: &ChainConfig, clock: Clock) -> Self {
        // An address is always a valid header value.
        let host = HeaderValue::from_str(&next.to_string()).unwrap_or(HeaderValue::from_static("next"));
        let caller = Caller::new(caller, Pool::new(next, chain.reuse, CONNECTIONS), host, clock);
        let tag = format!("{name}-{:08x}", fastrand::u32(..));
        Self {
            name: name.to_owned(),
            caller: Arc::new(caller),
            caller_gone: chain.caller_gone,
            deadlines: chain.deadlines,
            clock,
            tag,
            made_ids: Counter::default(),
            counts: Counts::default(),
        }
    }

    fn call(&self, head: &hyper::http::request::Parts, body: Bytes, deadline: Option<Deadline>) -> Call {
        let mut kept = headers::end_to_end(&head.headers);
        headers::strip_own(&mut kept);
        Call {
            method: head.method.clone(),
            path: head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
            headers: kept,
            body,
            id: self.id(&head.headers),
            deadline,
        }
    }

    /// The request's own id, or a new one.
    fn id(&self, head: &HeaderMap) -> HeaderValue {
        head.get(headers::REQUEST_ID).cloned().unwrap_or_else(|| {
            let id = format!("{}-{}", self.tag, self.made_ids.next());
            HeaderValue::from_str(&id).unwrap_or(HeaderValue::from_static("none"))
        })
    }

    fn deadline(&self, head: &HeaderMap) -> Option<Deadline> {
        let Deadlines::PassedOn { default } = self.deadlines else { return None };
        let now = self.clock.now();
        Some(headers::deadline(head, now, self.clock.unix(now)).unwrap_or_else(|| Deadline::after(now, default)))
    }

    fn own_answer(&self, status: StatusCode, reason: &str) -> Response<Full<Bytes>> {
        let body = serde_json::json!({ "service": self.name, "error": reason });
        crate::service::json(status, body.to_string())
    }

    /// Makes a call. If this future is dropped, because the caller has hung up, the call ends with it or goes on by itself.
    async fn outcome(&self, call: Call) -> Outcome {
        match self.caller_gone {
            CallerGone::Stops => self.caller.call(&call).await,
            CallerGone::GoesOn => {
                let caller = Arc::clone(&self.caller);
                // A task fails only by a panic, or when the runtime ends: then nobody hears the answer.
                tokio::spawn(async move { caller.call(&call).await }).await.unwrap_or(Outcome::TooLate(None))
            }
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let deadline = self.deadline(request.headers());
        let (head, body) = request.into_parts();
        let Some(body) = read_body(body).await else {
            return self.own_answer(StatusCode::BAD_REQUEST, "the request's body breaks off");
        };
        match self.outcome(self.call(&head, body, deadline)).await {
            Outcome::Answered(answer) => pass_on(answer),
            Outcome::Failed(_) => self.own_answer(StatusCode::SERVICE_UNAVAILABLE, "the next service failed"),
            Outcome::TooLate(_) => self.own_answer(StatusCode::GATEWAY_TIMEOUT, "the caller's deadline has passed"),
        }
    }
}

fn pass_on(answer: Response<Bytes>) -> Response<Full<Bytes>> {
    let (head, body) = answer.into_parts();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = headers::end_to_end(&head.headers);
    response
}

impl Handler for Layer {
    async fn handle(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let arrival = Arrival::new(&self.counts.requests, &self.counts.callers_gone);
        let response = self.answer(request).await;
        self.counts.answers.add(response.status());
        arrival.answered();
        response
    }

    fn connections(&self) -> &Counter {
        &self.counts.connections
    }
}

/// A layer that is listening.
#[derive(Debug)]
pub(super) struct RunningLayer {
    layer: Arc<Layer>,
    listening: Listening,
}

impl RunningLayer {
    pub(super) async fn start(layer: Layer, listen: SocketAddr) -> Result<Self, ServiceError> {
        let layer = Arc::new(layer);
        let listening = Listening::start(&layer.name, listen, Arc::clone(&layer)).await?;
        Ok(Self { layer, listening })
    }

    pub(super) fn listening(&self) -> &Listening {
        &self.listening
    }

    pub(super) fn report(&self) -> LayerReport {
        report(&self.layer, self.listening.address())
    }

    pub(super) async fn stop(self, drain: Duration) -> LayerReport {
        let address = self.listening.address();
        self.listening.stop(drain).await;
        report(&self.layer, address)
    }
}

fn report(layer: &Layer, address: SocketAddr) -> LayerReport {
    let counts = &layer.counts;
    let (requests, gone) = (counts.requests.get(), counts.callers_gone.get());
    LayerReport {
        name: layer.name.clone(),
        address: address.to_string(),
        connections: counts.connections.get(),
        requests,
        answers: counts.answers.report(),
        callers_gone: gone,
        in_flight: requests.saturating_sub(counts.answers.total() + gone),
        downstream: layer.caller.report(),
    }
}

//! `observe:`, what is watched, and in windows of what length.

use std::time::Duration;

use super::super::Scope;
use super::super::fields::{self, Fields, Keys};
use super::super::node::Entry;
use super::super::problem::{Code, Draft, Problems};
use crate::edge::{EdgeSpec, MAX_EDGES, Role};
use crate::retry::marker::MarkerHeader;
use crate::units::duration;

const OBSERVE: Keys = Keys::new("`observe`", &["ingress", "downstream", "scope", "window", "marker"]);

/// Window when the playbook names none: long enough for retry budgets and ejections to act within one.
const DEFAULT_WINDOW: Duration = Duration::from_secs(10);
const MIN_WINDOW: Duration = Duration::from_millis(100);
const MAX_WINDOW: Duration = Duration::from_hours(1);

/// What `observe` says, as far as it could be read.
pub(super) struct Observed {
    pub(super) edges: Vec<EdgeSpec>,
    pub(super) scope: Option<Scope>,
    /// `None` after a problem.
    pub(super) window: Option<Duration>,
    pub(super) marker: Option<MarkerHeader>,
}

pub(super) fn check(entry: &Entry, problems: &mut Problems<'_>) -> Option<Observed> {
    let observe = Fields::open(&entry.value, &entry.key.place, OBSERVE, problems)?;
    let mut edges = Vec::new();
    for role in [Role::Ingress, Role::Downstream] {
        if let Some(entry) = observe.get(role.as_str()) {
            super::edges::check(entry, role, &mut edges, problems);
        }
    }
    if observe.get("ingress").is_none() && observe.get("downstream").is_none() {
        let draft = Draft::new(Code::MissingKey, &entry.key.place, "nothing is observed").label("no edge here");
        problems.report(draft.advice("name at least one edge, as in `ingress: {web: {port: 8080}}`"));
    }
    if edges.len() > MAX_EDGES {
        let message = format!("{} edges are more than the {MAX_EDGES} that can be observed at once", edges.len());
        problems.report(Draft::new(Code::OutOfRange, &entry.key.place, message));
    }
    let scope = observe.get("scope").and_then(|entry| super::scope::check(entry, problems));
    let window = match observe.get("window") {
        None => Some(DEFAULT_WINDOW),
        Some(entry) => fields::quantity(entry, duration::parse, problems)
            .and_then(|window| super::phases::within(entry, window, MIN_WINDOW, MAX_WINDOW, problems)),
    };
    let marker = observe.get("marker").and_then(|entry| marker(entry, problems));
    Some(Observed { edges, scope, window, marker })
}

/// The name of a header that carries an attempt number.
fn marker(entry: &Entry, problems: &mut Problems<'_>) -> Option<MarkerHeader> {
    let text = fields::text(entry, problems)?;
    if MarkerHeader::is_name(text) {
        return Some(MarkerHeader::named(text));
    }
    let message = format!("`{}` is no header's name", crate::wording::excerpt(text));
    let draft = Draft::new(Code::BadValue, &entry.value.place, message);
    problems.report(draft.advice("write the name alone, as in `X-Retry-Count`").replace("X-Retry-Count"));
    None
}

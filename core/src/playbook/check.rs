//! Pass two: from the tree to a playbook. Each part has a module; each reports all that it finds and gives what it could read.

use super::fields::{self, Fields, Keys};
use super::node::{Entry, Node};
use super::problem::{Code, Draft, Place, Problems};
use super::{Playbook, Scope};
use crate::edge::{MAX_NAME, is_name};

mod observe;

mod edges;

mod scope;

mod phases;

mod load;

mod faults;

mod lines;

pub(super) mod serve;

const TOP: Keys = Keys::new("a playbook", &["version", "name", "description", "observe", "load", "phases", "faults", "guards", "expect"]);

/// The playbook version that this program reads.
const VERSION: &str = "1";

/// Checks everything; `None` if something without which there is no playbook was reported.
pub(super) fn check(root: &Node, problems: &mut Problems<'_>) -> Option<Playbook> {
    let top = Fields::open(root, &root.place, TOP, problems)?;
    if let Some(entry) = top.require("version", "version: 1", problems) {
        version(entry, problems);
    }
    let name = top.require("name", "name: my-drill", problems);
    let name = name.and_then(|entry| playbook_name(entry, problems));
    let description = top.get("description").and_then(|entry| fields::text(entry, problems)).map(str::to_owned);
    let observed = top.require("observe", "observe: {ingress: {web: {port: 8080}}}", problems);
    let observed = observed.and_then(|entry| observe::check(entry, problems));
    let window = observed.as_ref().and_then(|observed| observed.window);
    let phases = top.require("phases", "phases: {baseline: 60s, fault: 60s, recovery: 60s}", problems);
    let phases = phases.and_then(|entry| phases::check(entry, window, problems));
    let load = top.get("load").map(|entry| load::check(entry, problems));
    // Without the edges every name would be unknown: say nothing about what refers to them.
    let edges = observed.as_ref().map(|observed| observed.edges.as_slice());
    let faults = top.get("faults").map(|entry| faults::check(entry, edges, phases, problems));
    let guards = top.get("guards").map(|entry| lines::guards(entry, edges, window, phases, problems));
    let expect =
        top.get("expect").map(|entry| lines::expectations(entry, edges, faults.as_deref().unwrap_or_default(), window, phases, problems));
    if !problems.is_empty() {
        return None;
    }
    let observed = observed?;
    Some(Playbook {
        name: name?,
        description,
        edges: observed.edges,
        scope: observed.scope.unwrap_or(Scope::Host),
        window: observed.window?,
        marker: observed.marker,
        load: load.flatten(),
        phases: phases?,
        faults: faults.unwrap_or_default(),
        guards: guards.unwrap_or_default(),
        expect: expect.unwrap_or_default(),
    })
}

fn version(entry: &Entry, problems: &mut Problems<'_>) {
    match fields::text(entry, problems) {
        None | Some(VERSION) => {}
        Some(other) => {
            let message = format!("playbook version `{}` is not known", crate::wording::excerpt(other));
            let draft = Draft::new(Code::BadValue, &entry.value.place, message);
            problems.report(draft.advice("this program reads version 1").replace(VERSION));
        }
    }
}

fn playbook_name(entry: &Entry, problems: &mut Problems<'_>) -> Option<String> {
    let text = fields::text(entry, problems)?;
    name(text, &entry.value.place, "a playbook's name", problems)
}

/// A name: `[a-z0-9-]`, so that it can stand in labels, paths and expectations.
fn name(text: &str, place: &Place, what: &str, problems: &mut Problems<'_>) -> Option<String> {
    if is_name(text) {
        return Some(text.to_owned());
    }
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let mut mended = words.join("-");
    mended.truncate(MAX_NAME);
    let message = format!("{what} cannot be `{}`", crate::wording::excerpt(text));
    let advice = format!("use lower-case letters, digits and hyphens, at most {MAX_NAME}");
    let draft = Draft::new(Code::BadValue, place, message).advice(advice);
    problems.report(if mended.is_empty() { draft } else { draft.replace(mended.trim_end_matches('-')) });
    None
}

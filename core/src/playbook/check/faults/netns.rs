//! `netns`: in which network namespace a fault is.

use super::super::super::fields::{self, Fields, Keys};
use super::super::super::node::Entry;
use super::super::super::problem::{Code, Draft, Problems};
use super::super::scope;
use super::members;
use crate::fault::NetNs;
use crate::playbook::Scope;
use crate::wording::excerpt;

const NETNS: Keys = Keys::new("`netns`", &["pid", "container", "path"]);

pub(super) fn netns(entry: &Entry, problems: &mut Problems<'_>) -> Option<NetNs> {
    let fields = Fields::open(&entry.value, &entry.key.place, NETNS, problems)?;
    let given: Vec<&Entry> = NETNS.known.iter().filter_map(|key| fields.get(key)).collect();
    match given.as_slice() {
        [] => {
            if fields.all_known() {
                let draft = Draft::new(Code::MissingKey, &entry.key.place, "`netns` names no network namespace");
                problems.report(draft.advice("write `netns: {pid: 4711}`, `{container: ID}` or `{path: /run/netns/NAME}`"));
            }
            None
        }
        [one] => match one.key.text.as_str() {
            "container" => members::container(one, problems).map(NetNs::Container),
            "pid" => match scope::pid(one, problems)? {
                Scope::Pid(pid) => Some(NetNs::Pid(pid)),
                _ => None,
            },
            _ => path(one, problems),
        },
        [first, second, ..] => {
            let message = format!("`{}` and `{}` are two ways to name a network namespace", first.key.text, second.key.text);
            problems.report(Draft::new(Code::Conflict, &second.key.place, message).advice("keep one of them"));
            None
        }
    }
}

fn path(entry: &Entry, problems: &mut Problems<'_>) -> Option<NetNs> {
    let text = fields::text(entry, problems)?;
    if text.starts_with('/') && !text.contains('\0') {
        return Some(NetNs::Path(text.to_owned()));
    }
    let draft = Draft::new(Code::BadValue, &entry.value.place, format!("`{}` is no absolute path", excerpt(text)));
    let below_run = text.trim_start_matches("./");
    let name = below_run.strip_prefix("run/netns/").or_else(|| below_run.strip_prefix("netns/")).unwrap_or(below_run);
    problems.report(draft.advice("namespaces that have names are below `/run/netns`").replace(format!("/run/netns/{name}")));
    None
}

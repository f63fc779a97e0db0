//! `scope:`, whose sockets are observed.

use super::super::Scope;
use super::super::fields::{self, Fields, Keys};
use super::super::node::{Entry, Node, Value};
use super::super::problem::{Code, Draft, Place, Problems};

const SCOPE: Keys = Keys { of: "`scope`", known: &["cgroup", "pid"], later: &["container", "netns"], offer: &["cgroup", "pid"] };

pub(super) fn check(entry: &Entry, problems: &mut Problems<'_>) -> Option<Scope> {
    let fields = Fields::open(&entry.value, &entry.key.place, SCOPE, problems)?;
    match (fields.get("cgroup"), fields.get("pid")) {
        (Some(cgroup), Some(_)) => {
            let draft = Draft::new(Code::Conflict, &cgroup.key.place, "`scope` has both `cgroup` and `pid`");
            problems.report(draft.advice("keep one of them; `pid` stands for the cgroup that the process is in"));
            None
        }
        (Some(entry), None) => cgroup(entry, problems),
        (None, Some(entry)) => pid(entry, problems),
        (None, None) => empty_scope(&entry.value, &entry.key.place, problems),
    }
}

fn empty_scope(node: &Node, key: &Place, problems: &mut Problems<'_>) -> Option<Scope> {
    if matches!(&node.value, Value::Map(entries) if entries.is_empty()) {
        let draft = Draft::new(Code::MissingKey, key, "`scope` is empty").label("neither `cgroup` nor `pid`");
        problems.report(draft.advice("leave `scope` out to observe the whole host"));
    }
    None
}

pub(super) fn cgroup(entry: &Entry, problems: &mut Problems<'_>) -> Option<Scope> {
    let text = fields::text(entry, problems)?;
    let path = text.trim_matches('/');
    let odd = |part: &str| part.is_empty() || part == "." || part == "..";
    if path.is_empty() || path.split('/').any(odd) || path.contains('\0') {
        let message = format!("`{}` is no path of a cgroup", crate::wording::excerpt(text));
        let draft = Draft::new(Code::BadValue, &entry.value.place, message);
        problems.report(draft.advice("write the path below the cgroup2 root").replace("system.slice/order.service"));
        return None;
    }
    Some(Scope::Cgroup(path.to_owned()))
}

pub(super) fn pid(entry: &Entry, problems: &mut Problems<'_>) -> Option<Scope> {
    let text = fields::text(entry, problems)?;
    // The kernel's own limit is 2^22.
    match text.parse::<u32>() {
        Ok(pid) if (1..=4_194_304).contains(&pid) => Some(Scope::Pid(pid)),
        _ => {
            let message = format!("`{}` is no process id", crate::wording::excerpt(text));
            problems.report(Draft::new(Code::BadValue, &entry.value.place, message).advice("write a number, as in `pid: 4711`"));
            None
        }
    }
}

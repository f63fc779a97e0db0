//! `cgroup`, `container` and `pid` under `select`: whose sockets' traffic is meant.

use super::super::super::fields::{self, Fields};
use super::super::super::node::Entry;
use super::super::super::problem::{Code, Draft, Problems};
use super::super::scope;
use crate::fault::Members;
use crate::playbook::Scope;
use crate::wording::excerpt;

const KEYS: [&str; 3] = ["cgroup", "container", "pid"];
/// Digits of a container's id that tell it from others, and of a whole one.
const SHORTEST: usize = 12;
const LONGEST: usize = 64;

pub(super) fn members(fields: &Fields<'_>, problems: &mut Problems<'_>) -> Option<Members> {
    let mut given = KEYS.into_iter().filter_map(|key| fields.get(key));
    let first = given.next()?;
    if let Some(second) = given.next() {
        let message = format!("`{}` and `{}` are two ways to say whose traffic is meant", first.key.text, second.key.text);
        problems.report(Draft::new(Code::Conflict, &second.key.place, message).advice("keep one of them"));
        return None;
    }
    match first.key.text.as_str() {
        "container" => container(first, problems).map(Members::Container),
        "pid" => match scope::pid(first, problems)? {
            Scope::Pid(pid) => Some(Members::Pid(pid)),
            _ => None,
        },
        _ => match scope::cgroup(first, problems)? {
            Scope::Cgroup(path) => Some(Members::Cgroup(path)),
            _ => None,
        },
    }
}

pub(super) fn container(entry: &Entry, problems: &mut Problems<'_>) -> Option<String> {
    let text = fields::text(entry, problems)?;
    // As Kubernetes has them: `containerd://` and the like before the id.
    let id = text.rsplit_once("://").map_or(text, |(_, id)| id);
    if (SHORTEST..=LONGEST).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        // Every runtime writes them small.
        return Some(id.to_ascii_lowercase());
    }
    let message = format!("`{}` is no container id", excerpt(text));
    let draft = Draft::new(Code::BadValue, &entry.value.place, message);
    let is_hexadecimal = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    problems.report(match id.len() {
        short @ ..SHORTEST if is_hexadecimal => {
            draft.advice(format!("it has {short} digits: write its first twelve or more, as `docker ps` lists it"))
        }
        long if is_hexadecimal => draft.advice(format!("it has {long} digits, and an id has {LONGEST}")),
        _ => draft.advice("write the id (not the name), or its first twelve hexadecimal digits, as `docker ps` and `crictl ps` list it"),
    });
    None
}

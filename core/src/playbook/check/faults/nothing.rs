//! A selection that no packet can be in: refused, because a fault that hits nothing tests nothing.

use super::super::super::node::{Entry, Node, Value};
use super::super::super::problem::{Code, Draft, Place, Problems};
use crate::edge::EdgeSpec;
use crate::fault::FaultSpec;
use crate::fault::reach::{self, Nothing};

/// Reports why a fault can meet nothing, at the key that makes it so.
pub(super) fn check(item: &Node, spec: &FaultSpec, edges: Option<&[EdgeSpec]>, problems: &mut Problems<'_>) {
    let Some(edge) = edges.and_then(|edges| edges.iter().find(|edge| edge.name == spec.to)) else { return };
    let Some(nothing) = reach::nothing(spec, edge) else { return };
    let (keys, message, advice): (&[&[&str]], String, &str) = match nothing {
        Nothing::Addresses => (
            &[&["select", "exclude", "addresses"]],
            "these exclude every address that is selected, so that nothing is left".to_owned(),
            "exclude less, or leave the fault out",
        ),
        Nothing::Ports => (
            &[&["select", "exclude", "ports"]],
            "these exclude every port that is selected, so that nothing is left".to_owned(),
            "exclude less, or leave the fault out",
        ),
        Nothing::Peers => (
            &[&["select", "exclude", "peers"]],
            "these exclude every caller that is selected, so that nothing is left".to_owned(),
            "exclude less, or leave the fault out",
        ),
        Nothing::Families => (
            &[&["select", "peers"], &["select", "exclude", "peers"], &["select", "addresses"]],
            "no connection has an IPv4 and an IPv6 end, so that nothing would be selected".to_owned(),
            "write `peers` and `addresses` of the same family",
        ),
        Nothing::Protocol => (
            &[&["select", "protocol"]],
            format!(
                "no {} packet has such addresses, so that nothing would be selected",
                spec.select.protocol.map_or("", |of| of.as_str())
            ),
            "`icmp` is IPv4's, and `icmpv6` IPv6's",
        ),
        Nothing::Management => (
            &[&["select", "ports"], &["to"]],
            "SSH and DHCP are spared, so that nothing would be selected".to_owned(),
            "if they are meant, add `select: {include_management: true}`",
        ),
    };
    let place = keys.iter().find_map(|path| find(item, path)).unwrap_or(&item.place);
    problems.report(Draft::new(Code::Conflict, place, message).label("nothing is left").advice(advice));
}

/// The place of the value at a path of keys.
pub(super) fn find<'n>(node: &'n Node, path: &[&str]) -> Option<&'n Place> {
    let Some((key, rest)) = path.split_first() else { return Some(&node.place) };
    let Value::Map(entries) = &node.value else { return None };
    let entry: &Entry = entries.iter().find(|entry| entry.key.text == *key)?;
    find(&entry.value, rest)
}

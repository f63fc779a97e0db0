//! Queueing disciplines: clsact on the interface, netem on our ifb.

use super::netlink::{CREATE_ONLY, Netlink, NetlinkError};
use super::tlv::{Attributes, Writer, text, u32_at};

const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
pub(crate) const TCA_KIND: u16 = 1;
pub(crate) const TCA_OPTIONS: u16 = 2;
const TCA_STATS2: u16 = 7;
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
const TC_H_ROOT: u32 = 0xffff_ffff;
/// Parent of clsact and of the older `ingress`; their handle is always the other constant.
const TC_H_CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;

/// A queueing discipline, with what it counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qdisc {
    /// The interface.
    pub interface: u32,
    /// Its handle, major number in the upper half.
    pub handle: u32,
    /// Where it hangs.
    pub parent: u32,
    /// `netem`, `clsact`, `fq` and so on.
    pub kind: String,
    /// Packets that left it.
    pub passed: u64,
    /// Packets that it dropped, on purpose or for lack of room.
    pub dropped: u64,
    /// Packets that it holds now.
    pub queued: u32,
}

/// Which discipline occupies the place of the classifier hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// None.
    Absent,
    /// clsact: both hooks.
    Clsact,
    /// The older `ingress`, without an egress hook.
    IngressOnly,
}

/// All disciplines on an interface.
pub(crate) fn list(netlink: &mut Netlink, interface: u32) -> Result<Vec<Qdisc>, NetlinkError> {
    let operation = "list the queueing disciplines";
    let malformed = || NetlinkError::Malformed { operation: operation.to_owned() };
    let mut found = Vec::new();
    for body in netlink.dump(operation, RTM_GETQDISC, &header(0, 0, 0, 0))? {
        // Old kernels dump all interfaces, whatever was asked.
        if u32_at(&body, 4) != Some(interface) {
            continue;
        }
        let mut qdisc = Qdisc {
            interface,
            handle: u32_at(&body, 8).ok_or_else(malformed)?,
            parent: u32_at(&body, 12).ok_or_else(malformed)?,
            kind: String::new(),
            passed: 0,
            dropped: 0,
            queued: 0,
        };
        for attribute in Attributes::new(body.get(20..).ok_or_else(malformed)?) {
            match attribute.map_err(|_| malformed())? {
                (TCA_KIND, value) => qdisc.kind = text(value),
                (TCA_STATS2, value) => {
                    if let Some(basic) = Attributes::new(value).find(TCA_STATS_BASIC).map_err(|_| malformed())? {
                        qdisc.passed = u32_at(basic, 8).unwrap_or(0).into();
                    }
                    if let Some(queue) = Attributes::new(value).find(TCA_STATS_QUEUE).map_err(|_| malformed())? {
                        qdisc.queued = u32_at(queue, 0).unwrap_or(0);
                        qdisc.dropped = u32_at(queue, 8).unwrap_or(0).into();
                    }
                }
                _ => {}
            }
        }
        found.push(qdisc);
    }
    Ok(found)
}

/// What holds the classifier hooks of an interface.
pub(crate) fn hooks(netlink: &mut Netlink, interface: u32) -> Result<Hooks, NetlinkError> {
    let at_hooks = list(netlink, interface)?.into_iter().find(|qdisc| qdisc.handle == CLSACT_HANDLE);
    Ok(match at_hooks {
        None => Hooks::Absent,
        Some(qdisc) if qdisc.kind == "clsact" => Hooks::Clsact,
        Some(_) => Hooks::IngressOnly,
    })
}

/// Adds clsact. Fails if the place is taken.
pub(crate) fn add_clsact(netlink: &mut Netlink, interface: u32) -> Result<(), NetlinkError> {
    let mut body = Writer::with_header(&header(interface, CLSACT_HANDLE, TC_H_CLSACT, 0));
    body.text(TCA_KIND, "clsact");
    netlink.request(&format!("add clsact to interface {interface}"), RTM_NEWQDISC, CREATE_ONLY, &body.into_bytes())
}

/// Deletes clsact with whatever hangs on it; success if it is gone already.
pub(crate) fn delete_clsact(netlink: &mut Netlink, interface: u32) -> Result<(), NetlinkError> {
    let mut body = Writer::with_header(&header(interface, CLSACT_HANDLE, TC_H_CLSACT, 0));
    body.text(TCA_KIND, "clsact");
    match netlink.request(&format!("delete clsact from interface {interface}"), RTM_DELQDISC, 0, &body.into_bytes()) {
        // EINVAL is what old kernels answer when nothing is there.
        Err(error) if error.is_absence() || error.errno() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}

/// Adds a root discipline with a handle of ours. Fails if the root has a handle already.
pub(crate) fn add_root(netlink: &mut Netlink, interface: u32, handle: u32, kind: &str, options: &[u8]) -> Result<(), NetlinkError> {
    let mut body = Writer::with_header(&header(interface, handle, TC_H_ROOT, 0));
    body.text(TCA_KIND, kind).attribute(TCA_OPTIONS, options);
    netlink.request(&format!("add {kind} to interface {interface}"), RTM_NEWQDISC, CREATE_ONLY, &body.into_bytes())
}

/// A `struct tcmsg`.
pub(crate) fn header(interface: u32, handle: u32, parent: u32, info: u32) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[4..8].copy_from_slice(&interface.to_ne_bytes());
    bytes[8..12].copy_from_slice(&handle.to_ne_bytes());
    bytes[12..16].copy_from_slice(&parent.to_ne_bytes());
    bytes[16..20].copy_from_slice(&info.to_ne_bytes());
    bytes
}

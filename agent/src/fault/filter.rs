//! cls_bpf filters on the hooks of an interface.
//!
//! Ours come last: their priorities lie above those that the kernel gives out by itself (49152 and below). A packet that is sent through
//! an ifb does not come back to the hook, so a filter of another that came after ours would no longer see it.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use nix::net::if_::if_indextoname;

use super::netlink::{CREATE_ONLY, Netlink, NetlinkError};
use super::qdisc::{TCA_KIND, TCA_OPTIONS, header};
use super::tlv::{Attributes, Malformed, Writer, text, u32_at};

const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;
const TCA_CHAIN: u16 = 11;
const TCA_BPF_ACT: u16 = 1;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
/// The program's return value is the verdict.
const DIRECT_ACTION: u32 = 1;
const TCA_ACT_KIND: u16 = 1;
const TCA_ACT_OPTIONS: u16 = 2;
const TCA_ACT_STATS: u16 = 4;
/// A `struct gnet_stats_queue`: length, backlog, drops, requeues, overlimits.
const TCA_STATS_QUEUE: u16 = 3;
const TCA_MIRRED_PARMS: u16 = 2;
const TCA_EGRESS_REDIR: u32 = 1;
const TC_ACT_STOLEN: u32 = 4;
/// All protocols, in network order.
const ANY_PROTOCOL: u32 = 0x0003_u16.to_be() as u32;

/// One of an interface's two hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hook {
    /// Packets that arrive.
    Ingress,
    /// Packets that leave.
    Egress,
}

impl Hook {
    /// Both hooks.
    pub const ALL: [Self; 2] = [Self::Ingress, Self::Egress];

    /// The word used in `plan`, the journal and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Egress => "egress",
        }
    }

    const fn parent(self) -> u32 {
        match self {
            Self::Ingress => 0xffff_fff2,
            Self::Egress => 0xffff_fff3,
        }
    }
}

/// Where a filter hangs: enough to delete it and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The interface.
    pub interface: u32,
    /// The hook.
    pub hook: Hook,
    /// Its priority; the higher, the later it runs.
    pub priority: u16,
    /// Its handle within the priority.
    pub handle: u32,
}

/// A filter as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) place: Place,
    /// `bpf`, `flower`, `u32` and so on.
    pub(crate) kind: String,
    /// The chain that it is in; a packet begins in chain 0.
    pub(crate) chain: u32,
    /// Whether its priority is for packets of every protocol.
    pub(crate) is_of_any_protocol: bool,
    /// Name of a cls_bpf program.
    pub(crate) name: Option<String>,
    /// The link that its redirect points to; 0 if that link is gone.
    pub(crate) redirects_to: Option<u32>,
    /// Packets that its redirect could not deliver.
    pub(crate) overlimits: u64,
}

/// What a matching filter does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// What the program returns.
    Direct,
    /// Send the packet out of that link.
    Redirect(u32),
}

/// All filters on a hook, the kernel's own entry for each priority (handle 0) included.
pub(crate) fn list(netlink: &mut Netlink, interface: u32, hook: Hook) -> Result<Vec<Filter>, NetlinkError> {
    let operation = format!("list the {} filters of interface {}", hook.as_str(), name_of(interface));
    let malformed = || NetlinkError::Malformed { operation: operation.clone() };
    let mut filters = Vec::new();
    for body in netlink.dump(&operation, RTM_GETTFILTER, &header(interface, 0, hook.parent(), 0))? {
        filters.push(read(&body, interface, hook).map_err(|_| malformed())?.ok_or_else(malformed)?);
    }
    Ok(filters)
}

fn read(body: &[u8], interface: u32, hook: Hook) -> Result<Option<Filter>, Malformed> {
    let (Some(handle), Some(info), Some(attributes)) = (u32_at(body, 8), u32_at(body, 16), body.get(20..)) else {
        return Ok(None);
    };
    // The priority is the upper half; the shift leaves sixteen bits.
    let place = Place { interface, hook, priority: u16::try_from(info >> 16).unwrap_or(u16::MAX), handle };
    let is_of_any_protocol = info & 0xffff == ANY_PROTOCOL;
    let mut filter = Filter { place, kind: String::new(), chain: 0, is_of_any_protocol, name: None, redirects_to: None, overlimits: 0 };
    let mut options = None;
    for attribute in Attributes::new(attributes) {
        match attribute? {
            (TCA_KIND, value) => filter.kind = text(value),
            (TCA_OPTIONS, value) => options = Some(value),
            (TCA_CHAIN, value) => filter.chain = u32_at(value, 0).unwrap_or(0),
            _ => {}
        }
    }
    if let (Some(options), "bpf") = (options, filter.kind.as_str()) {
        filter.name = Attributes::new(options).find(TCA_BPF_NAME)?.map(text);
        if let Some(actions) = Attributes::new(options).find(TCA_BPF_ACT)? {
            filter.redirects_to = redirect(actions)?;
            filter.overlimits = overlimits(actions)?;
        }
    }
    Ok(Some(filter))
}

/// The target of the first mirred among the actions.
fn redirect(actions: &[u8]) -> Result<Option<u32>, Malformed> {
    for action in Attributes::new(actions) {
        let (_, action) = action?;
        if Attributes::new(action).find(TCA_ACT_KIND)?.map(text).as_deref() != Some("mirred") {
            continue;
        }
        if let Some(options) = Attributes::new(action).find(TCA_ACT_OPTIONS)?
            && let Some(parameters) = Attributes::new(options).find(TCA_MIRRED_PARMS)?
        {
            return Ok(u32_at(parameters, 24));
        }
    }
    Ok(None)
}

/// What the first mirred among the actions could not deliver.
fn overlimits(actions: &[u8]) -> Result<u64, Malformed> {
    for action in Attributes::new(actions) {
        let (_, action) = action?;
        if let Some(stats) = Attributes::new(action).find(TCA_ACT_STATS)?
            && let Some(queue) = Attributes::new(stats).find(TCA_STATS_QUEUE)?
        {
            return Ok(u32_at(queue, 16).unwrap_or(0).into());
        }
    }
    Ok(0)
}

/// Adds a filter. Fails if the place is taken.
pub(crate) fn add(netlink: &mut Netlink, place: Place, name: &str, program: BorrowedFd<'_>, action: Action) -> Result<(), NetlinkError> {
    let mut body = Writer::with_header(&tcmsg(place));
    body.text(TCA_KIND, "bpf").nested(TCA_OPTIONS, |options| {
        if let Action::Redirect(link) = action {
            options.nested(TCA_BPF_ACT, |actions| {
                actions.nested(1, |mirred| {
                    mirred.text(TCA_ACT_KIND, "mirred").nested(TCA_ACT_OPTIONS, |options| {
                        options.attribute(TCA_MIRRED_PARMS, &mirred_parameters(link));
                    });
                });
            });
        }
        options.attribute(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes()).text(TCA_BPF_NAME, name);
        if action == Action::Direct {
            options.u32(TCA_BPF_FLAGS, DIRECT_ACTION);
        }
    });
    netlink.request(&describe("add", place), RTM_NEWTFILTER, CREATE_ONLY, &body.into_bytes())
}

/// Deletes a filter; success if it, its clsact or its interface is gone already.
pub(crate) fn delete(netlink: &mut Netlink, place: Place) -> Result<(), NetlinkError> {
    let mut body = Writer::with_header(&tcmsg(place));
    body.text(TCA_KIND, "bpf");
    match netlink.request(&describe("delete", place), RTM_DELTFILTER, 0, &body.into_bytes()) {
        // EINVAL: no clsact on the interface any more.
        Err(error) if error.is_absence() || error.errno() == Some(libc::EINVAL) => Ok(()),
        result => result,
    }
}

fn describe(verb: &str, place: Place) -> String {
    format!("{verb} the {} filter of interface {} at priority {}", place.hook.as_str(), name_of(place.interface), place.priority)
}

/// An interface's name in the calling thread's network namespace, or else its number.
fn name_of(interface: u32) -> String {
    let name = if_indextoname(interface).ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| interface.to_string())
}

fn tcmsg(place: Place) -> [u8; 20] {
    header(place.interface, place.handle, place.hook.parent(), u32::from(place.priority) << 16 | ANY_PROTOCOL)
}

/// A `struct tc_mirred`: index, capabilities, verdict, two counts, what to do, target.
fn mirred_parameters(link: u32) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[8..12].copy_from_slice(&TC_ACT_STOLEN.to_ne_bytes());
    bytes[20..24].copy_from_slice(&TCA_EGRESS_REDIR.to_ne_bytes());
    bytes[24..28].copy_from_slice(&link.to_ne_bytes());
    bytes
}

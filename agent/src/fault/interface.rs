//! Where an edge's packets pass: which interfaces, which hooks.
//!
//! A named interface is taken. Else, where networks are known (the fault's own selection, or the edge's address): the interface of the route to each,
//! which is loopback when the address is this host's own, and loopback besides when a network holds such an address. Of an ingress edge that is the route to the
//! callers that are selected; where they are not, loopback and the interface that has the served address. A downstream edge with a port only: loopback if a
//! listener of this host has the port, else the interface of the default route. An ingress edge without an address: loopback and the interface of the default
//! route, since callers may be on either; where there is no such route, every interface that has an address.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;

use futures_core::Stream as _;
use nix::net::if_::InterfaceFlags;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};
use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Role};
use stormdrill_core::fault::Select;
use thiserror::Error;

use super::link::{self, Link};
use super::netlink::{Netlink, NetlinkError};

/// What can go wrong while looking for an edge's interface.
#[derive(Debug, Error)]
pub enum InterfaceError {
    /// The playbook names an interface that does not exist.
    #[error("there is no interface {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// No route leads to the target.
    #[error("no route to {target}; name the interface with `interface:`")]
    Unrouted {
        /// The address, or `the default route`.
        target: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The edge has no address and the host no default route.
    #[error("{edge} has no address and this host no default route; give the edge an address or name the interface with `interface:`")]
    NoDefaultRoute {
        /// The edge.
        edge: String,
    },
    /// The interface's frames have a header that the classifier does not know.
    #[error("interface {name} has link type {hardware}, which is not supported")]
    Medium {
        /// The interface.
        name: String,
        /// Its `ARPHRD_…` number.
        hardware: u16,
    },
    /// The list of listening sockets cannot be read.
    #[error("read the listening sockets")]
    Listeners(#[source] io::Error),
    /// No socket or runtime for the question.
    #[error("ask the kernel for a route")]
    Ask(#[source] io::Error),
    /// The links cannot be listed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// The links that an edge's packets pass, with the reason for `plan`.
pub(crate) fn resolve(
    netlink: &mut Netlink,
    edge: &EdgeSpec,
    select: &Select,
    named: Option<&str>,
) -> Result<Vec<(Link, String)>, InterfaceError> {
    let links = link::list(netlink)?;
    let by_name = |name: &str| links.iter().find(|link| link.name == name).cloned();
    let by_index = |index: u32| links.iter().find(|link| link.index == index).cloned();
    let loopback = || links.iter().find(|link| link.is_loopback).cloned();

    let mut found = Vec::new();
    if let Some(name) = named {
        found.push((by_name(name), "named in the playbook".to_owned()));
    } else if let networks @ [_, ..] = networks(edge, select).as_slice() {
        let mut indexes = Vec::new();
        let within = routes_within(networks)?;
        for network in networks.iter().step_by(networks.len().div_ceil(MOST_ASKED)) {
            if network.prefix == 0 {
                // Every address of a family: its routes are all within, but for the default one.
                let route = default_route_of(network.address.is_ipv4())?;
                indexes.extend(route.map(|index| (index, "the default route".to_owned())));
                continue;
            }
            match routed(*network) {
                Ok(index) => indexes.push((index, format!("the route to {}", network.address))),
                // No route to its first hosts, but to others.
                Err(InterfaceError::Unrouted { .. }) if within.iter().any(|route| network.covers(&route.to)) => {}
                Err(error) => return Err(error),
            }
        }
        indexes.extend(within.into_iter().map(|route| (route.interface, format!("the route to {}", route.to))));
        if networks.iter().any(|network| network.prefix == 0) {
            indexes.extend(loopback().map(|link| (link.index, "this host's own addresses".to_owned())));
        }
        for own in own_addresses(&links).iter().filter(|own| networks.iter().any(|network| holds(network, own.address))) {
            indexes.extend(loopback().map(|link| (link.index, format!("{} is this host's own", own.address))));
            // Whoever is selected by the far end comes by the route to it.
            if edge.role == Role::Ingress && !is_by_callers(edge, select) {
                indexes.push((own.interface, format!("it has {}, for callers elsewhere", own.address)));
            }
        }
        let mut seen = Vec::new();
        for (index, why) in indexes {
            if !seen.contains(&index) {
                seen.push(index);
                found.push((by_index(index), why));
            }
        }
    } else if edge.role == Role::Ingress {
        found.push((loopback(), "callers on this host".to_owned()));
        if let Some(index) = default_route()? {
            found.push((by_index(index), "the default route, for callers elsewhere".to_owned()));
        } else {
            for own in own_addresses(&links) {
                let link = by_index(own.interface).filter(|link| link.link_header().is_some());
                if link.is_some() && !found.iter().any(|(other, _)| *other == link) {
                    found.push((link, format!("it has {}, for callers elsewhere: there is no default route", own.address)));
                }
            }
        }
    } else if edge.ports.is_some_and(|ports| listens(ports).unwrap_or(false)) {
        found.push((loopback(), "a listener of this host has the port".to_owned()));
    } else {
        let index = default_route()?.ok_or_else(|| InterfaceError::NoDefaultRoute { edge: edge.name.clone() })?;
        found.push((by_index(index), "the default route, because the edge has no address".to_owned()));
    }

    found
        .into_iter()
        .map(|(link, why)| {
            let link = link.ok_or_else(|| InterfaceError::Unknown { name: named.unwrap_or("of the route").to_owned() })?;
            if link.link_header().is_none() {
                return Err(InterfaceError::Medium { name: link.name, hardware: link.hardware });
            }
            Ok((link, why))
        })
        .collect()
}

/// How many hosts of a network are tried until one is not this host itself.
const HOSTS_TRIED: u8 = 4;

/// How many networks are asked for; of more, so many spread over them.
const MOST_ASKED: usize = 64;

/// The networks at the far end of a fault's packets, as far as they are known: the callers' of an ingress edge, or else the served addresses.
fn networks(edge: &EdgeSpec, select: &Select) -> Vec<Cidr> {
    let selected = if is_by_callers(edge, select) { &select.peers } else { &select.addresses };
    if selected.is_empty() { edge.address.into_iter().collect() } else { selected.clone() }
}

/// Whether the networks at the far end are those of an ingress edge's callers.
fn is_by_callers(edge: &EdgeSpec, select: &Select) -> bool {
    edge.role == Role::Ingress && select.peers.iter().any(|network| network.prefix > 0)
}

/// An address that an interface other than loopback has.
struct Own {
    address: IpAddr,
    interface: u32,
}

/// This host's own addresses, but for loopback's and those that mean something on one link only; none where they cannot be told.
fn own_addresses(links: &[Link]) -> Vec<Own> {
    let own = |found: nix::ifaddrs::InterfaceAddress| {
        let storage = found.address.as_ref()?;
        let four = storage.as_sockaddr_in().map(|four| IpAddr::V4(four.ip()));
        let address = four.or_else(|| storage.as_sockaddr_in6().map(|six| IpAddr::V6(six.ip())))?;
        let link = links.iter().find(|link| link.name == found.interface_name && !link.is_loopback)?;
        let is_of_a_link = matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
        (!is_of_a_link && found.flags.contains(InterfaceFlags::IFF_UP)).then_some(Own { address, interface: link.index })
    };
    nix::ifaddrs::getifaddrs().map(|all| all.filter_map(own).collect()).unwrap_or_default()
}

/// Whether an address is of a network, which may be an IPv4 one written as IPv6.
fn holds(network: &Cidr, address: IpAddr) -> bool {
    as_its_family(network).covers(&Cidr { address, prefix: bits(address) })
}

/// A route of this host's to a part of a network.
struct RouteTo {
    to: Cidr,
    interface: u32,
}

/// The routes to what is within networks, of more than one host each: their packets need not take the way of the network's first address.
fn routes_within(networks: &[Cidr]) -> Result<Vec<RouteTo>, InterfaceError> {
    let wide: Vec<Cidr> = networks.iter().map(as_its_family).filter(|network| network.prefix < bits(network.address)).collect();
    let mut found = Vec::new();
    for all in [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()] {
        if !wide.iter().any(|network| network.address.is_ipv4() == (all.header.address_family == AddressFamily::Inet)) {
            continue;
        }
        // A kernel without that family has no routes of it.
        for route in ask_all(all)?.unwrap_or_default() {
            let to = destination(&route).filter(|_| route.header.kind == RouteType::Unicast);
            if let (Some(to), Some(interface)) = (to, interface_of(&route))
                && wide.iter().any(|network| network.covers(&to))
            {
                found.push(RouteTo { to, interface });
            }
        }
    }
    Ok(found)
}

/// Where a route leads; `None` for the default route.
fn destination(route: &RouteMessage) -> Option<Cidr> {
    let address = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(four)) => Some(IpAddr::V4(*four)),
        RouteAttribute::Destination(RouteAddress::Inet6(six)) if !six.is_unicast_link_local() => Some(IpAddr::V6(*six)),
        _ => None,
    })?;
    Some(Cidr { address, prefix: route.header.destination_prefix_length })
}

const fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A network that may be an IPv4 one written as IPv6.
fn as_its_family(network: &Cidr) -> Cidr {
    match network.address {
        IpAddr::V6(six) if network.prefix >= 96 => {
            let four = six.to_ipv4_mapped().map(|four| Cidr { address: IpAddr::V4(four), prefix: network.prefix.saturating_sub(96) });
            four.unwrap_or(*network)
        }
        _ => *network,
    }
}

/// The interface on the route to an address, or to a host of a network that is not this one.
fn routed(network: Cidr) -> Result<u32, InterfaceError> {
    let unrouted = |source| InterfaceError::Unrouted { target: network.address.to_string(), source };
    let mut last = None;
    for number in 1..=HOSTS_TRIED {
        let (request, is_single) = request(network, number);
        let route = ask(request)?.map_err(unrouted)?;
        let is_this_host = route.header.kind == RouteType::Local;
        last = interface_of(&route);
        if is_single || !is_this_host {
            break;
        }
    }
    last.ok_or_else(|| unrouted(io::ErrorKind::NotFound.into()))
}

/// The question for the n-th host of a network, and whether it has only that one.
fn request(network: Cidr, number: u8) -> (RouteMessage, bool) {
    let four = |address: Ipv4Addr, prefix: u8| {
        let is_single = prefix >= 31;
        let host = if is_single { address } else { Ipv4Addr::from_bits(address.to_bits() | u32::from(number)) };
        (RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(host, 32).build(), is_single)
    };
    match network.address {
        IpAddr::V4(address) => four(address, network.prefix),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => four(mapped, network.prefix.saturating_sub(96)),
            None => {
                let is_single = network.prefix >= 127;
                let host = if is_single { address } else { Ipv6Addr::from_bits(address.to_bits() | u128::from(number)) };
                (RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(host, 128).build(), is_single)
            }
        },
    }
}

/// The interface of the default route, IPv4's first; `None` if there is none.
fn default_route() -> Result<Option<u32>, InterfaceError> {
    Ok(match default_route_of(true)? {
        Some(index) => Some(index),
        None => default_route_of(false)?,
    })
}

/// The interface of one family's default route; `None` if there is none.
fn default_route_of(is_ipv4: bool) -> Result<Option<u32>, InterfaceError> {
    // Documentation addresses: routed like any other of the wider net, and never a host's own.
    let probe = if is_ipv4 {
        RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(Ipv4Addr::new(192, 0, 2, 1), 32).build()
    } else {
        RouteMessageBuilder::<Ipv6Addr>::new().destination_prefix(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 128).build()
    };
    Ok(ask(probe)?.ok().as_ref().and_then(interface_of))
}

fn interface_of(route: &RouteMessage) -> Option<u32> {
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}

/// Asks the kernel for one route: the inner error is its refusal.
fn ask(request: RouteMessage) -> Result<Result<RouteMessage, io::Error>, InterfaceError> {
    let routes = ask_all(request)?;
    Ok(routes.and_then(|routes| routes.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())))
}

/// Asks the kernel for routes: for one if the request has a destination, for all of its family if it has none. The inner error is its refusal.
///
/// The question has a runtime of its own on a thread of its own, so that the answer is the same from inside and outside of another
/// runtime. A thread inherits the network namespace of the one that starts it.
fn ask_all(request: RouteMessage) -> Result<Result<Vec<RouteMessage>, io::Error>, InterfaceError> {
    let answer = std::thread::Builder::new()
        .name("route".to_owned())
        .spawn(move || -> io::Result<io::Result<Vec<RouteMessage>>> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                let (connection, handle, _) = rtnetlink::new_connection()?;
                let serving = tokio::spawn(connection);
                let routes = routes(&handle, request).await;
                serving.abort();
                Ok(routes)
            })
        })
        .map_err(InterfaceError::Ask)?
        .join();
    match answer {
        Ok(answer) => answer.map_err(InterfaceError::Ask),
        Err(_) => Err(InterfaceError::Ask(io::ErrorKind::Other.into())),
    }
}

async fn routes(handle: &Handle, request: RouteMessage) -> io::Result<Vec<RouteMessage>> {
    let mut answers = pin!(handle.route().get(request).execute());
    let mut routes = Vec::new();
    while let Some(answer) = poll_fn(|context| answers.as_mut().poll_next(context)).await {
        match answer {
            Ok(route) => routes.push(route),
            Err(rtnetlink::Error::NetlinkError(refusal)) => return Err(refusal.to_io()),
            Err(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Ok(routes)
}

/// Whether a TCP listener of this host (and namespace) has a port of the range.
fn listens(ports: PortRange) -> Result<bool, InterfaceError> {
    for path in ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"] {
        match fs::read_to_string(path) {
            Ok(table) if table.lines().skip(1).filter_map(listening_port).any(|port| (ports.first..=ports.last).contains(&port)) => {
                return Ok(true);
            }
            Ok(_) => {}
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(InterfaceError::Listeners(error)),
        }
    }
    Ok(false)
}

/// The port of a line `sl local_address rem_address st …` whose state is LISTEN.
fn listening_port(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, _remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    if state != "0A" {
        return None;
    }
    u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::net::TcpListener;

    use super::*;

    fn edge(role: Role, address: Option<&str>, port: u16) -> EdgeSpec {
        EdgeSpec {
            name: "e".to_owned(),
            role,
            address: address.map(|address| {
                let address: IpAddr = address.parse().unwrap();
                Cidr { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
            }),
            ports: Some(PortRange { first: port, last: port }),
            protocol: None,
        }
    }

    fn names(edge: &EdgeSpec, named: Option<&str>) -> Result<Vec<String>, InterfaceError> {
        let found = resolve(&mut Netlink::open()?, edge, &Select::default(), named)?;
        Ok(found.into_iter().map(|(link, _)| link.name).collect())
    }

    #[test]
    fn an_address_of_this_host_is_reached_through_loopback() {
        for address in ["127.0.0.1", "127.9.9.9", "::ffff:127.0.0.1", "::1"] {
            assert_eq!(names(&edge(Role::Downstream, Some(address), 80), None).unwrap(), ["lo"], "{address}");
        }
    }

    #[test]
    fn a_port_with_a_local_listener_is_reached_through_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(names(&edge(Role::Downstream, None, port), None).unwrap(), ["lo"]);
    }

    #[test]
    fn a_named_interface_wins_and_must_exist() {
        assert_eq!(names(&edge(Role::Downstream, Some("192.0.2.9"), 80), Some("lo")).unwrap(), ["lo"]);
        let error = names(&edge(Role::Downstream, None, 80), Some("eth99")).unwrap_err();
        assert_eq!(error.to_string(), "there is no interface eth99");
    }

    #[test]
    fn what_the_fault_selects_says_more_than_the_edge() {
        let loopback = Cidr { address: IpAddr::from([127, 0, 0, 5]), prefix: 32 };
        let callers = Select { peers: vec![loopback], ..Select::default() };
        let stores = Select { addresses: vec![loopback], ..Select::default() };
        for (edge, select) in [
            (edge(Role::Ingress, None, 1), callers),
            (edge(Role::Downstream, None, 1), stores.clone()),
            (
                EdgeSpec { address: Some(Cidr { address: IpAddr::from([0, 0, 0, 0]), prefix: 0 }), ..edge(Role::Downstream, None, 1) },
                stores,
            ),
        ] {
            let found = resolve(&mut Netlink::open().unwrap(), &edge, &select, None).unwrap();
            assert_eq!(
                found.iter().map(|(link, why)| (link.name.as_str(), why.as_str())).collect::<Vec<_>>(),
                [("lo", "the route to 127.0.0.5")]
            );
        }
    }

    #[test]
    fn only_listeners_count_as_listening() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1";
        assert_eq!(listening_port(line), Some(8080));
        assert_eq!(listening_port(&line.replace(" 0A ", " 01 ")), None);
    }
}

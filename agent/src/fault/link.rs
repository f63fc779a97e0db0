//! Links: which there are, and our own ifb devices.

use std::io;

use super::netlink::{CREATE_ONLY, Netlink, NetlinkError};
use super::tlv::{Attributes, Writer, text, u32_at};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_TXQLEN: u16 = 13;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_INFO_KIND: u16 = 1;
/// Not in libc.
const ARPHRD_RAWIP: u16 = 519;
const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 8;
/// The default of 32 would stop the queue at every burst.
const QUEUE_LENGTH: u32 = 1000;

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// A text that somebody gave it, which stays when it is renamed.
    pub alias: Option<String>,
    /// Its hardware type, `ARPHRD_…`.
    pub hardware: u16,
    /// Its driver kind (`ifb`, `veth`), where the kernel gives one.
    pub kind: Option<String>,
    /// Whether it is a loopback device.
    pub is_loopback: bool,
    /// Its largest packet without the link's header, bytes.
    pub mtu: u32,
}

impl Link {
    /// Bytes that a classifier sees before the IP header; `None` on a medium that is not supported.
    #[must_use]
    pub const fn link_header(&self) -> Option<u32> {
        match self.hardware {
            // Ethernet, and loopback, which has an Ethernet header too.
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(14),
            // tun, WireGuard, modems and IP in IP: the packet begins with its IP header.
            libc::ARPHRD_NONE | ARPHRD_RAWIP | libc::ARPHRD_PPP | libc::ARPHRD_TUNNEL | libc::ARPHRD_TUNNEL6 | libc::ARPHRD_SIT => Some(0),
            _ => None,
        }
    }
}

/// All links of the socket's namespace.
pub(crate) fn list(netlink: &mut Netlink) -> Result<Vec<Link>, NetlinkError> {
    let operation = "list the network interfaces";
    let malformed = || NetlinkError::Malformed { operation: operation.to_owned() };
    let mut links = Vec::new();
    for body in netlink.dump(operation, RTM_GETLINK, &[0; 16])? {
        let hardware = body.get(2..4).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(malformed)?;
        let index = u32_at(&body, 4).ok_or_else(malformed)?;
        let flags = u32_at(&body, 8).ok_or_else(malformed)?;
        let is_loopback = flags & IFF_LOOPBACK != 0;
        let mut link = Link { index, name: String::new(), alias: None, hardware, kind: None, is_loopback, mtu: 0 };
        for attribute in Attributes::new(body.get(16..).ok_or_else(malformed)?) {
            match attribute.map_err(|_| malformed())? {
                (IFLA_IFNAME, value) => link.name = text(value),
                (IFLA_IFALIAS, value) => link.alias = Some(text(value)),
                (IFLA_MTU, value) => link.mtu = u32_at(value, 0).ok_or_else(malformed)?,
                (IFLA_LINKINFO, value) => {
                    link.kind = Attributes::new(value).find(IFLA_INFO_KIND).map_err(|_| malformed())?.map(text);
                }
                _ => {}
            }
        }
        links.push(link);
    }
    Ok(links)
}

/// The link of that name, if there is one.
pub(crate) fn find(netlink: &mut Netlink, name: &str) -> Result<Option<Link>, NetlinkError> {
    Ok(list(netlink)?.into_iter().find(|link| link.name == name))
}

/// Makes an ifb device, down. Fails if the name is taken.
pub(crate) fn add_ifb(netlink: &mut Netlink, name: &str) -> Result<Link, NetlinkError> {
    let operation = format!("add the device {name} of kind ifb");
    let mut body = Writer::with_header(&header(0, 0, 0));
    body.text(IFLA_IFNAME, name).u32(IFLA_TXQLEN, QUEUE_LENGTH).nested(IFLA_LINKINFO, |info| {
        info.text(IFLA_INFO_KIND, "ifb");
    });
    netlink.request(&operation, RTM_NEWLINK, CREATE_ONLY, &body.into_bytes())?;
    find(netlink, name)?.ok_or(NetlinkError::Refused { operation, explanation: None, source: io::Error::from_raw_os_error(libc::ENODEV) })
}

/// Gives a link a text by which it is known under whatever name.
pub(crate) fn set_alias(netlink: &mut Netlink, link: &Link, alias: &str) -> Result<(), NetlinkError> {
    let operation = format!("give the device {} an alias", link.name);
    let mut body = Writer::with_header(&header(link.index, 0, 0));
    body.text(IFLA_IFALIAS, alias);
    netlink.request(&operation, RTM_NEWLINK, 0, &body.into_bytes())
}

/// Sets a link up.
pub(crate) fn set_up(netlink: &mut Netlink, link: &Link) -> Result<(), NetlinkError> {
    let operation = format!("set the device {} up", link.name);
    netlink.request(&operation, RTM_NEWLINK, 0, &header(link.index, IFF_UP, IFF_UP))
}

/// Deletes a link; success if it is gone already.
pub(crate) fn delete(netlink: &mut Netlink, link: &Link) -> Result<(), NetlinkError> {
    let operation = format!("delete the device {}", link.name);
    match netlink.request(&operation, RTM_DELLINK, 0, &header(link.index, 0, 0)) {
        Err(error) if error.is_absence() => Ok(()),
        result => result,
    }
}

/// A `struct ifinfomsg`.
fn header(index: u32, flags: u32, changed: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&changed.to_ne_bytes());
    bytes
}

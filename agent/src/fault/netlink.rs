//! A blocking route socket: requests that wait for their acknowledgement, and dumps that are whole or an error.
//!
//! Blocking, because the removal of a fault must also work from `Drop`, from a signal's path and without a runtime. A socket belongs
//! to the namespace that it was opened in, so whoever holds it acts there, whatever thread it is on.

use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};
use thiserror::Error;

use super::tlv::{Attributes, text, u32_at};

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
/// The table changed while it was dumped.
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_DUMP: u16 = 0x300;
/// Attributes follow the error code and the request's header.
const NLM_F_ACK_TLVS: u16 = 0x200;
/// Create what does not exist, and fail if it does.
pub(crate) const CREATE_ONLY: u16 = 0x400 | 0x200;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLMSGERR_ATTR_MSG: u16 = 1;
const HEADER: usize = 16;
/// How often a dump is begun again when the table changes under it.
const DUMP_ATTEMPTS: u32 = 16;

/// What can go wrong between us and the kernel.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// No socket.
    #[error("open a netlink socket")]
    Open(#[source] io::Error),
    /// The socket broke down in the middle of an operation, whose outcome is unknown.
    #[error("{operation}: talk to the kernel")]
    Transport {
        /// What was being done.
        operation: String,
        /// Why it could not be.
        source: io::Error,
    },
    /// The kernel said no.
    #[error("{operation}{}", .explanation.as_ref().map(|text| format!(": the kernel says \"{text}\"")).unwrap_or_default())]
    Refused {
        /// What was being done.
        operation: String,
        /// The kernel's own words, where it has some.
        explanation: Option<String>,
        /// The errno.
        source: io::Error,
    },
    /// The answer is not what the protocol says.
    #[error("{operation}: an answer that makes no sense")]
    Malformed {
        /// What was being done.
        operation: String,
    },
    /// The table kept changing while it was read.
    #[error("{operation}: the table changed {DUMP_ATTEMPTS} times while it was read")]
    Restless {
        /// What was being done.
        operation: String,
    },
}

impl NetlinkError {
    /// The kernel's errno, if it was the kernel that refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Whether the thing that was to be removed or read does not exist (any more).
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self.errno(), Some(libc::ENOENT | libc::ENODEV))
    }
}

/// A route socket in the namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace. Needs no privilege.
    ///
    /// # Errors
    /// When the kernel gives out no socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.set_ext_ack(true)?;
            // Without the copy of the request, the kernel's words are at a fixed place.
            socket.set_cap_ack(true)?;
            Ok(socket)
        };
        Ok(Self { socket: open().map_err(NetlinkError::Open)?, sequence: 0 })
    }

    /// Sends a request and waits until the kernel has carried it out.
    pub(crate) fn request(&mut self, operation: &str, kind: u16, flags: u16, body: &[u8]) -> Result<(), NetlinkError> {
        self.send(operation, kind, NLM_F_REQUEST | NLM_F_ACK | flags, body)?;
        loop {
            for message in self.receive(operation)? {
                if message.kind == NLMSG_ERROR {
                    return outcome(operation, &message);
                }
            }
        }
    }

    /// Reads a whole table: the bodies of all messages that answer.
    pub(crate) fn dump(&mut self, operation: &str, kind: u16, body: &[u8]) -> Result<Vec<Vec<u8>>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS {
            if let Some(bodies) = self.dump_once(operation, kind, body)? {
                return Ok(bodies);
            }
        }
        Err(NetlinkError::Restless { operation: operation.to_owned() })
    }

    /// `None` if the table changed meanwhile.
    fn dump_once(&mut self, operation: &str, kind: u16, body: &[u8]) -> Result<Option<Vec<Vec<u8>>>, NetlinkError> {
        self.send(operation, kind, NLM_F_REQUEST | NLM_F_DUMP, body)?;
        collect(operation, || self.receive(operation))
    }

    fn send(&mut self, operation: &str, kind: u16, flags: u16, body: &[u8]) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let length = u32::try_from(HEADER + body.len()).map_err(|_| NetlinkError::Malformed { operation: operation.to_owned() })?;
        let mut message = Vec::with_capacity(HEADER + body.len());
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&kind.to_ne_bytes());
        message.extend_from_slice(&flags.to_ne_bytes());
        message.extend_from_slice(&self.sequence.to_ne_bytes());
        message.extend_from_slice(&[0; 4]);
        message.extend_from_slice(body);
        self.socket
            .send_to(&message, &SocketAddr::new(0, 0), 0)
            .map_err(|source| NetlinkError::Transport { operation: operation.to_owned(), source })?;
        Ok(())
    }

    /// The messages of one datagram that belong to the last request.
    fn receive(&self, operation: &str) -> Result<Vec<Message>, NetlinkError> {
        let datagram = loop {
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => break datagram,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(NetlinkError::Transport { operation: operation.to_owned(), source }),
            }
        };
        let malformed = || NetlinkError::Malformed { operation: operation.to_owned() };
        let mut messages = Vec::new();
        let mut rest = datagram.as_slice();
        while !rest.is_empty() {
            let length = u32_at(rest, 0).and_then(|length| usize::try_from(length).ok()).ok_or_else(malformed)?;
            let kind_and_flags = u32_at(rest, 4).ok_or_else(malformed)?.to_ne_bytes();
            let sequence = u32_at(rest, 8).ok_or_else(malformed)?;
            let body = rest.get(HEADER..length).ok_or_else(malformed)?;
            if sequence == self.sequence {
                messages.push(Message {
                    kind: u16::from_ne_bytes([kind_and_flags[0], kind_and_flags[1]]),
                    flags: u16::from_ne_bytes([kind_and_flags[2], kind_and_flags[3]]),
                    body: body.to_vec(),
                });
            }
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        }
        Ok(messages)
    }
}

struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

/// Puts a dump together from its datagrams; `None` if the table changed meanwhile.
fn collect(operation: &str, mut receive: impl FnMut() -> Result<Vec<Message>, NetlinkError>) -> Result<Option<Vec<Vec<u8>>>, NetlinkError> {
    let mut bodies = Vec::new();
    let mut is_consistent = true;
    loop {
        for message in receive()? {
            is_consistent &= message.flags & NLM_F_DUMP_INTR == 0;
            match message.kind {
                NLMSG_ERROR => {
                    outcome(operation, &message)?;
                    return Err(NetlinkError::Malformed { operation: operation.to_owned() });
                }
                NLMSG_DONE => {
                    // A dump that failed half-way says so in its end.
                    let code = u32_at(&message.body, 0).unwrap_or(0).cast_signed();
                    if code < 0 {
                        return Err(NetlinkError::Refused {
                            operation: operation.to_owned(),
                            explanation: None,
                            source: io::Error::from_raw_os_error(code.saturating_neg()),
                        });
                    }
                    return Ok(is_consistent.then_some(bodies));
                }
                _ => bodies.push(message.body),
            }
        }
    }
}

/// What an acknowledgement says: done, or the errno with the kernel's explanation.
fn outcome(operation: &str, message: &Message) -> Result<(), NetlinkError> {
    let code = u32_at(&message.body, 0).ok_or_else(|| NetlinkError::Malformed { operation: operation.to_owned() })?.cast_signed();
    if code == 0 {
        return Ok(());
    }
    let explanation = if message.flags & NLM_F_ACK_TLVS == 0 { None } else { explanation(&message.body) };
    Err(NetlinkError::Refused { operation: operation.to_owned(), explanation, source: io::Error::from_raw_os_error(code.saturating_neg()) })
}

/// The text among the attributes behind the code and the request's header.
fn explanation(body: &[u8]) -> Option<String> {
    let attributes = Attributes::new(body.get(4 + HEADER..)?);
    let value = attributes.find(NLMSGERR_ATTR_MSG).ok()??;
    Some(text(value).trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    fn refusal(code: i32, words: &str) -> Message {
        let mut body = code.to_ne_bytes().to_vec();
        body.extend_from_slice(&[0; HEADER]);
        let mut writer = super::super::tlv::Writer::default();
        writer.u32(2, 40).text(NLMSGERR_ATTR_MSG, words);
        body.extend_from_slice(&writer.into_bytes());
        Message { kind: NLMSG_ERROR, flags: NLM_F_ACK_TLVS, body }
    }

    #[test]
    fn the_kernels_words_and_errno_reach_the_error() {
        let error = outcome("add netem to sd0", &refusal(-libc::ENOENT, "Specified qdisc kind is unknown.")).unwrap_err();
        assert_eq!(error.to_string(), "add netem to sd0: the kernel says \"Specified qdisc kind is unknown\"");
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert!(error.is_absence());
    }

    #[test]
    fn an_acknowledgement_is_success() {
        let message = Message { kind: NLMSG_ERROR, flags: 0, body: vec![0; 20] };
        assert!(outcome("x", &message).is_ok());
    }

    fn part(kind: u16, flags: u16, code: i32) -> Message {
        let mut body = code.to_ne_bytes().to_vec();
        body.resize(20, 0);
        Message { kind, flags, body }
    }

    #[test]
    fn a_dump_that_fails_at_any_point_is_an_error_and_never_an_empty_table() {
        const ENTRY: u16 = 16;
        let dump = |datagrams: Vec<Vec<Message>>| {
            let mut datagrams = datagrams.into_iter();
            let broken = || NetlinkError::Transport { operation: "dump".to_owned(), source: io::ErrorKind::ConnectionReset.into() };
            collect("dump", || datagrams.next().ok_or_else(broken))
        };
        // At once, half-way, in its end, and not at all.
        assert_eq!(dump(vec![vec![part(NLMSG_ERROR, 0, -libc::EPERM)]]).unwrap_err().errno(), Some(libc::EPERM));
        assert!(dump(vec![vec![part(ENTRY, 0, 0)], vec![part(NLMSG_ERROR, 0, 0)]]).is_err());
        assert_eq!(dump(vec![vec![part(ENTRY, 0, 0), part(NLMSG_DONE, 0, -libc::ENOMEM)]]).unwrap_err().errno(), Some(libc::ENOMEM));
        assert!(dump(vec![vec![part(ENTRY, 0, 0)]]).is_err());
        // One that changed under the reader is read again, and a whole one counts.
        assert_eq!(dump(vec![vec![part(ENTRY, NLM_F_DUMP_INTR, 0)], vec![part(NLMSG_DONE, 0, 0)]]).unwrap(), None);
        assert_eq!(dump(vec![vec![part(ENTRY, 0, 0)], vec![part(NLMSG_DONE, 0, 0)]]).unwrap().map(|bodies| bodies.len()), Some(1));
    }

    #[test]
    fn a_real_kernel_answers_a_dump_of_links() {
        let mut netlink = Netlink::open().unwrap();
        let links = netlink.dump("list links", 18, &[0; 16]).unwrap();
        assert!(!links.is_empty());
    }
}

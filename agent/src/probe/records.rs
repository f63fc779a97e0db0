//! Ring-buffer records, decoded.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use stormdrill_core::edge::{EdgeId, Protocol, Role};
use stormdrill_core::event::{Close, ConnId, ConnectFailure, HeadPiece, ProbeEvent, ProbeEventKind, StreamEvent, StreamEventKind};
use stormdrill_wire::abi::{EventHeader, close, failure, kind, protocol, role};

const HEADER: usize = size_of::<EventHeader>();

/// The event of a record; `None` if it is no record of this version's.
pub(super) fn decode(record: &[u8]) -> Option<ProbeEvent> {
    let (header, rest) = record.split_at_checked(HEADER)?;
    let header = Header(header);
    let data = rest.get(..usize::from(header.u16(28)))?;
    let [edge, role, kind, flags, protocol] = header.bytes(32);
    let (index, offset, status) = (header.u32(20), header.u32(24), header.u16(30));
    let piece = || HeadPiece {
        offset,
        bytes: data.to_vec(),
        complete: flags & EventHeader::COMPLETE != 0,
        truncated: flags & EventHeader::TRUNCATED != 0,
    };
    let on_stream = |kind| {
        ProbeEventKind::Stream(StreamEvent {
            stream: index,
            from_server: flags & EventHeader::FROM_SERVER != 0,
            ends: flags & EventHeader::END_STREAM != 0,
            joined_late: flags & EventHeader::JOINED_LATE != 0,
            kind,
        })
    };
    let kind = match kind {
        kind::OPENED => {
            let (local, peer) = addresses(data)?;
            ProbeEventKind::Opened { local, peer }
        }
        kind::CONNECT_FAILED => ProbeEventKind::ConnectFailed { peer: addresses(data)?.1, reason: reason(status) },
        kind::UPGRADED => ProbeEventKind::Upgraded { index },
        kind::ASKS_NO_MORE => ProbeEventKind::AsksNoMore,
        kind::TURNED_AWAY => ProbeEventKind::TurnedAway { piece: piece() },
        kind::REQUEST => ProbeEventKind::RequestHead { index, piece: piece() },
        kind::RESPONSE => {
            let by_requester = if role == role::INGRESS { EventHeader::PEER_ENDED } else { EventHeader::LOCAL_ENDED };
            ProbeEventKind::ResponseHead { index, status, requester_ended: flags & by_requester != 0, piece: piece() }
        }
        kind::CLOSED => ProbeEventKind::Closed { how: how(status)? },
        kind::BLOCK => on_stream(StreamEventKind::Block(piece())),
        kind::STREAM_END => on_stream(StreamEventKind::End),
        kind::STREAM_RESET => on_stream(StreamEventKind::Reset(status.into())),
        kind::STREAM_DATA => on_stream(StreamEventKind::Data(data.to_vec())),
        kind::GO_AWAY => on_stream(StreamEventKind::GoAway),
        kind::SETTINGS => on_stream(StreamEventKind::Settings(data.to_vec())),
        kind::STREAMS_MISSED => on_stream(StreamEventKind::Missed),
        _ => return None,
    };
    Some(ProbeEvent {
        at_ns: header.u64(0),
        epoch: header.u32(16),
        conn: ConnId(header.u64(8)),
        edge: EdgeId(edge),
        role: match role {
            role::INGRESS => Some(Role::Ingress),
            role::DOWNSTREAM => Some(Role::Downstream),
            _ => None,
        },
        protocol: recognised(protocol),
        kind,
    })
}

/// The protocol of a connection, as the kernel recognised it.
pub(super) const fn recognised(protocol: u8) -> Option<Protocol> {
    match protocol {
        protocol::HTTP1 => Some(Protocol::Http),
        protocol::HTTP2 => Some(Protocol::Http2),
        protocol::REDIS => Some(Protocol::Redis),
        protocol::MYSQL => Some(Protocol::Mysql),
        protocol::POSTGRES => Some(Protocol::Postgres),
        protocol::TLS => Some(Protocol::Tls),
        _ => None,
    }
}

/// The bytes of an [`EventHeader`], whose length is checked; the offsets are its own.
struct Header<'a>(&'a [u8]);

impl Header<'_> {
    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.bytes(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.bytes(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes(at))
    }
}

/// Local and peer address of an `Addresses`.
fn addresses(data: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let local: [u8; 16] = data.get(0..16)?.try_into().ok()?;
    let remote: [u8; 16] = data.get(16..32)?.try_into().ok()?;
    let local_port = u16::from_ne_bytes(data.get(32..34)?.try_into().ok()?);
    let remote_port = u16::from_ne_bytes(data.get(34..36)?.try_into().ok()?);
    Some((SocketAddr::new(address(local), local_port), SocketAddr::new(address(remote), remote_port)))
}

/// IPv4-mapped addresses are IPv4 to everybody else.
fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

const fn reason(status: u16) -> ConnectFailure {
    match status {
        failure::REFUSED => ConnectFailure::Refused,
        failure::TIMED_OUT => ConnectFailure::TimedOut,
        _ => ConnectFailure::Other,
    }
}

const fn how(status: u16) -> Option<Close> {
    match status {
        close::LOCAL => Some(Close::Local),
        close::PEER => Some(Close::Peer),
        close::LOCAL_RESET => Some(Close::LocalReset),
        close::PEER_RESET => Some(Close::PeerReset),
        _ => None,
    }
}

// The offsets that `decode` reads at.
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(EventHeader, at_ns) == 0 && offset_of!(EventHeader, cookie) == 8);
    assert!(offset_of!(EventHeader, epoch) == 16 && offset_of!(EventHeader, index) == 20);
    assert!(offset_of!(EventHeader, offset) == 24 && offset_of!(EventHeader, len) == 28);
    assert!(offset_of!(EventHeader, status) == 30 && offset_of!(EventHeader, edge) == 32 && offset_of!(EventHeader, protocol) == 36);
};

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    fn record(kind: u8, status: u16, data: &[u8]) -> Vec<u8> {
        flagged(kind, status, EventHeader::COMPLETE, data)
    }

    fn flagged(kind: u8, status: u16, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(7_u64.to_ne_bytes());
        bytes.extend(8_u64.to_ne_bytes());
        bytes.extend(9_u32.to_ne_bytes());
        bytes.extend(10_u32.to_ne_bytes());
        bytes.extend(11_u32.to_ne_bytes());
        bytes.extend(u16::try_from(data.len()).unwrap().to_ne_bytes());
        bytes.extend(status.to_ne_bytes());
        bytes.extend([3, role::INGRESS, kind, flags, protocol::HTTP2, 0, 0, 0]);
        bytes.extend(data);
        // The kernel reserves classes of sizes: what follows the data is no part of it.
        bytes.extend([0xee; 17]);
        bytes
    }

    #[test]
    fn a_request_head_is_decoded() {
        let event = decode(&record(kind::REQUEST, 0, b"GET / HTTP/1.1\r\n")).unwrap();
        assert_eq!((event.at_ns, event.conn, event.epoch), (7, ConnId(8), 9));
        assert_eq!((event.edge, event.role), (EdgeId(3), Some(Role::Ingress)));
        let piece = HeadPiece { offset: 11, bytes: b"GET / HTTP/1.1\r\n".to_vec(), complete: true, truncated: false };
        assert_eq!(event.kind, ProbeEventKind::RequestHead { index: 10, piece });
    }

    #[test]
    fn mapped_addresses_are_shown_as_ipv4() {
        let mut data = Vec::new();
        data.extend("::ffff:10.0.0.1".parse::<Ipv6Addr>().unwrap().octets());
        data.extend("2001:db8::1".parse::<Ipv6Addr>().unwrap().octets());
        data.extend(80_u16.to_ne_bytes());
        data.extend(40000_u16.to_ne_bytes());
        let event = decode(&record(kind::OPENED, 0, &data)).unwrap();
        let (local, peer) = ("10.0.0.1:80".parse().unwrap(), "[2001:db8::1]:40000".parse().unwrap());
        assert_eq!(event.kind, ProbeEventKind::Opened { local, peer });
    }

    #[test]
    fn what_happens_on_streams_is_decoded() {
        let from_server = EventHeader::FROM_SERVER | EventHeader::END_STREAM;
        let event = decode(&flagged(kind::STREAM_RESET, 7, from_server, &[])).unwrap();
        assert_eq!(event.protocol, Some(Protocol::Http2));
        let expected = StreamEvent { stream: 10, from_server: true, ends: true, joined_late: false, kind: StreamEventKind::Reset(7) };
        assert_eq!(event.kind, ProbeEventKind::Stream(expected.clone()));
        let event = decode(&flagged(kind::BLOCK, 0, EventHeader::JOINED_LATE, &[0x82])).unwrap();
        let piece = HeadPiece { offset: 11, bytes: vec![0x82], complete: false, truncated: false };
        let kind = StreamEventKind::Block(piece);
        assert_eq!(
            event.kind,
            ProbeEventKind::Stream(StreamEvent { from_server: false, ends: false, joined_late: true, kind, ..expected })
        );
    }

    #[test]
    fn what_is_no_record_is_refused() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0; 39]), None);
        assert_eq!(decode(&record(77, 0, &[])), None);
        assert_eq!(decode(&record(kind::OPENED, 0, &[1, 2, 3])), None);
        let mut short = record(kind::REQUEST, 0, b"GET");
        short[28] = 0xff;
        assert_eq!(decode(&short), None);
    }
}

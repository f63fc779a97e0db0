//! The kernel's programs and the host's recogniser on the same bytes, over real sockets: each conversation of the corpus (`wire/tests/corpus`) is said
//! on a connection of its own, as it is and cut at other places, and both must count the same and tell the same. Run as root:
//! `cargo xtask test --only privileged_agreement`.
//!
//! `BPF_PROG_TEST_RUN` would not do: it gives a `cgroup_skb` program a socket of its own for each run, closed and without a past, and so no state.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../wire/tests/corpus/mod.rs"]
mod corpus;
mod lab;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use corpus::Talk;
use lab::in_namespace;
use stormdrill::cgroup;
use stormdrill::probe::{Health, Probe, ProbeConfig};
use stormdrill_core::edge::{EdgeId, EdgeSpec, PortRange, Protocol, Role};
use stormdrill_core::event::{HeadPiece, ProbeEvent, ProbeEventKind, StreamEventKind};
use stormdrill_wire::abi::{EventHeader, HEAD_CAPTURE, REQUEST_CAPTURE, RESPONSE_CAPTURE, kind};
use stormdrill_wire::conn::side;
use stormdrill_wire::recogniser::{Note, Piece, tally};
use stormdrill_wire::replay::{Observer, Replay};

/// The ports of connections whose protocol is recognised, or pinned as in `abi::protocol`, one after another.
const PORT: u16 = 24_310;
const PINS: [Option<Protocol>; 6] =
    [None, Some(Protocol::Http), Some(Protocol::Http2), Some(Protocol::Redis), Some(Protocol::Mysql), Some(Protocol::Postgres)];

/// Two edges for each port: where it is served, and where it is called.
fn edges() -> Vec<EdgeSpec> {
    let edge = |role: Role, (port, protocol): (u16, Option<Protocol>)| EdgeSpec {
        name: format!("{}-{port}", role.as_str()),
        role,
        address: None,
        ports: Some(PortRange { first: port, last: port }),
        protocol,
    };
    let ports = (PORT..).zip(PINS);
    ports.flat_map(|port| [edge(Role::Ingress, port), edge(Role::Downstream, port)]).collect()
}

/// Both ends of a connection.
struct Pair {
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn open(listener: &TcpListener) -> Self {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        Self { client, server }
    }

    /// Says all of it, each turn once the one before has been heard, so that each is a segment of its own.
    fn say(&self, talk: &Talk) {
        let mut heard = vec![0; corpus::LONGEST];
        for (from, bytes) in &talk.turns {
            let (mut sender, mut receiver) =
                if *from == side::REQUEST { (&self.client, &self.server) } else { (&self.server, &self.client) };
            sender.write_all(bytes).unwrap();
            receiver.read_exact(&mut heard[..bytes.len()]).unwrap();
        }
    }
}

/// TCP cuts what is longer than half of its window at a place of its own.
fn in_segments(talk: Talk) -> Talk {
    let cut = |(side, bytes): &(usize, Vec<u8>)| bytes.chunks(16_000).map(|chunk| (*side, chunk.to_vec())).collect::<Vec<_>>();
    Talk { turns: talk.turns.iter().flat_map(cut).collect(), ..talk }
}

/// What the host's recogniser finds in a conversation.
#[derive(Default)]
struct Expected {
    streams: [Vec<u8>; 2],
    /// Side, what is told, and the bytes that belong to it.
    told: Vec<(usize, Note, Piece)>,
    counts: Counts,
}

/// What is counted of an edge.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Counts {
    requests: u64,
    responses: u64,
    ok: u64,
    errors: u64,
    turned_away: u64,
    bytes: [u64; 2],
    status: BTreeMap<u16, u64>,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.requests += more.requests;
        self.responses += more.responses;
        self.ok += more.ok;
        self.errors += more.errors;
        self.turned_away += more.turned_away;
        self.bytes = [self.bytes[0] + more.bytes[0], self.bytes[1] + more.bytes[1]];
        for (status, count) in &more.status {
            *self.status.entry(*status).or_default() += count;
        }
    }
}

impl Observer for Expected {
    fn note(&mut self, side: usize, note: &Note, piece: Piece) {
        if note.tally == tally::STATUS {
            *self.counts.status.entry(note.status).or_default() += 1;
        }
        // Of a head, the kernel tells no more than its first bytes.
        let is_cut = note.kind <= kind::RESPONSE && note.flags & EventHeader::COMPLETE == 0 && piece.offset >= HEAD_CAPTURE;
        if note.kind != 0 && !is_cut {
            self.told.push((side, *note, piece));
        }
    }
}

impl Expected {
    fn of(talk: &Talk) -> Self {
        let mut expected = Self::default();
        let start = if talk.late { Replay::found() } else { Replay::new([0, 0]) };
        let mut replay = start.pinned(talk.pin);
        for (side, bytes) in &talk.turns {
            let seq = u32::try_from(expected.streams[*side].len()).unwrap();
            expected.streams[*side].extend(bytes);
            replay.segment(*side, seq, bytes, &mut expected);
        }
        assert_eq!(replay.gaps, 0);
        let Replay { requests, responses, ok, errors, turned_away, bytes, .. } = replay;
        expected.counts =
            Counts { requests, responses, ok, errors, turned_away, bytes, status: std::mem::take(&mut expected.counts.status) };
        expected
    }

    /// Checks what the kernel told of one end, side by side: what is kept until the other side tells what it is may be read a little earlier or later.
    fn check(&self, told: &[&ProbeEvent], talk: &Talk) {
        assert!(told.iter().all(|event| event.conn == told[0].conn));
        for side in [side::REQUEST, side::RESPONSE] {
            let expected: Vec<_> = self.told.iter().filter(|told| told.0 == side).collect();
            let told: Vec<_> = told.iter().filter(|event| side_of(event) == side).collect();
            let agreed = expected.iter().zip(&told).take_while(|(expected, event)| self.is(expected, event)).count();
            assert!(
                agreed == expected.len() && agreed == told.len(),
                "message {agreed} of {} is {:#?},\nand of {} was told {:#?}\nin {talk:?}",
                expected.len(),
                expected.get(agreed),
                told.len(),
                told.get(agreed)
            );
        }
    }

    /// Whether an event is the one expected.
    fn is(&self, (side, note, piece): &(usize, Note, Piece), event: &ProbeEvent) -> bool {
        let limit = if note.kind == kind::REQUEST { REQUEST_CAPTURE } else { RESPONSE_CAPTURE };
        let room = if note.kind <= kind::RESPONSE { HEAD_CAPTURE.saturating_sub(piece.offset) } else { RESPONSE_CAPTURE };
        let least = if note.bare { 0 } else { piece.to.wrapping_sub(piece.from).min(limit).min(room) };
        let has = |bytes: &[u8]| {
            let stream = self.streams[*side].get(piece.from as usize..).unwrap_or_default();
            bytes.len() >= least as usize && stream.starts_with(bytes)
        };
        let is_piece = |told: &HeadPiece| {
            let complete = note.flags & EventHeader::COMPLETE != 0;
            has(&told.bytes) && told.complete == complete && (note.bare || told.offset == piece.offset)
        };
        match &event.kind {
            ProbeEventKind::RequestHead { index, piece } => note.kind == kind::REQUEST && *index == note.index && is_piece(piece),
            ProbeEventKind::ResponseHead { index, status, piece, .. } => {
                note.kind == kind::RESPONSE && (*index, *status) == (note.index, note.status) && is_piece(piece)
            }
            ProbeEventKind::TurnedAway { piece } => note.kind == kind::TURNED_AWAY && is_piece(piece),
            ProbeEventKind::Upgraded { index } => note.kind == kind::UPGRADED && *index == note.index,
            ProbeEventKind::Stream(told) => {
                let flag = |flag: u8| note.flags & flag != 0;
                let head = (flag(EventHeader::FROM_SERVER), flag(EventHeader::END_STREAM), flag(EventHeader::JOINED_LATE), note.index);
                head == (told.from_server, told.ends, told.joined_late, told.stream)
                    && match &told.kind {
                        StreamEventKind::Block(piece) => note.kind == kind::BLOCK && is_piece(piece),
                        StreamEventKind::Data(bytes) => note.kind == kind::STREAM_DATA && has(bytes),
                        StreamEventKind::End => note.kind == kind::STREAM_END,
                        StreamEventKind::Reset(code) => note.kind == kind::STREAM_RESET && u32::from(note.status) == *code,
                        StreamEventKind::GoAway => note.kind == kind::GO_AWAY,
                        StreamEventKind::Settings(bytes) => note.kind == kind::SETTINGS && has(bytes),
                        StreamEventKind::Missed => false,
                    }
            }
            _ => false,
        }
    }
}

/// Who sent what an event tells of.
fn side_of(event: &ProbeEvent) -> usize {
    match &event.kind {
        ProbeEventKind::RequestHead { .. } => side::REQUEST,
        ProbeEventKind::Stream(told) if !told.from_server => side::REQUEST,
        _ => side::RESPONSE,
    }
}

/// Says a conversation, checks what the kernel tells of both ends, and gives what it should have counted of each.
fn agree(probe: &mut Probe, pair: &Pair, talk: &Talk) -> Counts {
    let expected = Expected::of(talk);
    pair.say(talk);
    let mut told = Vec::new();
    probe.drain(|event| told.push(event)).unwrap();
    // How a connection comes and goes is nothing that its bytes say.
    told.retain(|event| !matches!(event.kind, ProbeEventKind::Opened { .. } | ProbeEventKind::AsksNoMore | ProbeEventKind::Closed { .. }));
    for of in 0..2 {
        let edge = EdgeId(2 * talk.pin + of);
        expected.check(&told.iter().filter(|event| event.edge == edge).collect::<Vec<_>>(), talk);
    }
    assert!(told.iter().all(|event| event.edge.0 / 2 == talk.pin), "{told:?}");
    expected.counts
}

/// Checks the counts of both ends of each port.
fn assert_counted(probe: &mut Probe, expected: &[Counts]) {
    let snapshot = probe.snapshot().unwrap();
    for (edge, expected) in (0..).map(EdgeId).zip(expected.iter().flat_map(|counts| [counts, counts])) {
        let found = snapshot.total(edge);
        let found = Counts {
            requests: found.requests,
            responses: found.responses,
            ok: found.ok,
            errors: found.errors,
            turned_away: found.connect_failures,
            bytes: [found.request_bytes, found.response_bytes],
            status: snapshot.total_status(edge),
        };
        assert_eq!(found, *expected, "{edge:?}");
    }
    let Health { gaps, segments_over_budget, events_lost, .. } = snapshot.health;
    assert_eq!((gaps, segments_over_budget, events_lost), (0, 0, 0));
}

#[test]
fn the_kernel_counts_and_tells_what_the_host_finds_in_the_whole_corpus() {
    in_namespace(|| {
        let listeners = ["127.0.0.1", "::1"].map(|address| {
            let ports = (PORT..).zip(PINS);
            ports.map(|(port, _)| TcpListener::bind((address, port)).unwrap()).collect::<Vec<_>>()
        });
        let at = |talk: &Talk, family: usize| Pair::open(&listeners[family][usize::from(talk.pin)]);
        let talks: Vec<Talk> = corpus::all().into_iter().map(in_segments).collect();
        let late: Vec<(Pair, &Talk)> = talks.iter().filter(|talk| talk.late).map(|talk| (at(talk, 0), talk)).collect();
        let cgroup = cgroup::find_or_mount(Path::new("/run/stormdrill-test")).unwrap();
        let edges = edges();
        let mut probe = Probe::attach(&ProbeConfig { cgroup, edges: &edges, events: true, ring_bytes: 1 << 24 }).unwrap();
        let mut counts = vec![Counts::default(); PINS.len()];
        for (pair, talk) in &late {
            counts[usize::from(talk.pin)].add(&agree(&mut probe, pair, talk));
        }
        assert_counted(&mut probe, &counts);
        drop(late);
        for (seed, talk) in (0..).zip(&talks).filter(|(_, talk)| !talk.late) {
            counts[usize::from(talk.pin)].add(&agree(&mut probe, &at(talk, 0), talk));
            let cut = in_segments(talk.cut(seed));
            counts[usize::from(talk.pin)].add(&agree(&mut probe, &at(talk, 1), &cut));
        }
        assert_counted(&mut probe, &counts);
    });
}

//! A conversation of grpcio's client with grpcio's server, as it went over the wire: twenty orders one after another, four that fail
//! twice before they succeed (one of them with a pushback), two for what is missing, one that the client gives up, and a hundred at
//! once. `grpc.bin` holds it as records of direction, length (little-endian) and bytes.

use stormdrill_core::edge::Protocol;
use stormdrill_core::event::{HeadPiece, ProbeEvent, ProbeEventKind, StreamEvent, StreamEventKind};
use stormdrill_core::window::Failure;

use crate::scene::{STORE, Scene, event, failures, retries, spoken, statuses};

const PREFACE: usize = 24;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;

/// One direction, cut into frames as they become complete.
#[derive(Default)]
struct Side {
    bytes: Vec<u8>,
    /// Bytes so far of the header block that is being sent, and whether it ends its stream.
    block: u32,
    ends: bool,
}

impl Side {
    fn events(&mut self, ms: u64, from_server: bool, new: &[u8], late: bool) -> Vec<ProbeEvent> {
        self.bytes.extend(new);
        if !from_server && self.bytes.starts_with(b"PRI ") {
            self.bytes.drain(..PREFACE);
        }
        let mut events = Vec::new();
        while self.bytes.len() >= 9 {
            let length = usize::from(self.bytes[0]) << 16 | usize::from(self.bytes[1]) << 8 | usize::from(self.bytes[2]);
            if self.bytes.len() < 9 + length {
                break;
            }
            let frame: Vec<u8> = self.bytes.drain(..9 + length).collect();
            let (kind, flags) = (frame[3], frame[4]);
            let stream = u32::from_be_bytes(frame[5..9].try_into().expect("four bytes")) & 0x7fff_ffff;
            let payload = &frame[9..];
            let code = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
            assert!(kind != HEADERS || flags & 0x28 == 0, "neither padding nor priority in this conversation");
            let ends = flags & 1 != 0;
            let mut tell = |stream, ends, kind| {
                let told = ProbeEventKind::Stream(StreamEvent { stream, from_server, ends, joined_late: late, kind });
                events.push(spoken(Protocol::Http2, event(STORE, ms, 1, told)));
            };
            match kind {
                HEADERS | CONTINUATION => {
                    if kind == HEADERS {
                        (self.block, self.ends) = (0, ends);
                    }
                    let piece = HeadPiece { offset: self.block, bytes: payload.to_vec(), complete: flags & 4 != 0, truncated: false };
                    self.block += u32::try_from(payload.len()).expect("short");
                    tell(stream, self.ends, StreamEventKind::Block(piece));
                }
                DATA => {
                    tell(stream, false, StreamEventKind::Data(payload[..payload.len().min(128)].to_vec()));
                    if ends {
                        tell(stream, true, StreamEventKind::End);
                    }
                }
                RST_STREAM => tell(stream, true, StreamEventKind::Reset(code(0))),
                GOAWAY => tell(code(0), false, StreamEventKind::GoAway),
                SETTINGS if flags & 1 == 0 => tell(0, false, StreamEventKind::Settings(payload.to_vec())),
                _ => {}
            }
        }
        events
    }
}

/// The conversation from the `skip`-th record on, as if the connection had been found then.
fn conversation(skip: usize) -> Scene {
    let mut scene = Scene::on(STORE);
    let mut sides = [Side::default(), Side::default()];
    let mut rest: &[u8] = include_bytes!("grpc.bin");
    let mut record = 0;
    while let Some((header, after)) = rest.split_at_checked(5) {
        let length = usize::try_from(u32::from_le_bytes(header[1..].try_into().expect("four bytes"))).expect("short");
        let from_server = header[0] == 1;
        let events = sides[usize::from(from_server)].events(u64::try_from(record).expect("few"), from_server, &after[..length], skip > 0);
        if record >= skip {
            for event in events {
                scene.tell(event);
            }
        }
        rest = &after[length..];
        record += 1;
    }
    scene
}

#[test]
fn a_real_conversation_is_counted_call_by_call() {
    let mut scene = conversation(0);
    let edge = scene.result();
    assert_eq!(edge.attempts, 20 + 4 * 3 + 2 + 1 + 100);
    assert_eq!(statuses(&edge), [("grpc:NOT_FOUND", 2), ("grpc:OK", 124), ("grpc:UNAVAILABLE", 8)]);
    assert_eq!(failures(&edge), [(Failure::Status, 8), (Failure::ClientAbort, 1)]);
    // grpcio says which attempts are retries, two of each flaky order.
    assert_eq!((retries(&edge), edge.attempts_max), ((8, 0, 0), 3));
    assert_eq!((edge.first_gaps_ns.len(), edge.gaps_ns.len()), (4, 8));
    assert_eq!(edge.accountable, 135, "each call says how long it is waited for");
    let stats = scene.tracker.stats();
    // The one answer without a request is to the call that was given up.
    assert_eq!((stats.mismatches.headers_partial, stats.mismatches.unpaired_responses, stats.mismatches.unread_heads), (0, 1, 0));
}

#[test]
fn who_joins_late_counts_the_same_calls_and_knows_what_is_still_said() {
    let mut scene = conversation(40);
    let edge = scene.result();
    assert!(edge.attempts > 100, "{}", edge.attempts);
    // Statuses and retries are said anew often enough; what is not known is not made up.
    let known: u64 = edge.status.values().sum();
    let unknown = scene.tracker.stats().mismatches.unseen_outcomes;
    assert_eq!(known + unknown + 1, edge.attempts, "{:?}", edge.status);
    assert!(
        edge.status.keys().all(|status| ["grpc:OK", "grpc:UNAVAILABLE", "grpc:NOT_FOUND"].contains(&status.as_str())),
        "{:?}",
        edge.status
    );
    assert!(scene.tracker.stats().mismatches.headers_partial > 0);
}

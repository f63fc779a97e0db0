//! HTTP/2 and gRPC: what happens on the streams of a connection, made into attempts and outcomes.
//!
//! A request is a stream that the client opened. What it asks for may stand in its body only (a gRPC message), so an attempt
//! waits for the first bytes of that for a moment before it is held against others; its start is that of its head all the same.

mod compression;

mod request;

use std::collections::{HashMap, VecDeque};

use compression::{Direction, Fields};
use request::{Request, is_framed};

use crate::edge::Protocol;
use crate::event::{ConnId, StreamEvent, StreamEventKind};
use crate::status::Status;
use crate::track::answer::Answer;
use crate::track::books::Books;
use crate::track::cohort::Outcome;
use crate::track::hash::ByWord;
use crate::track::heading;
use crate::track::pairing::{Connections, Place};
use crate::window::Failure;

/// Connections whose streams are followed; tables of compression are what costs memory.
const CONNECTIONS: usize = 4096;
/// Streams of one connection that are remembered besides their attempts.
const STREAMS: usize = 4096;

/// RST_STREAM with this code: the server did not look at the request.
const REFUSED_STREAM: u32 = 7;
/// In SETTINGS: the largest table that the sender accepts.
const HEADER_TABLE_SIZE: u16 = 1;

/// The streams of all connections.
#[derive(Debug, Default)]
pub(crate) struct AllStreams {
    connections: HashMap<u64, Box<Streams>, ByWord>,
    /// Requests whose body is waited for, oldest first.
    waiting: VecDeque<(u64, ConnId, u32)>,
}

impl AllStreams {
    /// Blocks may have been missed on any connection.
    pub(crate) fn forget(&mut self) {
        for streams in self.connections.values_mut() {
            streams.client.forget();
            streams.server.forget();
        }
    }

    /// The connection is gone.
    pub(crate) fn remove(&mut self, conn: ConnId) {
        self.connections.remove(&conn.0);
    }
}

/// The streams of one connection.
#[derive(Debug)]
struct Streams {
    client: Direction,
    server: Direction,
    live: HashMap<u64, Stream, ByWord>,
    /// The client's latest stream.
    latest: u32,
    joined_late: bool,
}

/// What is remembered of a stream.
#[derive(Debug, Default)]
struct Stream {
    /// The request, until its attempt starts.
    waiting: Option<Box<(Place, Request)>>,
    kind: Kind,
    /// The code of a response whose gRPC status is still to come.
    code: Option<u16>,
}

/// Whether an answer's status is its code or comes with its trailers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Kind {
    #[default]
    Http2,
    Grpc,
    /// The request's head could not be read, and its body has not told.
    Untold,
}

impl Streams {
    fn new() -> Self {
        Self { client: Direction::new(), server: Direction::new(), live: HashMap::default(), latest: 0, joined_late: false }
    }
}

impl Connections {
    /// Something happened on a stream.
    pub(crate) fn stream(&mut self, place: Place, event: StreamEvent, books: &mut Books) {
        self.connection(place, books);
        if !self.streams.connections.contains_key(&place.conn.0) {
            if self.streams.connections.len() >= CONNECTIONS {
                self.mismatches.headers_partial += u64::from(matches!(event.kind, StreamEventKind::Block(_)));
                return;
            }
            self.streams.connections.insert(place.conn.0, Box::new(Streams::new()));
        }
        let Some(streams) = self.streams.connections.get_mut(&place.conn.0) else { return };
        if event.joined_late && !streams.joined_late {
            streams.joined_late = true;
            streams.client.forget();
            streams.server.forget();
        }
        let StreamEvent { stream, from_server, ends, kind, .. } = event;
        let direction = if from_server { &mut streams.server } else { &mut streams.client };
        match kind {
            StreamEventKind::Block(piece) => {
                if !from_server && stream > streams.latest {
                    // Streams are numbered one by one: a gap is a block that was lost.
                    if streams.latest != 0 && stream > streams.latest + 2 && piece.offset == 0 {
                        direction.forget();
                    }
                    streams.latest = stream;
                }
                if let Some(fields) = direction.take(stream, &piece) {
                    self.mismatches.headers_partial += u64::from(fields.is_partial);
                    if from_server {
                        self.answered(place, stream, &fields, ends, books);
                    } else {
                        self.asked(place, stream, &fields, ends, books);
                    }
                }
            }
            StreamEventKind::Data(data) if !from_server => self.begin_stream(place.conn, stream, Some(&data), books),
            StreamEventKind::End if !from_server => self.begin_stream(place.conn, stream, None, books),
            StreamEventKind::Data(_) if !ends => {}
            StreamEventKind::Data(_) | StreamEventKind::End => self.ended(place, stream, books),
            StreamEventKind::Reset(code) => {
                let failure = match (from_server, code) {
                    (true, REFUSED_STREAM) => Failure::Unprocessed,
                    (true, _) => Failure::Reset,
                    (false, _) => Failure::ClientAbort,
                };
                self.end_stream(place, stream, Outcome::Failed(failure), books);
            }
            StreamEventKind::GoAway if from_server => {
                self.begin_streams(place.conn, books);
                for above in self.above(place.conn, stream) {
                    self.end_stream(place, above, Outcome::Failed(Failure::Unprocessed), books);
                }
            }
            StreamEventKind::GoAway => {}
            StreamEventKind::Settings(payload) => {
                let other = if from_server { &mut streams.client } else { &mut streams.server };
                for setting in payload.chunks_exact(6) {
                    if u16::from_be_bytes([setting[0], setting[1]]) == HEADER_TABLE_SIZE {
                        other.allow(u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]));
                    }
                }
            }
            StreamEventKind::Missed => direction.forget(),
        }
    }

    /// Starts the attempts that have waited since `until_ns` or before.
    pub(crate) fn begin_waiting(&mut self, until_ns: u64, books: &mut Books) {
        while let Some(&(at_ns, conn, stream)) = self.streams.waiting.front()
            && at_ns <= until_ns
        {
            self.streams.waiting.pop_front();
            self.begin_stream(conn, stream, None, books);
        }
    }

    /// Starts all attempts of a connection that wait.
    pub(crate) fn begin_streams(&mut self, conn: ConnId, books: &mut Books) {
        let Some(streams) = self.streams.connections.get(&conn.0) else { return };
        let mut waiting: Vec<u64> = streams.live.iter().filter(|(_, stream)| stream.waiting.is_some()).map(|(id, _)| *id).collect();
        waiting.sort_unstable();
        for stream in waiting {
            self.begin_stream(conn, u32::try_from(stream).unwrap_or(0), None, books);
        }
    }

    /// A header block of the client's: a request, or its trailers.
    fn asked(&mut self, place: Place, stream: u32, fields: &Fields, ends: bool, books: &mut Books) {
        let request = Request::of(fields, self.marker.as_ref());
        let Some(streams) = self.streams.connections.get_mut(&place.conn.0) else { return };
        let is_new = fields.get(":method").is_some()
            || fields.get(":path").is_some()
            || (fields.is_partial && !streams.live.contains_key(&stream.into()));
        if !is_new {
            self.begin_stream(place.conn, stream, None, books);
            return;
        }
        let place = Place { protocol: request.protocol, ..place };
        let kind = match request.protocol {
            Protocol::Grpc => Kind::Grpc,
            // A call of gRPC has a message.
            _ if request.is_untold && !ends => Kind::Untold,
            _ => Kind::Http2,
        };
        let wait = !ends && streams.live.len() < STREAMS;
        if wait || kind == Kind::Grpc {
            let waiting = wait.then(|| Box::new((place, request)));
            streams.live.insert(stream.into(), Stream { waiting, kind, code: None });
        }
        if wait {
            self.streams.waiting.push_back((place.at_ns, place.conn, stream));
        } else {
            self.start_stream(place, stream, &request, None, books);
        }
    }

    /// The body began, or will not be waited for: the attempt starts.
    fn begin_stream(&mut self, conn: ConnId, stream: u32, data: Option<&[u8]>, books: &mut Books) {
        let Some(streams) = self.streams.connections.get_mut(&conn.0) else { return };
        let Some(live) = streams.live.get_mut(&stream.into()) else { return };
        let Some(waiting) = live.waiting.take() else { return };
        let (mut place, mut request) = *waiting;
        if live.kind == Kind::Untold
            && let Some(data) = data
        {
            live.kind = if is_framed(data) { Kind::Grpc } else { Kind::Http2 };
            if live.kind == Kind::Grpc {
                request = request.of_grpc();
                place.protocol = request.protocol;
            }
        }
        if live.kind == Kind::Http2 {
            streams.live.remove(&stream.into());
        }
        self.start_stream(place, stream, &request, data, books);
    }

    fn start_stream(&mut self, place: Place, stream: u32, request: &Request, data: Option<&[u8]>, books: &mut Books) {
        let attempt = self.attempt(place, stream, &request.with_body(data), books);
        self.wait(attempt);
    }

    /// A header block of the server's: an answer's head, or its trailers.
    fn answered(&mut self, place: Place, stream: u32, fields: &Fields, ends: bool, books: &mut Books) {
        let code = fields.get(":status").and_then(|value| std::str::from_utf8(value).ok()?.parse::<u16>().ok());
        if !ends && matches!(code, Some(100 | 102..=199)) {
            return;
        }
        self.begin_stream(place.conn, stream, None, books);
        let status = fields.get("grpc-status").map(Status::grpc);
        let live = self.streams.connections.get_mut(&place.conn.0).and_then(|streams| streams.live.get_mut(&stream.into()));
        let (kind, before) = live.as_ref().map_or((Kind::Http2, None), |live| (live.kind, live.code));
        let outcome = match (status, code) {
            (Some(status), _) if kind != Kind::Http2 => Outcome::Answered(Answer { wait_ns: wait_ns(fields), ..Answer::of(status) }),
            // The head of an answer whose status comes with the trailers.
            (None, _) if kind != Kind::Http2 && !ends => {
                if let Some(live) = live {
                    live.code = code;
                }
                return;
            }
            // What could not be read may have been the status: a call that failed is no success for its head's 200.
            (None, None | Some(200)) if kind != Kind::Http2 && fields.is_partial => Outcome::Unseen,
            // Trailers without a status: it was none of gRPC.
            (None, None) if kind == Kind::Untold => before.map_or(Outcome::Unseen, |code| Outcome::Answered(Answer::code(code))),
            // HTTP/2, or an answer to a call by somebody who speaks no gRPC.
            (_, Some(code)) => Outcome::Answered(Answer { wait_ns: wait_ns(fields), ..Answer::code(code) }),
            // Trailers of an answer that was counted with its head, or what could not be read.
            (_, None) => Outcome::Unseen,
        };
        if code.is_none() && kind == Kind::Http2 && !fields.is_partial {
            return;
        }
        if !self.end_stream(place, stream, outcome, books) && code.is_some() {
            self.mismatches.unpaired_responses += 1;
        }
    }

    /// The server's direction ended with data: an answer whose head was not seen, or one without gRPC's trailers.
    fn ended(&mut self, place: Place, stream: u32, books: &mut Books) {
        let live = self.streams.connections.get(&place.conn.0).and_then(|streams| streams.live.get(&stream.into()));
        // Without trailers a call's status is unknown, as its client takes it.
        let outcome = match live {
            Some(Stream { kind: Kind::Grpc, code: Some(200), .. }) => Outcome::Answered(Answer::of(Status::grpc(b""))),
            Some(Stream { kind: Kind::Grpc | Kind::Untold, code: Some(code), .. }) => Outcome::Answered(Answer::code(*code)),
            _ => Outcome::Unseen,
        };
        self.end_stream(place, stream, outcome, books);
    }

    /// An attempt ends, if it is open still.
    fn end_stream(&mut self, place: Place, stream: u32, outcome: Outcome, books: &mut Books) -> bool {
        self.begin_stream(place.conn, stream, None, books);
        if let Some(streams) = self.streams.connections.get_mut(&place.conn.0) {
            streams.live.remove(&stream.into());
        }
        let Some(attempt) = self.leave_one(place.conn, stream) else { return false };
        self.mismatches.unseen_outcomes += u64::from(outcome == Outcome::Unseen);
        books.end(&attempt, outcome, place.at_ns);
        true
    }
}

fn wait_ns(fields: &Fields) -> Option<u64> {
    heading::wait_ns(fields.fields.iter().filter_map(|(name, value)| Some((std::str::from_utf8(name).ok()?, value.as_slice()))))
}

//! Conversations, fed whole and in pieces of every kind: all ways must find the same.
#![allow(unreachable_pub, reason = "the module is one of each test's own")]
#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../corpus/mod.rs"]
mod corpus;

use stormdrill_wire::abi::{kind, outcome};
use stormdrill_wire::conn::side::{REQUEST, RESPONSE};
use stormdrill_wire::recogniser::{Note, Piece, tally};
use stormdrill_wire::replay::{Observer, Replay};

/// What a side sends at once.
pub type Turn = (usize, Vec<u8>);

pub fn client(bytes: impl AsRef<[u8]>) -> Turn {
    (REQUEST, bytes.as_ref().to_vec())
}

pub fn server(bytes: impl AsRef<[u8]>) -> Turn {
    (RESPONSE, bytes.as_ref().to_vec())
}

/// Where the bytes of an error are kept that turned a login away: no response has this number.
const TOLD_OF_TURNING_AWAY: u32 = u32::MAX;

/// All that was told, and the bytes that belong to it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Told {
    pub streams: [Vec<u8>; 2],
    pub notes: Vec<(usize, Note)>,
    /// The bytes of each message, by side and index, as far as they were told.
    pub heads: std::collections::BTreeMap<(usize, u32), Vec<u8>>,
}

impl Observer for Told {
    fn note(&mut self, side: usize, note: &Note, piece: Piece) {
        if note.tally != tally::NONE || note.turn != 0 {
            self.notes.push((side, Note { body: 0, ..*note }));
        }
        if note.kind != 0 && note.status != outcome::SKIPPED {
            let bytes = &self.streams[side][piece.from as usize..piece.to as usize];
            let index = if note.kind == kind::TURNED_AWAY { TOLD_OF_TURNING_AWAY } else { note.index };
            let head = self.heads.entry((side, index)).or_default();
            // A request that turned out to be none is begun again.
            head.truncate(piece.offset as usize);
            if side == REQUEST || head.len() == piece.offset as usize {
                assert_eq!(head.len(), piece.offset as usize, "{note:?} {piece:?}");
                head.extend(bytes);
            }
        }
    }
}

impl Told {
    pub fn outcomes(&self) -> Vec<u16> {
        self.notes.iter().filter(|(_, note)| note.tally == tally::OUTCOME).map(|(_, note)| note.status).collect()
    }

    /// Numbers of the answers whose bytes say which error they are.
    fn errors(&self) -> Vec<u32> {
        let is_error = |note: &&Note| note.tally == tally::OUTCOME && note.status == outcome::ERROR;
        self.notes.iter().map(|(_, note)| note).filter(is_error).map(|note| note.index).collect()
    }
}

/// Keeps a conversation for the corpus where `STORMDRILL_RECORD` names a folder; see `tests/corpus`.
pub fn record(start: &Replay, turns: &[Turn]) {
    let Some(folder) = std::env::var_os("STORMDRILL_RECORD") else { return };
    let late = start.conn().flows[0].flags != 0;
    let talk =
        corpus::Talk { pin: start.conn().book.protocol, late, turns: turns.iter().filter(|turn| !turn.1.is_empty()).cloned().collect() };
    if talk.len() <= corpus::LONGEST {
        let bytes = talk.write();
        let name = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(std::path::Path::new(&folder).join(format!("{name:016x}")), bytes).expect("the folder can be written to");
    }
}

/// Feeds a conversation in pieces of a length.
pub fn feed(replay: Replay, turns: &[Turn], piece: usize) -> (Replay, Told) {
    record(&replay, turns);
    feed_only(replay, turns, piece)
}

/// The same with one that the corpus has enough like.
pub fn feed_only(mut replay: Replay, turns: &[Turn], piece: usize) -> (Replay, Told) {
    let mut told = Told::default();
    for (side, bytes) in turns {
        for segment in bytes.chunks(piece) {
            let seq = u32::try_from(told.streams[*side].len()).unwrap_or(u32::MAX);
            told.streams[*side].extend(segment);
            replay.segment(*side, seq, segment, &mut told);
        }
    }
    (replay, told)
}

/// Requests and the outcomes of responses, whatever the pieces; returns what was told of the whole.
pub fn check(turns: &[Turn], requests: u64, errors: &[bool]) -> (Replay, Told) {
    check_from(&Replay::new([0, 0]), turns, requests, errors)
}

pub fn check_from(start: &Replay, turns: &[Turn], requests: u64, errors: &[bool]) -> (Replay, Told) {
    let whole = feed(start.clone(), turns, usize::MAX);
    for piece in [usize::MAX, 1, 2, 3, 5, 7, 11, 64, 255, 256, 257] {
        let (replay, told) = feed(start.clone(), turns, piece);
        let text = String::from_utf8_lossy(&turns[0].1);
        assert_eq!(replay.requests, requests, "pieces of {piece}: {text}");
        let found: Vec<bool> = told.outcomes().iter().map(|&status| status != outcome::OK).collect();
        assert_eq!(found, errors, "pieces of {piece}: {text}");
        assert_eq!(told.notes, whole.1.notes, "pieces of {piece}: {text}");
        assert_eq!((replay.foreign, replay.gaps), (whole.0.foreign, 0), "pieces of {piece}: {text}");
        assert_eq!(replay.bytes, told.streams.each_ref().map(|stream| stream.len() as u64), "pieces of {piece}: {text}");
        let errors = whole.1.errors();
        for (key, head) in &whole.1.heads {
            if key.0 == REQUEST || errors.contains(&key.1) {
                assert_eq!(&told.heads[key], head, "pieces of {piece}: {text}");
            }
        }
    }
    whole
}

/// A login that is answered with `error`, after so many requests that will never be answered; whatever the pieces.
pub fn check_turned_away(turns: &[Turn], error: &[u8], requests: u64) {
    for piece in [usize::MAX, 1, 2, 3, 5, 7, 11, 64] {
        let (replay, told) = feed(Replay::new([0, 0]), turns, piece);
        assert_eq!((replay.requests, replay.responses, replay.turned_away), (requests, 0, 1), "pieces of {piece}");
        assert_eq!(told.heads[&(RESPONSE, TOLD_OF_TURNING_AWAY)], error, "pieces of {piece}");
    }
}

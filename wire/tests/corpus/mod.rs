//! Conversations that recognisers and kernel are held against each other with: those of the unit tests, and inputs that LLVM's fuzzer found worth
//! keeping. Two files beside this one; see `main.rs` for how they are made.
#![allow(unreachable_pub, reason = "the module is one of each test's own")]
#![allow(dead_code, reason = "each test uses some of it")]

/// What was said in the unit tests.
pub const TALKS: &[u8] = include_bytes!("talks.bin");
/// What was found by the fuzzer.
pub const FOUND: &[u8] = include_bytes!("fuzz.bin");

/// No conversation is longer, in bytes.
pub const LONGEST: usize = 60_000;

/// A conversation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Talk {
    /// The protocol that is decided beforehand, as in `abi::protocol`.
    pub pin: u8,
    /// It was open before anybody looked.
    pub late: bool,
    /// Side, and what it sends at once.
    pub turns: Vec<(usize, Vec<u8>)>,
}

impl Talk {
    /// As a record: pin and lateness, how many turns, and each one's side, length and bytes.
    pub fn write(&self) -> Vec<u8> {
        let count = u16::try_from(self.turns.len()).expect("conversations are short");
        let mut bytes = vec![self.pin << 1 | u8::from(self.late)];
        bytes.extend(count.to_le_bytes());
        for (side, turn) in &self.turns {
            let length = u16::try_from(turn.len()).expect("conversations are short");
            bytes.push(u8::from(*side != 0));
            bytes.extend(length.to_le_bytes());
            bytes.extend(turn);
        }
        bytes
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.turns.iter().map(|(_, turn)| turn.len()).sum()
    }

    /// Cut into pieces at places that depend on a seed only.
    pub fn cut(&self, seed: u64) -> Self {
        let mut state = seed;
        let mut next = || {
            // SplitMix64.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        };
        let mut turns = Vec::new();
        // Some in pieces of a few bytes, others in halves; not in thousands.
        let mean = (self.len() / 40).max(1 << (next() % 7));
        for (side, turn) in &self.turns {
            let mut rest = turn.as_slice();
            while !rest.is_empty() {
                let length = 1 + usize::try_from(next() % (2 * mean as u64)).unwrap_or(0);
                let (piece, after) = rest.split_at(length.min(rest.len()));
                turns.push((*side, piece.to_vec()));
                rest = after;
            }
        }
        Self { turns, ..self.clone() }
    }
}

/// The records of a file.
pub fn read(mut bytes: &[u8]) -> Vec<Talk> {
    let mut take = |count: usize| {
        let (taken, rest) = bytes.split_at_checked(count)?;
        bytes = rest;
        Some(taken)
    };
    let number = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut talks = Vec::new();
    while let Some(head) = take(3) {
        let mut turns = Vec::new();
        for _ in 0..number(&head[1..]) {
            let head = take(3).expect("the file is whole").to_vec();
            turns.push((usize::from(head[0]), take(number(&head[1..])).expect("the file is whole").to_vec()));
        }
        talks.push(Talk { pin: head[0] >> 1, late: head[0] & 1 == 1, turns });
    }
    talks
}

/// Both files.
pub fn all() -> Vec<Talk> {
    [read(TALKS), read(FOUND)].concat()
}

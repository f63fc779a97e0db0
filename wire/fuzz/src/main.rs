//! A connection made of arbitrary bytes, in arbitrary order, read by the kernel's own recognisers: LLVM's fuzzer looks for one that makes them panic, go on for ever
//! or count what cannot be there. `cargo xtask fuzz` runs it, once for each protocol.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use stormdrill_wire::abi::protocol;
use stormdrill_wire::http2::MOST_MISSED;
use stormdrill_wire::replay::Replay;

/// What the input begins with: how its segments go.
const ORDERS: usize = 24;

/// One step of a connection, from a byte.
struct Order {
    side: usize,
    /// 0 to 4: the next bytes; 5: those before again; 6: the next ones are late, and come after those that follow them; 7: they never come.
    way: u8,
    len: usize,
}

impl Order {
    const fn of(byte: u8) -> Self {
        Self { side: (byte & 1) as usize, way: byte >> 1 & 7, len: [64, 1, 5, 7, 13, 29, 200, 1460][(byte >> 4 & 7) as usize] }
    }
}

/// The protocol that all connections speak, by its number.
fn spoken() -> u8 {
    static SPOKEN: OnceLock<u8> = OnceLock::new();
    *SPOKEN.get_or_init(|| {
        let value = std::env::var("STORMDRILL_FUZZ_PROTOCOL").expect("`cargo xtask fuzz` says which protocol is meant");
        value.parse().expect("a protocol is a number")
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else { return };
    let Some((orders, content)) = rest.split_at_checked(ORDERS) else { return };
    let start = u32::from(first).wrapping_mul(0x0101_0101);
    let new = if first & 1 == 0 { Replay::new([start; 2]) } else { Replay::found() };
    let mut replay = new.pinned(spoken());
    let mut content = content;
    let mut next = [start; 2];
    let (mut before, mut late): ([&[u8]; 2], [Option<(u32, &[u8])>; 2]) = ([&[]; 2], [None; 2]);
    let mut sent = [0_u64; 2];
    for &order in orders.iter().cycle() {
        if content.is_empty() {
            break;
        }
        let Order { side, way, len } = Order::of(order);
        if way == 5 && !before[side].is_empty() {
            let bytes = before[side];
            replay.segment(side, next[side].wrapping_sub(bytes.len() as u32), bytes, &mut ());
            // Else a connection that only repeats itself would not end.
            content = &content[1..];
            continue;
        }
        let (bytes, rest) = content.split_at(len.min(content.len()));
        content = rest;
        let at = next[side];
        next[side] = at.wrapping_add(bytes.len() as u32);
        sent[side] += bytes.len() as u64;
        match way {
            6 if late[side].is_none() => late[side] = Some((at, bytes)),
            7 => {}
            _ => {
                replay.segment(side, at, bytes, &mut ());
                before[side] = bytes;
                if let Some((at, bytes)) = late[side].take() {
                    replay.segment(side, at, bytes, &mut ());
                }
            }
        }
    }
    for side in 0..2 {
        assert!(
            replay.bytes[side] <= sent[side],
            "more bytes were read of side {side} than were sent: {} of {}",
            replay.bytes[side],
            sent[side]
        );
    }
    // Nothing is shorter than a byte; of HTTP/2, the number of a stream may tell of those that were lost.
    let is_http2 = spoken() == protocol::HTTP2 || replay.conn().book.protocol == protocol::HTTP2;
    let hidden = if is_http2 { MOST_MISSED.into() } else { 1 };
    assert!(
        replay.requests <= hidden * sent[0] && replay.responses <= sent[1],
        "{} requests and {} responses in {sent:?} bytes",
        replay.requests,
        replay.responses
    );
    if spoken() != protocol::ANY {
        assert!(replay.conn().book.protocol != protocol::ANY, "what was known is unknown again");
    }
});

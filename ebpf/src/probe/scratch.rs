//! What the programs of one packet tell each other: five words that the kernel keeps beside the packet for them.

use core::{arch::asm, mem::offset_of};

use aya_ebpf::bindings::__sk_buff;

use crate::packet::Segment;

/// What is to be done with the packet.
pub mod stage {
    /// Nothing was looked at yet.
    pub const ENTRY: u32 = 0;
    /// The segment is to be placed and read.
    pub const SEGMENT: u32 = 1;
    /// What lies in the ring is to be read.
    pub const RING: u32 = 2;
}

/// What follows when the ring has no more to read.
pub mod then {
    /// Nothing.
    pub const NOTHING: u32 = 0;
    /// The segment is placed again.
    pub const SEGMENT: u32 = 1;
    /// The same, on the other side: it was the other side's ring.
    pub const OTHER_SIDE: u32 = 2;
    /// The same, and what TCP acknowledged of the other side cannot be missing any more: it was passed over.
    pub const OTHER_SIDE_LATE: u32 = 3;
}

/// Where the words are.
const CB: usize = offset_of!(__sk_buff, cb);

const SEQ: usize = 0;
const LEN: usize = 1;
/// The payload's offset, [`SIDE`], [`INCOMING`], [`HELD`].
const PLACE: usize = 2;
/// What is done now, and what follows.
const STAGE: usize = 3;
const ACK: usize = 4;

const OFFSET: u32 = 0xffff;
const SIDE: u32 = 1 << 16;
const INCOMING: u32 = 1 << 17;
const HELD: u32 = 1 << 18;
const NOW: u32 = 0xff;
const THEN: u32 = 8;

/// The words of a packet.
#[derive(Clone, Copy)]
pub struct Scratch(*mut __sk_buff);

impl Scratch {
    /// # Safety
    /// The context must be that of the program that runs.
    #[inline(always)]
    pub unsafe fn of(skb: *mut __sk_buff) -> Self {
        Self(skb)
    }

    #[inline(always)]
    fn get<const WORD: usize>(self) -> u32 {
        let word: u64;
        // SAFETY: see `of`. As an instruction of its own, here and below: the compiler would keep the word's address for the next
        // access, and the kernel lets a context be reached at constant distances only.
        unsafe {
            asm!("{0} = *(u32 *)({1} + {2})", out(reg) word, in(reg) self.0, const CB + 4 * WORD, options(readonly, nostack, preserves_flags));
        }
        word as u32
    }

    #[inline(always)]
    fn set<const WORD: usize>(self, value: u32) {
        // SAFETY: see `of`.
        unsafe {
            asm!("*(u32 *)({0} + {1}) = {2}", in(reg) self.0, const CB + 4 * WORD, in(reg) value as u64, options(nostack, preserves_flags))
        };
    }

    /// Notes the segment.
    #[inline(always)]
    pub fn fill(self, segment: &Segment, side: usize, incoming: bool) {
        self.set::<SEQ>(segment.seq);
        self.set::<LEN>(segment.len);
        self.set::<PLACE>(segment.payload & OFFSET | (side as u32) << 16 | (incoming as u32) << 17);
        self.set::<ACK>(segment.ack);
        self.set::<STAGE>(stage::SEGMENT);
    }

    #[inline(always)]
    pub fn stage(self) -> u32 {
        self.get::<STAGE>() & NOW
    }

    #[inline(always)]
    pub fn set_stage(self, stage: u32) {
        self.set::<STAGE>(self.get::<STAGE>() & !NOW | stage);
    }

    #[inline(always)]
    pub fn then(self) -> u32 {
        self.get::<STAGE>() >> THEN
    }

    #[inline(always)]
    pub fn set_then(self, then: u32) {
        self.set::<STAGE>(self.get::<STAGE>() & NOW | then << THEN);
    }

    /// The ring is done with: to what follows, if anything does. A stage of `ENTRY` is the end.
    #[inline(always)]
    pub fn go_on(self) -> bool {
        let next = self.then();
        self.set_then(then::NOTHING);
        if next >= then::OTHER_SIDE {
            self.flip_side();
        }
        let more = next != then::NOTHING && self.len() != 0;
        self.set_stage(if more { stage::SEGMENT } else { stage::ENTRY });
        more
    }

    /// What the segment acknowledges.
    #[inline(always)]
    pub fn ack(self) -> u32 {
        self.get::<ACK>()
    }

    /// This packet holds [`stormdrill_wire::conn::Conn::reading`].
    #[inline(always)]
    pub fn is_held(self) -> bool {
        self.get::<PLACE>() & HELD != 0
    }

    #[inline(always)]
    pub fn set_held(self, held: bool) {
        self.set::<PLACE>(self.get::<PLACE>() & !HELD | (held as u32) << 18);
    }

    #[inline(always)]
    pub fn seq(self) -> u32 {
        self.get::<SEQ>()
    }

    #[inline(always)]
    pub fn len(self) -> u32 {
        self.get::<LEN>()
    }

    #[inline(always)]
    pub fn payload(self) -> u32 {
        self.get::<PLACE>() & OFFSET
    }

    #[inline(always)]
    pub fn side(self) -> usize {
        (self.get::<PLACE>() >> 16 & 1) as usize
    }

    #[inline(always)]
    pub fn flip_side(self) {
        self.set::<PLACE>(self.get::<PLACE>() ^ SIDE);
    }

    #[inline(always)]
    pub fn incoming(self) -> bool {
        self.get::<PLACE>() & INCOMING != 0
    }
}

//! What the programs of one packet tell each other: five words that the kernel keeps beside the packet for them.

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
}

const SEQ: usize = 0;
const LEN: usize = 1;
/// The payload's offset, [`SIDE`] and [`INCOMING`].
const PLACE: usize = 2;
const THEN: usize = 3;
const STAGE: usize = 4;

const OFFSET: u32 = 0xffff;
const SIDE: u32 = 1 << 16;
const INCOMING: u32 = 1 << 17;

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
        // SAFETY: see `of`.
        unsafe { core::ptr::read_volatile((&raw const (*self.0).cb).cast::<u32>().add(WORD)) }
    }

    #[inline(always)]
    fn set<const WORD: usize>(self, value: u32) {
        // SAFETY: see `of`.
        unsafe { core::ptr::write_volatile((&raw mut (*self.0).cb).cast::<u32>().add(WORD), value) }
    }

    /// Notes the segment.
    #[inline(always)]
    pub fn fill(self, segment: &Segment, side: usize, incoming: bool) {
        self.set::<SEQ>(segment.seq);
        self.set::<LEN>(segment.len);
        self.set::<PLACE>(segment.payload & OFFSET | (side as u32) << 16 | (incoming as u32) << 17);
        self.set::<THEN>(then::NOTHING);
        self.set::<STAGE>(stage::SEGMENT);
    }

    #[inline(always)]
    pub fn stage(self) -> u32 {
        self.get::<STAGE>()
    }

    #[inline(always)]
    pub fn set_stage(self, stage: u32) {
        self.set::<STAGE>(stage);
    }

    #[inline(always)]
    pub fn then(self) -> u32 {
        self.get::<THEN>()
    }

    #[inline(always)]
    pub fn set_then(self, then: u32) {
        self.set::<THEN>(then);
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

//! What is not read: TLS, and protocols that are not known. Its bytes are counted.

use crate::abi::protocol;
use crate::conn::Book;
use crate::recogniser::{Note, Recogniser, Step, Window};

/// A machine that looks at nothing.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passive([u64; 2]);

// SAFETY: 16 bytes of integers.
unsafe impl Recogniser for Passive {
    const PROTOCOL: u8 = protocol::UNKNOWN;

    #[inline(always)]
    fn fresh(_side: usize) -> Self {
        Self([0; 2])
    }

    #[inline(always)]
    fn late(_side: usize) -> Self {
        Self([0; 2])
    }

    #[inline(always)]
    fn step(&mut self, _window: &impl Window, _at: u32, _left: u32) -> (u32, Step) {
        (0, Step::Fail)
    }

    #[inline(always)]
    fn complete(&mut self, _book: &mut Book, _side: usize) -> Note {
        Note::NONE
    }

    #[inline(always)]
    fn skips(&self) -> bool {
        false
    }

    #[inline(always)]
    fn skip(&mut self, available: u32) -> u32 {
        available
    }

    #[inline(always)]
    fn bridge(&mut self, _missing: u32) -> bool {
        true
    }

    #[inline(always)]
    fn is_passive(&self) -> bool {
        true
    }

    #[inline(always)]
    fn lose(&mut self, _book: &mut Book, _side: usize) {}

    #[inline(always)]
    fn fail(&mut self) -> bool {
        false
    }

    #[inline(always)]
    fn in_head(&self) -> bool {
        false
    }

    #[inline(always)]
    fn head_len(&self) -> u32 {
        0
    }

    #[inline(always)]
    fn part(&self, _book: &Book, _side: usize) -> Note {
        Note::NONE
    }
}

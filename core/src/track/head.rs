//! Puts a head together from the pieces that the kernel captured of it.

use crate::event::{Epoch, HeadPiece};

/// More of one head than this is not kept.
pub(crate) const HEAD_LIMIT: usize = 16 * 1024;

/// A request head that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partial {
    /// Which request of its connection.
    pub(crate) index: u32,
    /// When its latest piece passed, nanoseconds.
    pub(crate) at_ns: u64,
    /// The epoch of that piece.
    pub(crate) epoch: Epoch,
    bytes: Vec<u8>,
    /// Something is missing, so that no later piece can be appended.
    gap: bool,
    /// The kernel captured less than passed, and may send no further piece.
    truncated: bool,
}

impl Partial {
    /// Begins with the first piece to arrive, which need not be the head's first.
    #[must_use]
    pub(crate) fn new(index: u32, at_ns: u64, epoch: Epoch, piece: &HeadPiece) -> Self {
        let mut partial = Self { index, at_ns, epoch, bytes: Vec::new(), gap: false, truncated: false };
        partial.add(at_ns, epoch, piece);
        partial
    }

    /// Adds a piece. Pieces are given in order of time.
    pub(crate) fn add(&mut self, at_ns: u64, epoch: Epoch, piece: &HeadPiece) {
        self.at_ns = self.at_ns.max(at_ns);
        self.epoch = epoch;
        let offset = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        if offset > self.bytes.len() {
            self.gap = true;
        }
        if !self.gap {
            let fresh = piece.bytes.get(self.bytes.len() - offset..).unwrap_or_default();
            let room = HEAD_LIMIT - self.bytes.len();
            self.gap = fresh.len() > room;
            self.bytes.extend_from_slice(&fresh[..fresh.len().min(room)]);
        }
        // Whatever comes after bytes that were not captured starts behind a hole.
        self.gap |= piece.truncated;
        self.truncated |= piece.truncated;
    }

    /// The rest of the head may have gone unseen, so that what is here has to do.
    #[must_use]
    pub(crate) const fn may_lack_its_end(&self) -> bool {
        self.gap || self.truncated
    }

    /// What was put together, from the head's first byte on.
    #[must_use]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The whole head in one piece, as nearly all are; `None` if there is more to it.
#[must_use]
pub(crate) fn in_one(piece: &HeadPiece) -> Option<&[u8]> {
    (piece.offset == 0 && piece.complete).then_some(piece.bytes.as_slice())
}

/// The full lines of a head that was cut, closed by a blank one, as a parser wants them.
#[must_use]
pub(crate) fn closed(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    [&bytes[..end], b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u32, bytes: &str) -> HeadPiece {
        HeadPiece { offset, bytes: bytes.as_bytes().to_vec(), complete: false, truncated: false }
    }

    fn joined(pieces: &[HeadPiece]) -> Partial {
        let mut partial = Partial::new(0, 1, 0, &pieces[0]);
        for (at_ns, piece) in (2..).zip(&pieces[1..]) {
            partial.add(at_ns, 0, piece);
        }
        partial
    }

    #[test]
    fn pieces_join_at_any_cut() {
        let whole = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..whole.len() {
            let offset = u32::try_from(cut).expect("short");
            let partial = joined(&[piece(0, &whole[..cut]), piece(offset, &whole[cut..])]);
            assert_eq!(partial.bytes(), whole.as_bytes());
            assert!(!partial.may_lack_its_end());
            assert_eq!(partial.at_ns, 2);
        }
    }

    #[test]
    fn overlapping_pieces_count_once() {
        let partial = joined(&[piece(0, "GET / "), piece(4, "/ HTTP"), piece(0, "GET")]);
        assert_eq!(partial.bytes(), b"GET / HTTP");
    }

    #[test]
    fn nothing_is_appended_behind_a_hole() {
        let partial = joined(&[piece(0, "GET / "), piece(10, "later"), piece(6, "HTTP")]);
        assert_eq!(partial.bytes(), b"GET / ");
        assert!(partial.may_lack_its_end());
        let without_start = joined(&[piece(5, "x")]);
        assert!(without_start.bytes().is_empty());
    }

    #[test]
    fn a_truncated_piece_leaves_a_hole() {
        let first = HeadPiece { truncated: true, ..piece(0, "GET /long") };
        let partial = joined(&[first, piece(9, "not what follows")]);
        assert_eq!(partial.bytes(), b"GET /long");
        assert!(partial.may_lack_its_end());
    }

    #[test]
    fn a_head_is_kept_up_to_its_limit() {
        let partial = joined(&[piece(0, &"a".repeat(HEAD_LIMIT)), piece(16384, "b"), piece(16385, "c")]);
        assert_eq!(partial.bytes().len(), HEAD_LIMIT);
        assert!(partial.may_lack_its_end());
        assert_eq!(joined(&[piece(0, &"a".repeat(3 * HEAD_LIMIT))]).bytes().len(), HEAD_LIMIT);
    }

    #[test]
    fn an_unfinished_head_closes_after_its_last_full_line() {
        assert_eq!(closed(b"GET / HTTP/1.1\r\nHost: a\r\nX-Cut: ha"), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(closed(b"GE"), b"\r\n");
    }
}

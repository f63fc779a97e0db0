//! Header blocks of one direction of an HTTP/2 connection: put together, and decoded with a table that is followed from block to
//! block.
//!
//! The table may not be known: the connection was joined late, or a block was missed. It then starts empty, and that is all
//! there is to it: what is added from then on is found at its right place, and what lies behind is not known. A larger table than
//! the sender's does no harm either, since nobody refers to what was dropped.

use httlib_hpack::Decoder;

use crate::event::HeadPiece;
use crate::track::head::HEAD_LIMIT;

/// The table that both sides have to begin with, in bytes.
const INITIAL_TABLE: u32 = 4096;
/// The largest table that is kept. A sender that uses a larger one refers to fields that are not known here.
const LARGEST_TABLE: u32 = 16 * 1024;
/// Fields of one block that are read.
const FIELDS: usize = 256;

/// One field: name and value.
pub(super) type Field = (Vec<u8>, Vec<u8>);

/// What a whole block says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Fields {
    /// In order.
    pub(super) fields: Vec<Field>,
    /// Some could not be read.
    pub(super) is_partial: bool,
}

impl Fields {
    /// The first value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_slice())
    }
}

/// One direction.
#[derive(Debug)]
pub(super) struct Direction {
    decoder: Decoder<'static>,
    block: Vec<u8>,
    stream: u32,
    /// A block has begun.
    is_open: bool,
    /// A part of it is missing: what was put together ends there.
    has_hole: bool,
}

impl Direction {
    /// From the connection's first byte on.
    pub(super) fn new() -> Self {
        Self { decoder: decoder(INITIAL_TABLE), block: Vec::new(), stream: 0, is_open: false, has_hole: false }
    }

    /// The table is not known any more.
    pub(super) fn forget(&mut self) {
        self.decoder = decoder(LARGEST_TABLE);
        self.is_open = false;
        self.block = Vec::new();
    }

    /// The receiver allows a table of so many bytes.
    pub(super) fn allow(&mut self, bytes: u32) {
        self.decoder.set_max_dynamic_size(bytes.min(LARGEST_TABLE));
    }

    /// Takes in a piece of a block, and gives the fields once it is complete.
    pub(super) fn take(&mut self, stream: u32, piece: &HeadPiece) -> Option<Fields> {
        if self.is_open && (piece.offset == 0 || stream != self.stream) {
            // The rest of the block before was lost, and with it what that added to the table.
            self.forget();
        }
        if !self.is_open {
            self.block.clear();
            (self.is_open, self.stream, self.has_hole) = (true, stream, false);
        }
        let follows = usize::try_from(piece.offset) == Ok(self.block.len());
        let fits = self.block.len() + piece.bytes.len() <= HEAD_LIMIT;
        if !self.has_hole && follows && fits {
            self.block.extend_from_slice(&piece.bytes);
        } else {
            self.has_hole = true;
        }
        self.has_hole |= piece.truncated;
        if !piece.complete {
            return None;
        }
        self.is_open = false;
        let mut block = std::mem::take(&mut self.block);
        let mut fields = self.decode(&block);
        if self.has_hole {
            fields.is_partial = true;
            self.forget();
        }
        block.clear();
        self.block = block;
        Some(fields)
    }

    fn decode(&mut self, block: &[u8]) -> Fields {
        let mut found = Fields::default();
        let mut rest = block;
        while !rest.is_empty() {
            let Some(length) = length(rest).filter(|_| found.fields.len() < FIELDS) else {
                // What cannot be read may have added to the table.
                found.is_partial = true;
                self.decoder = decoder(LARGEST_TABLE);
                break;
            };
            let (one, after) = rest.split_at(length);
            rest = after;
            let mut decoded = Vec::with_capacity(1);
            if self.decoder.decode(&mut one.to_vec(), &mut decoded).is_err() {
                found.is_partial = true;
                self.skip(one);
            }
            for (name, value, _) in decoded {
                // A field that was added without its name, for want of it: no real one lacks its name.
                if name.is_empty() {
                    found.is_partial = true;
                } else {
                    found.fields.push((name, value));
                }
            }
        }
        found
    }

    /// A field that could not be read, for want of its name, has its place in the table all the same.
    fn skip(&mut self, one: &[u8]) {
        const INDEXED_LATER: u8 = 0x40;
        if one[0] & 0xc0 != INDEXED_LATER {
            return;
        }
        let value = value_of(one).filter(|value| !value.is_empty());
        let read = value.is_some_and(|value| {
            let mut nameless = [&[INDEXED_LATER, 0], value].concat();
            self.decoder.decode(&mut nameless, &mut Vec::with_capacity(1)).is_ok()
        });
        if !read {
            self.decoder = decoder(LARGEST_TABLE);
        }
    }
}

/// The value's string of a field that is added to the table: what follows its name, which is referred to or stands there.
fn value_of(one: &[u8]) -> Option<&[u8]> {
    let (index, mut at) = number(one, 6)?;
    if index == 0 {
        let (length, header) = number(one.get(at..)?, 7)?;
        at = at.checked_add(header)?.checked_add(length)?;
    }
    one.get(at..)
}

fn decoder(bytes: u32) -> Decoder<'static> {
    Decoder::with_dynamic_size(bytes)
}

/// The length of the field that a block begins with; `None` if it is cut, or no field.
fn length(block: &[u8]) -> Option<usize> {
    let first = *block.first()?;
    let (prefix, literal) = match first {
        0x80.. => (7, false),
        0x40..=0x7f => (6, true),
        0x20..=0x3f => (5, false),
        _ => (4, true),
    };
    let (index, mut at) = number(block, prefix)?;
    if literal {
        let strings = if index == 0 { 2 } else { 1 };
        for _ in 0..strings {
            let (length, header) = number(block.get(at..)?, 7)?;
            at = at.checked_add(header)?.checked_add(length)?;
        }
    }
    (at <= block.len()).then_some(at)
}

/// A number whose first byte has so many bits of it, and its length.
fn number(bytes: &[u8], prefix: u8) -> Option<(usize, usize)> {
    let mask = 0xff_u8 >> (8 - prefix);
    let mut value = usize::from(bytes.first()? & mask);
    if value < usize::from(mask) {
        return Some((value, 1));
    }
    for (at, byte) in bytes.iter().enumerate().take(5).skip(1) {
        value += usize::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use httlib_hpack::Encoder;
    use proptest::prelude::*;

    use super::*;

    const INDEX: u8 = Encoder::WITH_INDEXING | Encoder::BEST_FORMAT;
    const HUFFMAN: u8 = Encoder::HUFFMAN_VALUE | Encoder::HUFFMAN_NAME;

    fn encode(encoder: &mut Encoder<'_>, fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            encoder.encode((name.as_bytes().to_vec(), value.as_bytes().to_vec(), flags), &mut block).unwrap();
        }
        block
    }

    fn whole(bytes: &[u8]) -> HeadPiece {
        HeadPiece { offset: 0, bytes: bytes.to_vec(), complete: true, truncated: false }
    }

    fn read(direction: &mut Direction, bytes: &[u8]) -> (Vec<(String, String)>, bool) {
        let fields = direction.take(1, &whole(bytes)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (fields.fields.iter().map(|(name, value)| (text(name), text(value))).collect(), fields.is_partial)
    }

    fn owned(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn the_table_is_followed_from_block_to_block() {
        let (mut encoder, mut direction) = (Encoder::default(), Direction::new());
        let fields = [(":method", "POST"), ("x-request-id", "r1"), (":path", "/pkg.Service/Call")];
        let first = encode(&mut encoder, &fields, INDEX | HUFFMAN);
        let second = encode(&mut encoder, &fields, INDEX | HUFFMAN);
        assert!(second.len() < first.len(), "it refers to the table");
        assert_eq!(read(&mut direction, &first), (owned(&fields), false));
        assert_eq!(read(&mut direction, &second), (owned(&fields), false));
    }

    #[test]
    fn who_joins_late_learns_what_is_added_from_then_on() {
        let (mut encoder, mut direction) = (Encoder::default(), Direction::new());
        encode(&mut encoder, &[("x-old", "before"), ("x-other", "before")], INDEX);
        direction.forget();
        let fields = [(":method", "GET"), ("x-old", "before"), ("x-new", "1"), ("x-old", "after")];
        let (first, again) = (encode(&mut encoder, &fields, INDEX), encode(&mut encoder, &fields, INDEX));
        assert_eq!(read(&mut direction, &first), (owned(&[(":method", "GET"), ("x-new", "1")]), true));
        // The last field's name is still not known, but its place in the table is.
        assert_eq!(read(&mut direction, &again), (owned(&[(":method", "GET"), ("x-new", "1")]), true));
    }

    #[test]
    fn a_block_comes_in_pieces_and_may_lack_some() {
        let (mut encoder, mut direction) = (Encoder::default(), Direction::new());
        let block = encode(&mut encoder, &[(":method", "GET"), ("a", "1"), ("b", "2")], INDEX);
        let piece = |from: usize, to: usize, complete| HeadPiece {
            offset: u32::try_from(from).unwrap(),
            bytes: block[from..to].to_vec(),
            complete,
            truncated: false,
        };
        assert_eq!(direction.take(1, &piece(0, 3, false)), None);
        let fields = direction.take(1, &piece(3, block.len(), true)).unwrap();
        assert_eq!((fields.fields.len(), fields.is_partial), (3, false));
        // The next one lacks its middle: what stands before it is read, and the table is not trusted any more.
        assert_eq!(direction.take(3, &piece(0, 5, false)), None);
        let fields = direction.take(3, &piece(6, block.len(), true)).unwrap();
        assert!(fields.is_partial);
        assert_eq!(fields.get(":method"), Some(&b"GET"[..]));
        let refers = encode(&mut encoder, &[("a", "1")], INDEX);
        assert_eq!(read(&mut direction, &refers), (vec![], true));
    }

    #[test]
    fn the_standard_s_own_example_reads() {
        // RFC 7541, C.4: three requests on one connection, with Huffman coding.
        let mut direction = Direction::new();
        let bytes =
            |hex: &str| -> Vec<u8> { (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect() };
        let common = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];
        assert_eq!(read(&mut direction, &bytes("828684418cf1e3c2e5f23a6ba0ab90f4ff")), (owned(&common), false));
        let second = [&common[..], &[("cache-control", "no-cache")]].concat();
        assert_eq!(read(&mut direction, &bytes("828684be5886a8eb10649cbf")), (owned(&second), false));
        let third = [
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ];
        assert_eq!(read(&mut direction, &bytes("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf")), (owned(&third), false));
    }

    #[test]
    fn a_path_is_read_however_it_is_written() {
        let path = |block: &[u8]| read(&mut Direction::new(), block).0;
        // Of the static table; its name alone, with and without a place in the table, and never to be in one; the name spelled out.
        for (block, value) in [
            (b"\x84".as_slice(), "/"),
            (b"\x85", "/index.html"),
            (b"\x44\x02/a", "/a"),
            (b"\x04\x02/b", "/b"),
            (b"\x14\x02/c", "/c"),
            (b"\x45\x02/d", "/d"),
            (b"\x40\x05:path\x02/e", "/e"),
            (b"\0\x05:path\x02/f", "/f"),
            (b"\x10\x05:path\x02/g", "/g"),
        ] {
            assert_eq!(path(block), owned(&[(":path", value)]), "{block:x?}");
        }
    }

    #[test]
    fn the_receiver_s_word_on_the_table_counts() {
        let mut direction = Direction::new();
        // A size update to 8192, then a field.
        let grown = [0x3f, 0xe1, 0x3f, 0x82];
        assert!(read(&mut direction, &grown).1, "more than was allowed");
        direction.allow(8192);
        assert_eq!(read(&mut direction, &grown), (owned(&[(":method", "GET")]), false));
    }

    #[test]
    fn a_field_that_cannot_be_read_is_skipped_alone() {
        // A name of its own that can be read, and a value that cannot: what was taken for a value began with the name, and the rest of it for another
        // field, whose value was beyond the end.
        let block = [64, 147, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 166, 0, 19, 99, 23, 20, 185, 129, 111, 129, 2];
        let mut direction = Direction::new();
        assert_eq!(read(&mut direction, &block), (Vec::new(), true));
        assert_eq!(value_of(&block), Some(&[129, 2][..]));
        assert_eq!(value_of(&[0x41, 1, b'a']), Some(&[1, b'a'][..]));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_decoded(blocks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..8)) {
            let mut direction = Direction::new();
            for block in blocks {
                direction.take(1, &whole(&block));
            }
        }

        #[test]
        fn the_decoder_agrees_with_the_encoder(
            blocks in proptest::collection::vec(proptest::collection::vec(("[a-z-]{1,20}", "[ -~]{0,60}", 0_u8..32), 0..10), 1..30),
            late in 0_usize..30,
        ) {
            let (mut encoder, mut direction) = (Encoder::default(), Direction::new());
            for (number, fields) in blocks.iter().enumerate() {
                let mut block = Vec::new();
                for (name, value, flags) in fields {
                    encoder.encode((name.clone().into_bytes(), value.clone().into_bytes(), *flags), &mut block).unwrap();
                }
                let expected: Vec<_> = fields.iter().map(|(name, value, _)| (name.clone(), value.clone())).collect();
                if number == late {
                    direction.forget();
                }
                if block.is_empty() {
                    continue;
                }
                let (found, is_partial) = read(&mut direction, &block);
                if number < late {
                    prop_assert!(!is_partial);
                }
                if is_partial {
                    // What is read is right, whatever is not.
                    for (name, value) in found {
                        prop_assert!(expected.contains(&(name, value)));
                    }
                } else {
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}

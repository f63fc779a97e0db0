//! Netlink attributes, written and read as bytes.
//!
//! The typed crates do not know netem, clsact or cls_bpf with actions, and lose a message that they cannot parse; a dump that loses
//! another's filter would have us delete its clsact. So tc messages are read here, and a malformed one is an error.

use thiserror::Error;

/// Attribute numbers carry two flags in their top bits.
const KIND_MASK: u16 = 0x3fff;

/// Bytes that are no sequence of attributes.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("an attribute of {claimed} bytes in {left} bytes")]
pub struct Malformed {
    claimed: usize,
    left: usize,
}

/// Builds a run of attributes.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// A run that begins with a fixed header.
    pub(crate) fn with_header(header: &[u8]) -> Self {
        let mut writer = Self::default();
        writer.bytes.extend_from_slice(header);
        writer.pad();
        writer
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.nested(kind, |inner| inner.bytes.extend_from_slice(value))
    }

    pub(crate) fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// A string with its terminating zero.
    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.nested(kind, |inner| {
            inner.bytes.extend_from_slice(value.as_bytes());
            inner.bytes.push(0);
        })
    }

    /// An attribute whose value is a run of attributes, perhaps after a header that `fill` writes first.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let mut inner = Self::default();
        fill(&mut inner);
        // The largest value that is ever sent is a distribution table of 8 KiB.
        let length = u16::try_from(inner.bytes.len() + 4).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.append(&mut inner.bytes);
        self.pad();
        self
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// Reads a run of attributes: number and value.
#[derive(Debug, Clone)]
pub(crate) struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The value of the first attribute of this number.
    pub(crate) fn find(self, kind: u16) -> Result<Option<&'a [u8]>, Malformed> {
        for attribute in self {
            let (found, value) = attribute?;
            if found == kind {
                return Ok(Some(value));
            }
        }
        Ok(None)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(u16, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        // Padding may follow the last attribute.
        let [a, b, c, d, ..] = *self.rest else {
            return None;
        };
        let claimed = usize::from(u16::from_ne_bytes([a, b]));
        let Some(value) = self.rest.get(4..claimed) else {
            let left = self.rest.len();
            self.rest = &[];
            return Some(Err(Malformed { claimed, left }));
        };
        self.rest = self.rest.get(claimed.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok((u16::from_ne_bytes([c, d]) & KIND_MASK, value)))
    }
}

/// A native-endian `u32` at an offset.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let value = bytes.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_ne_bytes(value.try_into().ok()?))
}

/// A string up to its terminating zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::default();
        writer.text(1, "netem").u32(5, 7).nested(2, |inner| {
            inner.attribute(3, &[1, 2, 3]);
        });
        let bytes = writer.into_bytes();
        assert_eq!(bytes.len() % 4, 0);
        let read: Result<Vec<_>, _> = Attributes::new(&bytes).collect();
        let read = read.unwrap_or_default();
        assert_eq!(read.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [1, 5, 2]);
        assert_eq!(text(read[0].1), "netem");
        assert_eq!(Attributes::new(read[2].1).find(3), Ok(Some(&[1_u8, 2, 3][..])));
        assert_eq!(Attributes::new(&bytes).find(9), Ok(None));
    }

    #[test]
    fn a_length_beyond_the_end_is_an_error_and_no_end() {
        assert_eq!(Attributes::new(&[12, 0, 1, 0, 9]).next(), Some(Err(Malformed { claimed: 12, left: 5 })));
        assert_eq!(Attributes::new(&[2, 0, 1, 0]).next(), Some(Err(Malformed { claimed: 2, left: 4 })));
    }
}

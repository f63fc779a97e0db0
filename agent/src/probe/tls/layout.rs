//! Where in the kernel's `struct sock` it says whether a system call has the socket's lock: from the kernel's own type information (BTF).
//!
//! Only as much of the format as leads there.

use std::fs;

use super::TlsError;

const PATH: &str = "/sys/kernel/btf/vmlinux";

const INT: u32 = 1;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const ENUM64: u32 = 19;

/// Offset of `sk_lock.owned` in a `struct sock`, in bytes.
pub(super) fn socket_owner() -> Result<u32, TlsError> {
    let bytes = fs::read(PATH).map_err(TlsError::Layout)?;
    find(&bytes).ok_or(TlsError::NoOwner)
}

fn find(bytes: &[u8]) -> Option<u32> {
    let types = Types::parse(bytes)?;
    let (lock, of_lock) = types.member("sock", "sk_lock")?;
    let (owned, _) = types.member_of(types.resolve(of_lock)?, "owned")?;
    Some(lock + owned)
}

struct Types<'a> {
    bytes: &'a [u8],
    strings: &'a [u8],
    /// Where each type is described; type 0 is none.
    places: Vec<usize>,
}

impl<'a> Types<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        const MAGIC: u32 = 0xeb9f;
        if word(bytes, 0)? & 0xffff != MAGIC {
            return None;
        }
        let part = |at| -> Option<&'a [u8]> {
            let start = size(word(bytes, 4)?)? + size(word(bytes, at)?)?;
            bytes.get(start..start + size(word(bytes, at + 4)?)?)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let mut places = vec![0];
        let mut at = 0;
        while at < types.len() {
            places.push(at);
            let info = word(types, at + 4)?;
            let count = size(info & 0xffff)?;
            at += 12
                + match kind(info) {
                    INT | VAR | DECL_TAG => 4,
                    ARRAY => 12,
                    STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
                    ENUM | FUNC_PROTO => 8 * count,
                    _ => 0,
                };
        }
        Some(Self { bytes: types, strings, places })
    }

    fn info(&self, place: usize) -> Option<u32> {
        word(self.bytes, place + 4)
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let end = || Some(size(offset)?..size(offset)? + name.len() + 1);
        let found = end().and_then(|range| self.strings.get(range));
        found.and_then(|found| found.strip_suffix(&[0])) == Some(name.as_bytes())
    }

    /// Offset and type of a member of the struct of that name.
    fn member(&self, of: &str, name: &str) -> Option<(u32, u32)> {
        let mut structs = self.places.iter().skip(1).copied().filter(|place| {
            self.info(*place).is_some_and(|info| kind(info) == STRUCT)
                && word(self.bytes, *place).is_some_and(|text| self.is_named(text, of))
        });
        structs.find_map(|place| self.member_of(place, name))
    }

    fn member_of(&self, place: usize, name: &str) -> Option<(u32, u32)> {
        let info = self.info(place)?;
        if kind(info) != STRUCT {
            return None;
        }
        (0..size(info & 0xffff)?).find_map(|index| {
            let at = place + 12 + 12 * index;
            if !self.is_named(word(self.bytes, at)?, name) {
                return None;
            }
            // Where a member of the struct is a bit field, the upper byte is its size.
            let bits = word(self.bytes, at + 8)?;
            let bits = if info >> 31 != 0 { bits & 0xff_ffff } else { bits };
            Some((bits / 8, word(self.bytes, at + 4)?))
        })
    }

    /// The type behind its other names.
    fn resolve(&self, mut id: u32) -> Option<usize> {
        for _ in 0..8 {
            let place = *self.places.get(size(id)?)?;
            if kind(self.info(place)?) != TYPEDEF {
                return Some(place);
            }
            id = word(self.bytes, place + 8)?;
        }
        None
    }
}

const fn kind(info: u32) -> u32 {
    info >> 24 & 0x1f
}

fn size(number: u32) -> Option<usize> {
    usize::try_from(number).ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// int; struct { slock: int at 0; owned: int at 4 }, named by a typedef; struct sock { first: int at 0; sk_lock at 8 }.
    #[test]
    fn a_member_of_a_member_is_found_through_a_typedef() {
        let strings = b"\0int\0slock\0owned\0socket_lock_t\0sock\0first\0sk_lock\0";
        let text = |name: &str| {
            let wanted = [name.as_bytes(), &[0]].concat();
            strings.windows(wanted.len()).position(|window| window == wanted).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
        };
        let words = [
            vec![text("int"), INT << 24, 4, 32],
            vec![0, STRUCT << 24 | 2, 8, text("slock"), 1, 0, text("owned"), 1, 32],
            vec![text("socket_lock_t"), TYPEDEF << 24, 2],
            vec![text("sock"), STRUCT << 24 | 2, 16, text("first"), 1, 0, text("sk_lock"), 3, 64],
        ]
        .concat();
        let types = words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(0);
        let header = [0x0001_eb9f, 24, 0, length(&types), length(&types), length(strings)];
        let file: Vec<u8> =
            header.iter().flat_map(|word| word.to_ne_bytes()).chain(types.iter().copied()).chain(strings.iter().copied()).collect();
        assert_eq!(find(&file), Some(12));
        assert_eq!(find(&file[..file.len() - 1]), None);
        assert_eq!(find(b"no BTF at all"), None);
    }
}

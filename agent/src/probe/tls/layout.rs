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

/// How many members without a name may lie in each other.
const DEEPEST: u32 = 4;

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
        self.member_within(place, name, DEEPEST)
    }

    /// Also among the members of a member without a name: since 7.2 the owner is in a struct in a union.
    fn member_within(&self, place: usize, name: &str, depth: u32) -> Option<(u32, u32)> {
        let info = self.info(place)?;
        if !matches!(kind(info), STRUCT | UNION) {
            return None;
        }
        (0..size(info & 0xffff)?).find_map(|index| {
            let at = place + 12 + 12 * index;
            // Where a member of the struct is a bit field, the upper byte is its size.
            let bits = word(self.bytes, at + 8)?;
            let bits = if info >> 31 != 0 { bits & 0xff_ffff } else { bits };
            let of = word(self.bytes, at + 4)?;
            match word(self.bytes, at)? {
                0 if depth > 0 => {
                    let (inner, of) = self.member_within(self.resolve(of)?, name, depth - 1)?;
                    Some((bits / 8 + inner, of))
                }
                text => self.is_named(text, name).then_some((bits / 8, of)),
            }
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

    const NAMES: &[u8] = b"\0int\0slock\0owned\0socket_lock_t\0sock\0first\0sk_lock\0";

    fn text(name: &str) -> u32 {
        let wanted = [name.as_bytes(), &[0]].concat();
        NAMES.windows(wanted.len()).position(|window| window == wanted).and_then(|at| u32::try_from(at).ok()).unwrap_or(0)
    }

    fn file(types: &[Vec<u32>]) -> Vec<u8> {
        let types = types.concat().iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
        let length = |part: &[u8]| u32::try_from(part.len()).unwrap_or(0);
        let header = [0x0001_eb9f, 24, 0, length(&types), length(&types), length(NAMES)];
        header.iter().flat_map(|word| word.to_ne_bytes()).chain(types.iter().copied()).chain(NAMES.iter().copied()).collect()
    }

    /// int; struct { slock: int at 0; owned: int at 4 }, named by a typedef; struct sock { first: int at 0; sk_lock at 8 }.
    #[test]
    fn a_member_of_a_member_is_found_through_a_typedef() {
        let file = file(&[
            vec![text("int"), INT << 24, 4, 32],
            vec![0, STRUCT << 24 | 2, 8, text("slock"), 1, 0, text("owned"), 1, 32],
            vec![text("socket_lock_t"), TYPEDEF << 24, 2],
            vec![text("sock"), STRUCT << 24 | 2, 16, text("first"), 1, 0, text("sk_lock"), 3, 64],
        ]);
        assert_eq!(find(&file), Some(12));
        assert_eq!(find(&file[..file.len() - 1]), None);
        assert_eq!(find(b"no BTF at all"), None);
    }

    /// As since 7.2: the lock is struct { union { struct { slock at 0; owned at 4 } at 0 } at 2 }.
    #[test]
    fn a_member_is_found_in_members_without_a_name() {
        let anonymous = |of| vec![0, UNION << 24 | 1, 8, 0, of, 0];
        let sock = vec![text("sock"), STRUCT << 24 | 1, 16, text("sk_lock"), 4, 64];
        let types = [
            vec![text("int"), INT << 24, 4, 32],
            vec![0, STRUCT << 24 | 2, 8, text("slock"), 1, 0, text("owned"), 1, 32],
            anonymous(2),
            vec![0, STRUCT << 24 | 1, 10, 0, 3, 16],
            sock,
        ];
        assert_eq!(find(&file(&types)), Some(8 + 2 + 4));
        // One that is in itself, which no compiler writes, ends.
        let [int, lock, _, around, sock] = types;
        assert_eq!(find(&file(&[int, lock, anonymous(3), around, sock])), None);
    }
}

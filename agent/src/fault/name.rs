//! Names of what we put into the kernel, and whose they are.
//!
//! A name carries its owner's process id and the low bits of its start time, so that `clean` recognises what is ours, and whether its
//! drill still lives, with no journal at hand. The same name is an ifb's name and part of its filter's, and gives the filter's handle.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

use super::ending;

/// Priorities of our filters: rewriting and dropping come before redirecting, because a redirected packet does not come back.
/// They lie apart because a filter that is added without a priority gets the one below the lowest there is: next to ours, and of any protocol.
pub(crate) const PRIORITY_HTTP_STATUS: u16 = 0xfb00;
pub(crate) const PRIORITY_DROP: u16 = 0xfc00;
pub(crate) const PRIORITY_REDIRECT: u16 = 0xfd00;
/// Handle of our netem, at the root of our ifb.
pub(crate) const NETEM_HANDLE: u32 = 0x5d01_0000;

/// Begins every filter's name.
const FILTER_PREFIX: &str = "stormdrill:";
/// Ends a filter's name if the clsact that it hangs on is ours too.
const CLSACT_SUFFIX: &str = "+clsact";
/// Linux process ids have at most 22 bits.
const PID_BITS: u32 = 0x003f_ffff;

/// A process, told apart from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn current() -> io::Result<Self> {
        let pid = std::process::id();
        let start = start_time(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { pid, start })
    }

    /// Whether the process still runs.
    ///
    /// # Errors
    /// When `/proc` cannot be read; that says nothing about the process.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(start_time(self.pid)? == Some(self.start))
    }
}

/// The start time of a process that is no zombie; `None` if there is none of that number.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    let Some(stat) = ending::read(pid, "stat")? else { return Ok(None) };
    // The command's name may hold spaces and brackets: the fields begin behind the last bracket, with the third.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace().collect();
    match (fields.first(), fields.get(19).and_then(|field| field.parse().ok())) {
        (Some(&("Z" | "X")), _) => Ok(None),
        (_, Some(start)) => Ok(Some(start)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The name of one installed hook of one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    pid: u32,
    start_low: u16,
    slot: u8,
}

impl Name {
    /// The next free name of an owner.
    pub(crate) fn next(owner: Owner) -> Self {
        static SLOT: AtomicU8 = AtomicU8::new(0);
        let [low, high, ..] = owner.start.to_le_bytes();
        Self { pid: owner.pid & PID_BITS, start_low: u16::from_le_bytes([low, high]), slot: SLOT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The filter's handle: unique among the hooks of all living owners.
    pub(crate) fn handle(self) -> u32 {
        self.pid << 8 | u32::from(self.slot)
    }

    /// The filter's name.
    pub(crate) fn filter(self, clsact: Clsact) -> String {
        match clsact {
            Clsact::Ours => format!("{FILTER_PREFIX}{self}{CLSACT_SUFFIX}"),
            Clsact::Foreign => format!("{FILTER_PREFIX}{self}"),
        }
    }

    /// Reads a filter's name; `None` if it is not one of ours.
    pub(crate) fn of_filter(text: &str) -> Option<(Self, Clsact)> {
        let text = text.strip_prefix(FILTER_PREFIX)?;
        let (name, clsact) = match text.strip_suffix(CLSACT_SUFFIX) {
            Some(name) => (name, Clsact::Ours),
            None => (text, Clsact::Foreign),
        };
        Some((name.parse().ok()?, clsact))
    }

    /// Whether the process that it names still runs.
    pub(crate) fn owner_lives(self) -> io::Result<bool> {
        let low = |start: u64| u16::from_le_bytes([start.to_le_bytes()[0], start.to_le_bytes()[1]]);
        Ok(start_time(self.pid)?.is_some_and(|start| low(start) == self.start_low))
    }

    /// The owner's process id.
    pub(crate) const fn pid(self) -> u32 {
        self.pid
    }
}

/// Whose the clsact on an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clsact {
    /// A drill made it; it goes with the last filter.
    Ours,
    /// It was there.
    Foreign,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sd{:06x}{:04x}{:02x}", self.pid, self.start_low, self.slot)
    }
}

/// A text that is not one of our names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a name that stormdrill gives")]
pub struct NotOurs;

impl FromStr for Name {
    type Err = NotOurs;

    fn from_str(text: &str) -> Result<Self, NotOurs> {
        let digits = text.strip_prefix("sd").ok_or(NotOurs)?;
        if digits.len() != 12 || !digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(NotOurs);
        }
        let (pid, rest) = digits.split_at(6);
        let (start_low, slot) = rest.split_at(4);
        Ok(Self {
            pid: u32::from_str_radix(pid, 16).map_err(|_| NotOurs)?,
            start_low: u16::from_str_radix(start_low, 16).map_err(|_| NotOurs)?,
            slot: u8::from_str_radix(slot, 16).map_err(|_| NotOurs)?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_name_fits_an_interface_and_is_read_back() {
        let name = Name::next(Owner { pid: 4_194_303, start: 0xdead_beef });
        let text = name.to_string();
        assert!(text.len() <= 15, "{text}");
        assert_eq!(text.parse(), Ok(name));
        assert_eq!(Name::of_filter(&name.filter(Clsact::Ours)), Some((name, Clsact::Ours)));
        assert_eq!(Name::of_filter(&name.filter(Clsact::Foreign)), Some((name, Clsact::Foreign)));
    }

    #[test]
    fn names_of_others_are_not_ours() {
        for text in ["ifb0", "sda1", "sd00", "sd00000100020G", "SD000001000203", "sdééé", "eth0"] {
            assert_eq!(text.parse::<Name>(), Err(NotOurs), "{text}");
        }
        assert_eq!(Name::of_filter("stormdrill:eth0"), None);
        assert_eq!(Name::of_filter("cil_to_netdev"), None);
    }

    #[test]
    fn this_process_lives_and_one_with_another_start_time_does_not() {
        let owner = Owner::current().unwrap();
        assert!(owner.is_alive().unwrap());
        assert!(!Owner { start: owner.start + 1, ..owner }.is_alive().unwrap());
        assert!(Name::next(owner).owner_lives().unwrap());
        assert!(!Name::next(Owner { start: owner.start + 1, ..owner }).owner_lives().unwrap());
    }
}

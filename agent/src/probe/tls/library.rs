//! A library or executable with OpenSSL's calls, and where in its file they are.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use super::scan::FileId;

/// A call that is probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Function {
    /// `SSL_read`
    Read,
    /// `SSL_write`
    Write,
    /// `SSL_read_ex`
    ReadEx,
    /// `SSL_write_ex`
    WriteEx,
    /// `SSL_do_handshake`, which `SSL_connect` and `SSL_accept` call.
    Handshake,
    /// `SSL_sendfile`, where the kernel encrypts.
    SendFile,
    /// `SSL_free`
    Free,
}

impl Function {
    /// All programs that are attached to calls.
    pub(super) const PROGRAMS: [&str; 9] =
        ["tls_read", "tls_write", "tls_read_ex", "tls_write_ex", "tls_handshake", "tls_send_file", "tls_free", "tls_done", "tls_shaken"];

    /// The programs of this one. What runs at the end comes first: a call that begins unseen is better than one whose end is.
    pub(super) const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Read => &["tls_done", "tls_read"],
            Self::Write => &["tls_done", "tls_write"],
            Self::ReadEx => &["tls_done", "tls_read_ex"],
            Self::WriteEx => &["tls_done", "tls_write_ex"],
            Self::Handshake => &["tls_shaken", "tls_handshake"],
            Self::SendFile => &["tls_done", "tls_send_file"],
            Self::Free => &["tls_free"],
        }
    }

    fn of(symbol: &str) -> Option<Self> {
        // A symbol may carry its version.
        Some(match symbol.split('@').next()? {
            "SSL_read" => Self::Read,
            "SSL_write" => Self::Write,
            "SSL_read_ex" => Self::ReadEx,
            "SSL_write_ex" => Self::WriteEx,
            "SSL_do_handshake" => Self::Handshake,
            "SSL_sendfile" => Self::SendFile,
            "SSL_free" => Self::Free,
            _ => return None,
        })
    }
}

/// A file that has the calls.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) file: FileId,
    /// Open, so that it can be found even if the process that had it has ended.
    handle: File,
    /// Each call and its offset in the file.
    pub(super) functions: Vec<(Function, u64)>,
}

impl Library {
    /// The library that a file is; `None` if it cannot read and write TLS by those names.
    pub(super) fn open(file: FileId, path: &Path) -> Option<Self> {
        let handle = File::open(path).ok()?;
        // Only what is asked for is read: an executable may have hundreds of megabytes.
        let cache = ReadCache::new(&handle);
        let functions = functions(&object::File::parse(&cache).ok()?);
        let has = |function| functions.iter().any(|(found, _)| *found == function);
        (has(Function::Read) && has(Function::Write)).then_some(Self { file, handle, functions })
    }

    /// Where this process, and the kernel for it, finds the file.
    pub(super) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }
}

/// The calls that an object defines, each once, by their offset in its file.
fn functions<'data>(object: &object::File<'data, impl object::ReadRef<'data>>) -> Vec<(Function, u64)> {
    let mut found: Vec<(Function, u64)> = Vec::new();
    // The dynamic table is what a stripped library keeps; a static executable has the other one only. Most executables have the names in neither, which
    // is found out without going through their symbols.
    let dynamic = names(object, ".dynstr").then(|| object.dynamic_symbols());
    let all = names(object, ".strtab").then(|| object.symbols());
    for symbol in dynamic.into_iter().flatten().chain(all.into_iter().flatten()).filter(|symbol| symbol.is_definition()) {
        let Some(function) = symbol.name().ok().and_then(Function::of) else { continue };
        if !found.iter().any(|(known, _)| *known == function)
            && let Some(offset) = offset(object, symbol.address())
        {
            found.push((function, offset));
        }
    }
    found
}

/// Whether a table of strings has the name of a call that must be there.
fn names<'data>(object: &object::File<'data, impl object::ReadRef<'data>>, table: &str) -> bool {
    const NAME: &[u8] = b"SSL_write";
    let strings = object.section_by_name(table).and_then(|section| section.data().ok()).unwrap_or_default();
    // SAFETY: two slices with their lengths.
    let found = unsafe { libc::memmem(strings.as_ptr().cast(), strings.len(), NAME.as_ptr().cast(), NAME.len()) };
    !found.is_null()
}

/// Where in the file an address is, by the segment that is loaded there.
fn offset<'data>(object: &object::File<'data, impl object::ReadRef<'data>>, address: u64) -> Option<u64> {
    object.segments().find_map(|segment| {
        let within = address.checked_sub(segment.address())?;
        let (start, size) = segment.file_range();
        (within < size).then(|| start + within)
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    const AT: FileId = FileId { device: 0, inode: 0 };

    #[test]
    fn versions_of_symbols_are_not_part_of_their_names() {
        assert_eq!(Function::of("SSL_read@@OPENSSL_3.0.0"), Some(Function::Read));
        assert_eq!(Function::of("SSL_write_ex"), Some(Function::WriteEx));
        assert_eq!(Function::of("SSL_read_early_data"), None);
    }

    #[test]
    fn what_is_no_elf_or_lacks_the_calls_is_no_library() {
        assert!(Library::open(AT, Path::new("/proc/version")).is_none());
        assert!(Library::open(AT, Path::new("/proc/self/exe")).is_none());
        assert!(Library::open(AT, Path::new("/nonexistent")).is_none());
    }

    /// An ELF executable with one loaded segment whose code lies elsewhere in the file than in memory, and a symbol table as static linking leaves it.
    #[test]
    fn a_symbol_table_gives_offsets_in_the_file() {
        let text = object_with(&[("SSL_read", 0x40_1010), ("SSL_write", 0x40_1020), ("SSL_free", 0x40_9000)]);
        let parsed = object::File::parse(&*text).unwrap();
        assert_eq!(functions(&parsed), [(Function::Read, 0x210), (Function::Write, 0x220)]);
    }

    /// Written by hand: header, one program header (0x400 bytes at 0x401000 from offset 0x200), null, .symtab and .strtab sections.
    fn object_with(symbols: &[(&str, u64)]) -> Vec<u8> {
        let mut names = b"\0.symtab\0.strtab\0".to_vec();
        let mut table = vec![0; 24];
        for (name, address) in symbols {
            table.extend(u32::try_from(names.len()).unwrap().to_le_bytes());
            // Global function, in section 1.
            table.extend([0x12, 0, 1, 0]);
            table.extend(address.to_le_bytes());
            table.extend(8_u64.to_le_bytes());
            names.extend(name.bytes().chain([0]));
        }
        let (symbols_at, names_at) = (0x600_u64, 0x600 + table.len() as u64);
        let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        for word in [0x40_1000_u64, 64, sections_at] {
            file.extend(word.to_le_bytes());
        }
        file.extend(0_u32.to_le_bytes());
        for half in [64_u16, 56, 1, 64, 4, 3] {
            file.extend(half.to_le_bytes());
        }
        file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        for word in [0x200_u64, 0x40_1000, 0x40_1000, 0x400, 0x400, 0x1000] {
            file.extend(word.to_le_bytes());
        }
        file.resize(0x600, 0x90);
        file.extend(&table);
        file.extend(&names);
        file.resize(usize::try_from(sections_at).unwrap(), 0);
        // Name, type, flags, address, offset, size, link, info, alignment, entry size.
        let mut section = |name: u32, kind: u32, flags: u64, address: u64, offset: u64, size: u64, link: u32, entry: u64| {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            for word in [flags, address, offset, size] {
                file.extend(word.to_le_bytes());
            }
            file.extend(link.to_le_bytes());
            file.extend(1_u32.to_le_bytes());
            file.extend(8_u64.to_le_bytes());
            file.extend(entry.to_le_bytes());
        };
        section(0, 0, 0, 0, 0, 0, 0, 0);
        section(0, 1, 6, 0x40_1000, 0x200, 0x400, 0, 0);
        section(1, 2, 0, 0, symbols_at, table.len() as u64, 3, 24);
        section(9, 3, 0, 0, names_at, names.len() as u64, 0, 0);
        file
    }
}

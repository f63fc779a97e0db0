//! Writes a cpio archive in the format "newc", which the kernel unpacks at boot. Written here because it is forty lines, and needs neither a
//! staging folder nor root to put files under root's name.

use std::io::{self, Write};

/// What kind of file an entry is, in the bits of `st_mode`.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
pub(super) struct Archive<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    /// A folder. Its parent must have come before.
    pub(super) fn folder(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, DIRECTORY | 0o755, &[])
    }

    /// A file; `executable` decides between 755 and 644.
    pub(super) fn file(&mut self, path: &str, executable: bool, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | if executable { 0o755 } else { 0o644 }, content)
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, LINK | 0o777, target.as_bytes())
    }

    /// Ends the archive and returns what it was written to.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Thirteen fields of eight hexadecimal digits, the name with a NUL, the content; both padded to four bytes.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let size = u32::try_from(content.len()).map_err(|_| io::Error::other("a file of 4 GiB or more does not fit in an initramfs"))?;
        let name_size = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        self.inode += 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), length of the name, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(6 + 13 * 8 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may stop at the first thing that is wrong")]

    use super::*;

    #[test]
    fn entries_are_aligned_and_the_archive_ends_with_its_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.folder("/etc").unwrap();
        archive.file("/etc/hosts", false, b"12345").unwrap();
        archive.link("/bin", "usr/bin").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let starts: Vec<usize> = (0..bytes.len() - 6).filter(|at| bytes[*at..].starts_with(b"070701")).collect();
        assert_eq!(starts.len(), 4);
        assert!(starts.iter().all(|start| start % 4 == 0), "{starts:?}");
        let text = String::from_utf8_lossy(&bytes[starts[1]..starts[2]]).into_owned();
        assert!(text.starts_with("07070100000002000081a4"), "{text}");
        assert!(text.contains("etc/hosts\0") && text.contains("12345"), "{text}");
        assert!(String::from_utf8_lossy(&bytes[starts[3]..]).contains("TRAILER!!!"));
    }
}

//! What the project needs of a machine, as a table: how to see that a thing is there, and which Debian package brings it.
//!
//! Things are looked for by what is used of them (a program, a file), not by package, so that a machine that has them from elsewhere is left alone.

use std::path::{Path, PathBuf};

use crate::command;

/// What a thing is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Building the kernel objects and the binaries.
    Build,
    /// Booting a kernel in QEMU.
    Vm,
    /// The tests that are run on this host.
    Test,
    /// The systems that the drills of `seeds` are about.
    Seeds,
    /// What measurements are compared with.
    Bench,
    /// LLVM's fuzzer.
    Fuzz,
}

/// One thing that is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Need {
    pub(super) part: Part,
    /// A program's name, or a file's absolute path.
    pub(super) thing: &'static str,
    pub(super) package: &'static str,
}

const fn need(part: Part, thing: &'static str, package: &'static str) -> Need {
    Need { part, thing, package }
}

/// What is looked for at every setup. The compiler and the linker for BPF are not here: they have more than one way to be had.
pub(super) const NEEDS: &[Need] = &[
    need(Part::Build, "cc", "gcc"),
    need(Part::Build, "/usr/include/stdio.h", "libc6-dev"),
    need(Part::Build, "git", "git"),
    need(Part::Vm, "qemu-system-x86_64", "qemu-system-x86"),
    need(Part::Vm, "busybox", "busybox-static"),
    need(Part::Vm, "depmod", "kmod"),
    need(Part::Vm, "xz", "xz-utils"),
    need(Part::Vm, "zstd", "zstd"),
    need(Part::Vm, "ip", "iproute2"),
    need(Part::Vm, "ping", "iputils-ping"),
    need(Part::Vm, "ldd", "libc-bin"),
    need(Part::Vm, "dpkg-deb", "dpkg"),
    need(Part::Test, "nginx", "nginx"),
    need(Part::Test, "wrk", "wrk"),
    // And promtool, which checks metrics and rules.
    need(Part::Test, "prometheus", "prometheus"),
    // A browser and its WebDriver, for the daemon's page.
    need(Part::Test, "chromium", "chromium"),
    need(Part::Test, "chromedriver", "chromium-driver"),
    // A validator for the JUnit report.
    need(Part::Test, "xmllint", "libxml2-utils"),
    // A terminal without a screen, for `stormdrill top`.
    need(Part::Test, "tmux", "tmux"),
    // For the daemon: TLS, socket activation, several hosts.
    need(Part::Test, "curl", "curl"),
    need(Part::Test, "openssl", "openssl"),
    need(Part::Test, "systemd-socket-activate", "systemd"),
    need(Part::Test, "etcd", "etcd-server"),
    need(Part::Test, "etcdctl", "etcd-client"),
    // Servers that count for themselves, and loads for them.
    need(Part::Test, "redis-server", "redis-server"),
    need(Part::Test, "redis-benchmark", "redis-tools"),
    need(Part::Test, "mariadbd", "mariadb-server"),
    need(Part::Test, "mariadb-slap", "mariadb-client"),
    need(Part::Test, "pgbench", "postgresql"),
    need(Part::Test, "h2load", "nghttp2-client"),
    need(Part::Test, "nghttpd", "nghttp2-server"),
    need(Part::Test, "nghttpx", "nghttp2-proxy"),
    need(Part::Seeds, "nginx", "nginx"),
    need(Part::Seeds, "haproxy", "haproxy"),
    need(Part::Seeds, "redis-server", "redis-server"),
    need(Part::Seeds, "mariadbd", "mariadb-server"),
    need(Part::Seeds, "/usr/share/doc/python3-venv", "python3-venv"),
    need(Part::Bench, "bpftrace", "bpftrace"),
    need(Part::Fuzz, "c++", "g++"),
];

/// Debian's second route to a BPF core.
pub(super) const ROUTE_PACKAGES: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];
/// Clippy of the same compiler, for the kernel crate.
pub(super) const CLIPPY_PACKAGE: &str = "rust-web-clippy";
/// What bpf-linker is built against.
pub(super) const LINKER_PACKAGES: [&str; 4] = ["llvm-22-dev", "libpolly-22-dev", "libzstd-dev", "zlib1g-dev"];

impl Need {
    pub(super) fn is_met(&self) -> bool {
        if Path::new(self.thing).is_absolute() { PathBuf::from(self.thing).exists() } else { command::find(self.thing).is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_need_is_met_by_a_program_or_by_a_file() {
        assert!(need(Part::Build, "sh", "dash").is_met());
        assert!(need(Part::Build, "/etc/passwd", "base-files").is_met());
        assert!(!need(Part::Build, "no-such-program-anywhere", "x").is_met());
        assert!(!need(Part::Build, "/no/such/file", "x").is_met());
    }
}

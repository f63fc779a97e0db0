//! A pair of hooks that let everything pass, which is the least that a program at these places can cost.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::path::Path;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_CGROUP_SKB: u32 = 8;
const BPF_CGROUP_INET_INGRESS: u32 = 0;
const BPF_CGROUP_INET_EGRESS: u32 = 1;

/// `r0 = 1; exit`.
const PASS: [u64; 2] = [0x0000_0001_0000_00b7, 0x95];

/// Both hooks; they go with it.
pub(crate) struct Empty {
    _held: [[OwnedFd; 2]; 2],
}

impl Empty {
    pub(crate) fn attach(cgroup: &Path) -> Self {
        let cgroup = File::open(cgroup).unwrap();
        Self { _held: [BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_EGRESS].map(|place| hook(cgroup.as_raw_fd(), place).unwrap()) }
    }
}

/// The beginning of what the kernel reads for `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct LoadRequest {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// The same for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkRequest {
    prog: RawFd,
    target: RawFd,
    attach_type: u32,
    flags: u32,
}

fn hook(cgroup: RawFd, place: u32) -> io::Result<[OwnedFd; 2]> {
    let request = LoadRequest {
        prog_type: BPF_PROG_TYPE_CGROUP_SKB,
        insn_cnt: 2,
        insns: PASS.as_ptr().addr() as u64,
        license: c"GPL".as_ptr().addr() as u64,
        expected_attach_type: place,
        ..LoadRequest::default()
    };
    let program = bpf(BPF_PROG_LOAD, &request)?;
    let link = bpf(BPF_LINK_CREATE, &LinkRequest { prog: program.as_raw_fd(), target: cgroup, attach_type: place, flags: 0 })?;
    Ok([program, link])
}

fn bpf<T>(command: libc::c_int, request: &T) -> io::Result<OwnedFd> {
    // SAFETY: the request is laid out as the kernel's, and lives as long as the call, as do the constants that it points to.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(request), size_of::<T>()) };
    let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

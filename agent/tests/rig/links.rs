//! What somebody else on the host can do to the probe's links.

use std::fs;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::unistd::Pid;

const BPF_LINK_GET_FD_BY_ID: i64 = 30;
const BPF_LINK_DETACH: i64 = 34;

/// Takes a process's links on cgroups out of the kernel by force, those of one kind of hook, by its number in `enum bpf_attach_type`. Gives how many.
pub(crate) fn detach(process: Pid, attach_type: u64) -> usize {
    let descriptions = fs::read_dir(format!("/proc/{process}/fdinfo")).unwrap();
    let links = descriptions.filter_map(|entry| {
        let text = fs::read_to_string(entry.unwrap().path()).ok()?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok());
        (value("attach_type:") == Some(attach_type)).then(|| value("link_id:"))?
    });
    let mut detached = 0;
    for id in links {
        bpf(BPF_LINK_DETACH, i64::from(open(id).as_raw_fd())).unwrap();
        detached += 1;
    }
    detached
}

fn open(id: u64) -> OwnedFd {
    let descriptor = bpf(BPF_LINK_GET_FD_BY_ID, i64::try_from(id).unwrap()).unwrap();
    // SAFETY: the kernel has opened it for us just now.
    unsafe { OwnedFd::from_raw_fd(i32::try_from(descriptor).unwrap()) }
}

/// bpf(2) with an attribute whose first member is 32 bits wide.
fn bpf(command: i64, first: i64) -> nix::Result<i64> {
    let mut attribute = [0_u32; 32];
    attribute[0] = u32::try_from(first).unwrap();
    // SAFETY: the attribute is as long as is said, and outlives the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_bpf, command, attribute.as_mut_ptr(), size_of_val(&attribute)) })
}

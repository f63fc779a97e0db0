//! What goes into the guest besides the command: busybox, iproute2, modules, and the init script.
//!
//! Three serial ports keep things apart: the kernel's console, what the command prints, and a last line with its exit code. The shell is the
//! host's own: busybox's would run its own `tc` and `ip` whatever PATH says.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::kernel::Kernel;
use super::modules::{self, Modules};
use super::tree::Tree;
use super::{Bring, Job};
use crate::{command, say};

/// Programs of the host that the guest has too, by their own paths. The last ones are left out where the host lacks them.
const PROGRAMS: [&str; 3] = ["ip", "tc", "ping"];
const OPTIONAL_PROGRAMS: [&str; 3] = ["ss", "bridge", "ethtool"];
/// Where iproute2 keeps its tables of delay distributions, on one system or another.
const DISTRIBUTIONS: [&str; 4] = ["/usr/lib/x86_64-linux-gnu/tc", "/usr/lib/tc", "/usr/lib64/tc", "/usr/share/tc"];
/// Variables that the command sees as on the host, besides all that begin with STORMDRILL_.
const PASSED_ON: [&str; 4] = ["CI", "RUST_BACKTRACE", "RUST_LOG", "TERM"];

/// Where the init script and the command lie in the guest.
const OWN: &str = "/stormdrill-vm";

/// Puts together everything that a job needs.
pub(super) fn tree(kernel: &Kernel, job: &Job) -> Result<Tree> {
    let mut tree = Tree::new();
    for program in PROGRAMS {
        let host = command::require(program)?;
        tree.bring_program(&host, &host.to_string_lossy())?;
    }
    for host in OPTIONAL_PROGRAMS.iter().filter_map(command::find) {
        tree.bring_program(&host, &host.to_string_lossy())?;
    }
    for folder in DISTRIBUTIONS.iter().filter(|folder| Path::new(folder).is_dir()) {
        tree.bring(Path::new(folder), folder)?;
    }
    tree.bring_program(&command::require("sh")?, "/usr/bin/sh")?;
    tree.make(
        "/etc/passwd",
        false,
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n\
         postgres:x:70:70:for PostgreSQL, which does not run as root:/:/bin/sh\n",
    );
    tree.make("/etc/group", false, "root:x:0:\nnogroup:x:65534:\npostgres:x:70:\n");
    tree.make("/etc/hosts", false, "127.0.0.1 localhost stormdrill-vm\n::1 localhost\n");
    tree.make("/etc/nsswitch.conf", false, "hosts: files\n");
    tree.make("/etc/os-release", false, "ID=stormdrill-vm\nPRETTY_NAME=\"stormdrill's test guest\"\n");

    let command = place_command(&mut tree, job)?;
    for Bring { host, guest } in &job.bring {
        if is_program(host) { tree.bring_program(host, guest)? } else { tree.bring(host, guest)? }
    }
    // Last, so that no applet stands in for a real program.
    let busybox = command::require("busybox")?;
    tree.bring_program(&busybox, "/usr/bin/busybox")?;
    for applet in command::capture(Command::new(&busybox).arg("--list"))?.lines() {
        if !tree.has(&format!("/usr/sbin/{applet}")) {
            tree.link(&format!("/usr/bin/{applet}"), "busybox");
        }
    }
    // The kernel itself runs this one, to load a module that something asks for.
    tree.link("/usr/sbin/modprobe", "../bin/busybox");

    let modules = place_modules(&mut tree, kernel, job)?;
    tree.make(&format!("{OWN}/command"), true, command_script(&command, job));
    tree.make("/init", true, init_script(kernel, &modules));
    Ok(tree)
}

fn is_program(host: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    host.is_file() && fs::metadata(host).is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}

/// Puts the command into the guest and returns how it is called there. A bare name that the host knows is brought from it, unless it is
/// one that the guest has of its own.
fn place_command(tree: &mut Tree, job: &Job) -> Result<Vec<String>> {
    let mut words = job.command.iter().map(text_of).collect::<Result<Vec<_>>>()?;
    let Some(program) = words.first_mut() else { bail!("no command") };
    let busybox = command::capture(Command::new(command::require("busybox")?).arg("--list"))?;
    let is_bare = !program.contains('/');
    if is_bare && (PROGRAMS.contains(&program.as_str()) || busybox.lines().any(|applet| applet == program)) {
        return Ok(words);
    }
    let found = command::find(&*program).with_context(|| format!("`{program}` is not on this host: build it first, or name its path"))?;
    let host = std::path::absolute(found)?;
    ensure!(is_program(&host), "{} is not executable", host.display());
    let guest = host.to_string_lossy().into_owned();
    tree.bring_program(&host, &guest)?;
    *program = guest;
    Ok(words)
}

fn text_of(word: &OsString) -> Result<String> {
    word.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", word.display()))
}

fn place_modules(tree: &mut Tree, kernel: &Kernel, job: &Job) -> Result<Modules> {
    let modules = modules::choose(&kernel.modules, &job.modules, &job.without)?;
    if !modules.absent.is_empty() {
        say::step(format!("this kernel has no {}", modules.absent.join(", ")));
    }
    let folder = format!("/lib/modules/{}", kernel.release);
    for path in &modules.ordered {
        let content = unpack(&kernel.modules.join(path))?;
        tree.make(&format!("{folder}/{}", modules::unpacked_name(path)), false, content);
    }
    tree.make(&format!("{folder}/modules.dep"), false, modules.dep.clone());
    tree.make(&format!("{folder}/modules.alias"), false, modules.alias.clone());
    if let Ok(builtin) = fs::read(kernel.modules.join("modules.builtin")) {
        tree.make(&format!("{folder}/modules.builtin"), false, builtin);
    }
    Ok(modules)
}

/// A module as the kernel takes it.
fn unpack(file: &PathBuf) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let output = Command::new(command::require(program)?).arg("-dcq").arg(file).output()?;
    ensure!(output.status.success(), "{program} cannot unpack {}", file.display());
    Ok(output.stdout)
}

/// The script that runs the command, with the variables that go along.
fn command_script(command: &[String], job: &Job) -> String {
    let mut script = String::from("#!/bin/sh\n");
    let mut export = |name: &str, value: &str| script.push_str(&format!("export {name}={}\n", quote(value)));
    for (name, value) in std::env::vars_os() {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && (PASSED_ON.contains(&name) || name.starts_with("STORMDRILL_"))
        {
            export(name, value);
        }
    }
    export("HOME", "/root");
    export("STORMDRILL_VM", "1");
    for (name, value) in &job.env {
        export(name, value);
    }
    script.push_str("cd /tmp\nexec ");
    script.push_str(&command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "));
    script.push('\n');
    script
}

/// A word as the shell reads it back unchanged.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn init_script(kernel: &Kernel, modules: &Modules) -> String {
    let mut load = String::new();
    for path in &modules.ordered {
        let file = format!("/lib/modules/{}/{}", kernel.release, modules::unpacked_name(path));
        load.push_str(&format!("insmod {file} {} || echo \"cannot load {path}\"\n", modules::parameters(path)));
    }
    format!(
        "#!/bin/busybox sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mkdir -p /run/netns /run/lock
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debug /sys/kernel/debug
mount -t tracefs trace /sys/kernel/tracing
hostname stormdrill-vm
{load}/usr/sbin/ip link set lo up 2>/dev/null || /sbin/ip link set lo up
# A line feed stays one: what is printed reaches the host unchanged.
stty -F /dev/ttyS1 -opost
stty -F /dev/ttyS2 -opost
{OWN}/command </dev/null >/dev/ttyS1 2>&1
echo \"exit $?\" >/dev/ttyS2
sync
poweroff -f
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_the_guest_unchanged() {
        let word = "it's $HOME `x` \"y\"\n*";
        let back = command::capture(Command::new("sh").arg("-c").arg(format!("printf %s {}", quote(word)))).unwrap_or_default();
        assert_eq!(back, word);
    }

    #[test]
    fn the_command_runs_with_its_variables_and_says_that_it_is_in_the_vm() {
        let job = Job { env: vec![("LEVEL".to_owned(), "a b".to_owned())], ..Job::default() };
        let script = command_script(&["/x/test".to_owned(), "--test-threads=1".to_owned()], &job);
        assert!(script.contains("export LEVEL='a b'\n"), "{script}");
        assert!(script.contains("export STORMDRILL_VM='1'\n"), "{script}");
        assert!(script.ends_with("exec '/x/test' '--test-threads=1'\n"), "{script}");
    }

    #[test]
    fn modules_are_loaded_in_order_and_with_their_parameters() {
        let kernel = Kernel { release: "6.1.0".to_owned(), image: PathBuf::new(), modules: PathBuf::new() };
        let modules = Modules { ordered: vec!["k/llc.ko.xz".to_owned(), "k/ifb.ko".to_owned()], ..Modules::default() };
        let script = init_script(&kernel, &modules);
        let llc = script.find("insmod /lib/modules/6.1.0/k/llc.ko ");
        let ifb = script.find("insmod /lib/modules/6.1.0/k/ifb.ko numifbs=0 ");
        assert!(llc.is_some() && ifb > llc, "{script}");
    }
}

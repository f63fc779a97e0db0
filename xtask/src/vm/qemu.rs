//! Runs QEMU, passes on what the guest prints while it prints it, and finds out how it ended.
//!
//! TCG is used even where KVM could be: the tests then see the same machine everywhere, and a nested KVM that only pretends to work does no harm.
//! Its two CPUs take turns on one thread. With a thread each, one boot in ten of a 7.2 kernel died of an int3 that the other CPU was just
//! patching out (QEMU 7.2), and turning on a cgroup hook patches code as booting does. On two cores the turns cost no time that was measurable.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::{command, say};

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The command ran to its end, with this exit code.
    Exited(u8),
    /// The time was up; QEMU was killed.
    TimedOut,
    /// The guest went down without a word: a panic, whose line is given, or a QEMU that would not start.
    Died(String),
}

/// What is to be booted.
pub(super) struct Machine<'a> {
    pub(super) image: &'a Path,
    pub(super) initramfs: &'a Path,
    /// Where the guest leaves the exit code.
    pub(super) status: &'a Path,
    pub(super) memory_mib: u64,
    pub(super) timeout: Duration,
}

/// What one of the two streams brought.
enum Heard {
    Output(Vec<u8>),
    Console(String),
}

/// Boots a machine and waits for its end. `output` gets what the command prints, as it comes.
pub(super) fn run(machine: &Machine<'_>, output: &mut dyn FnMut(&[u8])) -> Result<Ending> {
    let deadline = Instant::now() + machine.timeout;
    let mut child =
        Guard(qemu(machine)?.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot run QEMU")?);
    let (sender, heard) = mpsc::channel();
    let readers = [listen_output(&mut child.0, sender.clone()), listen_console(&mut child.0, sender)];
    let mut panic = None;
    let mut console = Vec::new();
    let timed_out = loop {
        match heard.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Heard::Output(bytes)) => output(&bytes),
            // What every guest says last.
            Ok(Heard::Console(line)) if line.ends_with("reboot: Power down") => {}
            Ok(Heard::Console(line)) => {
                say::step(format!("guest console: {line}"));
                if panic.is_none() && is_fatal(&line) {
                    panic = Some(line.clone());
                }
                console.push(line);
            }
            // Both streams are closed: QEMU has ended.
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if timed_out {
        child.0.kill().context("cannot kill QEMU")?;
    }
    let status = child.0.wait()?;
    for reader in readers.into_iter().flatten() {
        // A reader ends with its stream; a panic in it would lose output only.
        let _ = reader.join();
    }
    Ok(match exit_code(&fs::read_to_string(machine.status).unwrap_or_default()) {
        Some(code) if panic.is_none() => Ending::Exited(code),
        _ if panic.is_some() => Ending::Died(panic.unwrap_or_default()),
        _ if timed_out => Ending::TimedOut,
        _ => Ending::Died(console.pop().unwrap_or_else(|| format!("QEMU ended with {status}"))),
    })
}

fn qemu(machine: &Machine<'_>) -> Result<Command> {
    let mut qemu = Command::new(command::require("qemu-system-x86_64")?);
    qemu.args([
        "-nodefaults",
        "-no-user-config",
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=single",
        "-cpu",
        "max",
        "-smp",
        "2",
        "-no-reboot",
    ]);
    qemu.args(["-display", "none", "-vga", "none", "-m"]).arg(format!("{}M", machine.memory_mib));
    // The kernel's console, the command's output, the exit code.
    for (name, file) in [("console", Path::new("/dev/stderr")), ("output", Path::new("/dev/stdout")), ("status", machine.status)] {
        qemu.arg("-chardev").arg(format!("file,id={name},path={}", file.display().to_string().replace(',', ",,")));
        qemu.arg("-serial").arg(format!("chardev:{name}"));
    }
    qemu.arg("-kernel").arg(machine.image).arg("-initrd").arg(machine.initramfs);
    // An oops in a test is the test's failure, so it ends the guest; `panic=-1` makes that a reboot, and -no-reboot an end.
    // A kernel that tries its timer while this machine is busy elsewhere finds it broken, and panics: it is not to try.
    let line = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic random.trust_cpu=on mitigations=off no_timer_check";
    qemu.args(["-append", line]);
    Ok(qemu)
}

fn listen_output(child: &mut Child, sender: mpsc::Sender<Heard>) -> Option<thread::JoinHandle<()>> {
    let mut stream = child.stdout.take()?;
    Some(thread::spawn(move || {
        let mut buffer = [0_u8; 8192];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            if sender.send(Heard::Output(buffer[..length].to_vec())).is_err() {
                break;
            }
        }
    }))
}

fn listen_console(child: &mut Child, sender: mpsc::Sender<Heard>) -> Option<thread::JoinHandle<()>> {
    let stream = BufReader::new(child.stderr.take()?);
    Some(thread::spawn(move || {
        for line in stream.split(b'\n').map_while(Result::ok) {
            let line = printable(&String::from_utf8_lossy(&line));
            if !line.is_empty() && sender.send(Heard::Console(line)).is_err() {
                break;
            }
        }
    }))
}

/// A console line without control characters and without the escape sequences that a firmware begins with.
fn printable(line: &str) -> String {
    let mut text = String::new();
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // To the letter that ends the sequence.
            let _ = characters.find(|character| character.is_ascii_alphabetic());
        } else if !character.is_control() {
            text.push(character);
        }
    }
    text.trim().to_owned()
}

fn is_fatal(line: &str) -> bool {
    ["Kernel panic", "Oops:", "BUG:", "Unable to mount root"].iter().any(|mark| line.contains(mark))
}

/// The exit code in what the guest wrote to its third port.
fn exit_code(status: &str) -> Option<u8> {
    status.lines().find_map(|line| line.trim().strip_prefix("exit ")?.parse().ok())
}

/// Ends QEMU when an error leaves this file before the guest has ended: a guest that nobody reads from would stay for good.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_read_and_silence_is_none() {
        assert_eq!(exit_code("exit 3\n"), Some(3));
        assert_eq!(exit_code("\r\nexit 0\r\n"), Some(0));
        assert_eq!(exit_code(""), None);
        assert_eq!(exit_code("exit soon"), None);
    }

    #[test]
    fn a_panic_is_known_and_a_warning_is_not_taken_for_one() {
        assert!(is_fatal("[    1.2] Kernel panic - not syncing: Attempted to kill init!"));
        assert!(is_fatal("[    1.2] BUG: kernel NULL pointer dereference, address: 0"));
        assert!(!is_fatal("[    0.3] pci 0000:00:01.0: BAR 13: no space"));
    }

    #[test]
    fn a_firmwares_escape_sequences_are_dropped() {
        assert_eq!(printable("\u{1b}c\u{1b}[?7l\u{1b}[2J\u{1b}[0mSeaBIOS\r"), "SeaBIOS");
    }
}

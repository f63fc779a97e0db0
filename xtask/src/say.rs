//! What a task tells the person who runs it. Progress goes to stderr, so that stdout holds only what the task was run for
//! (the output of a command in the VM, the closing line of the tests).

#![expect(clippy::print_stderr, clippy::print_stdout, reason = "the one place where xtask prints")]

/// Says what a task does now, or what it found.
pub(crate) fn step(text: impl AsRef<str>) {
    eprintln!("xtask: {}", text.as_ref());
}

/// Says an error with its chain of causes.
pub(crate) fn error(error: &anyhow::Error) {
    eprintln!("xtask: error: {error:#}");
}

/// Prints one line of a task's result.
pub(crate) fn result(text: impl AsRef<str>) {
    println!("{}", text.as_ref());
}

/// Passes on bytes of a result as they are. A closed stdout is not worth an error: what counts the bytes has them too.
pub(crate) fn raw(bytes: &[u8]) {
    use std::io::Write;
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(bytes).and_then(|()| stdout.flush());
}

//! The `stormdrill-lab` binary; everything is in the library.

fn main() -> std::process::ExitCode {
    stormdrill_lab::cli::main()
}

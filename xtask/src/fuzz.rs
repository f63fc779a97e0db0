//! `cargo xtask fuzz`: LLVM's fuzzer on the recognisers, protocol by protocol. What must hold is in `wire/fuzz`.
//!
//! The instrumentation is the stable compiler's; what was learnt is kept in `target/fuzz/`, so that a later run goes on from there.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::setup::{self, Part};
use crate::{command, paths, say};

/// Options of the task.
#[derive(Args, Debug)]
pub(crate) struct Options {
    /// How long to go on with each protocol, in minutes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Only these protocols
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
}

/// What LLVM is told: to count each edge of the control flow, and to hand comparisons over, so that magic numbers are found.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// No input may take longer than this, seconds.
const LONGEST: u32 = 10;
/// What an input begins with: a new connection, whose segments come in order, from both sides in turns.
const PREFACE: [u8; 25] = [0; 25];

/// A protocol: its number in `stormdrill_wire::abi::protocol`, and what its connections begin with.
struct Protocol {
    name: &'static str,
    number: u8,
    seeds: &'static [&'static [u8]],
}

const ALL: &[Protocol] = &[
    Protocol {
        name: "any",
        number: 0,
        seeds: &[b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\x02\0\x01"],
    },
    Protocol {
        name: "http1",
        number: 1,
        seeds: &[
            b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            b"PUT /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\nGET / HTTP/1.0\r\n\r\n",
        ],
    },
    Protocol {
        name: "http2",
        number: 2,
        seeds: &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x05\0\0\0\x01\x82\0\0\x01\0\x01\0\0\0\x01x"],
    },
    Protocol { name: "redis", number: 3, seeds: &[b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", b"SET a b\r\n*1\r\n$5\r\nMULTI\r\n"] },
    Protocol { name: "mysql", number: 4, seeds: &[b"\x09\0\0\0\x03SELECT 1\x01\0\0\0\x0e", b"\x05\0\0\0\x17\x01\0\0\0"] },
    Protocol {
        name: "postgres",
        number: 5,
        seeds: &[b"\0\0\0\x08\0\x03\0\0Q\0\0\0\x0dSELECT 1\0X\0\0\0\x04", b"P\0\0\0\x08\0\0\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"],
    },
];

/// The task.
pub(crate) fn run(options: &Options) -> Result<()> {
    let names = || ALL.iter().map(|protocol| protocol.name).collect::<Vec<_>>().join(", ");
    if let Some(unknown) = options.only.iter().find(|name| ALL.iter().all(|protocol| protocol.name != **name)) {
        bail!("no protocol is called {unknown}: there are {}", names());
    }
    setup::ensure(&[Part::Build, Part::Fuzz], None)?;
    let built = paths::target().join("fuzz");
    let mut cargo = command::cargo();
    cargo.args(["build", "--release", "--target", TARGET, "--target-dir"]).arg(&built).current_dir(paths::workspace().join("wire/fuzz"));
    command::run(cargo.env("RUSTFLAGS", FLAGS))?;
    let program = built.join(TARGET).join("release/stormdrill-wire-fuzz");
    for protocol in ALL.iter().filter(|protocol| options.only.is_empty() || options.only.iter().any(|name| name == protocol.name)) {
        say::step(format!("{} for {} minutes", protocol.name, options.minutes));
        fuzz(&program, protocol, 60 * options.minutes, &built.join(protocol.name))?;
    }
    say::result("No panic, nothing that does not end, and nothing counted that was not there.");
    Ok(())
}

fn fuzz(program: &Path, protocol: &Protocol, seconds: u64, folder: &Path) -> Result<()> {
    let corpus = folder.join("corpus");
    fs::create_dir_all(&corpus).with_context(|| format!("cannot make {}", corpus.display()))?;
    for (index, seed) in protocol.seeds.iter().enumerate() {
        let path = corpus.join(format!("seed-{index}"));
        fs::write(&path, [&PREFACE, *seed].concat()).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut fuzzer = Command::new(program);
    fuzzer.env("STORMDRILL_FUZZ_PROTOCOL", protocol.number.to_string());
    fuzzer.args([format!("-max_total_time={seconds}"), format!("-timeout={LONGEST}"), format!("-artifact_prefix={}/", folder.display())]);
    fuzzer.args(["-max_len=8192", "-print_final_stats=1", "-use_value_profile=1", "-verbosity=0"]).arg(&corpus);
    command::run(&mut fuzzer).with_context(|| format!("{}: the input is kept in {}", protocol.name, folder.display()))
}

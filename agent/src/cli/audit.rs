//! `stormdrill audit FILE…`: what configurations make of one request. Needs no privilege and opens no socket.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use stormdrill_core::audit::finding::{Rule, Severity};
use stormdrill_core::audit::layer::Layer;
use stormdrill_core::audit::{self, Audit, File, Format, Input, json, text};

use crate::diagnostic::{Style, finding};

/// Exit codes: nothing at or above `--fail-on`, something, bad usage.
const CLEAN: u8 = 0;
const FOUND: u8 = 1;
const BAD_USAGE: u8 = 64;

/// Findings of one rule in one file that are shown.
const MAX_SHOWN: usize = 8;

/// What is worth exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Errors.
    Error,
    /// Warnings and errors.
    Warning,
    /// Anything.
    Note,
    /// Nothing: exits 0 whatever was found.
    Never,
}

/// One layer as the command line gives it.
#[derive(Debug, Clone)]
pub enum LayerArgument {
    /// A file, or a file and a part of a route's name: `edge.conf#/api`.
    File(PathBuf),
    /// `--layer`.
    Stated(Layer),
}

/// `stormdrill audit`, layers in the order of the command line.
#[derive(Debug, Clone)]
pub struct Arguments {
    /// The layers, from the edge to the dependency.
    pub layers: Vec<LayerArgument>,
    /// What every file is; `None` to find out.
    pub format: Option<Format>,
    /// What is worth exit code 1.
    pub fail_on: FailOn,
    /// The largest worst case that is accepted.
    pub max_calls: Option<u64>,
    /// The result as JSON on stdout instead of text.
    pub json: bool,
}

#[derive(Debug, Args)]
struct Flags {
    /// Configurations, from the edge to the dependency: each is one layer of a request's path. `FILE#TEXT` takes only the routes whose
    /// name contains TEXT, as in `edge.conf#/api`; without it the worst route counts.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// A layer that no file describes, at its place among the files: `client=3` tries three times whatever fails,
    /// `service=3,on=refused+503,answers=500,timeout=2s,total=5s` says more. May be given more than once.
    #[arg(long, value_name = "NAME=TRIES[,…]", value_parser = audit::stated)]
    layer: Vec<Layer>,
    /// What the files are; without it, each is recognised by its content.
    #[arg(long, value_name = "FORMAT", value_parser = parse_format)]
    format: Option<Format>,
    /// The least severity that ends with exit code 1.
    #[arg(long, value_enum, default_value = "error")]
    fail_on: FailOn,
    /// The most calls that one request may become; more is an error.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_calls: Option<u64>,
    /// The result as JSON.
    #[arg(long)]
    json: bool,
}

fn parse_format(text: &str) -> Result<Format, String> {
    let names: Vec<&str> = Format::ALL.map(Format::as_str).to_vec();
    Format::ALL.into_iter().find(|format| format.as_str() == text).ok_or_else(|| format!("the formats are {}", names.join(", ")))
}

impl Args for Arguments {
    fn augment_args(command: Command) -> Command {
        // Either will do; which of the two is given is for the user to say.
        Flags::augment_args(command).group(clap::ArgGroup::new("layers").args(["files", "layer"]).required(true).multiple(true))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Arguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = Flags::from_arg_matches(matches)?;
        // Files and stated layers are told apart by clap, but their order among each other is what matters.
        let at = |name: &str| matches.indices_of(name).map(Iterator::collect::<Vec<_>>).unwrap_or_default();
        let files = at("files").into_iter().zip(flags.files.into_iter().map(LayerArgument::File));
        let stated = at("layer").into_iter().zip(flags.layer.into_iter().map(LayerArgument::Stated));
        let mut layers: Vec<(usize, LayerArgument)> = files.chain(stated).collect();
        layers.sort_by_key(|(index, _)| *index);
        let layers = layers.into_iter().map(|(_, layer)| layer).collect();
        Ok(Self { layers, format: flags.format, fail_on: flags.fail_on, max_calls: flags.max_calls, json: flags.json })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Audits the files; the result goes to `out`, what cannot be read to `err`.
///
/// Returns the exit code: 0 if nothing at or above `fail_on` was found, 1 if something was, 64 if a file cannot be read.
///
/// # Errors
/// When `out` or `err` cannot be written to.
pub fn run(arguments: &Arguments, style: Style, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let Some(inputs) = inputs(&arguments.layers, arguments.format, err)? else {
        return Ok(BAD_USAGE);
    };
    let texts: Vec<(String, String)> = inputs.iter().map(named_text).collect();
    let audit = match audit::audit(inputs, arguments.max_calls) {
        Ok(audit) => audit,
        Err(refused) => {
            for refused in &refused {
                err.write_all(finding::refused(refused, &texts, style).as_bytes())?;
            }
            return Ok(BAD_USAGE);
        }
    };
    if arguments.json {
        let texts: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
        out.write_all(json::json(&audit, &texts).as_bytes())?;
    } else {
        findings(&audit, &texts, style, out)?;
        out.write_all(text::text(&audit).as_bytes())?;
    }
    let limit = match arguments.fail_on {
        FailOn::Error => Some(Severity::Error),
        FailOn::Warning => Some(Severity::Warning),
        FailOn::Note => Some(Severity::Note),
        FailOn::Never => None,
    };
    let found = audit.worst_severity().zip(limit).is_some_and(|(worst, limit)| worst >= limit);
    Ok(if found { FOUND } else { CLEAN })
}

/// Shows the findings. A dump of a mesh has the same one for hundreds of routes: the first few of each rule and file say it.
fn findings(audit: &Audit, texts: &[(String, String)], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut shown: BTreeMap<(Option<usize>, Rule), usize> = BTreeMap::new();
    for found in &audit.findings {
        let count = shown.entry((found.place.map(|place| place.input), found.rule)).or_default();
        *count += 1;
        if *count <= MAX_SHOWN {
            out.write_all(finding::finding(found, texts, style).as_bytes())?;
        }
    }
    for ((input, rule), count) in shown {
        if let Some(more) = count.checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
            let name = input.and_then(|input| texts.get(input)).map_or("the layers", |(name, _)| name);
            writeln!(out, "{}: {}: {more} more in {name} (`--json` has them all)\n", rule.severity().as_str(), rule.as_str())?;
        }
    }
    Ok(())
}

/// Reads the files; `None` if one cannot be read, which was said then.
pub(super) fn inputs(layers: &[LayerArgument], format: Option<Format>, err: &mut dyn Write) -> io::Result<Option<Vec<Input>>> {
    let mut inputs = Vec::new();
    let mut whole = true;
    for layer in layers {
        match layer {
            LayerArgument::Stated(layer) => inputs.push(Input::Stated(layer.clone())),
            LayerArgument::File(path) => {
                let (path, only) = split(path);
                match read(&path) {
                    Ok(text) => inputs.push(Input::File(File { name: path.display().to_string(), text, format, only })),
                    Err(error) => {
                        writeln!(err, "error: read {}: {error}", path.display())?;
                        whole = false;
                    }
                }
            }
        }
    }
    Ok(whole.then_some(inputs))
}

/// A file's name may have a `#` in it: what exists as it is written is a file.
fn split(path: &Path) -> (PathBuf, Option<String>) {
    let text = path.to_string_lossy();
    match text.split_once('#') {
        Some((file, only)) if !path.exists() && !only.is_empty() => (PathBuf::from(file), Some(only.to_owned())),
        _ => (path.to_owned(), None),
    }
}

/// Comments in old files are not always UTF-8; nothing that matters here is outside ASCII.
fn read(path: &Path) -> io::Result<String> {
    let bytes = if path == Path::new("-") { io::read_to_string(io::stdin())?.into_bytes() } else { fs::read(path)? };
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn named_text(input: &Input) -> (String, String) {
    match input {
        Input::File(file) => (file.name.clone(), file.text.clone()),
        Input::Stated(layer) => (layer.name.clone(), String::new()),
    }
}

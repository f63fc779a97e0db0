//! `stormdrill predict`: what tries, failures, budgets and capacity lead to, by formula. Needs no privilege and opens no socket.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use stormdrill_core::audit::layer::{Tries, begun_within};
use stormdrill_core::audit::{self, Audit};
use stormdrill_core::predict::ceiling::{Budget, Of};
use stormdrill_core::predict::outage::Work;
use stormdrill_core::predict::{Layer, Question, json, predict, text};
use stormdrill_core::units::{rate, share};
use thiserror::Error;

use super::audit::LayerArgument;
use crate::diagnostic::{Style, finding};

const DONE: u8 = 0;
const BAD_USAGE: u8 = 64;

/// The shares of failures that are shown if none is given.
const SWEEP: [f64; 7] = [0.01, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0];

/// What a budget is a share of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BudgetOf {
    /// All requests, retries included.
    All,
    /// First tries.
    First,
}

/// What becomes of calls during the outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Calls {
    /// They are kept and delivered when it ends, as by TCP's retransmission.
    Deferred,
    /// They are lost.
    Dropped,
}

/// `stormdrill predict`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("path").args(["tries", "from_audit"]).required(true))]
pub struct Arguments {
    /// Tries of each layer, the first included, from the edge to the dependency: `3,3,4`. Each from 1.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    tries: Vec<u32>,
    /// Take the tries from these configurations' worst case, as `audit` finds it: files and stated layers (`client=3`), from the edge on.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    from_audit: Vec<PathBuf>,
    /// Shares of attempts at the dependency that fail: `30%`, or several. Without it, from 1% to 100%.
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = parse_share)]
    failure: Vec<f64>,
    /// Requests a second at the edge.
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    qps: Option<f64>,
    /// Calls a second that the dependency can serve.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, requires = "qps")]
    capacity: Option<f64>,
    /// How long the dependency is away, to predict how that ends.
    #[arg(long, value_name = "DURATION", value_parser = super::parse_duration, requires = "capacity")]
    outage: Option<Duration>,
    /// When a caller gives a call up: an outage within its patience causes no retry.
    #[arg(long, value_name = "DURATION", value_parser = super::parse_duration, requires = "outage")]
    timeout: Option<Duration>,
    /// What becomes of calls during the outage.
    #[arg(long, value_enum, default_value = "deferred")]
    calls: Calls,
    /// Limits retries to a share of the traffic: one for every layer, or one for each (`none,10%,none`).
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = parse_budget)]
    budget: Vec<OptionalShare>,
    /// What the budget is a share of: 20% of all requests are 25% on top of the first tries.
    #[arg(long, value_enum, default_value = "all")]
    budget_of: BudgetOf,
    /// Retries a second that every budget allows at any load.
    #[arg(long, value_name = "RATE", value_parser = parse_rate_or_zero, default_value = "0/s", requires = "budget")]
    floor: f64,
    /// Share of tries that are lost between a layer and the next: one for each layer, from the edge on.
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',', value_parser = parse_share)]
    hop_loss: Vec<f64>,
    /// For calls that hang: how long a try takes before it is given up, one for every layer or one for each. Limits the tries, with `--total-timeout`.
    #[arg(long, value_name = "DURATION,…", value_delimiter = ',', value_parser = super::parse_duration, requires = "total_timeout")]
    try_timeout: Vec<Duration>,
    /// For calls that hang: how long all tries may take.
    #[arg(long, value_name = "DURATION,…", value_delimiter = ',', value_parser = super::parse_duration, requires = "try_timeout")]
    total_timeout: Vec<Duration>,
    /// The result as JSON.
    #[arg(long)]
    json: bool,
}

/// A share, or `none`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct OptionalShare(Option<f64>);

fn parse_share(text: &str) -> Result<f64, String> {
    share::parse(text).map_err(|error| format!("{error}: {}", error.advice()))
}

fn parse_budget(text: &str) -> Result<OptionalShare, String> {
    if text.trim() == "none" { Ok(OptionalShare(None)) } else { parse_share(text).map(|share| OptionalShare(Some(share))) }
}

/// A rate; a number alone is a second's, since the flags' names say so.
fn parse_rate_or_zero(text: &str) -> Result<f64, String> {
    let with_unit = if text.contains('/') { text.to_owned() } else { format!("{text}/s") };
    rate::parse(&with_unit).map_err(|error| format!("{error}: {}", error.advice()))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match parse_rate_or_zero(text)? {
        rate if rate > 0.0 => Ok(rate),
        _ => Err("a rate of nothing: write `200/s`".to_owned()),
    }
}

/// Why there is no prediction.
#[derive(Debug, Error)]
enum PredictError {
    #[error("`--{flag}` has {given} values for {layers} layers: give one, or one for each")]
    Count { flag: &'static str, given: usize, layers: usize },
    #[error("a hop that loses everything leaves nothing to predict: `--hop-loss` goes to below 100%")]
    AllLost,
    #[error("`{layer}` has no limit on its tries: give `--tries` instead")]
    Unlimited { layer: String },
    #[error("{0}")]
    Stated(#[from] audit::StatedError),
    #[error("these configurations have no path from the edge to the dependency")]
    NoPath,
}

/// Predicts; the result goes to `out`, what is wrong with the question to `err`.
///
/// Returns the exit code: 0, or 64 if the question cannot be asked so.
///
/// # Errors
/// When `out` or `err` cannot be written to.
pub fn run(arguments: &Arguments, style: Style, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<u8> {
    let Some(layers) = layers(arguments, style, err)? else {
        return Ok(BAD_USAGE);
    };
    let question = match question(arguments, layers) {
        Ok(question) => question,
        Err(error) => {
            writeln!(err, "error: {error}")?;
            return Ok(BAD_USAGE);
        }
    };
    let prediction = predict(question);
    let shown = if arguments.json { json::json(&prediction) } else { text::text(&prediction) };
    out.write_all(shown.as_bytes())?;
    Ok(DONE)
}

/// Names and tries; `None` if they cannot be had, which was said then.
fn layers(arguments: &Arguments, style: Style, err: &mut dyn Write) -> io::Result<Option<Vec<(String, u32)>>> {
    if arguments.from_audit.is_empty() {
        let name = |(at, tries): (usize, &u32)| (format!("layer {}", at + 1), *tries);
        return Ok(Some(arguments.tries.iter().enumerate().map(name).collect()));
    }
    let mut layers = Vec::new();
    for path in &arguments.from_audit {
        let stated = path.to_str().filter(|text| text.contains('=') && !path.exists());
        match stated.map(audit::stated) {
            Some(Ok(layer)) => layers.push(LayerArgument::Stated(layer)),
            None => layers.push(LayerArgument::File(path.clone())),
            Some(Err(error)) => {
                writeln!(err, "error: {}", PredictError::from(error))?;
                return Ok(None);
            }
        }
    }
    let Some(inputs) = super::audit::inputs(&layers, None, err)? else {
        return Ok(None);
    };
    let texts: Vec<(String, String)> = inputs.iter().map(super::audit::named_text).collect();
    match audit::audit(inputs, None) {
        Ok(audit) => match worst_path(&audit) {
            Ok(path) => Ok(Some(path)),
            Err(error) => {
                writeln!(err, "error: {error}")?;
                Ok(None)
            }
        },
        Err(refused) => {
            for refused in &refused {
                err.write_all(finding::refused(refused, &texts, style).as_bytes())?;
            }
            Ok(None)
        }
    }
}

fn worst_path(audit: &Audit) -> Result<Vec<(String, u32)>, PredictError> {
    let way = audit.ways.first().ok_or(PredictError::NoPath)?;
    way.steps
        .iter()
        .map(|step| {
            let layer = audit.layers[step.layer].name.clone();
            match step.tries {
                Tries::AtMost(tries) => Ok((layer, tries)),
                Tries::Unlimited => Err(PredictError::Unlimited { layer }),
            }
        })
        .collect()
}

fn question(arguments: &Arguments, layers: Vec<(String, u32)>) -> Result<Question, PredictError> {
    let count = layers.len();
    let budgets = for_each("budget", &arguments.budget, count)?;
    let try_timeouts = for_each("try-timeout", &arguments.try_timeout, count)?;
    let total_timeouts = for_each("total-timeout", &arguments.total_timeout, count)?;
    let hop_loss = for_each("hop-loss", &arguments.hop_loss, count)?;
    if hop_loss.iter().flatten().any(|loss| *loss >= 1.0) {
        return Err(PredictError::AllLost);
    }
    let of = if arguments.budget_of == BudgetOf::All { Of::All } else { Of::First };
    let layers = layers
        .into_iter()
        .enumerate()
        .map(|(at, (name, tries))| {
            let begun = try_timeouts[at].zip(total_timeouts[at]).map(|(each, total)| begun_within(each, total));
            let budget = budgets[at].and_then(|share| share.0).map(|share| Budget { share, of, floor: arguments.floor });
            Layer { name, tries: begun.map_or(tries, |begun| begun.min(tries)), hop_loss: hop_loss[at].unwrap_or(0.0), budget }
        })
        .collect();
    Ok(Question {
        layers,
        failures: if arguments.failure.is_empty() { SWEEP.to_vec() } else { arguments.failure.clone() },
        qps: arguments.qps,
        capacity: arguments.capacity,
        outage: arguments.outage,
        timeout: arguments.timeout,
        work: if arguments.calls == Calls::Deferred { Work::Deferred } else { Work::Dropped },
    })
}

/// A flag's value for each layer: none, the same, or its own.
fn for_each<T: Copy>(flag: &'static str, given: &[T], layers: usize) -> Result<Vec<Option<T>>, PredictError> {
    match given {
        [] => Ok(vec![None; layers]),
        [one] => Ok(vec![Some(*one); layers]),
        each if each.len() == layers => Ok(each.iter().copied().map(Some).collect()),
        other => Err(PredictError::Count { flag, given: other.len(), layers }),
    }
}

//! `stormdrill observe`: counts without injecting anything. A live table on stderr, the totals as JSON at the end.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stormdrill_core::edge::argument::{self, ArgumentError};
use stormdrill_core::edge::{EdgeSpec, MAX_EDGES, Role};
use stormdrill_core::playbook::Scope;
use stormdrill_core::report::json;
use stormdrill_core::report::json::connection::ConnectionView;
use stormdrill_core::result::{DataQuality, DrillResult};
use stormdrill_core::track::TrackConfig;
use stormdrill_core::track::roster::Listed;
use stormdrill_core::window::{Phase, PhaseName, Window};
use thiserror::Error;
use tokio::sync::mpsc;

use super::{host, output};
use crate::clock;
use crate::driver::Progress as _;
use crate::exit::Exit;
use crate::probe::{self, Probe, ProbeConfig, ProbeError};
use crate::report::{log, progress};
use crate::session::Session;
use crate::signals;

/// How often the table moves on.
const WINDOW: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(5);
/// Connections that are listed one by one.
const MOST_LISTED: usize = 1 << 16;
/// How long the end waits for answers to the last requests.
const DRAIN: Duration = Duration::from_secs(1);

/// What is wrong with the edges asked for.
#[derive(Debug, Error)]
enum UsageError {
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error("nothing to observe: give `--ingress web=:8080` or `--downstream db=10.0.0.5:3306`")]
    Nothing,
    #[error("two edges are called `{name}`: give each a name of its own")]
    Twice { name: String },
    #[error("`{name}` selects the same connections as `{before}`: leave one of them out")]
    Same { before: String, name: String },
    #[error("{given} edges are more than can be told apart: give {MAX_EDGES} at most")]
    TooMany { given: usize },
}

/// Why an observation could not be made.
#[derive(Debug, Error)]
enum ObserveError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Probe(#[from] ProbeError),
    #[error(transparent)]
    Scope(#[from] host::ScopeError),
    #[error("write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

pub(super) fn run(args: &super::Observe, state_dir: &Path) -> Exit {
    let edges = match edges(args) {
        Ok(edges) => edges,
        Err(error) => {
            log::complain(&error.to_string());
            return Exit::Usage;
        }
    };
    if let Some(path) = &args.json
        && let Err(error) = output::check(path)
    {
        log::complain(&format!("cannot write {}: {error}", path.display()));
        return Exit::Environment;
    }
    match observe(&edges, args, state_dir) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

fn edges(args: &super::Observe) -> Result<Vec<EdgeSpec>, UsageError> {
    let ingress = args.ingress.iter().map(|given| argument::parse(Role::Ingress, given));
    let downstream = args.downstream.iter().map(|given| argument::parse(Role::Downstream, given));
    let edges: Vec<EdgeSpec> = ingress.chain(downstream).collect::<Result<_, _>>()?;
    if edges.is_empty() {
        return Err(UsageError::Nothing);
    }
    if edges.len() > MAX_EDGES {
        return Err(UsageError::TooMany { given: edges.len() });
    }
    for (index, edge) in edges.iter().enumerate() {
        // Results of two edges with one name could not be told apart.
        if edges.iter().take(index).any(|before| before.name == edge.name) {
            return Err(UsageError::Twice { name: edge.name.clone() });
        }
        let same = |before: &&EdgeSpec| (before.role, before.address, before.ports) == (edge.role, edge.address, edge.ports);
        if let Some(before) = edges.iter().take(index).find(same) {
            return Err(UsageError::Same { before: before.name.clone(), name: edge.name.clone() });
        }
    }
    Ok(edges)
}

fn observe(edges: &[EdgeSpec], args: &super::Observe, state_dir: &Path) -> Result<(), ObserveError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ObserveError::Runtime)?;
    let started_at = clock::wall_rfc3339();
    let (total, quality, listed) = runtime.block_on(async {
        // First of all, so that a signal that comes while the probe is loaded ends the observation in good order.
        let mut stop = signals::reasons().map_err(ObserveError::Runtime)?;
        let cgroup = host::scope(&Scope::Host, state_dir)?;
        let probe = Probe::attach(&ProbeConfig { cgroup, edges, events: true, ring_bytes: ProbeConfig::DEFAULT_RING_BYTES })?;
        let session = Session::new(
            probe,
            edges,
            TrackConfig {
                marker: args.marker.clone(),
                max_listed: if args.connections { MOST_LISTED } else { 0 },
                ..TrackConfig::default()
            },
        );
        let mut table = progress::Stderr::new(edges);
        count(session, edges, args, &mut stop, &mut table).await.map_err(ObserveError::Probe)
    })?;
    let result = DrillResult {
        id: host::drill_id(),
        playbook: String::new(),
        description: None,
        guards: Vec::new(),
        host: host::name(),
        kernel: host::kernel(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at,
        verdict: None,
        aborted: None,
        judgements: Vec::new(),
        phases: vec![Phase { name: PhaseName::All, start_ns: total.start_ns, end_ns: total.end_ns }],
        faults: Vec::new(),
        edges: edges.to_vec(),
        windows: vec![total],
        quality,
    };
    let path = args.json.as_deref().unwrap_or_else(|| Path::new("-"));
    let mut view = json::Observation::of(&result);
    if let Some((listed, omitted)) = listed {
        view = view.with_connections(listed, omitted);
    }
    output::write(path, &view.to_text()).map_err(|source| ObserveError::Write { path: path.to_owned(), source })
}

/// Counts until the time is up or a signal comes; gives one window that holds everything.
async fn count(
    mut session: Session,
    edges: &[EdgeSpec],
    args: &super::Observe,
    stop: &mut mpsc::Receiver<String>,
    table: &mut progress::Stderr,
) -> Result<(Window, DataQuality, Option<(Vec<ConnectionView>, u64)>), ProbeError> {
    let start_ns = session.open_window(PhaseName::All)?;
    table.phase(PhaseName::All, None);
    let mut total = Window {
        epoch: 0,
        phase: PhaseName::All,
        start_ns,
        end_ns: start_ns,
        edges: vec![Default::default(); edges.len()],
        events_lost: 0,
        sampling: 1.0,
    };
    let mut poll = tokio::time::interval(POLL);
    poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut next = tokio::time::interval_at(tokio::time::Instant::now() + WINDOW, WINDOW);
    next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let end = tokio::time::sleep(args.for_.unwrap_or(Duration::MAX));
    tokio::pin!(end);
    loop {
        tokio::select! {
            biased;
            _ = stop.recv() => break,
            () = &mut end => break,
            _ = next.tick() => {
                session.open_window(PhaseName::All)?;
            }
            _ = poll.tick() => session.poll()?,
        }
        for window in session.finalised() {
            table.window(&window);
            total.absorb(window);
        }
    }
    let end_ns = session.close_window()?;
    // What the kernel knows of connections is asked while they are open, not when the last answers have been waited for.
    let known = if args.connections { probe::details()? } else { HashMap::new() };
    let give_up = tokio::time::Instant::now() + DRAIN;
    while !session.settled() && tokio::time::Instant::now() < give_up {
        poll.tick().await;
        session.poll()?;
        for window in session.finalised() {
            total.absorb(window);
        }
    }
    let finished = session.finish_with_connections()?;
    let listed = args.connections.then(|| {
        let view = |one: &Listed| ConnectionView::of(one, known.get(&one.conn.0).copied(), edges, end_ns);
        (finished.connections.iter().filter_map(view).collect(), finished.omitted)
    });
    for window in finished.windows {
        total.absorb(window);
    }
    total.end_ns = end_ns;
    Ok((total, finished.quality, listed))
}

//! Running a part: readiness on stderr, then its end, then its counts on stdout.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use super::chain_args::ChainArgsError;
use super::{EXIT_ENVIRONMENT, EXIT_USAGE, Life, Part};
use crate::chain::RunningChain;
use crate::load::{self, Target, TargetError};
use crate::rig::RunningRig;
use crate::service::{Listening, ServiceError};
use crate::stop::Stop;
use crate::store::RunningStore;

#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Flags(#[from] ChainArgsError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Service(#[from] ServiceError),
    #[error("start the runtime and catch signals")]
    Runtime(#[source] std::io::Error),
    #[error("print the counts")]
    Print(#[source] std::io::Error),
}

impl RunError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(_) | Self::Target(TargetError::Parse { .. } | TargetError::NotHttp { .. }) => EXIT_USAGE,
            Self::Target(_) | Self::Service(_) | Self::Runtime(_) | Self::Print(_) => EXIT_ENVIRONMENT,
        }
    }
}

pub(super) fn run(part: Part) -> ExitCode {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(RunError::Runtime);
    match runtime.and_then(|runtime| runtime.block_on(run_part(part))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.exit_code();
            let failed = if code == EXIT_USAGE { "" } else { "failed to " };
            say(&format!("error: {failed}{}", chained(&error)));
            ExitCode::from(code)
        }
    }
}

async fn run_part(part: Part) -> Result<(), RunError> {
    // Before anything is told to be ready, so that a signal then always ends with the counts.
    let mut stop = Stop::catch().map_err(RunError::Runtime)?;
    match part {
        Part::Store { store, life } => {
            let mut dips = signal(SignalKind::user_defined1()).map_err(RunError::Runtime)?;
            let store = RunningStore::start(store.config()).await?;
            let dip = async {
                while dips.recv().await.is_some() {
                    store.dip();
                }
                // Without the signals the store lives on.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = live(&life, [store.listening()], &mut stop) => {}
                () = dip => {}
            }
            print(&store.stop(life.drain).await)
        }
        Part::Chain { chain, downstream, life } => {
            let chain = RunningChain::start(&chain.config(downstream)?).await?;
            live(&life, chain.listening().rev(), &mut stop).await;
            print(&chain.stop(life.drain).await)
        }
        Part::Rig { store, chain, life } => {
            let unknown = SocketAddr::from(([127, 0, 0, 1], 0));
            let rig = RunningRig::start(store.config(), chain.config(unknown)?).await?;
            live(&life, rig.listening(), &mut stop).await;
            print(&rig.stop(life.drain).await)
        }
        Part::Load(args) => {
            let target = Target::resolve(&args.url).await?;
            print(&load::run(args.config(target), stop.requested(None)).await)
        }
    }
}

/// Tells that all listen, in the order given, and returns when it is time to end.
async fn live<'a>(life: &Life, listening: impl IntoIterator<Item = &'a Listening>, stop: &mut Stop) {
    for service in listening {
        say(&format!("ready {} {}", service.name(), service.address()));
    }
    stop.requested(life.limit).await;
}

fn print(report: &impl Serialize) -> Result<(), RunError> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, report).map_err(|error| RunError::Print(error.into()))?;
    out.write_all(b"\n").and_then(|()| out.flush()).map_err(RunError::Print)
}

fn say(line: &str) {
    // With stderr closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn chained(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

/// Hanging requests hold a connection each, and a connection takes two descriptors: 1024 is soon too few. Should the
/// kernel refuse, connects will fail and be counted.
fn raise_open_files() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

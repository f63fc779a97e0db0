//! `stormdrill serve`: the daemon, until SIGTERM or SIGINT.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stormdrill_core::playbook::serve::Config;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use super::output;
use crate::api::listen::{ListenError, Listener};
use crate::api::{self, App};
use crate::config::{self, ConfigError};
use crate::daemon::{Daemon, DaemonError};
use crate::diagnostic::{self, Style};
use crate::exit::Exit;
use crate::report::log;

/// Why the daemon could not start.
#[derive(Debug, Error)]
enum ServeError {
    #[error("start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Where the socket is if the configuration does not say.
pub(super) fn default_socket(journal_dir: &Path) -> PathBuf {
    journal_dir.join("api.sock")
}

pub(super) fn run(file: Option<&Path>, journal_dir: &Path) -> Exit {
    let read = config::read(file).and_then(|config| Ok((config::token(&config)?, config)));
    let (token, config) = match read {
        Ok(read) => read,
        Err(ConfigError::Rejected(error)) => {
            output::stderr(&diagnostic::render(&error, Style::of_stderr()));
            return Exit::Usage;
        }
        Err(error) => {
            log::complain(&log::chain(&error));
            return Exit::Usage;
        }
    };
    match serve(config, token, file, journal_dir) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

fn serve(config: Config, token: Option<String>, file: Option<&Path>, journal_dir: &Path) -> Result<(), ServeError> {
    // One thread for all clients: drills and the observation have theirs, and nothing here is worth a second.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Runtime)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(ServeError::Runtime)?;
        let socket = config.socket.clone().unwrap_or_else(|| default_socket(journal_dir));
        // Bound before the daemon starts: a second one must not touch what belongs to the first.
        let mut listeners = vec![Listener::unix(&socket).await?];
        for address in &config.listen {
            listeners.push(Listener::tcp(*address).await?);
        }
        let connections = Arc::new(Semaphore::new(config.limits.connections));
        let has_token = token.is_some();
        let exposed = config.listen.iter().any(|address| !address.ip().to_canonical().is_loopback());
        let daemon = Arc::new(Daemon::start(config, journal_dir.to_owned())?);
        let app = App::new(Arc::clone(&daemon), token);
        let router = api::router(app.clone());
        let mut tasks = tokio::task::JoinSet::new();
        for listener in listeners {
            output::stderr(&format!("serving on {}\n", listener.describe()));
            tasks.spawn(listener.serve(router.clone(), Arc::clone(&connections)));
        }
        if has_token && exposed {
            tracing::warn!("the token travels in the clear: let other hosts in through a proxy that speaks TLS");
        }
        crate::notify::ready();
        output::stderr("ready\n");
        let period = crate::notify::watchdog();
        let mut watchdog = tokio::time::interval(period.unwrap_or(Duration::MAX));
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = watchdog.tick(), if period.is_some() => if daemon.ready().is_ok() {
                    crate::notify::alive();
                },
                _ = hangup.recv() => reload(&daemon, &app, file, journal_dir),
            }
        }
        crate::notify::stopping();
        output::stderr("stopping\n");
        // Clients that watch a drill see its end.
        daemon.drills.stop().await;
        tasks.shutdown().await;
        // A socket that is gone already is gone.
        let _ = std::fs::remove_file(&socket);
        daemon.stop_observing();
        Ok(())
    })
}

/// Reads the configuration again. Whatever is wrong with it, the daemon goes on with the one it has.
fn reload(daemon: &Daemon, app: &App, file: Option<&Path>, journal_dir: &Path) {
    let read = config::read(file).and_then(|config| Ok((config::token(&config)?, config)));
    let (token, config) = match read {
        Ok(read) => read,
        Err(error) => {
            if let ConfigError::Rejected(error) = &error {
                output::stderr(&diagnostic::render(error, Style::Plain));
            }
            tracing::error!("the configuration was not reloaded: {}", log::chain(&error));
            return;
        }
    };
    match daemon.reload(config, journal_dir.to_owned()) {
        Ok(()) => {
            app.set_token(token);
            output::stderr("reloaded\n");
        }
        Err(error) => tracing::error!("the configuration was not reloaded: {}", log::chain(&error)),
    }
}

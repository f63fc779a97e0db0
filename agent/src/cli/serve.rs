//! `stormdrill serve`: the daemon, until SIGTERM or SIGINT.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use stormdrill_core::playbook::serve::Config;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};

use super::output;
use crate::api::listen::{Certificate, ListenError, Listener, Places, activation};
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
    #[error("serve on {address}, which systemd passed and other hosts can reach, without a `token_file`")]
    Exposed { address: SocketAddr },
}

/// Where the socket is if the configuration does not say.
pub(super) fn default_socket(journal_dir: &Path) -> PathBuf {
    journal_dir.join("api.sock")
}

/// What the files say, as they are read at the start and at each reload.
struct Read {
    config: Config,
    token: Option<String>,
    certificate: Option<Arc<ServerConfig>>,
}

fn read(file: Option<&Path>) -> Result<Read, ConfigError> {
    let config = config::read(file)?;
    Ok(Read { token: config::token(&config)?, certificate: config::certificate(&config)?, config })
}

pub(super) fn run(file: Option<&Path>, journal_dir: &Path) -> Exit {
    let read = match read(file) {
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
    match serve(read, file, journal_dir) {
        Ok(()) => Exit::Pass,
        Err(error) => {
            log::complain(&log::chain(&error));
            Exit::Environment
        }
    }
}

/// What systemd passed stands for what the configuration says of its kind; the path of the socket that is ours to remove comes along.
async fn listeners(config: &Config, has_token: bool, journal_dir: &Path) -> Result<(Vec<Listener>, Option<PathBuf>), ServeError> {
    let mut listeners = activation::passed()?;
    if let Some(address) = activation::exposed(&listeners).filter(|_| !has_token) {
        return Err(ServeError::Exposed { address });
    }
    let has = |unix: bool| listeners.iter().any(|listener| matches!(listener, Listener::Unix(_)) == unix);
    let (has_unix, has_tcp) = (has(true), has(false));
    // Bound before the daemon starts: a second one must not touch what belongs to the first.
    let socket = (!has_unix).then(|| config.socket.clone().unwrap_or_else(|| default_socket(journal_dir)));
    if let Some(socket) = &socket {
        listeners.push(Listener::unix(socket).await?);
    }
    if !has_tcp {
        for address in &config.listen {
            listeners.push(Listener::tcp(*address)?);
        }
    }
    Ok((listeners, socket))
}

fn serve(read: Read, file: Option<&Path>, journal_dir: &Path) -> Result<(), ServeError> {
    // One thread for all clients: drills and the observation have theirs, and nothing here is worth a second.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Runtime)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Runtime)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(ServeError::Runtime)?;
        let Read { config, token, certificate } = read;
        let (listeners, socket) = listeners(&config, token.is_some(), journal_dir).await?;
        let places = Places::new(config.limits.connections)?;
        let tls = Certificate::default();
        tls.set(certificate);
        let exposed = activation::exposed(&listeners);
        if token.is_some() && exposed.is_some() && tls.get().is_none() {
            tracing::warn!("the token travels in the clear: give `tls` a certificate, or let other hosts in through a proxy that has one");
        }
        let daemon = Arc::new(Daemon::start(config, journal_dir.to_owned())?);
        let app = App::new(Arc::clone(&daemon), token);
        let router = api::router(app.clone());
        let mut tasks = tokio::task::JoinSet::new();
        for listener in listeners {
            output::stderr(&format!("serving on {}\n", listener.describe(&tls)));
            tasks.spawn(listener.serve(router.clone(), places.clone(), tls.clone()));
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
                _ = hangup.recv() => reload(&daemon, &app, &tls, exposed, file, journal_dir),
            }
        }
        crate::notify::stopping();
        output::stderr("stopping\n");
        // Clients that watch a drill see its end.
        daemon.drills.stop().await;
        tasks.shutdown().await;
        if let Some(socket) = socket {
            // One that is gone already is gone.
            let _ = std::fs::remove_file(socket);
        }
        daemon.stop_observing();
        Ok(())
    })
}

/// Reads the configuration again. Whatever is wrong with it, the daemon goes on with the one it has.
fn reload(daemon: &Daemon, app: &App, tls: &Certificate, exposed: Option<SocketAddr>, file: Option<&Path>, journal_dir: &Path) {
    let Read { config, token, certificate } = match read(file) {
        Ok(read) => read,
        Err(error) => {
            if let ConfigError::Rejected(error) = &error {
                output::stderr(&diagnostic::render(error, Style::Plain));
            }
            tracing::error!("the configuration was not reloaded: {}", log::chain(&error));
            return;
        }
    };
    // Of an address that systemd passed the configuration knows nothing.
    if let Some(address) = exposed.filter(|_| token.is_none()) {
        tracing::error!("the configuration was not reloaded: {}", ServeError::Exposed { address });
        return;
    }
    match daemon.reload(config, journal_dir.to_owned()) {
        Ok(()) => {
            app.set_token(token);
            tls.set(certificate);
            output::stderr("reloaded\n");
        }
        Err(error) => tracing::error!("the configuration was not reloaded: {}", log::chain(&error)),
    }
}

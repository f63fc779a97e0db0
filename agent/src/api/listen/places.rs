//! How many connections there may be, and the descriptors for them.

use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::ListenError;

/// How long a request's head may take, and an idle connection stay.
const HEAD: Duration = Duration::from_secs(15);
/// The same for who gets nothing but a 503.
const HEAD_OF_REFUSED: Duration = Duration::from_secs(2);
/// Connections that are told at the same time that there is no place; further ones wait in the kernel's queue.
const REFUSED: usize = 256;
/// Places of the Unix socket.
const LOCAL: usize = 64;
/// Descriptors for all else: the programs, their maps, drills, files.
const OTHER_DESCRIPTORS: usize = 448;

/// How many connections there may be.
#[derive(Debug, Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    refused: Arc<Semaphore>,
    local: Arc<Semaphore>,
}

impl Places {
    /// So many on TCP. Each takes a descriptor: the process's soft limit is raised for them.
    ///
    /// # Errors
    /// When the hard limit is below that.
    pub fn new(connections: usize) -> Result<Self, ListenError> {
        make_room(connections)?;
        let places = |count| Arc::new(Semaphore::new(count));
        Ok(Self { free: places(connections), refused: places(REFUSED), local: places(LOCAL) })
    }

    /// The next place on TCP. Waits only when so many are being refused as there are places for it.
    pub(super) async fn take(&self) -> Place {
        // What cannot be had is a place of a semaphore that was closed, and these never are: it would be no place.
        tokio::select! {
            biased;
            Ok(free) = Arc::clone(&self.free).acquire_owned() => Place::Taken(free),
            Ok(refused) = Arc::clone(&self.refused).acquire_owned() => Place::Refused(refused),
            else => std::future::pending().await,
        }
    }

    /// The other one, if it was taken for want of one that has come free meanwhile.
    pub(super) fn better(&self, place: Place) -> Place {
        match place {
            Place::Refused(_) => Arc::clone(&self.free).try_acquire_owned().map_or(place, Place::Taken),
            Place::Taken(_) => place,
        }
    }

    /// The next place on the Unix socket.
    pub(super) async fn take_local(&self) -> Place {
        match Arc::clone(&self.local).acquire_owned().await {
            Ok(local) => Place::Taken(local),
            Err(_) => std::future::pending().await,
        }
    }
}

/// What a connection holds as long as it lasts.
pub(super) enum Place {
    /// One of those that get answers.
    Taken(#[expect(dead_code, reason = "dropped with the connection")] OwnedSemaphorePermit),
    /// One of those that are told that there is none.
    Refused(#[expect(dead_code, reason = "dropped with the connection")] OwnedSemaphorePermit),
}

impl Place {
    /// Whether it is one of those that get no answer but a refusal.
    pub(super) const fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// How long a head may take.
    pub(super) const fn patience(&self) -> Duration {
        match self {
            Self::Taken(_) => HEAD,
            Self::Refused(_) => HEAD_OF_REFUSED,
        }
    }
}

/// Raises the soft limit on descriptors as far as so many connections need it.
fn make_room(connections: usize) -> Result<(), ListenError> {
    let needed = u64::try_from(connections + REFUSED + LOCAL + OTHER_DESCRIPTORS).unwrap_or(u64::MAX);
    let refused = |source: Errno| ListenError::Descriptors { connections, needed, source: source.into() };
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(refused)?;
    if needed <= soft { Ok(()) } else { setrlimit(Resource::RLIMIT_NOFILE, needed, hard).map_err(refused) }
}

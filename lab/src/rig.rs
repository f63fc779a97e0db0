//! A store and a chain before it, in one process.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::chain::{ChainConfig, ChainReport, RunningChain};
use crate::service::{Listening, ServiceError};
use crate::store::{RunningStore, StoreConfig, StoreReport};

/// A store and its chain, listening.
#[derive(Debug)]
pub struct RunningRig {
    store: RunningStore,
    chain: RunningChain,
}

/// The counts of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RigReport {
    /// Always `rig`.
    pub service: &'static str,
    /// The layers, outermost first.
    pub chain: ChainReport,
    /// The store.
    pub store: StoreReport,
}

impl RunningRig {
    /// Starts the store, then the chain, whose `downstream` is replaced by the store's address.
    ///
    /// # Errors
    /// [`ServiceError::Listen`] when an address cannot be had.
    pub async fn start(store: StoreConfig, mut chain: ChainConfig) -> Result<Self, ServiceError> {
        let store = RunningStore::start(store).await?;
        chain.downstream = store.listening().address();
        let chain = RunningChain::start(&chain).await?;
        Ok(Self { store, chain })
    }

    /// Where the rig is called: layer 1, or the store if there is no layer.
    #[must_use]
    pub fn entry(&self) -> SocketAddr {
        self.chain.entry()
    }

    /// The services that listen, the store first, layer 1 last.
    pub fn listening(&self) -> impl Iterator<Item = &Listening> {
        std::iter::once(self.store.listening()).chain(self.chain.listening().rev())
    }

    /// The counts so far.
    #[must_use]
    pub fn report(&self) -> RigReport {
        RigReport { service: "rig", chain: self.chain.report(), store: self.store.report() }
    }

    /// Ends the chain, then the store, each part with up to `drain` for requests under way.
    pub async fn stop(self, drain: Duration) -> RigReport {
        let chain = self.chain.stop(drain).await;
        let store = self.store.stop(drain).await;
        RigReport { service: "rig", chain, store }
    }
}

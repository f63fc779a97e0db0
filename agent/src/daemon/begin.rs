//! A drill begins: on this host alone, or with other hosts asked first.

use std::sync::Arc;

use stormdrill_core::playbook::Playbook;

use super::Daemon;
use super::cluster::{self, ClaimError};
use super::drills::start::{StartError, Started};
use super::store::Request;
use crate::etcd::Etcd;
use crate::host;

impl Daemon {
    /// The etcd that the configuration names, if it does.
    ///
    /// # Errors
    /// When its address or its authorities are no good.
    pub fn etcd(&self) -> Result<Option<Arc<Etcd>>, crate::etcd::EtcdError> {
        self.config().etcd.as_ref().map(|config| Etcd::new(config).map(Arc::new)).transpose()
    }

    /// Starts a drill, or finds the one that the same request started before. Must be called within a runtime.
    ///
    /// # Errors
    /// When it may not run, or not now.
    pub async fn begin(&self, playbook: Playbook, request: Option<Request>) -> Result<Started, StartError> {
        if let Some(before) = self.drills.repeated(request.as_ref())? {
            return Ok(before);
        }
        let id = host::drill_id();
        let Some(etcd) = self.etcd().map_err(ClaimError::from)? else { return self.drills.start(id, playbook, request) };
        let Some(claim) = cluster::claim(&etcd, &id, &playbook).await? else { return self.drills.start(id, playbook, request) };
        let started = self.drills.start(id, playbook, request);
        match &started {
            Ok(Started { record, is_new: true }) => {
                let (drills, id) = (Arc::clone(&self.drills), record.id.clone());
                tokio::spawn(async move {
                    let Some(log) = drills.log(&id) else { return cluster::release(&etcd, claim).await };
                    if !cluster::hold(&etcd, claim, log.ended()).await {
                        drills.abort(&id, "the claim in etcd was lost, so that another host may disturb the same").await;
                    }
                });
            }
            _ => cluster::release(&etcd, claim).await,
        }
        started
    }
}

//! What the daemons of several hosts share in etcd: playbooks, and who disturbs what. Two hosts do not disturb the same downstream target.
//!
//! A host that drills keeps a claim there, on a lease. One whose claim is gone, since etcd could not be reached for so long, ends its drill:
//! another host may have begun.

use std::time::Duration;

use serde_json::{Value, json};
use stormdrill_core::edge::{Cidr, EdgeSpec, PortRange, Role};
use stormdrill_core::playbook::Playbook;
use thiserror::Error;

use super::overlap::overlap;
use crate::etcd::{Etcd, EtcdError, Lease};
use crate::{clock, drill, host};

const CLAIMS: &str = "drills";
const PLAYBOOKS: &str = "playbooks";
/// How long a claim outlives its host.
const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(4);
/// Hosts that begin at the same instant try in turn.
const TRIES: usize = 20;

/// Why a drill may not begin.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// Another host disturbs the same.
    #[error("host {host} is running drill {id} on an overlapping target")]
    Elsewhere {
        /// The other host.
        host: String,
        /// Its drill.
        id: String,
    },
    /// Others write there all the time.
    #[error("etcd is too busy for a claim")]
    Busy,
    /// Nobody can tell.
    #[error("whether another host disturbs the same cannot be told")]
    Etcd(#[from] EtcdError),
}

/// The right to disturb some targets.
#[derive(Debug)]
pub struct Claim(Lease);

/// Claims the targets of a drill; `None` if it disturbs nothing that another host could.
///
/// # Errors
/// When another host has claimed some of it, or it cannot be told.
pub async fn claim(etcd: &Etcd, id: &str, playbook: &Playbook) -> Result<Option<Claim>, ClaimError> {
    let targets: Vec<EdgeSpec> = drill::targets(playbook).into_iter().map(|(_, edge)| edge).filter(is_shared).collect();
    if targets.is_empty() {
        return Ok(None);
    }
    let lease = etcd.lease(LEASE.as_secs()).await?;
    let claimed = try_claim(etcd, id, playbook, &targets, &lease).await;
    if claimed.is_err() {
        // It is gone by itself, if not at once.
        let _ = etcd.revoke(&lease).await;
    }
    claimed.map(|()| Some(Claim(lease)))
}

async fn try_claim(etcd: &Etcd, id: &str, playbook: &Playbook, targets: &[EdgeSpec], lease: &Lease) -> Result<(), ClaimError> {
    let ours = host::name();
    let value = json!({ "host": ours, "playbook": playbook.name, "targets": targets.iter().map(write).collect::<Vec<_>>() }).to_string();
    for _ in 0..TRIES {
        let listing = etcd.list(CLAIMS).await?;
        for (other, text) in &listing.entries {
            let claim: Value = serde_json::from_str(text).unwrap_or_default();
            let host = claim["host"].as_str().unwrap_or_default();
            // This host's own drills are compared by itself. A claim that cannot be read claims nothing.
            let theirs: Vec<EdgeSpec> = claim["targets"].as_array().into_iter().flatten().filter_map(read).collect();
            if host != ours && overlap(&theirs, targets) {
                return Err(ClaimError::Elsewhere { host: host.to_owned(), id: other.clone() });
            }
        }
        if etcd.add(CLAIMS, listing.revision, id, &value, lease).await? {
            return Ok(());
        }
    }
    Err(ClaimError::Busy)
}

/// Keeps a claim until `ended`, and gives it back. False if it was lost before.
pub async fn hold(etcd: &Etcd, claim: Claim, ended: impl Future<Output = ()>) -> bool {
    let mut ended = std::pin::pin!(ended);
    let mut valid_until = clock::after(LEASE);
    loop {
        tokio::select! {
            () = &mut ended => break,
            () = tokio::time::sleep(RENEW) => {}
        }
        let asked_at = clock::after(LEASE);
        match etcd.keep(&claim.0).await {
            Ok(true) => valid_until = asked_at,
            Ok(false) => return false,
            Err(error) => tracing::warn!("{}", crate::report::log::chain(&error)),
        }
        // The drill has to be over before the claim is.
        if clock::until(valid_until) < RENEW {
            return false;
        }
    }
    let _ = etcd.revoke(&claim.0).await;
    true
}

/// Gives a claim back at once.
pub async fn release(etcd: &Etcd, claim: Claim) {
    let _ = etcd.revoke(&claim.0).await;
}

/// The playbooks that are in etcd, by name.
///
/// # Errors
/// When etcd does not answer.
pub async fn playbooks(etcd: &Etcd) -> Result<Vec<(String, String)>, EtcdError> {
    Ok(etcd.list(PLAYBOOKS).await?.entries)
}

/// One playbook's text; `None` if there is none of that name.
///
/// # Errors
/// When etcd does not answer.
pub async fn playbook(etcd: &Etcd, name: &str) -> Result<Option<String>, EtcdError> {
    etcd.get(PLAYBOOKS, name).await
}

/// An ingress is this host's own, and so is what is on its loopback.
fn is_shared(edge: &EdgeSpec) -> bool {
    edge.role == Role::Downstream && !edge.address.is_some_and(|network| network.address.to_canonical().is_loopback())
}

fn write(edge: &EdgeSpec) -> Value {
    json!({
        "address": edge.address.map(|network| network.address.to_string()),
        "prefix": edge.address.map(|network| network.prefix),
        "ports": edge.ports.map(|ports| [ports.first, ports.last]),
    })
}

fn read(value: &Value) -> Option<EdgeSpec> {
    let small = |value: &Value| value.as_u64().and_then(|number| u16::try_from(number).ok());
    let address = match value["address"].as_str() {
        Some(text) => Some(Cidr { address: text.parse().ok()?, prefix: u8::try_from(small(&value["prefix"])?).ok()? }),
        None => None,
    };
    let ports = match value["ports"].as_array() {
        Some(ends) => Some(PortRange { first: small(ends.first()?)?, last: small(ends.get(1)?)? }),
        None => None,
    };
    Some(EdgeSpec { name: String::new(), role: Role::Downstream, address, ports, protocol: None })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn edge(role: Role, address: Option<&str>) -> EdgeSpec {
        let address = address.map(|text| Cidr { address: text.parse().unwrap(), prefix: 32 });
        EdgeSpec { name: String::new(), role, address, ports: Some(PortRange { first: 80, last: 90 }), protocol: None }
    }

    #[test]
    fn what_other_hosts_can_reach_is_shared_and_comes_back_as_it_was_written() {
        for (edge, expected) in [
            (edge(Role::Downstream, Some("10.0.0.5")), true),
            (edge(Role::Downstream, None), true),
            (edge(Role::Downstream, Some("127.0.0.1")), false),
            (edge(Role::Downstream, Some("::ffff:127.0.0.1")), false),
            (edge(Role::Ingress, None), false),
        ] {
            assert_eq!(is_shared(&edge), expected, "{edge:?}");
            let back = read(&write(&edge)).unwrap();
            assert_eq!((back.address, back.ports), (edge.address, edge.ports));
        }
        assert!(read(&json!({ "address": "here" })).is_none());
    }
}

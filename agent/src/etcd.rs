//! etcd, by the JSON gateway of its v3 API: what the daemon needs of it, which is little. Keys and values are texts.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};
use stormdrill_core::playbook::serve;
use thiserror::Error;

use crate::client::{Answer, Client, ClientError};

mod base64;

/// How long one endpoint may take; then the next is asked.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why etcd gave no answer.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// Nobody answered at the last endpoint.
    #[error("ask etcd")]
    Client(#[from] ClientError),
    /// No endpoint answered in time.
    #[error("etcd does not answer within {} s", PATIENCE.as_secs())]
    Slow,
    /// It answered that it will not.
    #[error("etcd refused: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// An answer that is none of etcd's.
    #[error("etcd's answer lacks {what}")]
    Odd {
        /// What was looked for.
        what: &'static str,
    },
}

/// A lease: what hangs on it is gone some time after nobody keeps it alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease(String);

/// The keys of a folder at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Names within the folder, and values.
    pub entries: Vec<(String, String)>,
    /// The instant.
    pub revision: i64,
}

/// An etcd, by its endpoints, below a prefix.
#[derive(Debug)]
pub struct Etcd {
    clients: Vec<Client>,
    prefix: String,
}

impl Etcd {
    /// One that is configured so. Nothing is asked yet.
    ///
    /// # Errors
    /// When an endpoint is no URL, or the authorities cannot be read.
    pub fn new(config: &serve::Etcd) -> Result<Self, EtcdError> {
        let clients = config.endpoints.iter().map(|url| Client::url(url, None, config.ca.as_deref())).collect::<Result<_, _>>()?;
        Ok(Self { clients, prefix: config.prefix.clone() })
    }

    async fn call(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let mut last = EtcdError::Slow;
        for client in &self.clients {
            let asked = client.ask(Method::POST, path, Some(("application/json", body.to_string())));
            last = match tokio::time::timeout(PATIENCE, asked).await {
                Ok(Ok(answer)) if answer.status.is_success() => return first(&answer),
                Ok(Ok(answer)) => EtcdError::Refused { reason: reason(&answer) },
                Ok(Err(error)) => error.into(),
                Err(_) => EtcdError::Slow,
            };
        }
        Err(last)
    }

    /// The first key of a folder, and the first behind it.
    fn range(&self, folder: &str) -> (String, String) {
        (base64::encode(&format!("{}/{folder}/", self.prefix)), base64::encode(&format!("{}/{folder}0", self.prefix)))
    }

    fn key(&self, folder: &str, name: &str) -> String {
        base64::encode(&format!("{}/{folder}/{name}", self.prefix))
    }

    /// What is in a folder. What is no text is left out.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn list(&self, folder: &str) -> Result<Listing, EtcdError> {
        let (key, range_end) = self.range(folder);
        let answer = self.call("/v3/kv/range", &json!({ "key": key, "range_end": range_end })).await?;
        let revision = number(&answer["header"]["revision"]).ok_or(EtcdError::Odd { what: "a revision" })?;
        let entry = |entry: &Value| {
            let key = base64::decode(entry["key"].as_str()?)?;
            let name = key.strip_prefix(&format!("{}/{folder}/", self.prefix))?.to_owned();
            Some((name, base64::decode(entry["value"].as_str().unwrap_or_default())?))
        };
        Ok(Listing { entries: answer["kvs"].as_array().into_iter().flatten().filter_map(entry).collect(), revision })
    }

    /// What is under a name; `None` if nothing is.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn get(&self, folder: &str, name: &str) -> Result<Option<String>, EtcdError> {
        let answer = self.call("/v3/kv/range", &json!({ "key": self.key(folder, name) })).await?;
        Ok(answer["kvs"][0].as_object().and_then(|entry| base64::decode(entry.get("value")?.as_str()?)))
    }

    /// A new lease of so many seconds.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn lease(&self, seconds: u64) -> Result<Lease, EtcdError> {
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": seconds })).await?;
        let id = answer["ID"].as_str().ok_or(EtcdError::Odd { what: "a lease" })?;
        Ok(Lease(id.to_owned()))
    }

    /// Keeps a lease alive. False if it is gone already.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn keep(&self, lease: &Lease) -> Result<bool, EtcdError> {
        let answer = self.call("/v3/lease/keepalive", &json!({ "ID": lease.0 })).await?;
        Ok(number(&answer["result"]["TTL"]).is_some_and(|seconds| seconds > 0))
    }

    /// Gives a lease back, and with it what hangs on it.
    ///
    /// # Errors
    /// When etcd does not answer; then it is gone when its time is over.
    pub async fn revoke(&self, lease: &Lease) -> Result<(), EtcdError> {
        self.call("/v3/lease/revoke", &json!({ "ID": lease.0 })).await.map(drop)
    }

    /// Writes something into a folder for as long as a lease lives, unless anything was written there since `revision`. False then.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn add(&self, folder: &str, revision: i64, name: &str, value: &str, lease: &Lease) -> Result<bool, EtcdError> {
        let (key, range_end) = self.range(folder);
        let unchanged =
            json!({ "target": "MOD", "result": "LESS", "key": key, "range_end": range_end, "mod_revision": (revision + 1).to_string() });
        let put = json!({ "request_put": { "key": self.key(folder, name), "value": base64::encode(value), "lease": lease.0 } });
        let answer = self.call("/v3/kv/txn", &json!({ "compare": [unchanged], "success": [put] })).await?;
        Ok(answer["succeeded"] == true)
    }
}

/// The first line of JSON: a stream of answers is a line each.
fn first(answer: &Answer) -> Result<Value, EtcdError> {
    let line = answer.body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    serde_json::from_slice(line).map_err(|_| EtcdError::Odd { what: "JSON" })
}

fn reason(answer: &Answer) -> String {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let words = said["message"].as_str().or(said["error"].as_str()).unwrap_or_default();
    format!("{} {words}", answer.status)
}

/// 64-bit numbers are texts in this JSON.
fn number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

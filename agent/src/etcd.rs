//! etcd, by the JSON gateway of its v3 API: what the daemon needs of it, which is little. Keys and values are texts.

use std::time::Duration;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use stormdrill_core::playbook::serve;
use thiserror::Error;

use crate::client::{Answer, Client, ClientError};
use crate::tls::Files;

/// How long one endpoint may take; then the next is asked.
const PATIENCE: Duration = Duration::from_secs(3);

/// What it says of a token that it does not take any more, as after five minutes, or after somebody changed a user. The status is not always 401.
const STALE: [&str; 2] = ["invalid auth token", "revision of auth store is old"];

/// Why etcd gave no answer.
#[derive(Debug, Error)]
pub enum EtcdError {
    /// The password cannot be read.
    #[error("read etcd's password from {}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
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
    user: Option<User>,
    /// What it gave for name and password the last time.
    token: Mutex<Option<String>>,
}

struct User {
    name: String,
    password: String,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Etcd {
    /// One that is configured so. Nothing is asked yet.
    ///
    /// # Errors
    /// When an endpoint is no URL, or a file cannot be read.
    pub fn new(config: &serve::Etcd) -> Result<Self, EtcdError> {
        let identity = config.identity.as_ref().map(|tls| (tls.cert.as_path(), tls.key.as_path()));
        let files = Files { authorities: config.ca.as_deref(), identity };
        let clients = config.endpoints.iter().map(|url| Client::url(url, None, &files)).collect::<Result<_, _>>()?;
        let user = config.user.as_ref().map(|user| {
            let path = &user.password_file;
            let text = std::fs::read_to_string(path).map_err(|source| EtcdError::Password { path: path.clone(), source })?;
            Ok::<_, EtcdError>(User { name: user.name.clone(), password: text.lines().next().unwrap_or_default().to_owned() })
        });
        Ok(Self { clients, prefix: config.prefix.clone(), user: user.transpose()?, token: Mutex::default() })
    }

    async fn call(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let mut last = EtcdError::Slow;
        for client in &self.clients {
            last = match tokio::time::timeout(PATIENCE, self.call_at(client, path, body)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_) => EtcdError::Slow,
            };
        }
        Err(last)
    }

    /// Asks one endpoint, with a token if there is a user: the last one, else a new one.
    async fn call_at(&self, client: &Client, path: &str, body: &Value) -> Result<Value, EtcdError> {
        let Some(user) = &self.user else { return first(&post(client, path, body, None).await?) };
        let known = self.token().clone();
        if let Some(token) = known {
            let answer = post(client, path, body, Some(&token)).await?;
            if !is_stale(&answer) {
                return first(&answer);
            }
        }
        let answer = post(client, "/v3/auth/authenticate", &json!({ "name": user.name, "password": user.password }), None).await?;
        let token = first(&answer)?["token"].as_str().ok_or(EtcdError::Odd { what: "a token" })?.to_owned();
        *self.token() = Some(token.clone());
        first(&post(client, path, body, Some(&token)).await?)
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first key of a folder, and the first behind it.
    fn range(&self, folder: &str) -> (String, String) {
        (BASE64.encode(format!("{}/{folder}/", self.prefix)), BASE64.encode(format!("{}/{folder}0", self.prefix)))
    }

    fn key(&self, folder: &str, name: &str) -> String {
        BASE64.encode(format!("{}/{folder}/{name}", self.prefix))
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
            let key = text(entry["key"].as_str()?)?;
            let name = key.strip_prefix(&format!("{}/{folder}/", self.prefix))?.to_owned();
            Some((name, text(entry["value"].as_str().unwrap_or_default())?))
        };
        Ok(Listing { entries: answer["kvs"].as_array().into_iter().flatten().filter_map(entry).collect(), revision })
    }

    /// What is under a name; `None` if nothing is.
    ///
    /// # Errors
    /// When etcd does not answer.
    pub async fn get(&self, folder: &str, name: &str) -> Result<Option<String>, EtcdError> {
        let answer = self.call("/v3/kv/range", &json!({ "key": self.key(folder, name) })).await?;
        Ok(answer["kvs"][0].as_object().and_then(|entry| text(entry.get("value")?.as_str()?)))
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
        let put = json!({ "request_put": { "key": self.key(folder, name), "value": BASE64.encode(value), "lease": lease.0 } });
        let answer = self.call("/v3/kv/txn", &json!({ "compare": [unchanged], "success": [put] })).await?;
        Ok(answer["succeeded"] == true)
    }
}

async fn post(client: &Client, path: &str, body: &Value, token: Option<&str>) -> Result<Answer, EtcdError> {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend(token.map(|token| ("authorization", token)));
    Ok(client.ask_with(Method::POST, path, &headers, body.to_string()).await?)
}

fn is_stale(answer: &Answer) -> bool {
    let reason = reason(answer);
    answer.status == StatusCode::UNAUTHORIZED || !answer.status.is_success() && STALE.iter().any(|words| reason.contains(words))
}

/// A key or a value; `None` if it is no text.
fn text(encoded: &str) -> Option<String> {
    String::from_utf8(BASE64.decode(encoded).ok()?).ok()
}

/// The first line of JSON, a stream of answers being a line each, if it is no refusal.
fn first(answer: &Answer) -> Result<Value, EtcdError> {
    if !answer.status.is_success() {
        return Err(EtcdError::Refused { reason: reason(answer) });
    }
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

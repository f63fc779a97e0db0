//! A client of the daemon's API, and of any other HTTP service: over its Unix socket, or by URL. A connection for each request, which is all
//! that commands need.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::tls::{self, Files, TlsError};

mod events;

pub use events::{Event, Events};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens on the socket.
    #[error("connect to {}: is `stormdrill serve` running?", socket.display())]
    Socket {
        /// The socket.
        socket: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Nobody listens there.
    #[error("connect to {authority}")]
    Connect {
        /// Host and port.
        authority: String,
        /// Why not.
        source: io::Error,
    },
    /// The URL is none that is understood.
    #[error("`{url}` is no address: write it as http://HOST:PORT or https://HOST:PORT")]
    Url {
        /// What was given.
        url: String,
    },
    /// The token cannot be read.
    #[error("read the token from {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The request could not be put together.
    #[error("make the request")]
    Request(#[source] hyper::http::Error),
    /// The connection broke.
    #[error("ask {place}")]
    Ask {
        /// Whom.
        place: String,
        /// Why it broke.
        source: hyper::Error,
    },
    /// The answer is a refusal.
    #[error("the daemon refused: {0}")]
    Refused(String),
    /// The answer is no JSON.
    #[error("read the answer")]
    Answer(#[source] serde_json::Error),
}

#[derive(Debug, Clone)]
enum Place {
    Socket(PathBuf),
    Tcp { authority: String, tls: Option<(Arc<ClientConfig>, ServerName<'static>)> },
}

/// Whom to ask, and as whom.
#[derive(Debug, Clone)]
pub struct Client {
    place: Place,
    token: Option<String>,
}

/// An answer that was read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> Result<Value, ClientError> {
        serde_json::from_slice(&self.body).map_err(ClientError::Answer)
    }

    /// What a refusal says: a problem's detail and its parts, each on a line.
    #[must_use]
    pub fn refusal(&self) -> String {
        let problem: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let detail = problem["detail"].as_str().or(problem["title"].as_str());
        let mut text = detail.map_or_else(|| format!("the answer is {}", self.status), str::to_owned);
        for part in problem["problems"].as_array().into_iter().flatten() {
            text.push_str(&format!("\n  line {}: {}", part["line"], part["message"].as_str().unwrap_or_default()));
        }
        text
    }
}

/// `name:port` of a URL's server; `None` if it is none.
#[must_use]
pub fn authority(url: &str) -> Option<String> {
    let uri: hyper::Uri = url.parse().ok()?;
    let port = if uri.scheme_str()? == "https" { 443 } else { 80 };
    Some(format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(port)))
}

impl Client {
    /// By a Unix socket, where the kernel says who asks.
    #[must_use]
    pub fn socket(path: &Path) -> Self {
        Self { place: Place::Socket(path.to_owned()), token: None }
    }

    /// By URL, with the token in a file's first line, and what TLS goes by.
    ///
    /// # Errors
    /// When the URL is none, or a file cannot be read.
    pub fn url(url: &str, token_file: Option<&Path>, files: &Files<'_>) -> Result<Self, ClientError> {
        let bad = || ClientError::Url { url: url.to_owned() };
        let uri: hyper::Uri = url.parse().map_err(|_| bad())?;
        let (Some(scheme), Some(host), "/" | "") = (uri.scheme_str(), uri.host(), uri.path()) else { return Err(bad()) };
        let (port, tls) = match scheme {
            "http" => (80, None),
            "https" => {
                let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(|_| bad())?;
                (443, Some((tls::client(files)?, name)))
            }
            _ => return Err(bad()),
        };
        let authority = format!("{host}:{}", uri.port_u16().unwrap_or(port));
        let read = |path: &Path| std::fs::read_to_string(path).map_err(|source| ClientError::Token { path: path.to_owned(), source });
        let token = token_file.map(read).transpose()?.map(|text| text.lines().next().unwrap_or_default().trim().to_owned());
        Ok(Self { place: Place::Tcp { authority, tls }, token })
    }

    /// Whom it asks, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        match &self.place {
            Place::Socket(path) => format!("unix:{}", path.display()),
            Place::Tcp { authority, tls } => format!("{}://{authority}", if tls.is_some() { "https" } else { "http" }),
        }
    }

    /// Asks, and reads the whole answer. A body comes with its media type.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn ask(&self, method: Method, path: &str, body: Option<(&str, String)>) -> Result<Answer, ClientError> {
        match body {
            Some((media, text)) => self.ask_with(method, path, &[("content-type", media)], text).await,
            None => self.ask_with(method, path, &[], String::new()).await,
        }
    }

    /// The same with headers of the caller's own.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn ask_with(&self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Result<Answer, ClientError> {
        let response = self.send(method, path, headers, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|source| self.broken(source))?.to_bytes();
        Ok(Answer { status, body })
    }

    fn broken(&self, source: hyper::Error) -> ClientError {
        ClientError::Ask { place: self.describe(), source }
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: String) -> Result<Response<Incoming>, ClientError> {
        let host = match &self.place {
            Place::Socket(_) => "localhost",
            Place::Tcp { authority, .. } => authority,
        };
        let mut request = Request::builder().method(method).uri(path).header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(ClientError::Request)?;
        match &self.place {
            Place::Socket(path) => {
                let failed = |source| ClientError::Socket { socket: path.clone(), source };
                let stream = in_time(UnixStream::connect(path)).await.map_err(failed)?;
                self.exchange(stream, request).await
            }
            Place::Tcp { authority, tls } => {
                let failed = |source| ClientError::Connect { authority: authority.clone(), source };
                let stream = in_time(TcpStream::connect(authority)).await.map_err(failed)?;
                match tls {
                    None => self.exchange(stream, request).await,
                    Some((config, name)) => {
                        let connector = TlsConnector::from(Arc::clone(config));
                        let stream = in_time(connector.connect(name.clone(), stream)).await.map_err(failed)?;
                        self.exchange(stream, request).await
                    }
                }
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|source| self.broken(source))?;
        // It ends with the response's body.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|source| self.broken(source))
    }
}

async fn in_time<T>(connect: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(CONNECT, connect).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_port() {
        for (url, expected) in [
            ("http://127.0.0.1:9464", Some("http://127.0.0.1:9464")),
            ("http://host", Some("http://host:80")),
            ("http://[::1]:9464/", Some("http://[::1]:9464")),
            ("127.0.0.1:9464", None),
            ("ftp://host", None),
            ("http://host/v1", None),
            ("playbook.yaml", None),
        ] {
            assert_eq!(Client::url(url, None, &Files::default()).ok().map(|client| client.describe()).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn a_urls_server_is_known_with_its_port() {
        let servers = ["http://etcd:2379", "https://[::1]", "http://10.0.0.9/", "etcd:2379/x"].map(authority);
        let expected = [Some("etcd:2379"), Some("[::1]:443"), Some("10.0.0.9:80"), None];
        assert_eq!(servers.each_ref().map(Option::as_deref), expected);
    }

    #[test]
    fn a_refusal_says_what_is_wrong_and_where() {
        let body = r#"{"detail": "1 problem", "problems": [{"line": 3, "message": "no such key"}]}"#;
        let answer = Answer { status: StatusCode::UNPROCESSABLE_ENTITY, body: Bytes::from(body) };
        assert_eq!(answer.refusal(), "1 problem\n  line 3: no such key");
        let other = Answer { status: StatusCode::BAD_GATEWAY, body: Bytes::from("<html>") };
        assert_eq!(other.refusal(), "the answer is 502 Bad Gateway");
        assert!(
            Client::url("http://h", Some(Path::new("/nonexistent")), &Files::default()).unwrap_err().to_string().contains("/nonexistent")
        );
    }
}

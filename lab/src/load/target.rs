//! Whom the load generator calls: a plain `http://` URL, resolved once.

use std::net::SocketAddr;

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::http::uri::PathAndQuery;

/// What is wrong with a URL.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// It cannot be read.
    #[error("the URL {url:?} cannot be read; write http://HOST:PORT/PATH")]
    Parse {
        /// What was given.
        url: String,
        /// What is wrong with it.
        source: hyper::http::uri::InvalidUri,
    },
    /// It is not `http://HOST…`.
    #[error("{url:?} is not plain HTTP; write http://HOST:PORT/PATH")]
    NotHttp {
        /// What was given.
        url: String,
    },
    /// The host has no address.
    #[error("find the address of {host:?}")]
    Resolve {
        /// Host and port.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// The resolver found nothing.
    #[error("find any address of {host:?}")]
    NoAddress {
        /// Host and port.
        host: String,
    },
}

/// Where requests go and what they ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The address to connect to.
    pub address: SocketAddr,
    /// The Host header.
    pub host: HeaderValue,
    /// Path and query.
    pub path: PathAndQuery,
}

impl Target {
    /// The path `/` at `address`.
    #[must_use]
    pub fn root(address: SocketAddr) -> Self {
        // An address is always a valid header value.
        let host = HeaderValue::from_str(&address.to_string()).unwrap_or(HeaderValue::from_static("target"));
        Self { address, host, path: PathAndQuery::from_static("/") }
    }

    /// Reads and resolves a URL. The port is 80 if it names none; of several addresses the first is taken.
    ///
    /// # Errors
    /// As [`TargetError`] says.
    pub async fn resolve(url: &str) -> Result<Self, TargetError> {
        let not_http = || TargetError::NotHttp { url: url.to_owned() };
        let uri: Uri = url.parse().map_err(|source| TargetError::Parse { url: url.to_owned(), source })?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(not_http)?;
        let host = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        let found = tokio::net::lookup_host(&host).await.map(|mut addresses| addresses.next());
        let address = match found {
            Ok(Some(address)) => address,
            Ok(None) => return Err(TargetError::NoAddress { host }),
            Err(source) => return Err(TargetError::Resolve { host, source }),
        };
        Ok(Self {
            address,
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| not_http())?,
            path: uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/")),
        })
    }

    /// The path with `n=NUMBER` appended to its query.
    #[must_use]
    pub fn numbered(&self, number: u64) -> PathAndQuery {
        let separator = if self.path.query().is_some() { '&' } else { '?' };
        let path = format!("{}{separator}n={number}", self.path);
        // What was a path and query remains one when such a pair is appended.
        PathAndQuery::try_from(path).unwrap_or_else(|_| self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    #[tokio::test]
    async fn a_url_gives_address_host_and_path() {
        let target = Target::resolve("http://127.0.0.1:8080/orders?kind=new").await.unwrap();
        assert_eq!(target.address, SocketAddr::from(([127, 0, 0, 1], 8080)));
        assert_eq!(target.host, "127.0.0.1:8080");
        assert_eq!(target.numbered(7), "/orders?kind=new&n=7");
        let target = Target::resolve("http://[::1]").await.unwrap();
        assert_eq!(target.address.to_string(), "[::1]:80");
        assert_eq!(target.numbered(1), "/?n=1");
    }

    #[tokio::test]
    async fn what_is_not_plain_http_is_refused() {
        for url in ["https://127.0.0.1/", "127.0.0.1:80", "/path", "ftp://a/"] {
            assert!(matches!(Target::resolve(url).await, Err(TargetError::NotHttp { .. })), "{url}");
        }
        assert!(matches!(Target::resolve("http://a b/").await, Err(TargetError::Parse { .. })));
    }
}

//! Debian's nginx, as backend and as gateway, each in a process of its own that counts what it served.

use std::cell::Cell;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::lab::wait_until;

/// A running nginx. Its own count is read at another port, so that reading is no request on an edge.
pub(crate) struct Nginx {
    child: Child,
    _dir: TempDir,
    pub(crate) port: u16,
    status_port: u16,
    /// How often it was asked for its counts.
    asked: Cell<u64>,
}

impl Nginx {
    /// One that answers by itself.
    pub(crate) fn backend() -> Self {
        Self::start("", "return 200 \"hello\\n\";")
    }

    /// One that answers so, by directives of a location.
    pub(crate) fn answering(location: &str) -> Self {
        Self::start("", location)
    }

    /// One that asks a backend, over connections that it keeps.
    pub(crate) fn gateway(backend: &Self) -> Self {
        let upstream = format!("upstream backend {{ server 127.0.0.1:{}; keepalive 64; }}", backend.port);
        Self::start(&upstream, "proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection \"\";")
    }

    fn start(upstream: &str, location: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (port, status_port) = (free_port(), free_port());
        let root = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {root}/pid; error_log stderr crit;
             events {{ worker_connections 512; }}
             http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {root}; proxy_temp_path {root};
               fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root};
               {upstream}
               server {{ listen 127.0.0.1:{port}; location / {{ {location} }} }}
               server {{ listen 127.0.0.1:{status_port}; location / {{ stub_status; }} }} }}"
        );
        let path = dir.path().join("nginx.conf");
        fs::write(&path, config).unwrap();
        let child = Command::new("nginx").arg("-c").arg(&path).args(["-e", "stderr"]).stdin(Stdio::null()).spawn().unwrap();
        let nginx = Self { child, _dir: dir, port, status_port, asked: Cell::new(0) };
        wait_until("nginx listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        nginx
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Requests so far by its own count, without those that asked for it.
    pub(crate) fn requests(&self) -> u64 {
        let text = self.status();
        // "accepts handled requests", then their numbers; the one that asks is counted already.
        let all: u64 = text.lines().nth(2).unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
        all - self.asked.get()
    }

    /// Connections that are open, the reader's not counted.
    pub(crate) fn connections(&self) -> u64 {
        let text = self.status();
        text.lines().next().unwrap().split(' ').nth(2).unwrap().parse::<u64>().unwrap() - 1
    }

    fn status(&self) -> String {
        self.asked.set(self.asked.get() + 1);
        let mut stream = TcpStream::connect(("127.0.0.1", self.status_port)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split_once("\r\n\r\n").unwrap().1.to_owned()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port that nobody has in this namespace at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

//! Requests within TLS, counted by probes on OpenSSL, against what servers count for themselves.

use std::path::Path;
use std::process::Command;

use stormdrill::probe::{Health, Probe};
use stormdrill_core::edge::Protocol;
use tempfile::TempDir;

use super::{Server, alone, attach, counts, free_port};
use crate::lab::{run, wait_until};

/// A key and a certificate for it in a directory.
fn certify(dir: &Path) {
    let (key, cert) = (dir.join("key.pem"), dir.join("cert.pem"));
    let paths = ["-keyout", key.to_str().unwrap(), "-out", cert.to_str().unwrap()];
    run("openssl", &[["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost", "-days", "30"].as_slice(), &paths].concat());
}

/// An nginx that speaks TLS and writes a line for each request.
fn nginx(protocols: &str, http2: bool) -> Server {
    let (dir, port): (TempDir, u16) = (tempfile::tempdir().unwrap(), free_port());
    certify(dir.path());
    std::fs::write(dir.path().join("large"), vec![b'x'; 300_000]).unwrap();
    let root = dir.path().display();
    let http2 = if http2 { "http2" } else { "" };
    let config = format!(
        "daemon off; worker_processes 2; user root; pid {root}/pid; error_log stderr crit; events {{ worker_connections 512; }}
         http {{ access_log {root}/log; keepalive_requests 1000000; client_body_temp_path {root}; proxy_temp_path {root};
           fastcgi_temp_path {root}; uwsgi_temp_path {root}; scgi_temp_path {root}; ssl_certificate {root}/cert.pem; ssl_certificate_key {root}/key.pem;
           ssl_protocols {protocols}; server {{ listen 127.0.0.1:{port} ssl {http2}; listen [::1]:{port} ssl {http2}; root {root};
             location /small {{ return 200 \"hello\\n\"; }} location /busy {{ return 503; }} }} }}"
    );
    let path = dir.path().join("nginx.conf");
    std::fs::write(&path, config).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&path).args(["-e", "stderr"]);
    Server::start(&mut command, dir, port)
}

/// Lines in the server's log.
fn logged(server: &Server) -> u64 {
    u64::try_from(std::fs::read_to_string(server.dir.path().join("log")).unwrap_or_default().lines().count()).unwrap()
}

/// Both edges have counted what the server has logged, answered, as a protocol and as nothing else, and nothing was missed.
fn assert_read(probe: &mut Probe, server: &Server, made: u64, protocol: Protocol) {
    wait_until("the server has logged everything", || logged(server) >= made);
    assert_eq!(logged(server), made);
    let health = probe.snapshot().unwrap().health;
    for counts in counts(probe) {
        assert_eq!((counts.requests, counts.responses), (made, made), "{health:?} {counts:?}");
        assert!(counts.recognised.iter().all(|(found, _)| found == protocol), "{counts:?}");
        assert_eq!(counts.recognised.iter().map(|(_, count)| count).sum::<u64>(), counts.connections_opened, "{counts:?}");
    }
    assert_eq!(Health { events_lost: 0, ..health }, Health::default(), "{:?}", counts(probe));
}

#[test]
fn https_requests_are_counted_as_nginx_logs_them() {
    alone(|| {
        let server = nginx("TLSv1.2 TLSv1.3", false);
        let mut probe = attach(server.port);
        let (libraries, refused) = probe.tls_libraries().unwrap();
        assert!(libraries > 0 && refused == 0, "{libraries} {refused}");
        let url = |host: &str, path: &str| format!("https://{host}:{}/{path}", server.port);
        let mut made = 0;
        for (version, host, path, times) in
            [("1.3", "127.0.0.1", "small", 50), ("1.2", "[::1]", "small", 50), ("1.3", "127.0.0.1", "large", 5), ("1.3", "127.0.0.1", "busy", 7)]
        {
            let globbed = format!("{}?[1-{times}]", url(host, path));
            run("curl", &["-sk", "-o", "/dev/null", &format!("--tlsv{version}"), "--tls-max", version, "--http1.1", &globbed]);
            made += times;
            assert_read(&mut probe, &server, made, Protocol::Http);
        }
    });
}

//! Requests within TLS, counted by probes on OpenSSL, against what servers count for themselves.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use stormdrill::probe::{Health, Probe};
use stormdrill_core::edge::Protocol;
use tempfile::TempDir;

use crate::lab::{run, wait_until};
use crate::servers::{Server, alone, assert_counts, attach, counts, free_port};

/// A key and a certificate for it in a directory.
fn certify(dir: &Path) {
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost -days 30";
    let (key, cert) = (dir.join("key.pem"), dir.join("cert.pem"));
    let paths = ["-keyout", key.to_str().unwrap(), "-out", cert.to_str().unwrap()];
    run("openssl", &arguments.split(' ').chain(paths).collect::<Vec<_>>());
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

/// Both edges have counted what the server has logged after what went `before`, answered, and all their connections, of which some were `found` open, as a
/// protocol and as nothing else; nothing was missed.
fn assert_read(probe: &mut Probe, server: &Server, before: u64, made: u64, protocol: Protocol, found: u64) {
    wait_until("the server has logged everything", || logged(server) >= before + made);
    assert_eq!(logged(server), before + made);
    let health = probe.snapshot().unwrap().health;
    for counts in counts(probe) {
        assert_eq!((counts.requests, counts.responses), (made, made), "{health:?} {counts:?}");
        assert_eq!(counts.recognised.iter().collect::<Vec<_>>(), [(protocol, counts.connections_opened + found)], "{counts:?}");
    }
    assert_eq!(Health { events_lost: 0, ..health }, Health::default(), "{:?}", counts(probe));
}

/// A client of one connection that makes as many requests as it is told to, line by line. Python's calls are the `_ex` ones.
struct Client {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Client {
    const SCRIPT: &str = r#"
import socket, ssl, sys
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
stream = context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
reader = stream.makefile("rb")
for line in sys.stdin:
    for _ in range(int(line)):
        stream.sendall(b"GET /small HTTP/1.1\r\nHost: a\r\nX-Filler: " + b"x" * 300 + b"\r\n\r\n")
        length = 0
        while (head := reader.readline()) != b"\r\n":
            if head.lower().startswith(b"content-length:"): length = int(head.split(b":")[1])
        assert reader.read(length) == b"hello\n"
    print("done", flush=True)
"#;

    fn connect(host: &str, port: u16) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", Self::SCRIPT, host, &port.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn ask(&mut self, times: u32) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{times}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn close(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Python's asyncio has OpenSSL write to memory, and sends that itself. Twenty connections with ten requests each.
const ASYNCHRONOUS: &str = r#"
import asyncio, ssl, sys
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
async def one():
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[1]), ssl=context)
    for _ in range(10):
        writer.write(b"GET /small HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n"); await reader.readexactly(6)
    writer.close()
async def main(): await asyncio.gather(*[one() for _ in range(20)])
asyncio.run(main())
"#;

#[test]
fn https_requests_are_counted_as_nginx_logs_them() {
    alone(|| {
        let server = nginx("TLSv1.2 TLSv1.3", false);
        let mut before = ["127.0.0.1", "::1"].map(|host| Client::connect(host, server.port));
        before.iter_mut().for_each(|client| client.ask(3));
        wait_until("the server has logged everything", || logged(&server) == 6);
        let mut probe = attach(server.port);
        let (libraries, refused) = probe.tls_libraries().unwrap();
        assert!(libraries > 0 && refused == 0, "{libraries} {refused}");
        let mut after = Client::connect("127.0.0.1", server.port);
        [before.as_mut_slice(), std::slice::from_mut(&mut after)].into_iter().flatten().for_each(|client| client.ask(20));
        assert_read(&mut probe, &server, 6, 60, Protocol::Http, 2);
        before.into_iter().chain([after]).for_each(Client::close);
        let mut made = 60;
        for (version, host, path, times) in [
            ("1.3", "127.0.0.1", "small", 50),
            ("1.2", "[::1]", "small", 50),
            ("1.3", "127.0.0.1", "large", 5),
            ("1.2", "127.0.0.1", "busy", 7),
        ] {
            let globbed = format!("https://{host}:{}/{path}?[1-{times}]", server.port);
            run("curl", &["-sk", "-o", "/dev/null", &format!("--tlsv{version}"), "--tls-max", version, "--http1.1", &globbed]);
            made += times;
            assert_read(&mut probe, &server, 6, made, Protocol::Http, 2);
        }
        run("python3", &["-c", ASYNCHRONOUS, &server.port.to_string()]);
        assert_read(&mut probe, &server, 6, made + 200, Protocol::Http, 2);
        wait_until("every connection is closed", || counts(&mut probe).iter().all(|c| c.connections_closed == c.connections_opened + 2));
    });
}

#[test]
fn streams_within_tls_are_counted_as_h2load_counts_them() {
    alone(|| {
        let server = nginx("TLSv1.3", true);
        let mut probe = attach(server.port);
        let mut made = 0;
        for (path, requests, clients, streams) in [("small", 5000, 10, 100), ("small", 200, 1, 1), ("large", 100, 5, 20)] {
            let url = format!("https://127.0.0.1:{}/{path}", server.port);
            let text = run("h2load", &["-n", &requests.to_string(), "-c", &clients.to_string(), "-m", &streams.to_string(), &url]);
            assert!(text.contains(&format!("{requests} succeeded")), "{text}");
            made += requests;
            assert_read(&mut probe, &server, 0, made, Protocol::Http2, 0);
        }
    });
}

#[test]
fn redis_commands_within_tls_are_counted() {
    alone(|| {
        let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
        certify(dir.path());
        let file = |name: &str| dir.path().join(name).display().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--tls-port", &port.to_string(), "--tls-auth-clients", "no", "--save", "", "--dir"]).arg(dir.path());
        command.args(["--tls-cert-file", &file("cert.pem"), "--tls-key-file", &file("key.pem"), "--tls-ca-cert-file", &file("cert.pem")]);
        let server = Server::start(&mut command, dir, port);
        let port = server.port.to_string();
        let tls = ["-p", &port, "--tls", "--insecure"];
        let processed = || {
            let text = run("redis-cli", &[tls.as_slice(), &["info", "stats"]].concat());
            let line = text.lines().find_map(|line| line.strip_prefix("total_commands_processed:")).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        let first = processed();
        let mut probe = attach(server.port);
        for pipelined in ["1", "50", "1000"] {
            run(
                "redis-benchmark",
                &[tls.as_slice(), &["-n", "2000", "-c", "5", "-q", "-t", "set,get,lrange_100", "-P", pipelined]].concat(),
            );
        }
        // A look counts itself from the next one on: the first is behind the probe, the last before it.
        let made = processed() - first;
        assert!(made > 20_000, "{made}");
        assert_counts(&mut probe, made, made, 0);
    });
}

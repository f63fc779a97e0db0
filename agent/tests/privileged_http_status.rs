//! Statuses that are written over in flight: whose answers they are, what is not an answer, and HTTP/2. Real servers on the host's own kernel.
//! Run as root: `cargo test -p stormdrill --features privileged-tests --test privileged_http_status -- --test-threads=1`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{Client, Nginx, Peer, edge, in_namespace, is_plausible};
use stormdrill::fault::plane::{Applied, Plane};
use stormdrill_core::edge::{EdgeSpec, Role};
use stormdrill_core::fault::{Direction, FaultKind, FaultSpec, Requests, Select};

fn spoil(status: u16, share: f64, method: Option<&str>, path: Option<&str>) -> FaultSpec {
    let requests = Requests { method: method.map(str::to_owned), path: path.map(str::to_owned) };
    let select = Select { requests, ..Select::default() };
    FaultSpec { select, ..FaultSpec::new(FaultKind::HttpStatus { status, share }, "store") }
}

fn apply(state: &std::path::Path, spec: FaultSpec, edge: EdgeSpec) -> Applied {
    Plane::new(state).prepare_blocking(&[(spec, edge)]).unwrap().remove(0).apply_blocking().unwrap()
}

fn local(port: u16) -> EdgeSpec {
    edge(Role::Downstream, Some("127.0.0.1"), Some(port))
}

/// Writes requests and gives the statuses and bodies of as many answers.
fn exchange(stream: &mut TcpStream, requests: &[u8], answers: usize) -> Vec<(u16, String)> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(requests).unwrap();
    let mut reader = BufReader::new(stream);
    let mut found = Vec::new();
    for _ in 0..answers {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.get(9..12).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        let mut length = 0;
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        found.push((status, String::from_utf8(body).unwrap()));
    }
    found
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n")
}

#[test]
fn only_the_answers_to_the_method_and_path_are_spoilt() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        for (method, path, spoilt) in [
            (None, Some("/orders"), ["/orders", "/orders/7", "/orders?all"].as_slice()),
            (Some("GET"), Some("/orders/"), &["/orders/7"]),
            (Some("GET"), None, &["/", "/orders", "/orders/7", "/orders?all", "/order", "/gone"]),
            (Some("POST"), None, &[]),
        ] {
            let mut fault = apply(state.path(), spoil(503, 1.0, method, path), local(8081));
            let mut client = Client::connect("127.0.0.1:8081");
            for target in ["/", "/orders", "/orders/7", "/orders?all", "/order", "/gone"] {
                let status = client.get(target).0;
                assert_eq!(status == 503, spoilt.contains(&target), "{method:?} {path:?} {target}: {status}");
            }
            let counts = fault.counts().unwrap()[0];
            assert_eq!((counts.selected, counts.hit), (spoilt.len() as u64, spoilt.len() as u64));
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn pipelined_answers_are_told_apart_by_the_order_of_their_requests() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let nginx = peer.run(|| Nginx::start(&["10.9.0.2:8081"]));
        let _own = Nginx::start(&["127.0.0.1:8081"]);
        for (address, target) in [("127.0.0.1", "127.0.0.1:8081"), ("10.9.0.2", "10.9.0.2:8081")] {
            let mut fault = apply(state.path(), spoil(503, 1.0, None, Some("/b")), edge(Role::Downstream, Some(address), Some(8081)));
            let mut stream = TcpStream::connect(target).unwrap();
            // All in one segment, and their answers as nginx likes to send them.
            let paths = ["/a", "/b", "/gone", "/b", "/b/x", "/a", "/b"];
            let requests: String = paths.into_iter().map(get).collect();
            for _ in 0..20 {
                let statuses: Vec<u16> =
                    exchange(&mut stream, requests.as_bytes(), paths.len()).into_iter().map(|answer| answer.0).collect();
                assert_eq!(statuses, [200, 503, 410, 503, 503, 200, 503], "{target}");
            }
            let counts = fault.counts().unwrap()[0];
            assert_eq!((counts.selected, counts.hit), (80, 80));
            assert!(fault.remove_blocking().error.is_none());
        }
        peer.run(move || drop(nginx));
    });
}

#[test]
fn a_request_that_comes_in_pieces_is_known_by_its_first_and_a_head_in_pieces_is_one_answer() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["127.0.0.1:8081"]);
        let fault = apply(state.path(), spoil(503, 1.0, None, Some("/b")), local(8081));
        let mut stream = TcpStream::connect("127.0.0.1:8081").unwrap();
        stream.set_nodelay(true).unwrap();
        for (path, expected) in [("/b", 503), ("/a", 200), ("/b", 503)] {
            let request = get(path);
            let (first, rest) = request.split_at(9);
            stream.write_all(first.as_bytes()).unwrap();
            assert_eq!(exchange(&mut stream, rest.as_bytes(), 1)[0].0, expected);
        }
        // A long head of cookies is read in several runs.
        let long = format!("GET /b HTTP/1.1\r\nHost: test\r\nCookie: {}\r\n\r\n", "c=0123456789; ".repeat(200));
        assert_eq!(exchange(&mut stream, long.as_bytes(), 1)[0].0, 503);
        assert!(fault.remove_blocking().error.is_none());
    });
}

/// A server that answers the n-th request of a connection with the n-th of these pieces, cut as they are.
fn serve_pieces(address: &str, answers: Vec<Vec<String>>) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.set_nodelay(true).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        for pieces in answers {
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            for piece in pieces {
                stream.write_all(piece.as_bytes()).unwrap();
                // Until it has arrived, as below.
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
}

#[test]
fn an_answer_whose_head_takes_several_runs_or_segments_is_spoilt_like_any_other() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
        // Lines that may be about the body's length, which are read byte by byte; and more of others than one run takes.
        let real = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: keep-alive\r\nTransfer-Encodings: chunked\r\n\
             Cache-Control: no-store\r\nContent-Security-Policy: {}\r\nContent-Length: 2\r\n\r\nhi",
            "default-src 'self'; ".repeat(40)
        );
        let chunked = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
        let mut answers = vec![vec![real.clone()], vec![short.to_owned()], vec![real]];
        // From where its status is known, an answer may be cut anywhere.
        answers.extend((12..short.len()).map(|at| vec![short[..at].to_owned(), short[at..].to_owned()]));
        // More than all runs together read, in one segment: its status is at the front, and the next answer is read again.
        let endless = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: {}\r\n\r\nhi", "\rc=0\"; ".repeat(9000));
        answers.extend([vec![endless], vec![short.to_owned()]]);
        answers.push(vec![chunked("Transfer-Encoding: chunked")]);
        let count = answers.len();
        serve_pieces("127.0.0.1:8086", answers);
        let mut fault = apply(state.path(), spoil(503, 1.0, None, None), local(8086));
        let mut stream = TcpStream::connect("127.0.0.1:8086").unwrap();
        for number in 0..count {
            // The chunked body is not read.
            assert_eq!(exchange(&mut stream, get("/").as_bytes(), 1)[0].0, 503, "answer {number}");
        }
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (count as u64, count as u64));
        assert!(fault.remove_blocking().error.is_none());
    });
}

/// A server that answers every request with a body that looks like answers, each in a segment of its own.
fn serve_lookalikes(address: &str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            std::thread::spawn(move || -> std::io::Result<()> {
                let mut reader = BufReader::new(stream.try_clone()?);
                let mut line = String::new();
                while reader.read_line(&mut line)? > 0 {
                    if line == "\r\n" {
                        let part = "HTTP/1.1 200 OK\r\n\r\n";
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", part.len() * 3);
                        for piece in [head.as_str(), part, part, part] {
                            stream.write_all(piece.as_bytes())?;
                            // Until it has arrived: else the next piece might share its segment.
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    }
                    line.clear();
                }
                Ok(())
            });
        }
    });
}

#[test]
fn a_body_that_looks_like_answers_stays_as_it_is() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        serve_lookalikes("127.0.0.1:8083");
        let mut fault = apply(state.path(), spoil(503, 1.0, None, None), local(8083));
        let mut stream = TcpStream::connect("127.0.0.1:8083").unwrap();
        for _ in 0..20 {
            let answers = exchange(&mut stream, get("/").as_bytes(), 1);
            assert_eq!(answers, [(503, "HTTP/1.1 200 OK\r\n\r\n".repeat(3))]);
        }
        // Two are due, and the first one's body looks like the second.
        let answers = exchange(&mut stream, format!("{}{}", get("/"), get("/")).as_bytes(), 2);
        assert_eq!(answers, vec![(503, "HTTP/1.1 200 OK\r\n\r\n".repeat(3)); 2]);
        assert_eq!(fault.counts().unwrap()[0].hit, 22);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn an_answer_without_a_request_is_none() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:8084").unwrap();
        let mut fault = apply(state.path(), spoil(503, 1.0, None, None), local(8084));
        let mut client = TcpStream::connect("127.0.0.1:8084").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let line = b"HTTP/1.1 200 OK\r\n\r\n";
        server.write_all(line).unwrap();
        let mut read = [0; 19];
        client.read_exact(&mut read).unwrap();
        assert_eq!(&read, line);
        assert_eq!(fault.counts().unwrap()[0].selected, 0);
        assert!(fault.remove_blocking().error.is_none());
    });
}

#[test]
fn an_answer_that_tcp_sends_again_carries_the_same_status() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let _nginx = Nginx::start(&["10.9.0.1:8081"]);
        let wanted = FaultSpec { interface: Some("v0".to_owned()), ..spoil(503, 0.5, None, Some("/b")) };
        let mut fault = apply(state.path(), wanted, edge(Role::Ingress, None, Some(8081)));
        // The client loses three of ten answers on arrival, after they were written over.
        let far = tempfile::tempdir().unwrap();
        let path = far.path().to_owned();
        let loss = peer.run(move || {
            let mut spec = FaultSpec::new(FaultKind::Loss { share: 0.3 }, "store");
            spec.direction = Direction::Ingress;
            apply(&path, spec, edge(Role::Downstream, Some("10.9.0.1"), Some(8081)))
        });
        let mut loss = loss;
        let (hits, spared) = lab::while_renewing(&mut [&mut fault, &mut loss], || {
            peer.run(|| {
                let mut client = Client::patient("10.9.0.1:8081");
                let hits = client.count("/b", 150, 503);
                (hits, client.count("/a", 50, 200))
            })
        });
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit, spared), (150, hits, 50));
        assert!(is_plausible(hits, 150, 0.5), "{hits} of 150");
        assert!(loss.counts().unwrap()[0].hit > 10, "answers were lost");
        peer.run(move || assert!(loss.remove_blocking().error.is_none()));
        assert!(fault.remove_blocking().error.is_none());
    });
}

/// A real HTTP/2 server in the clear.
struct Nghttpd {
    child: Child,
    _dir: tempfile::TempDir,
}

impl Nghttpd {
    fn start(port: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("index.html"), "x".repeat(3000)).unwrap();
        let child = Command::new("nghttpd")
            .args(["--no-tls", "-d", dir.path().to_str().unwrap(), &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        lab::wait_until("nghttpd listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { child, _dir: dir }
    }
}

impl Drop for Nghttpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many answers of each hundred came to so many requests over HTTP/2.
fn h2load(port: u16, requests: u64, connections: u64) -> [u64; 4] {
    let (requests, connections) = (requests.to_string(), connections.to_string());
    let url = format!("http://127.0.0.1:{port}/index.html");
    let text = lab::run("h2load", &["-n", &requests, "-c", &connections, "-m", "10", &url]);
    // "status codes: 1418 2xx, 0 3xx, 0 4xx, 582 5xx"
    let line = text.lines().find_map(|line| line.strip_prefix("status codes: ")).unwrap_or_else(|| panic!("{text}"));
    let mut counts = line.split(", ").map(|part| part.split(' ').next().unwrap().parse().unwrap());
    [(); 4].map(|()| counts.next().unwrap())
}

#[test]
fn a_share_of_http2_answers_gets_a_status_of_the_static_table_and_others_are_left_alone() {
    in_namespace(|| {
        let state = tempfile::tempdir().unwrap();
        let _server = Nghttpd::start(8085);
        assert_eq!(h2load(8085, 100, 2), [100, 0, 0, 0]);
        let mut fault = apply(state.path(), spoil(500, 0.3, None, None), local(8085));
        let [good, _, _, bad] = lab::while_renewing(&mut [&mut fault], || h2load(8085, 5000, 4));
        assert_eq!(good + bad, 5000);
        assert!(is_plausible(bad, 5000, 0.3), "{bad} of 5000");
        let counts = fault.counts().unwrap()[0];
        assert_eq!((counts.selected, counts.hit), (5000, bad));
        assert!(fault.remove_blocking().error.is_none());

        let mut fault = apply(state.path(), spoil(404, 1.0, None, None), local(8085));
        assert_eq!(h2load(8085, 300, 3), [0, 0, 300, 0]);
        assert_eq!(fault.counts().unwrap()[0].hit, 300);
        assert!(fault.remove_blocking().error.is_none());

        // Neither a code that the table lacks nor a path, which is compressed.
        for spec in [spoil(503, 1.0, None, None), spoil(500, 1.0, None, Some("/index"))] {
            let mut fault = apply(state.path(), spec, local(8085));
            assert_eq!(h2load(8085, 200, 2), [200, 0, 0, 0]);
            assert_eq!(fault.counts().unwrap()[0].selected, 0);
            assert!(fault.remove_blocking().error.is_none());
        }
    });
}

#[test]
fn http2_answers_of_another_host_have_right_checksums_and_an_open_connection_is_joined() {
    in_namespace(|| {
        let peer = Peer::new();
        let state = tempfile::tempdir().unwrap();
        let server = peer.run(|| {
            lab::set_checksum_offload("v1", false);
            Nghttpd::start(8085)
        });
        // A steady load that begins before the fault, on connections that it keeps.
        let load = Command::new("h2load")
            .args(["-D", "6", "--rps", "200", "-c", "2", "-m", "4", "http://10.9.0.2:8085/index.html"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        lab::wait_until("the load runs", || lab::run("ss", &["-tnH", "state", "established", "dport", "=", ":8085"]).lines().count() == 2);
        let mut fault = apply(state.path(), spoil(500, 0.5, None, None), edge(Role::Downstream, Some("10.9.0.2"), Some(8085)));
        let output = lab::while_renewing(&mut [&mut fault], || load.wait_with_output().unwrap());
        let text = String::from_utf8(output.stdout).unwrap();
        let counts = fault.counts().unwrap()[0];
        assert!(counts.hit > 100 && is_plausible(counts.hit, counts.selected, 0.5), "{counts:?} {text}");
        // What was under way when the load ended is not in its count.
        let seen = text.lines().find_map(|line| line.split(", ").find_map(|part| part.strip_suffix(" 5xx")?.parse::<u64>().ok()));
        assert!(counts.hit - seen.unwrap_or_else(|| panic!("{text}")) <= 8, "{counts:?} {text}");
        assert!(text.contains(", 0 errored, 0 timeout"), "{text}");
        assert!(fault.remove_blocking().error.is_none());
        peer.run(move || drop(server));
    });
}

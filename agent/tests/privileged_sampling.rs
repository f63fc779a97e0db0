//! Events of a share of the requests, in the kernel and by the real program under real traffic. Run as root:
//! `cargo xtask test --only privileged_sampling`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;

use lab::{Client, in_namespace};
use rig::agent::Agent;
use rig::json::{count, phase};
use rig::nginx::Nginx;
use serde_json::Value;
use stormdrill::cgroup;
use stormdrill::probe::{Probe, ProbeConfig};
use stormdrill_core::edge::{EdgeId, EdgeSpec, PortRange, Protocol, Role};
use stormdrill_core::event::{ProbeEvent, ProbeEventKind};
use stormdrill_core::sampling::Told;
use stormdrill_wire::abi::protocol;
use stormdrill_wire::sampling::{BYTES, EVERYTHING, WORDS, identity, is_told};

const TOLD: Told = Told { share: EVERYTHING >> 2, turn: 0x1234_5678 };

/// Two ends of one connection, whose server end is observed.
struct Pair {
    probe: Probe,
    client: TcpStream,
    server: TcpStream,
}

impl Pair {
    fn new(protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let ports = Some(PortRange { first: port, last: port });
        let edges = [EdgeSpec { name: "served".to_owned(), role: Role::Ingress, address: None, ports, protocol: Some(protocol) }];
        let cgroup = cgroup::find_or_mount(Path::new("/run/stormdrill-test")).unwrap();
        let probe = Probe::attach_to_edges(&ProbeConfig { cgroup, edges: &edges, events: true, ring_bytes: 1 << 22 }).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        Self { probe, client, server }
    }

    /// All requests at once, and then all answers.
    fn talk(&mut self, requests: &[u8], answers: &[u8]) {
        for (mut from, mut to, bytes) in [(&self.client, &self.server, requests), (&self.server, &self.client, answers)] {
            std::thread::scope(|scope| {
                scope.spawn(move || from.write_all(bytes).unwrap());
                to.read_exact(&mut vec![0; bytes.len()]).unwrap();
            });
        }
    }

    /// The numbers of the requests that were told, and of the answers.
    fn told(&mut self) -> (BTreeSet<u32>, BTreeSet<u32>) {
        let (mut requests, mut answers) = (BTreeSet::new(), BTreeSet::new());
        self.probe
            .drain(|event: ProbeEvent| {
                match event.kind {
                    ProbeEventKind::RequestHead { index, .. } => requests.insert(index),
                    ProbeEventKind::ResponseHead { index, .. } => answers.insert(index),
                    _ => false,
                };
            })
            .unwrap();
        (requests, answers)
    }

    fn assert_counted(&mut self, requests: u64) {
        let counts = self.probe.snapshot().unwrap().total(EdgeId(0));
        assert_eq!((counts.requests, counts.responses), (requests, requests));
    }
}

fn is_expected(request: &str, protocol: u8) -> bool {
    let mut bytes = [0; BYTES];
    let len = request.len().min(BYTES);
    bytes[..len].copy_from_slice(&request.as_bytes()[..len]);
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap());
    }
    identity(|at| words[at], u32::try_from(len).unwrap(), protocol).is_none_or(|identity| is_told(identity, TOLD.turn, TOLD.share))
}

#[test]
fn the_kernel_tells_of_the_identities_that_the_host_expects_and_counts_all() {
    in_namespace(|| {
        let mut pair = Pair::new(Protocol::Http);
        let answer = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
        let request = |at: u32| format!("GET /items/{}/{at} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(at as usize % 70));
        pair.talk(request(0).as_bytes(), answer.as_bytes());
        assert_eq!(pair.told(), (BTreeSet::from([0]), BTreeSet::from([0])), "without a share, everything is told");
        pair.probe.tell(TOLD).unwrap();
        for at in 1..400 {
            // Some in two segments, cut behind what is looked at.
            let text = request(at);
            let parts = if at % 5 == 0 { [&text[..100.min(text.len())], &text[100.min(text.len())..]] } else { [text.as_str(), ""] };
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                pair.client.write_all(part.as_bytes()).unwrap();
                pair.server.read_exact(&mut vec![0; part.len()]).unwrap();
            }
            pair.server.write_all(answer.as_bytes()).unwrap();
            pair.client.read_exact(&mut vec![0; answer.len()]).unwrap();
        }
        let expected: BTreeSet<u32> = (1..400).filter(|&at| is_expected(&request(at), protocol::HTTP1)).collect();
        assert!((40..160).contains(&expected.len()), "{expected:?}");
        assert_eq!(pair.told(), (expected.clone(), expected.clone()));
        assert_eq!(pair.probe.left_out().unwrap(), 399 - expected.len() as u64);
        pair.assert_counted(400);
        // Everything again: what was left out before under the same number is forgotten.
        pair.probe.tell(Told { share: EVERYTHING, turn: 0 }).unwrap();
        for at in 400..480 {
            pair.talk(request(at).as_bytes(), answer.as_bytes());
        }
        let all: BTreeSet<u32> = (400..480).collect();
        assert_eq!(pair.told(), (all.clone(), all));
        pair.assert_counted(480);
    });
}

#[test]
fn in_a_pipeline_deeper_than_a_connection_remembers_answers_stay_with_their_requests() {
    in_namespace(|| {
        let mut pair = Pair::new(Protocol::Redis);
        pair.probe.tell(TOLD).unwrap();
        let command = |at: u32| format!("*2\r\n$3\r\nGET\r\n$7\r\nkey{at:04}\r\n");
        let commands: String = (0..1000).map(command).collect();
        pair.talk(commands.as_bytes(), "+OK\r\n".repeat(1000).as_bytes());
        let (requests, answers) = pair.told();
        assert_eq!(requests, answers);
        for at in 0..63 {
            assert_eq!(requests.contains(&at), is_expected(&command(at), protocol::REDIS), "{at}");
        }
        for at in 64..1000 {
            assert_eq!(requests.contains(&at), requests.contains(&(at - 64)), "{at}: it has the fate of the one that may be under way");
        }
        pair.assert_counted(1000);
        // Without any under way, each has its own again.
        for at in 1000..1100 {
            pair.talk(command(at).as_bytes(), b"+OK\r\n");
        }
        let expected: BTreeSet<u32> = (1000..1100).filter(|&at| is_expected(&command(at), protocol::REDIS)).collect();
        assert_eq!(pair.told(), (expected.clone(), expected));
    });
}

/// Requests for so many things, of which every fifth fails, and is asked for once more. Gives how many that were.
fn ask(client: &mut Client, things: std::ops::Range<u32>) -> u64 {
    let mut asked = 0;
    for thing in things {
        let (path, tries, status) =
            if thing % 5 == 0 { (format!("/items/{thing}?fails=1"), 2, 503) } else { (format!("/items/{thing}"), 1, 200) };
        assert_eq!(client.count(&path, tries, status), tries);
        asked += tries;
    }
    asked
}

fn assert_whole(all: &Value, requests: u64) {
    assert_eq!((count(all, "/requests"), count(all, "/responses")), (requests, requests), "{all:#}");
    for failure in ["hang", "no_answer", "reset", "client_abort", "unprocessed"] {
        assert_eq!(count(all, &format!("/failures/{failure}")), 0, "{failure}: {all:#}");
    }
}

#[test]
fn a_budget_that_is_exceeded_leaves_a_share_of_the_identities_and_the_right_ratio() {
    in_namespace(|| {
        let nginx = Nginx::answering("if ($arg_fails) { return 503; } return 200 \"hello\\n\";");
        let hot = Nginx::backend();
        let agent = Agent::new();
        let port = |nginx: &Nginx| format!(":{}", nginx.port);
        let mut observation = agent.observe_within(
            200,
            &[format!("items={}", port(&nginx)), format!("hot={}", port(&hot))],
            &[format!("asked={}", nginx.address())],
        );
        let (mut client, mut eager) = (Client::connect(&nginx.address()), Client::connect(&hot.address()));
        let (mut items, mut single) = (0, 0);
        for round in 0..7 {
            // No more than fits into the ring while the agent has other things to do.
            items += ask(&mut client, 500 * round..500 * (round + 1));
            single += eager.count("/", 200, 200);
            observation.wait_for_window();
        }
        let result = observation.end();
        assert_eq!((nginx.requests(), hot.requests()), (items, single), "nginx's own count");
        let quality = &result["data_quality"];
        assert!(quality["sampling"].as_f64().unwrap() < 1.0, "{quality:#}");
        for (key, value) in quality.as_object().unwrap().iter().filter(|(key, _)| *key != "sampling") {
            assert_eq!(*value, 0, "{key} in {quality:#}");
        }
        assert_whole(phase(&result, "hot", "all"), single);
        for edge in ["items", "asked"] {
            let all = phase(&result, edge, "all");
            assert_whole(all, items);
            // Of six attempts one is a retry; attempts of one URL are not independent, which doubles the variance.
            let (retries, ratio) = (count(all, "/retries/matched") as f64, all["retry_ratio"].as_f64().unwrap());
            let seen = retries / ratio;
            assert!(seen > 100.0 && seen < 0.9 * items as f64, "{seen} of {items} were seen");
            let deviation = (2.0 * 5.0 / 36.0 / seen).sqrt();
            assert!((ratio - 1.0 / 6.0).abs() < 4.0 * deviation, "{ratio} of {seen}");
        }
    });
}

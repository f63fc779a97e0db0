//! Real servers and the loads for them.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Seconds of a load of nginx.
const SECONDS: u32 = 3;
/// Requests of a load of Redis, which take about as long.
const REQUESTS: u32 = 100_000;

/// What was served in a run, and what it took of both processors.
pub(crate) struct Amount {
    pub(crate) requests: f64,
    pub(crate) time: Duration,
    pub(crate) processor: Duration,
}

impl Amount {
    pub(crate) fn per_second(&self) -> f64 {
        self.requests / self.time.as_secs_f64()
    }

    pub(crate) fn processor_per_request(&self) -> f64 {
        self.processor.as_secs_f64() / self.requests
    }
}

/// Servers that run, and what is asked of them.
pub(crate) struct Load {
    kind: Kind,
    /// The port that is asked, and the one that it asks in turn.
    ports: [u16; 2],
    servers: Vec<Child>,
    _folder: tempfile::TempDir,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Nginx,
    Redis,
}

impl Load {
    /// One nginx before another, asked by wrk: each proxied request passes the hooks eight times, as a request and as an answer on either side of two
    /// connections.
    pub(crate) fn nginx() -> Self {
        let (folder, [front, back]) = (tempfile::tempdir().unwrap(), free_ports());
        let answer = format!("server {{ listen 127.0.0.1:{back}; location / {{ return 200 \"hello\\n\"; }} }}");
        let pass = format!(
            "upstream back {{ server 127.0.0.1:{back}; keepalive 64; keepalive_requests 100000000; }}
             server {{ listen 127.0.0.1:{front}; location / {{ proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}"
        );
        let servers = [("back", answer), ("front", pass)].map(|(name, server)| {
            let root = folder.path().join(name);
            fs::create_dir(&root).unwrap();
            let root = root.display();
            let config = format!(
                "daemon off; master_process off; pid {root}/pid; error_log stderr crit;
                 events {{ worker_connections 512; }}
                 http {{ access_log off; keepalive_requests 100000000; client_body_temp_path {root}; proxy_temp_path {root}; fastcgi_temp_path {root};
                   uwsgi_temp_path {root}; scgi_temp_path {root}; {server} }}"
            );
            let path = folder.path().join(format!("{name}.conf"));
            fs::write(&path, config).unwrap();
            start(Command::new("nginx").arg("-c").arg(path).args(["-e", "stderr"]))
        });
        Self::new(Kind::Nginx, [front, back], servers.into(), folder)
    }

    /// redis-server, asked one command at a time on each of sixteen connections.
    pub(crate) fn redis() -> Self {
        let (folder, ports) = (tempfile::tempdir().unwrap(), free_ports());
        let mut command = Command::new("redis-server");
        command.args(["--port", &ports[0].to_string(), "--save", "", "--bind", "127.0.0.1", "--dir"]).arg(folder.path());
        let server = start(&mut command);
        Self::new(Kind::Redis, ports, vec![server], folder)
    }

    fn new(kind: Kind, ports: [u16; 2], servers: Vec<Child>, folder: tempfile::TempDir) -> Self {
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", ports[0])).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(30), "no server listens on {}", ports[0]);
            std::thread::yield_now();
        }
        Self { kind, ports, servers, _folder: folder }
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Nginx => "nginx before nginx, wrk",
            Kind::Redis => "redis-benchmark GET",
        }
    }

    /// What a watcher is told to look at.
    pub(crate) fn edges(&self) -> Vec<String> {
        let [front, back] = self.ports;
        match self.kind {
            Kind::Nginx => vec![
                "--ingress".to_owned(),
                format!("front=127.0.0.1:{front}/http"),
                "--downstream".to_owned(),
                format!("back=127.0.0.1:{back}/http"),
            ],
            Kind::Redis => vec!["--downstream".to_owned(), format!("redis=127.0.0.1:{front}/redis")],
        }
    }

    /// The port of the edge that all requests of the load go through.
    pub(crate) const fn port(&self) -> u16 {
        self.ports[0]
    }

    /// Loads the servers for some seconds.
    pub(crate) fn run(&self) -> Amount {
        let (begin, before) = (Instant::now(), busy());
        let requests = match self.kind {
            Kind::Nginx => {
                let text = output("wrk", &["-t1", "-c32", &format!("-d{SECONDS}s"), &format!("http://127.0.0.1:{}/", self.ports[0])]);
                assert!(!text.contains("Non-2xx"), "{text}");
                let line = text.lines().find(|line| line.contains(" requests in ")).unwrap();
                line.split_whitespace().next().unwrap().parse().unwrap()
            }
            Kind::Redis => {
                let port = self.ports[0].to_string();
                output("redis-benchmark", &["-p", &port, "-t", "get", "-c", "16", "-n", &REQUESTS.to_string(), "-q"]);
                f64::from(REQUESTS)
            }
        };
        Amount { requests, time: begin.elapsed(), processor: busy() - before }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Two ports that nobody listens on.
fn free_ports() -> [u16; 2] {
    let listeners = [(), ()].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What all processors have worked since the machine started, interrupts included.
fn busy() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let text = fs::read_to_string("/proc/stat").unwrap();
    let fields: Vec<u32> = text.lines().next().unwrap().split_whitespace().skip(1).map(|field| field.parse().unwrap()).collect();
    // user, nice, system, and after idle and iowait: irq, softirq.
    TICK * (fields[0] + fields[1] + fields[2] + fields[5] + fields[6])
}

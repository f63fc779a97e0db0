//! Daemons of two hosts and a real etcd: playbooks for both, and no target disturbed by both; with TLS, client certificates and passwords.
//! Run as root: `cargo xtask test --only privileged_cluster`. Needs Debian's packages etcd-server, etcd-client and openssl.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use lab::{in_namespace, run, wait_until};
use nix::sys::signal::Signal;
use rig::agent::Agent;
use rig::daemon::Daemon;
use rig::json::text;
use rig::process::Process;
use stormdrill::etcd::EtcdError;
use stormdrill_core::playbook::serve::{self, EtcdUser, Tls};

/// An address that is no host's loopback.
const SHARED: &str = "10.77.0.1";

struct Etcd {
    url: String,
    /// What etcdctl goes by besides.
    options: Vec<String>,
    process: Process,
}

impl Etcd {
    fn start(agent: &Agent) -> Self {
        Self::start_with(agent, "http", &[], Vec::new())
    }

    /// With these further arguments of its own, and of etcdctl.
    fn start_with(agent: &Agent, scheme: &str, arguments: &[&str], options: Vec<String>) -> Self {
        // The ports are free once the listeners are dropped, and nobody else is in the namespace to take them.
        let free = || TcpListener::bind("127.0.0.1:0").unwrap();
        let [url, peer] =
            [(scheme, free()), ("http", free())].map(|(scheme, listener)| format!("{scheme}://{}", listener.local_addr().unwrap()));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(agent.path("etcd")).args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let etcd = Self { url, options, process: Process::start(command.args(arguments)) };
        wait_until("etcd answers", || etcd.control(&["endpoint", "health"]).0);
        etcd
    }

    fn control(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.url])
            .args(&self.options)
            .args(arguments)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    }

    fn config(&self) -> String {
        // The first one does not answer.
        format!("etcd: {{endpoints: [\"http://127.0.0.1:1\", \"{}\"], prefix: /test}}\n", self.url)
    }
}

/// A drill that disturbs a port of the shared address until somebody ends it.
fn playbook(name: &str, port: u16) -> String {
    format!(
        "version: 1\nname: {name}\nobserve: {{downstream: {{store: {{address: {SHARED}, port: {port}, protocol: http}}}}, window: 500ms}}\n\
         phases: {{baseline: 1s, fault: 300s, recovery: 1s}}\nfaults: [{{http_status: {{status: 503, share: 50%}}, to: store}}]\n"
    )
}

#[test]
fn two_hosts_find_the_same_playbooks_and_do_not_disturb_the_same_target() {
    in_namespace(|| {
        run("ip", &["address", "add", &format!("{SHARED}/32"), "dev", "lo"]);
        let agents = [Agent::new(), Agent::new()];
        let etcd = Etcd::start(&agents[0]);
        let one = Daemon::start(&agents[0], &etcd.config());
        let other = Daemon::start_on_host(&agents[1], "other-host", &etcd.config());
        assert!(etcd.control(&["put", "/test/playbooks/shared", &playbook("shared", 80)]).0);
        assert!(etcd.control(&["put", "/test/playbooks/broken", "version: 1"]).0);
        for daemon in [&one, &other] {
            let (_, list) = daemon.ask("GET", "/v1/playbooks");
            assert_eq!(list["playbooks"][1], serde_json::json!({ "name": "shared", "valid": true, "description": null }), "{list:#}");
            assert_eq!(list["playbooks"][0]["valid"], false);
        }

        let named = |daemon: &Daemon| {
            let (status, body) = daemon.send("POST", "/v1/drills", "Content-Type: application/json\r\n", r#"{"name": "shared"}"#);
            (status, serde_json::from_str::<serde_json::Value>(&body).unwrap())
        };
        let (status, drill) = named(&one);
        assert_eq!(status, 201, "{drill:#}");
        let id = text(&drill, "/id");
        let (status, refusal) = other.start_drill(&playbook("shared", 80));
        assert_eq!((status, text(&refusal, "/drill")), (409, id));
        assert_ne!(text(&refusal, "/host"), "other-host");
        let elsewhere = other.drill(&playbook("another", 81));
        assert_eq!(one.start_drill(&playbook("another", 81)).1["host"], "other-host");
        assert_eq!(one.start_drill(&playbook("shared", 80)).1["drill"], id, "its own is found by itself");

        one.ask("DELETE", &format!("/v1/drills/{id}"));
        wait_until("the claim is given back", || other.start_drill(&playbook("shared", 80)).0 == 201);
        other.kill();
        wait_until("a dead host's claim ends", || named(&one).0 == 201);
        assert!(!etcd.control(&["get", "--prefix", "/test/drills/"]).1.contains(&elsewhere));

        // Without etcd nobody can tell: what runs ends, and nothing begins.
        let (_, list) = one.ask("GET", "/v1/drills");
        let id = text(&list, "/drills/0/id").to_owned();
        etcd.process.signal(Signal::SIGKILL);
        let drill = one.ended(&id);
        assert_eq!(text(&drill, "/state"), "aborted");
        assert!(text(&drill, "/reason").contains("claim in etcd was lost"), "{drill:#}");
        assert_eq!(one.start_drill(&playbook("shared", 80)).0, 503);
        // What no other host can reach needs nobody's leave.
        let own = one.drill(&playbook("own", 80).replace(SHARED, "127.0.0.1"));
        one.ask("DELETE", &format!("/v1/drills/{own}"));
        one.stop();
    });
}

/// An authority, and with it certificates of the server and of a client.
fn certificates(agent: &Agent) -> PathBuf {
    let folder = agent.path("pki");
    fs::create_dir(&folder).unwrap();
    // etcd's gateway is a client of etcd by the server's certificate, which may have no common name for that.
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca -out ca.pem -keyout ca.key
        for name in server client; do
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=$name -out $name.csr -keyout $name.key
            printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > $name.ext
            openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $name.ext -out $name.pem
        done";
    let made = Command::new("sh").args(["-ec", script]).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

#[test]
fn an_etcd_that_wants_certificates_and_a_password_gets_them_and_is_refused_without() {
    in_namespace(|| {
        let agent = Agent::new();
        let pki = certificates(&agent);
        let file = |name: &str| pki.join(name).to_str().unwrap().to_owned();
        let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
        let arguments = ["--cert-file", &cert, "--key-file", &key, "--client-cert-auth", "--trusted-ca-file", &ca];
        let options = ["--cacert".to_owned(), ca.clone(), "--cert".to_owned(), file("client.pem"), "--key".to_owned(), file("client.key")];
        let mut etcd = Etcd::start_with(&agent, "https", &arguments, options.to_vec());
        for line in [
            "user add root:a-root-password",
            "user add drills:first",
            "role add drills",
            "role grant-permission --prefix drills readwrite /test/",
            "user grant-role drills drills",
            "auth enable",
        ] {
            assert!(etcd.control(&line.split(' ').collect::<Vec<_>>()).0, "{line}");
        }
        etcd.options.extend(["--user".to_owned(), "root:a-root-password".to_owned()]);
        assert!(etcd.control(&["put", "/test/playbooks/shared", &playbook("shared", 80)]).0);

        let password = agent.path("password");
        fs::write(&password, "first\n").unwrap();
        let tls = Tls { cert: pki.join("client.pem"), key: pki.join("client.key") };
        let whole = serve::Etcd {
            endpoints: vec![etcd.url.clone()],
            prefix: "/test".to_owned(),
            ca: Some(ca.clone().into()),
            identity: Some(tls),
            user: Some(EtcdUser { name: "drills".to_owned(), password_file: password.clone() }),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = |config: &serve::Etcd| stormdrill::etcd::Etcd::new(config).unwrap();
        let list = |etcd: &stormdrill::etcd::Etcd| runtime.block_on(etcd.list("playbooks"));
        let known = open(&whole);
        assert_eq!(list(&known).unwrap().entries[0].0, "shared");
        // A token that is not good any more is replaced.
        assert!(etcd.control(&["user", "add", "other:x"]).0);
        assert_eq!(list(&known).unwrap().entries.len(), 1);

        let no_certificate = serve::Etcd { identity: None, ..whole.clone() };
        assert!(matches!(list(&open(&no_certificate)), Err(EtcdError::Client(_))));
        let no_user = serve::Etcd { user: None, ..whole.clone() };
        assert!(matches!(list(&open(&no_user)), Err(EtcdError::Refused { .. })));
        let no_trust = serve::Etcd { ca: Some(pki.join("client.pem")), ..whole.clone() };
        assert!(matches!(list(&open(&no_trust)), Err(EtcdError::Client(_))));
        let elsewhere = serve::Etcd { prefix: "/other".to_owned(), ..whole.clone() };
        assert!(matches!(list(&open(&elsewhere)), Err(EtcdError::Refused { .. })), "the role is for one prefix");

        let config = format!(
            "etcd: {{endpoints: \"{}\", prefix: /test, ca: {ca}, cert: {}, key: {}, user: drills, password_file: {}}}\n",
            etcd.url,
            file("client.pem"),
            file("client.key"),
            password.display()
        );
        run("ip", &["address", "add", &format!("{SHARED}/32"), "dev", "lo"]);
        let daemon = Daemon::start(&agent, &config);
        let id = daemon.drill(&playbook("own", 80));
        assert!(etcd.control(&["get", "--prefix", "/test/drills/"]).1.contains(&id));
        daemon.ask("DELETE", &format!("/v1/drills/{id}"));
        fs::write(&password, "not-this-one\n").unwrap();
        let (status, problem) = daemon.ask("GET", "/v1/playbooks");
        assert_eq!((status, text(&problem, "/type")), (503, "urn:stormdrill:problem:unavailable"));
        assert!(!problem.to_string().contains("not-this-one"), "{problem}");
        daemon.stop();
    });
}

//! `stormdrill top` in a real terminal: tmux shows what is on the screen, and types.
//! Run as root: `cargo xtask test --only privileged_top`. Needs Debian's package tmux.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use lab::{dump, in_namespace, wait_until};
use rig::agent::Agent;
use rig::client::ask;
use rig::daemon::Daemon;
use rig::playbook::Playbook;
use rig::services::{Load, Service};

/// A terminal of 120 columns by 30 lines in which one command runs.
struct Terminal {
    socket: String,
}

impl Terminal {
    fn start(agent: &Agent, arguments: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let terminal = Self { socket: format!("stormdrill-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)) };
        let command = agent.command(arguments);
        let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_str().unwrap());
        // What the command leaves, and how it ended, stays on the screen.
        let line = format!("{}; echo ended with $?; exec cat", words.collect::<Vec<_>>().join(" "));
        terminal.tmux(&["new-session", "-d", "-x", "120", "-y", "30", &line]);
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-u", "-f", "/dev/null", "-L", &self.socket]).args(arguments).env("LC_ALL", "C.UTF-8");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// With its colours, for a picture, if a folder for pictures is given by `STORMDRILL_PICTURES`.
    fn picture(&self, name: &str) {
        if let Some(folder) = std::env::var_os("STORMDRILL_PICTURES") {
            fs::write(std::path::Path::new(&folder).join(name), self.tmux(&["capture-pane", "-p", "-e"])).unwrap();
        }
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until some line of the screen holds all of these.
    fn wait_for(&self, parts: &[&str]) {
        wait_until(&format!("{parts:?} is on the screen"), || self.has(parts));
    }

    fn has(&self, parts: &[&str]) -> bool {
        self.screen().lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }

    fn line_of(&self, part: &str) -> Option<usize> {
        self.screen().lines().position(|line| line.contains(part))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = Command::new("tmux").args(["-L", &self.socket, "kill-server"]).output();
    }
}

#[test]
fn edges_and_drills_are_shown_sorted_started_and_ended_by_keys() {
    in_namespace(|| {
        let before = dump();
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", "3", "--timeout", "2s"]);
        let _load = Load::start(&chain.address, &["--rate", "50/s", "--duration", "600s", "--timeout", "2s"]);
        let agent = Agent::new();
        let folder = agent.path("playbooks");
        fs::create_dir(&folder).unwrap();
        let playbook = Playbook::new(&chain, &store).phases(2, 300, 1).fault("{http_status: {status: 503, share: 50%}, to: store}").text();
        fs::write(folder.join("a-first.yaml"), &playbook).unwrap();
        fs::write(folder.join("store-fails.yaml"), playbook.replace("name: a-test", "name: store-fails")).unwrap();
        let (host, port) = store.address.rsplit_once(':').unwrap();
        let daemon = Daemon::start(
            &agent,
            &format!(
                "playbooks: {}\nobserve: {{ingress: {{a-web: {{port: {}}}}}, downstream: {{b-store: {{address: {host}, port: {port}}}}}, window: 500ms}}\n",
                folder.display(),
                chain.port()
            ),
        );
        let terminal = Terminal::start(&agent, &["top"]);
        terminal.wait_for(&["a-web", "ingress", "50."]);
        terminal.wait_for(&["Running: 0"]);
        terminal.keys(&["a"]);
        terminal.wait_for(&["no drill is running"]);

        terminal.keys(&["n"]);
        terminal.wait_for(&["> a-first"]);
        terminal.keys(&["Down"]);
        terminal.wait_for(&["> store-fails"]);
        terminal.keys(&["Enter"]);
        terminal.wait_for(&[">", "store-fails", "fault, ", "http_status "]);
        assert!(terminal.has(&["Running: 1"]));
        wait_until("the fault is there", || ask(&store.address) == Some(503));
        // Half of the store's answers fail and are asked for again: it has the higher rate now.
        terminal.wait_for(&["b-store", "downstream", "%", "█"]);
        assert!(terminal.line_of("a-web") < terminal.line_of("b-store"), "by name");
        terminal.keys(&["s"]);
        terminal.wait_for(&["Edges, by QPS"]);
        wait_until("the busier edge is first", || terminal.line_of("b-store") < terminal.line_of("a-web"));
        terminal.picture("top.ansi");

        terminal.keys(&["a"]);
        terminal.wait_for(&["aborted", "store-fails", "aborted through the API"]);
        terminal.wait_for(&["has ended, its faults are gone"]);
        assert_eq!(ask(&store.address), Some(200));
        assert_eq!(dump(), before);

        // What it shows goes on without the daemon, and with it again.
        daemon.stop();
        terminal.wait_for(&["no answer: connect to"]);
        let daemon = Daemon::start(&agent, "");
        terminal.wait_for(&["unix:", "live"]);
        terminal.keys(&["q"]);
        terminal.wait_for(&["ended with 0"]);
        assert!(!terminal.has(&["Edges, by"]), "the screen was not given back");
        daemon.stop();
    });
}

#[test]
fn without_a_daemon_or_a_terminal_it_says_what_to_do() {
    in_namespace(|| {
        let agent = Agent::new();
        let terminal = Terminal::start(&agent, &["top"]);
        terminal.wait_for(&["is `stormdrill serve` running?"]);
        terminal.wait_for(&["ended with 2"]);
        let ended = agent.run(&["top"]);
        assert_eq!(ended.code, Some(64), "{ended:#?}");
        assert!(ended.stderr.contains("stormdrill status"), "{ended:#?}");
    });
}

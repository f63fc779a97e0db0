//! What Prometheus sees. Label values come from bounded sets only: edges of playbooks and configuration up to a limit, then `other`.
//!
//! Nothing is computed at a scrape: the numbers are brought here once a second by those who observe, so a scrape costs the same
//! whatever the number of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus::{
    CounterVec, Encoder as _, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder,
};
use stormdrill_core::edge::{EdgeSpec, OTHER, Protocol, Role};
use stormdrill_core::event::ConnectFailure;
use stormdrill_core::fault::FaultCounts;
use stormdrill_core::report::json::edge::most;
use stormdrill_core::status::{self, Status};
use stormdrill_core::window::{EdgeCounts, EdgeWindow, PhaseName, Recognised};

use crate::probe::Attached;

pub mod name;

use name::Definition;

/// Most edges that get labels of their own over the life of the daemon.
const MAX_EDGES: usize = 128;
/// Of how many ended drills the verdict is shown.
const MAX_VERDICTS: usize = 16;
/// From a millisecond to beyond any sensible timeout.
const BUCKETS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The labels of an edge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EdgeLabel {
    role: &'static str,
    name: String,
    protocol: &'static str,
    /// Connections and attempts by protocol, so far.
    connections: BTreeMap<Protocol, u64>,
    attempts: BTreeMap<Protocol, u64>,
}

impl EdgeLabel {
    const fn new(role: &'static str, name: String, protocol: Protocol) -> Self {
        Self { role, name, protocol: protocol.as_str(), connections: BTreeMap::new(), attempts: BTreeMap::new() }
    }

    /// The classes that its answers have.
    fn classes(&self) -> &'static [&'static str] {
        if [Protocol::Http, Protocol::Http2].iter().any(|protocol| protocol.as_str() == self.protocol) {
            &["2xx", "3xx", "4xx", "5xx"]
        } else {
            &["ok", "error"]
        }
    }
}

/// All metrics.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    responses: IntCounterVec,
    retries: IntCounterVec,
    retransmits: IntCounterVec,
    duration: HistogramVec,
    connections: IntGaugeVec,
    opened: IntCounterVec,
    connect_failures: IntCounterVec,
    drill_phase: IntGaugeVec,
    drill_verdict: IntGaugeVec,
    fault_packets: IntCounterVec,
    events_lost: IntCounterVec,
    sampling: GaugeVec,
    unknown_role: IntGaugeVec,
    bpf_run: CounterVec,
    attached: IntGaugeVec,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    edges: BTreeSet<(&'static str, String)>,
    verdicts: Vec<(String, &'static str)>,
    shares: [f64; 2],
}

impl Default for Seen {
    fn default() -> Self {
        Self { edges: BTreeSet::new(), verdicts: Vec::new(), shares: [1.0; 2] }
    }
}

/// Who samples.
#[derive(Debug, Clone, Copy)]
pub enum Sampled {
    /// The constant observation.
    Constantly,
    /// A drill.
    InADrill,
}

/// What a count of a share would be of all.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of one window are small")]
fn of_all(count: u64, share: f64) -> u64 {
    if share > 0.0 && share < 1.0 { (count as f64 / share).round() as u64 } else { count }
}

fn opts(definition: &Definition) -> Opts {
    Opts::new(definition.name, definition.help)
}

impl Metrics {
    /// Metrics of which all are zero.
    ///
    /// # Errors
    /// When two metrics have one name, which a test would find.
    pub fn new() -> Result<Self, prometheus::Error> {
        let counter = |d: &Definition| IntCounterVec::new(opts(d), d.labels);
        let gauge = |d: &Definition| IntGaugeVec::new(opts(d), d.labels);
        let buckets = HistogramOpts::new(name::DURATION.name, name::DURATION.help).buckets(BUCKETS.to_vec());
        let metrics = Self {
            registry: Registry::new(),
            requests: counter(&name::REQUESTS)?,
            responses: counter(&name::RESPONSES)?,
            retries: counter(&name::RETRIES)?,
            retransmits: counter(&name::RETRANSMITS)?,
            duration: HistogramVec::new(buckets, name::DURATION.labels)?,
            connections: gauge(&name::CONNECTIONS)?,
            opened: counter(&name::OPENED)?,
            connect_failures: counter(&name::CONNECT_FAILURES)?,
            drill_phase: gauge(&name::DRILL_PHASE)?,
            drill_verdict: gauge(&name::DRILL_VERDICT)?,
            fault_packets: counter(&name::FAULT_PACKETS)?,
            events_lost: counter(&name::EVENTS_LOST)?,
            sampling: GaugeVec::new(opts(&name::SAMPLING), name::SAMPLING.labels)?,
            unknown_role: gauge(&name::UNKNOWN_ROLE)?,
            bpf_run: CounterVec::new(opts(&name::BPF_RUN), name::BPF_RUN.labels)?,
            attached: gauge(&name::ATTACHED)?,
            seen: Mutex::default(),
        };
        metrics.register()?;
        metrics.sampling.with_label_values::<&str>(&[]).set(1.0);
        metrics.lost(0);
        metrics.unknown_role(0);
        metrics.attached(Attached { ingress: false, egress: false, sock_ops: false });
        Ok(metrics)
    }

    fn register(&self) -> Result<(), prometheus::Error> {
        for vec in [
            &self.requests,
            &self.responses,
            &self.retries,
            &self.retransmits,
            &self.opened,
            &self.connect_failures,
            &self.fault_packets,
            &self.events_lost,
        ] {
            self.registry.register(Box::new(vec.clone()))?;
        }
        for vec in [&self.connections, &self.drill_phase, &self.drill_verdict, &self.unknown_role, &self.attached] {
            self.registry.register(Box::new(vec.clone()))?;
        }
        self.registry.register(Box::new(self.duration.clone()))?;
        self.registry.register(Box::new(self.sampling.clone()))?;
        self.registry.register(Box::new(self.bpf_run.clone()))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text that Prometheus scrapes.
    ///
    /// # Errors
    /// None with the metrics there are.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The labels of an edge; `other` once there are too many. Its series appear at once, with zeros: a rate needs a value to rise from.
    pub fn label(&self, edge: &EdgeSpec) -> EdgeLabel {
        let role = edge.role.as_str();
        let mut seen = self.seen();
        let key = (role, edge.name.clone());
        let fits = seen.edges.contains(&key) || seen.edges.len() < MAX_EDGES;
        if fits {
            seen.edges.insert(key);
        }
        drop(seen);
        let name = if fits { edge.name.clone() } else { OTHER.to_owned() };
        let label = EdgeLabel::new(role, name, edge.protocol.unwrap_or(Protocol::Http));
        self.count(&label, &EdgeCounts::default());
        self.start(&label);
        for evidence in ["marker", "id", "matched"] {
            self.retries.with_label_values(&[label.name.as_str(), evidence]);
        }
        if edge.role == Role::Downstream {
            for reason in ConnectFailure::ALL {
                self.connect_failures.with_label_values(&[label.name.as_str(), reason.as_str()]);
            }
        }
        label
    }

    /// The labels of what belongs to no edge.
    #[must_use]
    pub fn other(role: Role) -> EdgeLabel {
        EdgeLabel::new(role.as_str(), OTHER.to_owned(), Protocol::Http)
    }

    /// The series of an edge by its protocol, with zeros.
    fn start(&self, label: &EdgeLabel) {
        self.requests.with_label_values(&[label.role, &label.name, label.protocol]);
        for class in label.classes() {
            self.responses.with_label_values(&[label.role, &label.name, label.protocol, class]);
        }
    }

    /// More connections and attempts of an edge were recognised: its label follows the most of them. Series of the label before
    /// stay if they counted anything.
    pub fn speaks(&self, label: &mut EdgeLabel, connections: &Recognised, attempts: &BTreeMap<Protocol, u64>) {
        for (protocol, count) in connections.iter() {
            *label.connections.entry(protocol).or_default() += count;
        }
        for (protocol, count) in attempts {
            *label.attempts.entry(*protocol).or_default() += count;
        }
        let Some(now) = most(&label.connections, &label.attempts).map(Protocol::as_str).filter(|now| *now != label.protocol) else {
            return;
        };
        let before = [label.role, label.name.as_str(), label.protocol];
        if self.requests.with_label_values(&before).get() == 0 {
            let _ = self.requests.remove_label_values(&before);
            for class in label.classes() {
                let _ = self.responses.remove_label_values(&[label.role, label.name.as_str(), label.protocol, class]);
            }
        }
        label.protocol = now;
        self.start(label);
    }

    /// Adds what the kernel counted since the last time.
    pub fn count(&self, edge: &EdgeLabel, more: &EdgeCounts) {
        self.requests.with_label_values(&[edge.role, &edge.name, edge.protocol]).inc_by(more.requests);
        self.retransmits.with_label_values(&[edge.role, edge.name.as_str()]).inc_by(more.tcp_retransmits);
        self.opened.with_label_values(&[edge.role, edge.name.as_str()]).inc_by(more.connections_opened);
        let change = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let open = self.connections.with_label_values(&[edge.role, edge.name.as_str()]);
        open.add(change(more.connections_opened).saturating_sub(change(more.connections_closed)));
    }

    /// Adds answers as the kernel counts them: by HTTP/1's code, and those of other protocols as errors or not.
    pub fn answers(&self, edge: &EdgeLabel, more: &BTreeMap<u16, u64>, ok: u64, errors: u64) {
        let codes = more.iter().map(|(code, count)| (Status::Code(*code).class(), *count));
        for (class, count) in codes.chain([(Status::Ok.class(), ok), ("error", errors)]).filter(|(_, count)| *count > 0) {
            self.responses.with_label_values(&[edge.role, &edge.name, edge.protocol, class]).inc_by(count);
        }
    }

    /// Adds what is known of a window's requests once it is final: retries, times, failed connects, HTTP/2's answers.
    ///
    /// Where events of a share of the requests were kept (`sampling`, 0 to 1), retries are put up to all: they are to be set against requests.
    pub fn requests(&self, edge: &EdgeLabel, window: &EdgeWindow, sampling: f64) {
        // Errors by name are counted by the kernel, as errors.
        for (text, count) in window.told_status.iter().filter(|(text, _)| !text.starts_with(status::ERROR)) {
            let class = text.parse().map_or(if text == "grpc:OK" { "ok" } else { "error" }, |code| Status::Code(code).class());
            self.responses.with_label_values(&[edge.role, &edge.name, edge.protocol, class]).inc_by(*count);
        }
        for (evidence, count) in [("marker", window.retries.marker), ("id", window.retries.id), ("matched", window.retries.matched)] {
            self.retries.with_label_values(&[edge.name.as_str(), evidence]).inc_by(of_all(count, sampling));
        }
        if edge.role == Role::Downstream.as_str() {
            for (reason, count) in &window.connect_failures {
                self.connect_failures.with_label_values(&[edge.name.as_str(), reason.as_str()]).inc_by(*count);
            }
        }
        let times = self.duration.with_label_values(&[edge.role, &edge.name, edge.protocol]);
        for ns in &window.latency_ns {
            #[expect(clippy::cast_precision_loss, reason = "a duration is far shorter than 2^52 ns")]
            times.observe(*ns as f64 / 1e9);
        }
    }

    /// Forgets how many connections an edge has, once nobody observes it any more.
    pub fn unobserved(&self, edge: &EdgeLabel) {
        // It may be gone already.
        let _ = self.connections.remove_label_values(&[edge.role, edge.name.as_str()]);
    }

    /// A drill moved on; `None` when it has ended.
    pub fn phase(&self, drill: &str, phase: Option<PhaseName>) {
        for name in [PhaseName::Baseline, PhaseName::Fault, PhaseName::Recovery, PhaseName::Transition] {
            let labels = [drill, name.as_str()];
            match phase {
                Some(now) => self.drill_phase.with_label_values(&labels).set(i64::from(now == name)),
                None => drop(self.drill_phase.remove_label_values(&labels)),
            }
        }
    }

    /// A drill has ended so: its verdict, or `aborted` or `failed`.
    pub fn verdict(&self, drill: &str, verdict: &'static str) {
        let mut seen = self.seen();
        seen.verdicts.push((drill.to_owned(), verdict));
        self.drill_verdict.with_label_values(&[drill, verdict]).set(1);
        if seen.verdicts.len() > MAX_VERDICTS {
            let (drill, verdict) = seen.verdicts.remove(0);
            let _ = self.drill_verdict.remove_label_values(&[drill.as_str(), verdict]);
        }
    }

    /// Adds to what a kind of fault did.
    pub fn fault(&self, kind: &str, more: FaultCounts) {
        self.fault_packets.with_label_values(&[kind, "selected"]).inc_by(more.selected);
        self.fault_packets.with_label_values(&[kind, "hit"]).inc_by(more.hit);
    }

    /// The share of the identities of which events are kept, by the constant observation or by the drill that was heard of last, whichever is less.
    pub fn sampled(&self, by: Sampled, share: f64) {
        let mut seen = self.seen();
        seen.shares[by as usize] = share;
        self.sampling.with_label_values::<&str>(&[]).set(seen.shares.iter().copied().fold(1.0, f64::min));
    }

    /// Adds lost events.
    pub fn lost(&self, more: u64) {
        self.events_lost.with_label_values::<&str>(&[]).inc_by(more);
    }

    /// Connections of unknown role, in all.
    pub fn unknown_role(&self, count: u64) {
        self.unknown_role.with_label_values::<&str>(&[]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The hooks of the constant observation.
    pub fn attached(&self, hooks: Attached) {
        for (hook, is_attached) in [("ingress", hooks.ingress), ("egress", hooks.egress), ("sock_ops", hooks.sock_ops)] {
            self.attached.with_label_values(&[hook]).set(i64::from(is_attached));
        }
    }

    /// Adds the time that a kernel program ran.
    pub fn bpf_run(&self, program: &str, seconds: f64) {
        self.bpf_run.with_label_values(&[program]).inc_by(seconds);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    fn edge(name: &str) -> EdgeSpec {
        EdgeSpec { name: name.to_owned(), role: Role::Downstream, address: None, ports: None, protocol: None }
    }

    /// Everything once, so that every metric has a series.
    pub(super) fn filled() -> Metrics {
        let metrics = Metrics::new().unwrap();
        let label = metrics.label(&edge("store"));
        metrics.count(&label, &EdgeCounts { requests: 3, connections_opened: 2, connections_closed: 1, ..EdgeCounts::default() });
        metrics.answers(&label, &BTreeMap::from([(200, 2), (503, 1)]), 0, 0);
        let window = EdgeWindow {
            retries: stormdrill_core::window::Retries { marker: 0, id: 1, matched: 0 },
            latency_ns: vec![2_000_000],
            ..EdgeWindow::default()
        };
        metrics.requests(&label, &window, 1.0);
        metrics.phase("d1", Some(PhaseName::Fault));
        metrics.verdict("d0", "pass");
        metrics.fault("loss", FaultCounts { selected: 10, hit: 3, overflowed: 0 });
        metrics.bpf_run("probe_ingress", 0.5);
        metrics
    }

    #[test]
    fn every_metric_is_shown_with_its_help_type_and_labels() {
        let text = filled().render().unwrap();
        for definition in name::ALL {
            assert!(text.contains(&format!("# HELP {} {}\n", definition.name, definition.help)), "{}", definition.name);
            assert!(text.contains(&format!("# TYPE {} {}\n", definition.name, definition.kind.as_str())), "{}", definition.name);
            let series = text.lines().find(|line| line.starts_with(definition.name)).unwrap();
            assert!(definition.labels.iter().all(|label| series.contains(&format!("{label}=\""))), "{series}");
        }
        let names = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        assert_eq!(names, name::ALL.len(), "{text}");
        for line in [
            r#"stormdrill_requests_total{edge="store",protocol="http",role="downstream"} 3"#,
            r#"stormdrill_responses_total{class="5xx",edge="store",protocol="http",role="downstream"} 1"#,
            r#"stormdrill_retries_total{edge="store",evidence="id"} 1"#,
            r#"stormdrill_connections{edge="store",role="downstream"} 1"#,
            r#"stormdrill_drill_phase{drill="d1",phase="fault"} 1"#,
            r#"stormdrill_drill_phase{drill="d1",phase="baseline"} 0"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn the_protocol_is_the_one_that_most_connections_speak() {
        let metrics = Metrics::new().unwrap();
        let mut label = metrics.label(&edge("cache"));
        let mut recognised = Recognised::default();
        recognised.add(Protocol::Redis, 2);
        metrics.speaks(&mut label, &recognised, &BTreeMap::new());
        metrics.count(&label, &EdgeCounts { requests: 5, ..EdgeCounts::default() });
        metrics.answers(&label, &BTreeMap::new(), 4, 1);
        // Later there is more of something else; what was counted stays where it is.
        let mut recognised = Recognised::default();
        recognised.add(Protocol::Http2, 3);
        metrics.speaks(&mut label, &recognised, &BTreeMap::from([(Protocol::Grpc, 9)]));
        metrics.requests(
            &label,
            &EdgeWindow { told_status: BTreeMap::from([("grpc:UNAVAILABLE".to_owned(), 9)]), ..EdgeWindow::default() },
            1.0,
        );
        let text = metrics.render().unwrap();
        for line in [
            r#"stormdrill_requests_total{edge="cache",protocol="redis",role="downstream"} 5"#,
            r#"stormdrill_responses_total{class="ok",edge="cache",protocol="redis",role="downstream"} 4"#,
            r#"stormdrill_responses_total{class="error",edge="cache",protocol="redis",role="downstream"} 1"#,
            r#"stormdrill_requests_total{edge="cache",protocol="grpc",role="downstream"} 0"#,
            r#"stormdrill_responses_total{class="error",edge="cache",protocol="grpc",role="downstream"} 9"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains(r#"edge="cache",protocol="http""#), "{text}");
    }

    #[test]
    fn the_hundred_and_twenty_ninth_edge_is_other() {
        let metrics = Metrics::new().unwrap();
        for number in 0..MAX_EDGES {
            assert_eq!(metrics.label(&edge(&format!("e{number}"))).name, format!("e{number}"));
        }
        assert_eq!(metrics.label(&edge("one-more")).name, OTHER);
        assert_eq!(metrics.label(&edge("e0")).name, "e0");
    }

    #[test]
    fn drills_that_ended_leave_no_phase_and_a_bounded_number_of_verdicts() {
        let metrics = Metrics::new().unwrap();
        for number in 0..40 {
            let drill = format!("d{number}");
            metrics.phase(&drill, Some(PhaseName::Baseline));
            metrics.phase(&drill, None);
            metrics.verdict(&drill, "fail");
        }
        let text = metrics.render().unwrap();
        assert!(!text.contains("stormdrill_drill_phase{"));
        assert_eq!(text.matches("stormdrill_drill_verdict{").count(), MAX_VERDICTS);
    }

    #[test]
    fn promtool_finds_nothing_to_complain_about() {
        use std::io::Write as _;
        let tool = std::process::Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn();
        let Ok(mut tool) = tool else {
            // The linter is Debian's package prometheus; whoever lacks it still has the golden checks above.
            return;
        };
        tool.stdin.take().unwrap().write_all(filled().render().unwrap().as_bytes()).unwrap();
        let output = tool.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

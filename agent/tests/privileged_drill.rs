//! Whole drills through the real program, against the real lab: each verdict, each way to end early, and what is left in the kernel.
//! Run as root: `cargo xtask test --only privileged_drill`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lab;
mod rig;

use std::time::{Duration, Instant};

use lab::{dump, in_namespace, run, wait_until};
use nix::sys::signal::Signal;
use rig::agent::{Agent, Drill, journals};
use rig::client::ask;
use rig::json::{assert_keys, count, number, phase, text};
use rig::links;
use rig::nobody::Nobody;
use rig::playbook::Playbook;
use rig::process::Process;
use rig::services::{Load, Service};
use serde_json::Value;
use stormdrill::fault::capability::{self, Capability};

/// A store, one layer before it with so many tries, and an agent.
struct Scene {
    store: Service,
    chain: Service,
    agent: Agent,
}

impl Scene {
    fn new(tries: &str) -> Self {
        let store = Service::store(&[]);
        let chain = Service::chain(1, &store.address, &["--tries", tries, "--timeout", "10s"]);
        Self { store, chain, agent: Agent::new() }
    }

    fn playbook(&self) -> Playbook {
        Playbook::new(&self.chain, &self.store)
    }

    /// A steady load of its own, for drills whose playbook has none.
    fn load(&self, rate: &str) -> Load {
        Load::start(&self.chain.address, &["--rate", rate, "--duration", "300s", "--timeout", "2s"])
    }
}

const FAULT: &str = "{http_status: {status: 503, share: 50%}, to: store}";

/// The verdict of the drill and of its only expectation, with its exit code.
fn verdict(result: &rig::agent::Result) -> (Option<i32>, &str, &str) {
    (result.ended.code, text(&result.json, "/verdict"), text(&result.json, "/expectations/0/verdict"))
}

#[test]
fn a_drill_whose_service_does_not_retry_passes() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let _load = scene.load("250/s");
        let playbook = scene.playbook().fault(FAULT).expect("downstream QPS increase ≤ 20%");
        let result = scene.agent.drill(&playbook.text()).end();
        assert_eq!(verdict(&result), (Some(0), "pass", "pass"), "{result:#?}");
        let json = &result.json;
        assert!(number(json, "/expectations/0/observed") < 0.2);
        // Every rewritten answer is in a window, some of them in the moments between two phases.
        let spoiled: u64 = in_windows(json, |store| store["status"]["503"].as_u64().unwrap_or(0));
        assert_eq!(count(json, "/faults/0/packets_hit"), spoiled, "{json:#}");
        assert_eq!(json["faults"][0]["effective"], true);
        assert!(result.ended.stdout.contains("pass"), "{}", result.ended.stdout);
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn a_drill_whose_service_retries_without_limit_fails_and_every_fault_is_one_repeat() {
    in_namespace(|| {
        let scene = Scene::new("100");
        let load = scene.load("100/s");
        let playbook =
            scene.playbook().fault(FAULT).expect("downstream QPS increase ≤ 20%").expect("retry ratio recovers within 2 windows");
        let report = scene.agent.path("report");
        let result = scene.agent.drill_with(&playbook.text(), &["--report", report.to_str().unwrap()]).end();
        assert_eq!(verdict(&result), (Some(1), "fail", "fail"), "{result:#?}");
        let json = &result.json;
        assert!(number(json, "/expectations/0/observed") > 0.5);
        assert_eq!(text(json, "/expectations/1/verdict"), "pass");

        let sent = load.stop();
        let store = scene.store.stop();
        // Each rewritten answer made the layer ask again, and nothing else did.
        let hits = count(json, "/faults/0/packets_hit");
        assert_eq!(hits, count(&store, "/repeats"), "{json:#}");
        assert_eq!(in_windows(json, |store| count(store, "/retries/id")), hits);
        assert_eq!(sent["ok"], sent["scheduled"], "a hundred tries get through: {sent:#}");
        assert_report(&report, json);
        assert_contract(json);
    });
}

/// Half of the answers fail and each request is tried three times, so what every metric comes to is known.
#[test]
fn every_metric_is_measured_on_a_real_drill() {
    in_namespace(|| {
        let scene = Scene::new("3");
        let _load = scene.load("200/s");
        let mut playbook = scene.playbook().phases(3, 4, 3).fault(FAULT);
        // The line, its verdict, and between what its value lies.
        let expected = [
            ("attempts max <= 3", "pass", 3.0, 3.0),
            ("layers retrying <= 0", "fail", 1.0, 1.0),
            ("store cost per success <= 1.2", "fail", 1.6, 2.4),
            ("store downstream QPS per ingress <= 1.2", "fail", 1.5, 2.0),
            ("downstream QPS <= 1.2x", "fail", 0.4, 1.1),
            ("web goodput >= 100/s", "pass", 140.0, 200.0),
            ("store explicit failure ratio >= 99%", "pass", 1.0, 1.0),
            ("web latency p50 <= 1s", "pass", 0.0, 0.5),
            ("store connections <= 1000", "pass", 0.0, 500.0),
            ("store connections opened <= 100000", "pass", 0.0, 50_000.0),
            ("store connect failures <= 0", "pass", 0.0, 0.0),
            ("store retransmit ratio <= 50%", "pass", 0.0, 0.2),
            ("not metastable", "pass", 0.95, 1.1),
        ];
        for (line, ..) in expected {
            playbook = playbook.expect(line);
        }
        let report = scene.agent.path("report");
        let result = scene.agent.drill_with(&playbook.text(), &["--report", report.to_str().unwrap()]).end();
        for (index, (line, verdict, least, most)) in expected.into_iter().enumerate() {
            let judged = &result.json["expectations"][index];
            assert_eq!(judged["verdict"], verdict, "{line}: {judged:#}");
            let observed = number(judged, "/observed");
            assert!((least..=most).contains(&observed), "{line}: {judged:#}");
        }
    });
}

/// A count of the edge `store`, over all windows.
fn in_windows(json: &Value, of: impl Fn(&Value) -> u64) -> u64 {
    let windows = json["windows"].as_array().unwrap().iter();
    windows.map(|window| of(window["edges"].as_array().unwrap().iter().find(|edge| edge["name"] == "store").unwrap())).sum()
}

fn assert_report(folder: &std::path::Path, json: &Value) {
    let written: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("result.json")).unwrap()).unwrap();
    assert_eq!(&written, json);
    for name in ["report.txt", "report.md", "report.html", "junit.xml"] {
        assert!(std::fs::read_to_string(folder.join(name)).unwrap().contains("downstream QPS increase"), "{name}");
    }
}

/// Checks the keys of a whole drill's JSON against its contract.
fn assert_contract(json: &Value) {
    assert_keys(json, "", "schema drill verdict expectations phases faults edges windows data_quality");
    assert_keys(json, "/drill", "id playbook host kernel version started_at");
    for expectation in json["expectations"].as_array().unwrap() {
        assert_keys(expectation, "", "text edge verdict observed limit unit interval phase windows reason");
    }
    for phase in json["phases"].as_array().unwrap() {
        assert_keys(phase, "", "name start_ns end_ns");
    }
    assert_keys(json, "/faults/0", "kind target backend applied_ns removed_ns packets_selected packets_hit effective");
    for edge in json["edges"].as_array().unwrap() {
        assert_keys(edge, "", "name role protocol phases");
        assert_keys(edge, "/phases", "baseline fault recovery");
        for phase in ["baseline", "fault", "recovery"] {
            let phase = &edge["phases"][phase];
            assert_keys(
                phase,
                "",
                "requests qps responses retries retry_ratio status failures latency_ms connections connections_opened tcp_retransmits",
            );
            assert_keys(phase, "/retries", "marker id matched");
            assert_keys(phase, "/latency_ms", "p50 p99");
        }
    }
    assert_keys(json, "/data_quality", "events_lost sampling unknown_role_connections unparsed_connections");
}

#[test]
fn a_fault_that_meets_no_traffic_is_vacuous() {
    in_namespace(|| {
        let scene = Scene::new("1");
        let idle = Service::store(&[]);
        let _load = scene.load("250/s");
        let edge = format!("observe.downstream.idle={{address: 127.0.0.1, port: {}}}", idle.port());
        let playbook =
            scene.playbook().fault("{http_status: {status: 503, share: 100%}, to: idle}").expect("downstream QPS increase ≤ 20%");
        let result = scene.agent.drill_with(&playbook.text(), &["--set", &edge, "--set", "expect.0=store amplification <= 1.2"]).end();
        assert_eq!(verdict(&result), (Some(3), "vacuous", "vacuous"), "{result:#?}");
        assert_eq!(result.json["faults"][0]["effective"], false);
        assert!(text(&result.json, "/expectations/0/reason").contains("saw none of its answers"));
    });
}

#[test]
fn a_handful_of_requests_is_inconclusive() {
    in_namespace(|| {
        let scene = Scene::new("1");
        let _load = scene.load("8/s");
        let playbook = scene.playbook().fault(FAULT).expect("downstream QPS increase ≤ 20%");
        let result = scene.agent.drill(&playbook.text()).end();
        assert_eq!(verdict(&result), (Some(3), "inconclusive", "inconclusive"), "{result:#?}");
        assert!(text(&result.json, "/expectations/0/reason").contains("more requests"), "{result:#?}");
    });
}

#[test]
fn a_load_that_could_not_keep_its_schedule_is_invalid() {
    in_namespace(|| {
        let scene = Scene::new("1");
        let playbook = scene.playbook().load("100/s").fault(FAULT).expect("web success ratio >= 10%");
        let mut drill = scene.agent.drill(&playbook.text());
        drill.wait_for_phase("fault");
        // The agent is held up for a second, and its load with it: one request of six is late. The expectation holds all the same; a limit
        // that is broken would stay broken.
        drill.signal(Signal::SIGSTOP);
        let begin = Instant::now();
        wait_until("a second has gone by", || begin.elapsed() > Duration::from_secs(1));
        drill.signal(Signal::SIGCONT);
        let result = drill.end();
        assert_eq!(verdict(&result), (Some(3), "invalid", "invalid"), "{result:#?}");
        let reason = text(&result.json, "/expectations/0/reason");
        assert!(reason.contains("started requests late") || reason.contains("stormdrill itself was held up"), "{result:#?}");
    });
}

#[test]
fn a_drill_whose_agent_stood_still_in_a_judged_window_is_invalid_whatever_was_measured() {
    let scene = Scene::new("1");
    let playbook = scene.playbook().phases(1, 5, 1).load("50/s");
    let playbook = playbook.fault("{http_status: {status: 503, share: 100%}, to: store}").expect("web success ratio >= 99%");
    let mut drill = scene.agent.drill(&playbook.text());
    drill.wait_for_phase("fault");
    // Some windows of the phase pass, since those right at its begin are not judged; then a second in which nothing of it runs.
    for _ in 0..5 {
        drill.wait_for_window_of("fault");
    }
    drill.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(1));
    drill.signal(Signal::SIGCONT);
    let result = drill.end();
    assert_eq!(result.ended.code, Some(3), "{result:#?}");
    assert_eq!(text(&result.json, "/verdict"), "invalid");
    assert!(text(&result.json, "/expectations/0/reason").contains("stormdrill itself was held up for"), "{result:#?}");
}

/// What is in the kernel on loopback, by another reader than the agent.
fn filters() -> String {
    ["ingress", "egress"].map(|hook| run("tc", &["filter", "show", "dev", "lo", hook])).concat()
}

/// Starts a drill that spoils every answer of the store, and returns when it does.
fn spoiled(scene: &Scene) -> Drill {
    let playbook = scene.playbook().phases(1, 300, 1).fault("{http_status: {status: 503, share: 100%}, to: store}");
    let mut drill = scene.agent.drill(&playbook.text());
    drill.wait_for_phase("fault");
    assert_eq!(ask(&scene.store.address), Some(503));
    drill
}

#[test]
fn a_drills_thread_runs_before_ordinary_ones_on_the_busy_host_that_it_makes() {
    in_namespace(|| {
        let scene = Scene::new("1");
        let drill = spoiled(&scene);
        let stat = std::fs::read_to_string(format!("/proc/{0}/task/{0}/stat", drill.pid())).unwrap();
        // The 19th field, of those that follow the name in parentheses the 17th.
        let nice: i32 = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().parse().unwrap();
        assert!(nice < 0, "{stat}");
        drill.signal(Signal::SIGINT);
        assert_eq!(drill.end().ended.code, Some(4));
    });
}

#[test]
fn a_killed_agents_fault_ends_in_time_and_clean_takes_the_rest() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let drill = spoiled(&scene);
        let begin = Instant::now();
        drill.kill();
        wait_until("the store's own answers are back", || ask(&scene.store.address) == Some(200));
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        assert!(filters().contains("stormdrill:"), "the filter should still be there: {}", filters());
        assert_eq!(journals(&scene.agent.state_dir()).len(), 1);
        assert_eq!(scene.agent.run(&["doctor"]).code, Some(2), "doctor should find what is left");

        let ended = scene.agent.run(&["clean"]);
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.stdout.contains("removed "), "{ended:#?}");
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
        let claims = std::fs::read_dir(scene.agent.state_dir()).unwrap().filter(|entry| {
            let path = entry.as_ref().unwrap().path();
            path.extension().is_some_and(|extension| extension == "claim")
        });
        assert_eq!(claims.count(), 0, "what the killed drill had claimed");
        let again = scene.agent.run(&["clean"]);
        assert_eq!((again.code, again.stdout.as_str()), (Some(0), "nothing to remove\n"));
    });
}

#[test]
fn clean_without_privilege_is_an_error_and_no_success() {
    in_namespace(|| {
        let scene = Scene::new("1");
        spoiled(&scene).kill();
        let left = dump();
        let ended = Process::start(&mut Nobody::new().command(&["clean"])).end();
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.contains("not permitted"), "{ended:#?}");
        assert_eq!(dump(), left);
        assert_eq!(scene.agent.run(&["clean"]).code, Some(0));
    });
}

#[test]
fn the_next_drill_takes_away_what_a_killed_one_left() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        spoiled(&scene).kill();
        let playbook = scene.playbook().phases(1, 1, 1).fault("{http_status: {status: 418, share: 100%}, to: store}");
        let mut drill = scene.agent.drill(&playbook.text());
        drill.wait_for_phase("baseline");
        assert!(!filters().contains("stormdrill:"), "{}", filters());
        drill.wait_for_phase("fault");
        assert_eq!(ask(&scene.store.address), Some(418));
        let result = drill.end();
        assert_eq!(count(&result.json, "/faults/0/packets_hit"), 1, "{result:#?}");
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn what_went_with_its_namespace_is_forgotten_and_keeps_no_drill_from_running() {
    let agent = Agent::new();
    in_namespace(|| spoiled(&Scene { agent: agent.share(), ..Scene::new("1") }).kill());
    assert_eq!(journals(&agent.state_dir()).len(), 1);
    in_namespace(|| {
        let scene = Scene { agent: agent.share(), ..Scene::new("1") };
        let result = scene.agent.drill(&scene.playbook().phases(1, 1, 1).fault(FAULT).text()).end();
        assert_eq!(result.ended.code, Some(3), "{result:#?}");
        assert!(result.ended.stderr.contains("went with its network namespace"), "{result:#?}");
        assert!(agent.has_no_journal());
    });
}

/// Ends a drill by a signal in a phase, and checks that it did so in good order.
fn assert_ends_by(signal: Signal, in_phase: &str) {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let playbook = scene.playbook().phases(if in_phase == "fault" { 1 } else { 300 }, 300, 1);
        let playbook = playbook.fault("{http_status: {status: 503, share: 100%}, to: store}").expect("downstream QPS increase ≤ 20%");
        let mut drill = scene.agent.drill(&playbook.text());
        drill.wait_for_phase(in_phase);
        assert_eq!(ask(&scene.store.address), Some(if in_phase == "fault" { 503 } else { 200 }));
        drill.signal(signal);
        let result = drill.end();
        assert_eq!(result.ended.code, Some(4), "{result:#?}");
        assert_eq!(text(&result.json, "/drill/aborted"), signal.as_str());
        assert_eq!(result.json["phases"].as_array().unwrap().last().unwrap()["name"], in_phase);
        assert_ne!(text(&result.json, "/verdict"), "pass", "a drill that was not finished has shown nothing");
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
    });
}

/// The same for both signals at once, each in a namespace of its own.
fn assert_ends_by_either(in_phase: &'static str) {
    std::thread::scope(|scope| {
        let drills = [Signal::SIGINT, Signal::SIGTERM].map(|signal| scope.spawn(move || assert_ends_by(signal, in_phase)));
        for drill in drills {
            drill.join().unwrap();
        }
    });
}

#[test]
fn a_signal_in_the_baseline_ends_the_drill_before_anything_is_injected() {
    assert_ends_by_either("baseline");
}

#[test]
fn a_signal_in_the_fault_phase_takes_the_fault_away_first() {
    assert_ends_by_either("fault");
}

#[test]
fn a_guard_that_trips_ends_the_drill() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let playbook = scene.playbook().phases(1, 300, 1).load("50/s");
        let playbook =
            playbook.fault("{http_status: {status: 503, share: 100%}, to: store}").guard("web success ratio < 20% for 2 windows");
        let result = scene.agent.drill(&playbook.text()).end();
        assert_eq!(result.ended.code, Some(4), "{result:#?}");
        assert!(text(&result.json, "/drill/aborted").contains("web success ratio < 20% for 2 windows"), "{result:#?}");
        // On a busy machine an answer that left before the fault is read after it began.
        let fine = phase(&result.json, "web", "fault")["status"]["200"].as_u64().unwrap_or(0);
        assert!(fine <= 2, "{fine}: {result:#?}");
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn a_delay_is_refused_where_the_kernel_has_no_netem_and_accepted_where_it_has() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let playbook = scene.playbook().phases(1, 1, 1).fault("{delay: 50ms, to: store}");
        let drill = scene.agent.drill(&playbook.text());
        if capability::try_one(Capability::Netem).works() {
            let result = drill.end();
            assert_eq!(text(&result.json, "/faults/0/backend"), "netem");
        } else {
            let ended = drill.end_without_result();
            assert_eq!(ended.code, Some(2), "{ended:#?}");
            assert!(!ended.stderr.contains("baseline:"), "it began: {ended:#?}");
            // What is said of the running kernel: the package for it, or that no distribution built it.
            assert!(ended.stderr.contains(&capability::kernel_release()), "nothing about the running kernel: {ended:#?}");
            assert!(ended.stderr.contains("sch_netem"), "{ended:#?}");
            let playbook = scene.agent.path("playbook.yaml");
            for command in [["doctor"].as_slice(), &["plan", playbook.to_str().unwrap()]] {
                let told = scene.agent.run(command);
                assert!(told.stdout.contains("sch_netem") && told.stdout.contains(&capability::kernel_release()), "{told:#?}");
            }
        }
        assert_eq!(dump(), before);
        assert!(scene.agent.has_no_journal());
    });
}

#[test]
fn lost_segments_are_sent_again_and_counted_with_or_without_netem() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let load = scene.load("100/s");
        let playbook = scene.playbook().fault("{loss: 30%, to: store}").expect("web success ratio >= 50%");
        let result = scene.agent.drill(&playbook.text()).end();
        let json = &result.json;
        let backend = if capability::try_one(Capability::Netem).works() { "netem" } else { "ebpf-drop" };
        assert_eq!(text(json, "/faults/0/backend"), backend, "{result:#?}");
        assert_eq!(result.ended.code, Some(0), "{result:#?}");
        let retransmits = |name| count(phase(json, "store", name), "/tcp_retransmits");
        assert_eq!(retransmits("baseline"), 0);
        let requests = count(phase(json, "store", "fault"), "/requests");
        // Three requests of ten are lost on their way, and three acknowledgements, which are not sent again.
        assert!(retransmits("fault") > requests / 5, "{} for {requests} requests", retransmits("fault"));
        drop(load);
        assert_eq!(dump(), before);
    });
}

#[test]
fn a_drill_whose_hooks_somebody_took_off_ends_early_and_is_invalid() {
    in_namespace(|| {
        let before = dump();
        let scene = Scene::new("1");
        let _load = scene.load("100/s");
        let playbook = scene.playbook().phases(1, 60, 1).fault(FAULT).expect("store downstream QPS <= 500");
        let mut drill = scene.agent.drill(&playbook.text());
        drill.wait_for_window_of("fault");
        // BPF_CGROUP_INET_EGRESS
        assert_eq!(links::detach(drill.pid(), 1), 1);
        let result = drill.end();
        assert_eq!(verdict(&result), (Some(4), "invalid", "invalid"), "{:#?}", result.ended);
        for path in ["/drill/aborted", "/expectations/0/reason"] {
            assert!(text(&result.json, path).contains("taken the probe's hook egress out of the kernel"), "{:#}", result.json);
        }
        assert_eq!(ask(&scene.store.address), Some(200));
        assert_eq!(dump(), before);
    });
}

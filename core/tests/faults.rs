//! What a playbook can say of faults: whose answers, whose packets, which share, and what excludes each other.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use stormdrill_core::edge::Cidr;
use stormdrill_core::fault::{Direction, Members, Requests};
use stormdrill_core::plan::host::{Device, Feature, HostFacts};
use stormdrill_core::plan::{plan, text};
use stormdrill_core::playbook::problem::Code;
use stormdrill_core::playbook::{Playbook, parse};

const HEAD: &str = "version: 1
name: faults
observe:
  ingress: {web: {port: 8080}}
  downstream: {store: {address: 10.2.0.0/16, port: 9000}, other-store: {port: 9100}}
phases: {baseline: 30s, fault: 30s, recovery: 30s}
faults:
";

fn read(faults: &[&str]) -> Result<Playbook, Vec<stormdrill_core::playbook::problem::Problem>> {
    parse(&format!("{HEAD}{}", faults.iter().map(|fault| format!("  - {{{fault}}}\n")).collect::<String>()))
}

fn one(fault: &str) -> Playbook {
    read(&[fault]).unwrap_or_else(|problems| panic!("{fault}: {problems:?}"))
}

fn refused(faults: &[&str], code: Code, message: &str) {
    let problems = read(faults).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!((problems[0].code, problems[0].message.as_str()), (code, message));
}

fn planned(faults: &[&str], facts: &HostFacts) -> String {
    text(&plan(&read(faults).unwrap(), facts), facts)
}

#[test]
fn answers_are_limited_to_a_method_and_a_path() {
    let playbook = one("http_status: {status: 503, share: 5%, method: GET, path: /orders}, to: store");
    let expected = Requests { method: Some("GET".to_owned()), path: Some("/orders".to_owned()) };
    assert_eq!(playbook.faults[0].select.requests, expected);
    let plan = planned(&["http_status: {status: 503, share: 5%, method: GET, path: /orders}, to: store"], &HostFacts::default());
    assert!(plan.contains("HTTP/1 answers to GET requests for /orders…"), "{plan}");
    assert!(plan.contains("their requests are compressed"), "{plan}");

    let with = |more: &str| format!("http_status: {{status: 503, share: 5%, {more}}}, to: store");
    refused(&[&with("method: get")], Code::UnknownName, "there is no method `get` to select by");
    refused(&[&with("path: orders")], Code::BadValue, "`orders` is no beginning of a path");
    refused(&[&with("path: \"/a b\"")], Code::BadValue, "a path on the wire has no ' '");
    refused(
        &[&with(&format!("path: /{}", "x".repeat(64)))],
        Code::OutOfRange,
        "`path` has 65 bytes, and only a beginning of 64 can be compared",
    );
}

#[test]
fn two_statuses_on_one_edge_are_for_different_requests() {
    let status = |requests: &str| format!("http_status: {{status: 503, share: 5%{requests}}}, to: store");
    assert!(read(&[&status(", path: /a"), &status(", path: /b")]).is_ok());
    assert!(read(&[&status(", method: GET"), &status(", method: PUT")]).is_ok());
    let message = "`http_status` towards `store` is injected twice";
    refused(&[&status(", path: /a"), &status(", path: /a/b")], Code::Conflict, message);
    refused(&[&status(", method: GET"), &status(", path: /a")], Code::Conflict, message);
}

#[test]
fn the_plan_says_what_becomes_of_http2() {
    for (status, words) in [(500, "HTTP/2 answers with status 200, 206, 400, 404 or 500 too"), (503, "HTTP/2 answers are left alone")] {
        let plan = planned(&[&format!("http_status: {{status: {status}, share: 5%}}, to: store")], &HostFacts::default());
        assert!(plan.contains(words), "{plan}");
    }
}

#[test]
fn traffic_is_limited_to_some_sockets_connections_and_callers() {
    let members = |select: &str| one(&format!("loss: 5%, to: store, select: {{{select}}}")).faults[0].select.members.clone().unwrap();
    assert_eq!(members("cgroup: /system.slice/a.service"), Members::Cgroup("system.slice/a.service".to_owned()));
    assert_eq!(members("pid: 17"), Members::Pid(17));
    assert_eq!(members("container: 0123456789ab"), Members::Container("0123456789ab".to_owned()));
    assert_eq!(members("container: 4F5A0123BCDE"), Members::Container("4f5a0123bcde".to_owned()));
    assert_eq!(members("container: 012345678901"), Members::Container("012345678901".to_owned()));
    assert_eq!(members("container: \"containerd://0123456789abcdef\""), Members::Container("0123456789abcdef".to_owned()));
    assert_eq!(one("loss: 5%, to: store, select: {flows: 25%}").faults[0].select.flows, Some(1 << 30));
    let web = one("loss: 5%, to: web, select: {peers: 10.0.0.0/8, exclude: {peers: [10.1.0.0/16]}}");
    let network = |text: &str| Cidr { address: text.parse().unwrap(), prefix: if text == "10.0.0.0" { 8 } else { 16 } };
    assert_eq!(
        (&web.faults[0].select.peers, &web.faults[0].select.exclude_peers),
        (&vec![network("10.0.0.0")], &vec![network("10.1.0.0")])
    );

    let plan = planned(&["loss: 5%, to: web, select: {peers: 10.0.0.0/8, flows: 30%, cgroup: a.slice}"], &HostFacts::default());
    let words = "of callers in 10.0.0.0/8, of sockets of cgroup a.slice, on 30% of the connections, each wholly or not at all";
    assert!(plan.contains(words), "{plan}");

    let with = |select: &str| format!("loss: 5%, to: store, select: {{{select}}}");
    refused(&[&with("pid: 1, cgroup: a")], Code::Conflict, "`cgroup` and `pid` are two ways to say whose traffic is meant");
    refused(&[&with("container: web-1")], Code::BadValue, "`web-1` is no container id");
    let short = read(&[&with("container: 4f5a0123bcd")]).unwrap_err();
    assert_eq!(short[0].help.as_deref(), Some("it has 11 digits: write its first twelve or more, as `docker ps` lists it"));
    refused(&[&with("flows: 0%")], Code::OutOfRange, "a share of 0% of the connections selects nothing");
    refused(&[&with("peers: 10.0.0.0/8")], Code::Conflict, "`peers` are the callers of an ingress edge, and `store` is a downstream edge");
    refused(&["refuse: 5%, to: store, select: {flows: 30%}"], Code::Conflict, "`flows` beside `refuse` means nothing");
}

#[test]
fn host_names_are_shown_with_what_they_stand_for() {
    let fault = "loss: 5%, to: store, select: {addresses: [db.internal, 10.2.0.1], exclude: {addresses: spare.internal}}";
    let facts = HostFacts::default().with_name("db.internal", vec!["10.2.0.7".parse().unwrap()]).with_name("spare.internal", Vec::new());
    let plan = planned(&[fault], &facts);
    assert!(plan.contains("10.2.0.1, db.internal (10.2.0.7), port 9000"), "{plan}");
    assert!(plan.contains("but not spare.internal (which cannot be resolved)"), "{plan}");
    refused(&["loss: 5%, to: store, select: {addresses: -x-}"], Code::BadValue, "`addresses`: `-x-` is not an address");
}

#[test]
fn faults_of_different_directions_share_the_netem_where_they_meet() {
    let netem = HostFacts::default().with(Feature::SchNetem, true);
    let plan = planned(&["loss: 5%, to: store", "delay: 10ms, to: store, direction: both"], &netem);
    assert!(
        plan.contains("an ifb device for egress of the interface of the route to it with netem: loss 5%, delay 10ms, limit 4000"),
        "{plan}"
    );
    assert!(
        plan.contains("nothing of its own at egress of the interface of the route to it: it is set in the netem of fault 1 as well"),
        "{plan}"
    );
    assert!(plan.contains("an ifb device for ingress of the interface of the route to it with netem: delay 10ms, limit 4000"), "{plan}");
    let playbook =
        read(&["loss: 5%, to: store", "loss: 10%, to: store, direction: ingress", "delay: 10ms, to: store, direction: both"]).unwrap();
    assert_eq!(playbook.faults[1].direction, Direction::Ingress);
    refused(&["loss: 5%, to: store", "loss: 10%, to: store, direction: both"], Code::Conflict, "`loss` towards `store` is injected twice");
    // A packet that is to overtake needs others that are held back.
    assert!(read(&["reorder: 5%, to: store, direction: both", "delay: 10ms, to: store"]).is_err());
    assert!(read(&["reorder: 5%, to: store", "delay: 10ms, to: store, direction: both"]).is_ok());
}

#[test]
fn what_one_netem_cannot_be_told_of_two_faults_is_refused() {
    let seeds = "`delay` and `loss` share one netem, which has one `seed`: 1 or 2";
    let both = ["loss: {share: 5%, seed: 1}, to: store", "delay: {time: 10ms, seed: 2}, to: store, direction: both"];
    refused(&both, Code::Conflict, seeds);
    let problem = read(&both).unwrap_err().remove(0);
    assert!(problem.help.unwrap().ends_with("- {delay: {time: 10ms, seed: 1}, to: store, direction: both}"));
    // The same seed, one seed, and two netems.
    assert!(read(&["loss: {share: 5%, seed: 1}, to: store", "delay: {time: 10ms, seed: 1}, to: store"]).is_ok());
    assert!(read(&["loss: {share: 5%, seed: 1}, to: store", "delay: 10ms, to: store"]).is_ok());
    let apart = ["loss: {share: 5%, seed: 1}, to: store, direction: ingress", "delay: {time: 10ms, seed: 2}, to: store"];
    assert!(read(&apart).is_ok());

    let lost = |one: &str, other: &str| {
        format!("`{one}` and `{other}` on the same packets of `store`: where nothing passes, nothing more is lost")
    };
    for loss in ["loss: 5%", "loss: {share: 5%, ecn: true}", "loss: {gemodel: {p: 5%}}"] {
        let loss = format!("{loss}, to: store");
        refused(&["partition: true, to: store", &loss], Code::Conflict, &lost("loss", "partition"));
        refused(&[&loss, "partition: true, to: store"], Code::Conflict, &lost("partition", "loss"));
    }
    assert!(read(&["partition: true, to: store, direction: ingress", "loss: 5%, to: store"]).is_ok());
}

#[test]
fn an_ingress_edge_is_told_not_to_show_its_own_fault() {
    let plan = planned(&["http_status: {status: 503, share: 5%}, to: web"], &HostFacts::default());
    assert!(plan.contains("web's own success, goodput and latency do not show it"), "{plan}");
    let plan = planned(&["http_status: {status: 503, share: 5%}, to: store"], &HostFacts::default());
    assert!(!plan.contains("do not show it"), "{plan}");
}

#[test]
fn a_fault_can_be_in_another_network_namespace() {
    for (text, words) in [
        ("{pid: 17}", "in the network namespace of process 17"),
        ("{container: 0123456789ab}", "in the network namespace of container 0123456789ab"),
        ("{path: /run/netns/blue}", "in the network namespace /run/netns/blue"),
    ] {
        let plan = planned(&[&format!("loss: 5%, to: store, netns: {text}")], &HostFacts::default());
        assert!(plan.contains(words), "{plan}");
    }
    refused(&["loss: 5%, to: store, netns: {path: blue}"], Code::BadValue, "`blue` is no absolute path");
    refused(&["loss: 5%, to: store, netns: {}"], Code::MissingKey, "`netns` names no network namespace");
    refused(
        &["loss: 5%, to: store, netns: {pid: 1, path: /x}"],
        Code::Conflict,
        "`pid` and `path` are two ways to name a network namespace",
    );
    refused(&["refuse: 5%, to: store, netns: {pid: 1}"], Code::Conflict, "`netns` beside `refuse` means nothing");
    // Each namespace has interfaces of its own.
    assert!(read(&["loss: 5%, to: store", "loss: 5%, to: store, netns: {pid: 1}"]).is_ok());
}

#[test]
fn interfaces_that_the_kernel_named_are_in_the_plan() {
    let device =
        |name: &str, is_loopback, has_hooks, why: &str| Device { name: name.to_owned(), is_loopback, has_hooks, why: why.to_owned() };
    let eth = vec![device("eth7", false, None, "the route to 10.2.0.0")];
    let both = vec![
        device("lo", true, Some(false), "callers on this host"),
        device("eth7", false, Some(true), "the default route, for callers elsewhere"),
    ];
    let facts = HostFacts::default().with(Feature::SchNetem, true).with_devices(0, eth.clone()).with_devices(1, both).with_devices(2, eth);
    let faults = [
        "loss: 5%, to: store, netns: {path: /run/netns/blue}",
        "http_status: {status: 503, share: 5%}, to: web",
        "http_status: {status: 503, share: 5%}, to: store",
    ];
    let plan = planned(&faults, &facts);
    for line in [
        "a clsact qdisc on eth7 in the network namespace /run/netns/blue (the route to 10.2.0.0), unless it has one",
        "an ifb device for egress of eth7 in the network namespace /run/netns/blue with netem: loss 5%, limit 1000 packets (worked out)",
        "a leased classifier at clsact egress of eth7 in the network namespace /run/netns/blue, which sends the selected packets through it",
        "a clsact qdisc on lo (callers on this host)",
        "a leased classifier at clsact egress of lo, which rewrites the status of 5% of the selected answers",
        "filters alone on eth7 (the default route, for callers elsewhere), which has the hooks already",
        "a classifier at clsact ingress of eth7, which reads the requests, to know which answers are due",
        // A peer elsewhere: its answers arrive.
        "a leased classifier at clsact ingress of eth7, which rewrites the status of 5% of the selected answers",
        "a classifier at clsact egress of eth7, which reads the requests, to know which answers are due",
    ] {
        assert!(plan.contains(&format!("makes    {line}\n")), "{line}\n{plan}");
    }
    assert!(!plan.contains("the interface of the"), "{plan}");
}

#[test]
fn an_edge_that_speaks_http2_gets_only_what_its_wire_can_carry() {
    let with = |fault: &str| parse(&format!("{HEAD}  - {{{fault}}}\n").replace("port: 9000}", "port: 9000, protocol: http2}"));
    assert!(with("http_status: {status: 500, share: 5%}, to: store").is_ok());
    let message = |fault: &str| with(fault).unwrap_err()[0].message.clone();
    assert_eq!(
        message("http_status: {status: 503, share: 5%}, to: store"),
        "`store` speaks HTTP/2, whose answers cannot be given 503 in flight"
    );
    let by_path = message("http_status: {status: 500, share: 5%, path: /a}, to: store");
    assert_eq!(by_path, "`store` speaks HTTP/2, whose requests are compressed and not read for `method` and `path`");
}

#[test]
fn two_packet_faults_on_one_interface_are_refused_only_where_a_packet_can_be_in_both() {
    let pair = |a: &str, b: &str| {
        let fault = |kind: &str, select: &str| format!("{kind}, to: store, interface: eth0, select: {{{select}}}");
        read(&[&fault("loss: 5%", a), &fault("delay: 10ms", b)])
    };
    let container = |digit: char| format!("container: {}", digit.to_string().repeat(12));
    for (a, b) in [
        ("cgroup: a.slice/x", "cgroup: a.slice/y"),
        ("pid: 17", "pid: 18"),
        (container('a').as_str(), container('b').as_str()),
        // Only the host knows, and says so when the fault is prepared.
        ("cgroup: a.slice", "pid: 18"),
        ("addresses: 10.2.0.0/17", "addresses: 10.2.128.0/17"),
        ("addresses: 10.2.0.0/24, exclude: {addresses: [10.2.0.0/25]}", "addresses: [10.2.0.0/26, 10.2.0.64/26]"),
        ("exclude: {addresses: [10.2.0.0/17, 10.2.128.0/18]}", "addresses: [10.2.3.0/24, 10.2.130.0/24]"),
        ("protocol: tcp", "protocol: udp"),
    ] {
        assert!(pair(a, b).is_ok(), "{a} and {b}: {:?}", pair(a, b));
    }
    for (a, b) in [
        ("cgroup: a.slice", "cgroup: a.slice/y"),
        ("pid: 17", "flows: 50%"),
        ("addresses: 10.2.0.0/24, exclude: {addresses: [10.2.0.0/25]}", "addresses: [10.2.0.64/26, 10.2.0.192/26]"),
        ("protocol: tcp", "exclude: {addresses: 10.2.7.0/24}"),
    ] {
        let problems = pair(a, b).unwrap_err();
        assert_eq!(problems[0].message, "`loss` towards `store` and `delay` towards `store` may select the same packets", "{a} and {b}");
    }
    // Answers and connections are parted in the same way.
    let status = |select: &str| format!("http_status: {{status: 503, share: 5%}}, to: store, select: {{{select}}}");
    assert!(read(&[&status("pid: 17"), &status("pid: 18")]).is_ok());
    assert!(read(&[&status("pid: 17"), &status("addresses: 10.2.0.1")]).is_err());
}

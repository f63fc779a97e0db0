//! Playbooks as people write them, well and badly, and text that is no playbook at all.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use proptest::prelude::*;

use super::problem::{Code, Problem, Source};
use super::{Load, Phases, Playbook, Scope, parse, parse_with};
use crate::edge::{EdgeSpec, PortRange, Protocol};
use crate::fault::model::{FourState, Gemodel, LossModel};
use crate::fault::{Direction, Distribution, FaultKind, FaultSpec, RateLimit, Slot, Spacing, Transport, Tuning};

mod corrections;

/// A good playbook; tests replace parts of it.
const GOOD: &str = r#"version: 1
name: order-db-loss-30
description: Thirty percent loss towards the order database
observe:
  ingress: {web: {port: 8080, protocol: http}}
  downstream:
    order-db: {port: 3306}
    stock: {address: 10.2.0.0/16, port: 6379-65535, protocol: http}
  scope: {cgroup: /system.slice/order.service}
  window: 5s
load: {url: "http://127.0.0.1:8080/orders", rate: 200/s, timeout: 2s}
phases: {baseline: 60s, fault: 300s, recovery: 2m}
faults:
  - {loss: 30%, to: order-db}
  - {delay: {time: 100ms, jitter: 20ms, distribution: normal}, to: stock, direction: both, interface: eth0}
  - {http_status: {status: 503, share: 12.5%}, to: stock}
guards:
  - web success ratio < 20% for 3 windows
expect:
  - downstream QPS increase ≤ 20%
  - retry ratio recovers within 2 windows
"#;

fn good(from: &str, to: &str) -> Playbook {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).unwrap_or_else(|problems| panic!("{to}: {problems:#?}"))
}

/// The problems of the good playbook with a part replaced: kind, place, headline.
fn bad(from: &str, to: &str) -> Vec<(Code, String, String)> {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let problems = parse(&text).unwrap_err();
    let brief = |problem: Problem| {
        let place = text[problem.place.start..problem.place.end].to_owned();
        (problem.code, place, problem.message)
    };
    problems.into_iter().map(brief).collect()
}

#[track_caller]
fn refused(from: &str, to: &str, code: Code, place: &str, message: &str) {
    assert_eq!(bad(from, to), [(code, place.to_owned(), message.to_owned())], "{to}");
}

#[test]
fn an_empty_line_of_expectations_is_shown_where_it_is() {
    for (list, line) in [
        ("expect:\n  -\n  - retry ratio <= 5%\n", 2),
        ("expect:\n  - retry ratio <= 5%\n  -\n", 3),
        ("expect:\n  - retry ratio <= 5%\n  - # later\n  - retry ratio <= 6%\n", 3),
        ("expect:\n  - retry ratio <= 5%\n  - ~\n", 3),
        ("expect:\n  - retry ratio <= 5%\n  -", 3),
    ] {
        let start = GOOD.find("expect:").unwrap();
        let text = format!("{}{list}", &GOOD[..start]);
        let problems = parse(&text).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:#?}");
        let at = text[start..problems[0].place.start].lines().count();
        assert_eq!((at, problems[0].message.as_str()), (line, "a line of `expect` has no value"), "{list:?}");
        assert!(problems[0].place.start < problems[0].place.end, "something is marked: {list:?}");
    }
}

#[test]
fn an_expectation_on_what_a_fault_at_the_same_socket_hides_is_refused() {
    let aimed = GOOD.replace("share: 12.5%}, to: stock", "share: 12.5%}, to: web");
    let problems = |line: &str| {
        let text = aimed.replace("retry ratio recovers within 2 windows", line);
        parse(&text).err().unwrap_or_default().into_iter().map(|problem| problem.message).collect::<Vec<_>>()
    };
    let hidden = ["`http_status` to `web` cannot be seen on that edge itself"];
    for line in ["web success ratio >= 99%", "web latency p99 <= 1s", "success ratio >= 99%", "web success ratio recovers within 2 windows"]
    {
        assert_eq!(problems(line), hidden, "{line}");
    }
    for line in ["order-db success ratio >= 99%", "web success ratio >= 99% during baseline", "ingress QPS increase <= 10%"] {
        assert_eq!(problems(line), [""; 0], "{line}");
    }
}

#[test]
fn a_good_playbook_reads_whole() {
    let playbook = parse(GOOD).unwrap();
    assert_eq!(playbook.name, "order-db-loss-30");
    assert_eq!(playbook.description.as_deref(), Some("Thirty percent loss towards the order database"));
    let edge = |edge: &EdgeSpec| {
        let address = edge.address.map_or_else(String::new, |address| address.to_string());
        let ports = edge.ports.map_or_else(String::new, |ports| ports.to_string());
        let protocol = edge.protocol.map_or("", Protocol::as_str);
        format!("{} {} [{address}]:{ports}/{protocol}", edge.role.as_str(), edge.name)
    };
    let edges: Vec<String> = playbook.edges.iter().map(edge).collect();
    assert_eq!(edges, ["ingress web []:8080/http", "downstream order-db []:3306/", "downstream stock [10.2.0.0/16]:6379-65535/http",]);
    assert_eq!(playbook.scope, Scope::Cgroup("system.slice/order.service".to_owned()));
    assert_eq!(playbook.window, Duration::from_secs(5));
    let url = "http://127.0.0.1:8080/orders".to_owned();
    assert_eq!(playbook.load, Some(Load { url, rate: 200.0, timeout: Duration::from_secs(2) }));
    let phases = [60, 300, 120].map(Duration::from_secs);
    assert_eq!(playbook.phases, Phases { baseline: phases[0], fault: phases[1], recovery: phases[2] });
    let kinds: Vec<(FaultKind, Direction)> = playbook.faults.iter().map(|f| (f.kind.clone(), f.direction)).collect();
    let (time, jitter) = (Duration::from_millis(100), Duration::from_millis(20));
    let delay = FaultKind::Delay { time, jitter, distribution: Distribution::Normal };
    assert_eq!(
        kinds,
        [
            (FaultKind::Loss { share: 0.3 }, Direction::Egress),
            (delay, Direction::Both),
            (FaultKind::HttpStatus { status: 503, share: 0.125 }, Direction::Ingress),
        ]
    );
    assert_eq!(playbook.faults[1].interface.as_deref(), Some("eth0"));
    assert_eq!((playbook.guards.len(), playbook.expect.len()), (1, 2));
    assert_eq!(playbook.expect[0].text, "downstream QPS increase ≤ 20%");
}

#[test]
fn what_is_left_out_has_a_default() {
    let playbook = good("  window: 5s\n", "");
    assert_eq!(playbook.window, Duration::from_secs(10));
    assert_eq!(good(", timeout: 2s", "").load.unwrap().timeout, Duration::from_secs(3));
    assert_eq!(good("  scope: {cgroup: /system.slice/order.service}\n", "").scope, Scope::Host);
    assert_eq!(good("{cgroup: /system.slice/order.service}", "{pid: 4711}").scope, Scope::Pid(4711));
}

#[test]
fn short_and_odd_spellings_read_the_same() {
    let whole = parse(GOOD).unwrap();
    assert_eq!(good("http_status: {status: 503, share: 12.5%}", "http_status: 503, share: 12.5%"), whole);
    assert_eq!(parse(&GOOD.replace('\n', "\r\n")).unwrap(), whole);
    assert_eq!(parse(&format!("\u{feff}{GOOD}")).unwrap(), whole);
    assert_eq!(parse(&format!("---\n{GOOD}...\n")).unwrap(), whole);
    assert_eq!(good("loss: 30%", "loss: \"30%\""), whole);
    assert_eq!(good("version: 1", "version: &one 1 # first"), whole);
    let delay = good("{time: 100ms, jitter: 20ms, distribution: normal}", "0.5ms");
    let time = Duration::from_nanos(500_000);
    assert_eq!(delay.faults[1].kind, FaultKind::Delay { time, jitter: Duration::ZERO, distribution: Distribution::Uniform });
    // Nothing lost is nothing wrong.
    assert_eq!(good("loss: 30%", "loss: 0%").faults[0].kind, FaultKind::Loss { share: 0.0 });
    // Without faults and expectations a drill is a measurement.
    let start = GOOD.find("faults:").unwrap();
    assert!(parse(&GOOD[..start]).unwrap().faults.is_empty());
    assert!(parse(&format!("{}faults:\nexpect: []\n", &GOOD[..start])).unwrap().expect.is_empty());
}

#[test]
fn an_answer_to_our_own_callers_leaves() {
    let playbook = good("http_status: {status: 503, share: 12.5%}, to: stock", "http_status: {status: 503, share: 12.5%}, to: web");
    assert_eq!(playbook.faults[2].direction, Direction::Egress);
}

#[test]
fn an_edge_whose_name_changes_what_an_expectation_means_is_refused() {
    for name in ["failure", "not"] {
        refused(
            "    stock: {address: 10.2.0.0/16, port: 6379-65535, protocol: http}\n",
            &format!("    stock: {{address: 10.2.0.0/16, port: 6379-65535, protocol: http}}\n    {name}: {{port: 99}}\n"),
            Code::Conflict,
            name,
            &format!("an edge cannot be called `{name}`"),
        );
    }
    // `retry ratio` stays a metric beside an edge of that name, since no metric is called `ratio`.
    for name in ["retry", "latency", "failure-db"] {
        good("    stock: {", &format!("    {name}: {{port: 99}}\n    stock: {{"));
    }
}

#[test]
fn unknown_keys_are_refused_at_every_level() {
    use Code::UnknownKey;
    refused("name:", "Name: x\nname:", UnknownKey, "Name", "a playbook has no key `Name`");
    refused("  window:", "  windows: 5s\n  window:", UnknownKey, "windows", "`observe` has no key `windows`");
    refused("port: 8080,", "port: 8080, tls: true,", UnknownKey, "tls", "an edge has no key `tls`");
    refused("cgroup: /", "cgroups: x, cgroup: /", UnknownKey, "cgroups", "`scope` has no key `cgroups`");
    refused("rate: 200/s", "rate: 200/s, users: 3", UnknownKey, "users", "`load` has no key `users`");
    refused("recovery: 2m", "recovery: 2m, cooldown: 2m", UnknownKey, "cooldown", "`phases` has no key `cooldown`");
    refused("loss: 30%", "loss: 30%, from: web", UnknownKey, "from", "a fault has no key `from`");
    refused("jitter: 20ms", "jitter: 20ms, sigma: 2", UnknownKey, "sigma", "`delay` has no key `sigma`");
    refused("status: 503,", "status: 503, body: x,", UnknownKey, "body", "`http_status` has no key `body`");
    refused("version: 1", "<<: {a: b}\nversion: 1", UnknownKey, "<<", "a playbook has no key `<<`");
}

#[test]
fn values_are_refused_where_they_stand() {
    use Code::{BadValue, OutOfRange};
    refused("loss: 30%", "loss: 101%", OutOfRange, "101%", "`loss`: `101%` is too large");
    refused(
        "loss: 30%",
        "loss: 100.0000000000000000001%",
        OutOfRange,
        "100.0000000000000000001%",
        "`loss`: `100.0000000000000000001%` is too large",
    );
    let too_little = "`loss`: `0.00000001%` is nearer to 0% or 100% than the kernel's 32 bits can tell";
    refused("loss: 30%", "loss: 0.00000001%", OutOfRange, "0.00000001%", too_little);
    let problem = &parse(&GOOD.replacen("loss: 30%", "loss: 0.00000001%", 1)).unwrap_err()[0];
    assert!(problem.help.as_deref().is_some_and(|help| help.contains("write `0.0000000233%` or `0%`")), "{problem:?}");
    refused("loss: 30%", "loss: NaN%", BadValue, "NaN%", "`loss`: `NaN%` is not a finite number");
    refused("loss: 30%", "loss: .nan", BadValue, ".nan", "`loss`: `.nan` is not a finite number");
    refused("loss: 30%", "loss: 0.3", BadValue, "0.3", "`loss`: `0.3` has no unit");
    refused("time: 100ms", "time: 100", BadValue, "100", "`time`: `100` has no unit");
    refused("time: 100ms", "time: -5ms", BadValue, "-5ms", "`time`: `-5ms` is negative");
    refused("fault: 300s", "fault: 0s", OutOfRange, "0s", "`fault` is zero");
    refused("fault: 300s", "fault: 25h", OutOfRange, "25h", "`fault` of 25h is beyond the most, 24h");
    refused("window: 5s", "window: 1ms", OutOfRange, "1ms", "`window` of 1ms is below the least, 100ms");
    refused("rate: 200/s", "rate: 0/s", OutOfRange, "0/s", "`rate` is zero");
    refused("status: 503", "status: 99", OutOfRange, "99", "`99` is no status of an answer");
    refused("status: 503", "status: 0503", OutOfRange, "0503", "`0503` is no status of an answer");
    refused("port: 8080", "port: 65536", OutOfRange, "65536", "`port`: `65536` is too large");
    refused("version: 1", "version: 2", BadValue, "2", "playbook version `2` is not known");
    refused("name: order-db-loss-30", "name: Order DB", BadValue, "Order DB", "a playbook's name cannot be `Order DB`");
    refused("interface: eth0", "interface: ../eth0", BadValue, "../eth0", "`../eth0` cannot be the name of an interface");
    refused("{cgroup: /system.slice/order.service}", "{cgroup: a/../b}", BadValue, "a/../b", "`a/../b` is no path of a cgroup");
    refused("{cgroup: /system.slice/order.service}", "{pid: 0}", BadValue, "0", "`0` is no process id");
    let url = "\"http://127.0.0.1:8080/orders\"";
    refused(url, "ftp://x/", BadValue, "ftp://x/", "`url` does not start with `http://`");
    refused(url, "\"http://:80/\"", BadValue, "\"http://:80/\"", "`http://:80/` is no URL to send load to");
}

#[test]
fn a_port_is_no_address_and_an_address_is_no_port() {
    use Code::BadValue;
    refused("address: 10.2.0.0/16", "address: 3306", BadValue, "3306", "`address`: `3306` is a port, where an address belongs");
    refused("port: 3306", "port: 10.2.0.1", BadValue, "10.2.0.1", "`port`: `10.2.0.1` is an address, where a port belongs");
}

#[test]
fn lengths_that_do_not_fit_into_one_another_are_refused() {
    use Code::OutOfRange;
    refused("baseline: 60s", "baseline: 4s", OutOfRange, "4s", "`baseline` of 4s is shorter than one window of 5s");
    refused("time: 100ms", "time: 300s", OutOfRange, "300s", "a delay of 5m is not shorter than the fault phase of 5m");
    refused("jitter: 20ms", "jitter: 2s", OutOfRange, "2s", "`jitter` of 2s is more than the delay itself");
    let line = "retry ratio recovers within 25 windows";
    refused("retry ratio recovers within 2 windows", line, OutOfRange, line, "25 windows are longer than the recovery phase of 2m");
    let line = "web success ratio < 20% for 97 windows";
    refused("web success ratio < 20% for 3 windows", line, OutOfRange, line, "97 windows are longer than the whole drill of 8m");
}

#[test]
fn names_that_nothing_has_are_refused() {
    use Code::UnknownName;
    refused("loss: 30%, to: order-db", "loss: 30%, to: order-bd", UnknownName, "order-bd", "there is no edge `order-bd`");
    refused("web success", "wbe success", UnknownName, "wbe", "there is no edge `wbe`");
    refused("distribution: normal", "distribution: gauss", UnknownName, "gauss", "there is no distribution `gauss`");
    refused("8080, protocol: http", "8080, protocol: htpp", UnknownName, "htpp", "there is no protocol `htpp`");
}

#[test]
fn what_contradicts_itself_is_refused() {
    use Code::{Conflict, DuplicateKey, MissingKey};
    refused("    stock:", "    other: {port: 1}\n    stock:", Conflict, "other", "an edge cannot be called `other`");
    refused("loss: 30%, to", "loss: 30%, delay: 5ms, to", Conflict, "delay", "`loss` and `delay` are one fault");
    refused("loss: 30%, to", "loss: 30%, share: 5%, to", Conflict, "share", "`share` beside `loss` means nothing");
    refused(
        "12.5%}, to: stock",
        "12.5%}, to: stock, direction: egress",
        Conflict,
        "egress",
        "`http_status` acts on answers, which travel ingress here",
    );
    refused(", jitter: 20ms", "", Conflict, "distribution", "`distribution` without `jitter` means nothing");
    refused("    stock:", "    web: {port: 1}\n    stock:", Conflict, "web", "`web` names an ingress edge already");
    refused("    stock:", "    db: {port: 3306}\n    stock:", Conflict, "db", "`db` selects the same connections as `order-db`");
    refused("{cgroup:", "{pid: 1, cgroup:", Conflict, "cgroup", "`scope` has both `cgroup` and `pid`");
    refused("  - {delay", "  - {loss: 1%, to: order-db}\n  - {delay", Conflict, "loss", "`loss` towards `order-db` is injected twice");
    let two = |kind: &str, first: &str, second: &str| {
        let one = |address: &str| format!("  - {{{kind}, to: stock, select: {{addresses: [{address}]}}}}\n");
        parse(&GOOD.replace("  - {delay", &format!("{}{}  - {{delay", one(first), one(second)))).err().unwrap_or_default().len()
    };
    assert_eq!((two("refuse: 10%", "10.2.0.1", "10.2.0.2"), two("refuse: 10%", "10.2.0.1", "10.2.0.0/24")), (0, 1));
    refused("time: 100ms, jitter: 20ms", "time: 5s, jitter: 3s", Code::OutOfRange, "3s", "`jitter` of 3s is more than 2147ms");
    refused("window: 5s", "window: 5s\n  window: 6s", DuplicateKey, "window", "`observe` has `window` twice");
    refused("    stock:", "    order-db: {port: 1}\n    stock:", DuplicateKey, "order-db", "`downstream` has `order-db` twice");
    refused("{port: 3306}", "{protocol: http}", MissingKey, "order-db", "edge `order-db` has neither `port` nor `address`");
    refused(", recovery: 2m", "", MissingKey, "phases", "`phases` lacks `recovery`");
    refused("loss: 30%, to: order-db", "to: order-db", MissingKey, "to", "this fault injects nothing");
    refused("loss: 30%, to: order-db", "loss: 30%", MissingKey, "loss", "a fault lacks `to`");
}

#[test]
fn what_a_later_version_knows_is_said_to_be_that() {
    use Code::NotInThisVersion as Later;
    refused(
        "{cgroup: /system.slice/order.service}",
        "{container: a}",
        Later,
        "container",
        "`container` is not in this version of stormdrill",
    );
    refused(
        "retry ratio recovers within 2 windows",
        "web recovery windows <= 3",
        Later,
        "recovery windows",
        "`recovery windows` is not in this version of stormdrill",
    );
}

#[test]
fn wrong_shapes_are_refused_each_on_its_own() {
    use Code::WrongShape;
    refused("{loss: 30%, to: order-db}", "loss", WrongShape, "loss", "a fault is a single value, where a mapping belongs");
    refused("loss: 30%", "loss: [30%]", WrongShape, "[", "`loss` is a list, where a single value belongs");
    refused("loss: 30%", "loss:", WrongShape, "loss", "`loss` has no value");
    refused(
        "retry ratio recovers within 2 windows",
        "a: b",
        WrongShape,
        "a",
        "a line of `expect` is a mapping, where a single value belongs",
    );
    let text = GOOD.replace("loss: 30%", "loss: [30%]").replace("window: 5s", "window: {a: b}").replace("8080,", "[8080],");
    assert_eq!(parse(&text).unwrap_err().len(), 3);
    for text in ["", "# nothing\n", "- a\n", "a", "42"] {
        assert_eq!(parse(text).unwrap_err()[0].code, WrongShape, "{text}");
    }
}

#[test]
fn problems_come_in_the_order_of_the_file() {
    let text = GOOD.replace("version: 1", "version: 9").replace("loss: 30%", "loss: 3").replace("≤ 20%", "≤ 20");
    let starts: Vec<usize> = parse(&text).unwrap_err().iter().map(|problem| problem.place.start).collect();
    assert_eq!(starts.len(), 3);
    assert!(starts.is_sorted());
}

#[test]
fn the_help_ends_in_the_corrected_line() {
    let text = GOOD.replace("time: 100ms", "time: 0.5");
    let problems = parse(&text).unwrap_err();
    let line = "- {delay: {time: 0.5s, jitter: 20ms, distribution: normal}, to: stock, direction: both, interface: eth0}";
    assert_eq!(problems[0].help.as_deref(), Some(format!("write `0.5s` or `500ms`:\n  {line}").as_str()));
    // And the line, put into the file, is right.
    let broken = text.lines().find(|text| text.contains("time: 0.5")).unwrap();
    assert!(parse(&text.replace(broken.trim(), line)).is_ok());
}

#[test]
fn overrides_replace_add_and_append() {
    let set = [
        ("phases.fault", "10s"),
        ("load.rate", "50/s"),
        ("faults.0.loss", "10%"),
        ("observe.downstream.stock.port", "1"),
        ("observe.ingress.api", "{port: 81}"),
        ("expect.2", "api success ratio >= 60%"),
        ("observe.scope", "{pid: 3}"),
    ];
    let playbook = parse_with(GOOD, &set).unwrap();
    assert_eq!(playbook.phases.fault, Duration::from_secs(10));
    assert_eq!(playbook.load.map(|load| load.rate), Some(50.0));
    assert_eq!(playbook.faults[0].kind, FaultKind::Loss { share: 0.1 });
    assert_eq!(playbook.edges.len(), 4);
    assert_eq!(playbook.expect[2].edge.as_deref(), Some("api"));
    assert_eq!(playbook.scope, Scope::Pid(3));
    // A value that the file lacks can come from the command line alone.
    let without = GOOD.replace("phases: {baseline: 60s, fault: 300s, recovery: 2m}\n", "");
    let set = [("phases.baseline", "60s"), ("phases.fault", "60s"), ("phases.recovery", "60s")];
    assert!(parse_with(&without, &set).is_ok());
}

#[test]
fn a_bad_override_is_told_by_its_place_on_the_command_line() {
    for (path, value, code, place) in [
        ("phases.fault", "10", Code::BadValue, "10"),
        ("phases.falut", "10s", Code::UnknownKey, "falut"),
        ("faults.9.loss", "10%", Code::BadOverride, "9"),
        ("faults.x.loss", "10%", Code::BadOverride, "x"),
        ("name.x", "10%", Code::BadOverride, "x"),
        ("", "10%", Code::BadOverride, ""),
        ("phases..fault", "10%", Code::BadOverride, ""),
        ("faults.0", "{loss: 10%, to: nobody}", Code::UnknownName, "nobody"),
        ("expect.0", "retry ratio <= 3s", Code::BadValue, "3s"),
        ("phases", "{fault: [", Code::Syntax, "["),
    ] {
        let problems = parse_with(GOOD, &[("name", "x"), (path, value)]).unwrap_err();
        let text = format!("{path}={value}");
        let problem = problems.iter().find(|problem| problem.place.source == Source::Set(1)).unwrap();
        let found = &text[problem.place.start..problem.place.end];
        assert_eq!((problem.code, found), (code, place), "{text}");
    }
}

/// Places can be cut out of their text, and the order is that of the file.
fn sound(text: &str, result: Result<Playbook, Vec<Problem>>) {
    let Err(problems) = result else { return };
    assert!(!problems.is_empty());
    for problem in problems {
        if problem.place.source == Source::File {
            assert!(text.get(problem.place.start..problem.place.end).is_some(), "{problem:?}");
        }
    }
}

#[test]
fn hostile_texts_are_refused_in_time() {
    let long = "x".repeat(200_000);
    for text in [
        format!("a: {long}"),
        format!("{long}: a"),
        format!("version: 1\nexpect:\n  - {}\n", "retry ".repeat(20_000)),
        format!("version: 1\nname: {long}\n"),
        "a".repeat(2_000_000),
        format!("a: \"{}\"", "\\u0000".repeat(1000)),
        "\0\0\0".to_owned(),
        "? ? ? ? a".to_owned(),
        "&a [*a, *a]".to_owned(),
        format!("{{{}}}", (0..5_000).map(|n| format!("k{n}: 1")).collect::<Vec<_>>().join(", ")),
        "!!binary AAAA".to_owned(),
        "--- a\n--- b\n".to_owned(),
        "%YAML 9.9\n---\na: b\n".to_owned(),
        format!("phases: {{fault: {}s}}", "9".repeat(5_000)),
    ] {
        assert!(parse(&text).is_err());
        sound(&text, parse(&text));
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "(\\PC|[a-z: \\-\\n\\t\\[\\]{},&*!|>'\"%#?@`0-9]){0,80}") {
        sound(&text, parse(&text));
    }

    #[test]
    fn no_damage_to_a_good_playbook_makes_it_panic(
        at in 0..GOOD.len(), length in 0_usize..20, new in "(\\PC|[a-z: \\-\\n\\t\\[\\]{},&*!|>'\"%#?0-9]){0,12}"
    ) {
        let start = GOOD.floor_char_boundary(at);
        let end = GOOD.floor_char_boundary((at + length).min(GOOD.len()));
        let text = format!("{}{new}{}", &GOOD[..start], &GOOD[end..]);
        sound(&text, parse(&text));
    }

    #[test]
    fn no_override_makes_it_panic(path in "([a-z.0-9]|\\PC){0,20}", value in "(\\PC|[a-z:{}\\[\\], 0-9%]){0,20}") {
        sound(GOOD, parse_with(GOOD, &[(&path, &value)]));
    }
}

/// The first fault of the good playbook, with another kind.
fn fault(kind: &str) -> FaultSpec {
    good("loss: 30%", kind).faults.remove(0)
}

#[test]
fn every_parameter_of_netem_can_be_said() {
    let loss = fault("loss: {share: 10%, ecn: true, limit: 5000, seed: 42}");
    assert_eq!(loss.kind, FaultKind::Loss { share: 0.1 });
    assert_eq!((loss.tuning.ecn, loss.tuning.limit, loss.tuning.seed), (true, Some(5000), Some(42)));
    let gemodel = Gemodel { p: 0.02, r: 0.2, h: 0.1, k: 0.999 };
    assert_eq!(fault("loss: {gemodel: {p: 2%, r: 20%, h: 10%, k: 99.9%}}").kind, FaultKind::LossModel(LossModel::Gemodel(gemodel)));
    let gemodel = Gemodel { p: 0.02, r: 1.0, h: 0.0, k: 1.0 };
    assert_eq!(fault("loss: {gemodel: {p: 2%}}").kind, FaultKind::LossModel(LossModel::Gemodel(gemodel)));
    let state = FourState { p13: 0.01, p31: 0.3, p32: 0.2, p23: 0.4, p14: 0.005 };
    assert_eq!(
        fault("loss: {state: {p13: 1%, p31: 30%, p32: 20%, p23: 40%, p14: 0.5%}}").kind,
        FaultKind::LossModel(LossModel::State(state))
    );
    assert_eq!(fault("duplicate: 5%").kind, FaultKind::Duplicate { share: 0.05, correlation: 0.0 });
    assert_eq!(fault("corrupt: {share: 2%, correlation: 25%}").kind, FaultKind::Corrupt { share: 0.02, correlation: 0.25 });
    let plain = RateLimit { bytes_per_second: 1_250_000, overhead: 0, cell_size: 0, cell_overhead: 0 };
    assert_eq!(fault("rate: 10mbit").kind, FaultKind::Rate(plain));
    assert_eq!(
        fault("rate: {bandwidth: 10mbit, overhead: -20, cell_size: 48, cell_overhead: 5}").kind,
        FaultKind::Rate(RateLimit { overhead: -20, cell_size: 48, cell_overhead: 5, ..plain })
    );
    let partition = fault("partition: true");
    assert_eq!((partition.kind, partition.direction), (FaultKind::Partition, Direction::Both));
    assert_eq!(fault("refuse: 30%").kind, FaultKind::Refuse { share: 0.3 });
    let delay = fault("delay: {time: 10ms, jitter: 2ms, correlation: 25%, table: /t.dist, slot: {min: 1ms, packets: 8}, limit: 9}");
    let every = Spacing::Between(Duration::from_millis(1), Duration::from_millis(1));
    let slot = Slot { every, packets: 8, bytes: 0 };
    let tuning =
        Tuning { limit: Some(9), jitter_correlation: 0.25, table: Some("/t.dist".to_owned()), slot: Some(slot), ..Tuning::default() };
    assert_eq!(delay.tuning, tuning);
    let every = |slot: &str| fault(&format!("delay: {{time: 10ms, slot: {slot}}}")).tuning.slot.map(|slot| slot.every);
    let (ten, two) = (Duration::from_millis(10), Duration::from_millis(2));
    let drawn = Spacing::Around { time: ten, jitter: two, distribution: Distribution::Pareto };
    assert_eq!(every("{time: 10ms, jitter: 2ms, distribution: pareto}"), Some(drawn));
    assert_eq!(every("{time: 10ms, jitter: 2ms}"), Some(Spacing::Between(ten - two, ten + two)));
    assert_eq!(every("{min: 2ms, max: 10ms}"), Some(Spacing::Between(two, ten)));
    // Packets overtake those that a delay holds back.
    let both = good(
        "  - {delay",
        "  - {reorder: {share: 25%, correlation: 50%, gap: 5}, to: order-db}\n  - {delay: 10ms, to: order-db}\n  - {delay",
    );
    assert_eq!(both.faults[1].kind, FaultKind::Reorder { share: 0.25, correlation: 0.5, gap: 5 });
}

#[test]
fn a_loss_with_correlation_is_refused_with_its_effective_rate_and_a_gemodel() {
    let kind = "loss: {share: 30%, correlation: 25%}";
    let message = "with a `correlation` of 25% the kernel loses 23.4% of the packets, not 30%";
    let problems = parse(&GOOD.replacen("loss: 30%", kind, 1)).unwrap_err();
    assert_eq!(problems[0].code, Code::Conflict);
    let close = |share: &str| message.replace("23.4", share);
    assert!([close("23.2"), close("23.3"), close("23.4")].contains(&problems[0].message), "{}", problems[0].message);
    assert!(problems[0].help.as_deref().is_some_and(|help| help.contains("gemodel: {p: 10.71%, r: 25%}")), "{problems:?}");
    // A correlation of nothing is none.
    assert_eq!(fault("loss: {share: 30%, correlation: 0%}").kind, FaultKind::Loss { share: 0.3 });
}

#[test]
fn packet_faults_that_make_no_sense_are_refused_with_their_place() {
    use Code::*;
    let one = |kind: &str, code, place: &str, message: &str| refused("loss: 30%", kind, code, place, message);
    one("reorder: 5%", Conflict, "reorder", "`reorder` without a delay on the same packets changes nothing");
    one("duplicate: 101%", OutOfRange, "101%", "`duplicate`: `101%` is too large");
    one("corrupt: NaN%", BadValue, "NaN%", "`corrupt`: `NaN%` is not a finite number");
    one("rate: 10", BadValue, "10", "`rate`: `10` has no unit");
    one("rate: 0mbit", OutOfRange, "0mbit", "`rate`: `0mbit` is zero");
    one("loss: {share: 1%, limit: 0}", OutOfRange, "0", "`limit`: `0` is no whole number from 1 to 4294967295");
    one("loss: {share: 1%, seed: -1}", OutOfRange, "-1", "`seed`: `-1` is no whole number from 0 to 18446744073709551615");
    one("loss: {share: 1%, gemodel: {p: 1%}}", Conflict, "gemodel", "`share` and `gemodel` are two ways to lose");
    one("loss: {state: {p13: 1%, p31: 60%, p32: 60%}}", OutOfRange, "60%", "`p31` and `p32` are more than 100% together");
    one("delay: {time: 1ms, correlation: 5%}", Conflict, "correlation", "`correlation` without `jitter` means nothing");
    one("delay: {time: 1ms, slot: {min: 2ms, max: 1ms}}", OutOfRange, "1ms", "`max` of 1ms is less than `min`");
    let overhead = "`overhead`: `-21` is no whole number from -20 to 1500";
    one("rate: {bandwidth: 1mbit, overhead: -21}", OutOfRange, "-21", overhead);
    let cell = "`cell_overhead`: `-48` is no whole number from -47 to 1500";
    one("rate: {bandwidth: 1mbit, cell_size: 48, cell_overhead: -48}", OutOfRange, "-48", cell);
    one("partition: maybe", BadValue, "maybe", "`maybe` is neither `true` nor `false`");
    one("partition: false", BadValue, "false", "`partition: false` injects nothing");
    one("refuse: 30%, direction: both", Conflict, "direction", "`direction` beside `refuse` means nothing");
}

#[test]
fn a_selection_narrows_its_edge_and_spares_what_it_excludes() {
    let playbook = good(
        "loss: 30%, to: order-db",
        "http_status: {status: 500, share: 1%}, to: web, select: {addresses: [10.0.0.0/8, \"fd00::/8\"], ports: 8080, exclude: {addresses: 10.1.0.0/16, ports: [9, 65535]}}",
    );
    let select = &playbook.faults[0].select;
    assert_eq!((select.addresses.len(), select.ports.len()), (2, 1));
    assert_eq!((select.exclude_addresses.len(), select.exclude_ports.len()), (1, 2));
    assert_eq!(select.exclude_ports[1], PortRange { first: 65_535, last: 65_535 });
    let udp = good("loss: 30%", "loss: 30%, select: {protocol: udp, include_management: true}");
    assert_eq!(udp.faults[0].select.protocol, Some(Transport::Udp));
    assert!(udp.faults[0].select.include_management);
}

#[test]
fn a_selection_that_selects_nothing_is_refused_with_its_place() {
    use Code::*;
    let one = |select: &str, code, place: &str, message: &str| {
        refused("to: order-db}", &format!("to: order-db, select: {select}}}"), code, place, message);
    };
    one("{ports: 80}", Conflict, "80", "port 80 lies outside of the edge `order-db`, which has 3306");
    one("{protocol: icmp}", Conflict, "icmp", "icmp has no ports, so that nothing would be selected");
    one("{addresses: []}", OutOfRange, "[", "`addresses` is empty, which would select nothing");
    one("{addresses: [8080]}", BadValue, "8080", "`addresses`: `8080` is a port, where an address belongs");
    one("{protocol: tpc}", UnknownName, "tpc", "there is no protocol `tpc` to select by");
    // What is excluded takes away all that is selected, if only together.
    let left = "these exclude every address that is selected, so that nothing is left";
    one("{addresses: 10.0.0.0/8, exclude: {addresses: 10.0.0.0/7}}", Conflict, "10.0.0.0/7", left);
    one("{addresses: 10.0.0.0/8, exclude: {addresses: [10.128.0.0/9, 10.0.0.0/9]}}", Conflict, "[", left);
    one("{addresses: \"::ffff:10.0.0.0/104\", exclude: {addresses: 10.0.0.0/8}}", Conflict, "10.0.0.0/8", left);
    one("{exclude: {ports: 3000-4000}}", Conflict, "3000-4000", "these exclude every port that is selected, so that nothing is left");
    let ends = "no connection has an IPv4 and an IPv6 end, so that nothing would be selected";
    let web = |select: &str, place: &str, message: &str| {
        refused(
            "loss: 30%, to: order-db",
            &format!("http_status: {{status: 500, share: 1%}}, to: web, select: {select}"),
            Conflict,
            place,
            message,
        );
    };
    web("{addresses: 10.0.0.1, peers: \"fd00::/8\"}", "\"fd00::/8\"", ends);
    web("{addresses: 10.0.0.1, exclude: {peers: 0.0.0.0/0}}", "0.0.0.0/0", ends);
    web(
        "{peers: 10.0.0.0/8, exclude: {peers: 10.0.0.0/8}}",
        "10.0.0.0/8",
        "these exclude every caller that is selected, so that nothing is left",
    );
}

#[test]
fn an_icmp_of_the_other_family_and_what_is_spared_select_nothing() {
    let only_address = |fault: &str| {
        GOOD.replacen("order-db: {port: 3306}", "order-db: {address: 10.1.0.0/16}", 1).replacen("loss: 30%, to: order-db", fault, 1)
    };
    let problems = |text: &str| parse(text).unwrap_err().into_iter().map(|problem| problem.message).collect::<Vec<_>>();
    let icmp = only_address("loss: 30%, to: order-db, select: {protocol: icmpv6}");
    assert_eq!(problems(&icmp), ["no icmpv6 packet has such addresses, so that nothing would be selected"]);
    assert!(parse(&only_address("loss: 30%, to: order-db, select: {protocol: icmp}")).is_ok());
    let spared = "SSH and DHCP are spared, so that nothing would be selected";
    assert_eq!(problems(&GOOD.replacen("order-db: {port: 3306}", "order-db: {port: 22}", 1)), [spared]);
    assert_eq!(problems(&only_address("loss: 30%, to: order-db, select: {ports: [67, 68], protocol: udp}")), [spared]);
    assert!(parse(&only_address("loss: 30%, to: order-db, select: {ports: 22, include_management: true}")).is_ok());
    assert!(parse(&only_address("loss: 30%, to: order-db, select: {ports: 67, protocol: tcp}")).is_ok());
    // A part of what is listed may well be spared.
    assert!(parse(&only_address("loss: 30%, to: order-db, select: {ports: [22, 80], exclude: {addresses: 10.1.7.0/24}}")).is_ok());
}

#[test]
fn netem_faults_that_may_meet_the_same_packet_are_refused_unless_they_share_it() {
    let text = |more: &str| {
        GOOD.replacen("  - {loss: 30%, to: order-db}", &format!("  - {{loss: 30%, to: stock, interface: eth0, direction: both{more}}}"), 1)
    };
    // Loss and delay on the same packets share one netem.
    assert!(parse(&text("")).is_ok());
    let problems = parse(&text(", select: {ports: 6379}")).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].message, "`loss` towards `stock` and `delay` towards `stock` may select the same packets");
    assert!(parse(&text(", select: {protocol: icmp}")).is_err());
    // Another's statuses are no netem's.
    assert!(parse(GOOD).is_ok());
}

//! What is proposed in the place of what was refused: it means what was meant, and is not refused itself.

use super::*;

#[test]
fn a_unit_is_put_right_only_where_that_keeps_what_was_meant() {
    let help = |from: &str, to: &str| parse(&GOOD.replacen(from, to, 1)).unwrap_err()[0].help.clone().unwrap();
    for (from, to, meant) in [
        ("loss: 30%", "loss: '0,5%'", "loss: 0.5%"),
        ("loss: 30%", "loss: 30percent", "loss: 30%"),
        ("time: 100ms", "time: 100msec", "time: 100ms"),
        ("time: 100ms", "time: 100 ms", "time: 100ms"),
        ("fault: 300s", "fault: '1,5m'", "fault: 1.5m"),
        ("fault: 300s", "fault: 300 SEC", "fault: 300s"),
        ("rate: 200/s", "rate: 200rps", "rate: 200/s"),
        ("fault: 300s", "fault: 1e2s", "fault: 100s"),
        ("loss: 30%, ", "rate: 1MB/s, ", "rate: 8mbit"),
        ("loss: 30%, ", "rate: 10Mbps, ", "write `10mbit` or `80mbit`"),
        ("loss: 30%", "loss: 1e-3%", "loss: 0.001%"),
        ("loss: 30%", "loss: 1e-9%", "write `0.0000000233%` or `0%`"),
    ] {
        let help = help(from, to);
        assert!(help.contains(meant), "{to}: {help}");
    }
    // Three days are not three seconds, nor half a percent none.
    for (from, to, form) in [
        ("fault: 300s", "fault: 3d", "write it as in `3s` or `3ms`"),
        ("fault: 300s", "fault: 3mo", "write it as in `3s` or `3ms`"),
        ("loss: 30%", "loss: '0,500%'", "write it as in `0%`"),
    ] {
        assert_eq!(help(from, to), form, "{to}");
    }
    assert!(help("loss: 30%, ", "rate: 10Mbit/s, ").contains("rate: 10mbit"));
}

/// The help for the only problem of the good playbook with a part replaced; its last line, put into the file, is right.
fn corrected(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let problems = parse(&text).unwrap_err();
    assert_eq!(problems.len(), 1, "{to}: {problems:#?}");
    let help = problems[0].help.clone().unwrap();
    if let Some((_, line)) = help.split_once("\n  ") {
        let broken = text[..problems[0].place.start].rfind('\n').map_or(0, |at| at + 1);
        let broken = text[broken..].lines().next().unwrap();
        let mended = text.replacen(broken.trim(), line, 1);
        assert!(parse(&mended).is_ok(), "{to}: {line}: {:#?}", parse(&mended).unwrap_err());
    }
    help
}

#[test]
fn a_number_without_a_unit_is_shown_in_each_of_its_readings_and_the_first_is_taken() {
    for (from, to, help) in [
        ("loss: 30%", "loss: 1", "write `1%` or `100%`:\n  - {loss: 1%, to: order-db}"),
        ("loss: 30%", "corrupt: 1", "write `1%` or `100%`:\n  - {corrupt: 1%, to: order-db}"),
        ("loss: 30%", "loss: {gemodel: {p: 1}}", "write `1%` or `100%`:\n  - {loss: {gemodel: {p: 1%}}, to: order-db}"),
        ("loss: 30%", "loss: 0.3", "write `30%` or `0.3%`:\n  - {loss: 30%, to: order-db}"),
        // A hundred seconds of delay would be beyond many a fault phase.
        ("loss: 30%", "delay: 100", "write `100ms` or `100s`:\n  - {delay: 100ms, to: order-db}"),
    ] {
        assert_eq!(corrected(from, to), help, "{to}");
    }
}

#[test]
fn what_is_proposed_is_not_refused_itself() {
    let select = |select: &str| corrected("share: 12.5%}, to: stock}", &format!("share: 12.5%}}, to: stock, select: {select}}}"));
    assert_eq!(select("{addresses: [10.2.0.300]}"), "write what is within `10.2.0.0/16`, the edge's own");
    assert_eq!(select("{ports: [70000]}"), "write what is within `6379-65535`, the edge's own");
    for (ports, written) in [("7000:7010", "7000-7010"), ("[7000..7010]", "[7000-7010]"), ("'7000,7002'", "[7000, 7002]")] {
        assert!(select(&format!("{{ports: {ports}}}")).contains(&format!("{{ports: {written}}}")), "{ports}");
    }
    for (network, written) in [("10.2.7.0/255.255.255.0", "10.2.7.0/24"), ("\"::ffff:10.2.7.0/24\"", "10.2.7.0/24")] {
        assert!(select(&format!("{{addresses: {network}}}")).contains(&format!("{{addresses: {written}}}")), "{network}");
    }
    assert!(select("{peers: 10.2.7.0/24}").contains("{addresses: 10.2.7.0/24}"));
    assert_eq!(select("{peers: 192.0.2.0/24}"), "leave it out");
    assert_eq!(select("{peers: 10.2.7.0/24, addresses: 10.2.0.0/17}"), "leave it out");
    // How such a quantity looks is no correction.
    for (from, to, help) in [
        ("loss: 30%", "loss: half", "write it as in `30%`"),
        ("port: 3306", "port: http", "write it as in `8080`"),
        ("fault: 300s", "fault: soon", "write it as in `100ms`"),
    ] {
        assert_eq!(corrected(from, to), help);
    }
    let loss = |fault: &str| corrected("loss: 30%, to: order-db", &format!("{fault}, to: order-db"));
    assert!(loss("partition: 50%").contains("- {loss: 50%, to: order-db}"));
    assert!(loss("loss: 5.%").contains("- {loss: 5%, to: order-db}"));
    assert!(loss("rate: 1.0000000001mbit").contains("- {rate: 1mbit, to: order-db}"));
    for path in ["x", "./x", "netns/x", "run/netns/x"] {
        assert!(loss(&format!("loss: 5%, netns: {{path: {path}}}")).contains("{path: /run/netns/x}"), "{path}");
    }
    assert!(corrected("time: 100ms, jitter: 20ms", "time: 5ms").contains("add `jitter: 5ms`"));
    let within = |within: &str| corrected("within 2 windows", &format!("within {within}"));
    assert_eq!(within("20"), "write `20 windows` or `20s`:\n  - retry ratio recovers within 20 windows");
    // Twenty-four windows of 5 s fill the recovery phase of 2 minutes.
    let longer = "are longer than the recovery phase of 2m";
    assert_eq!(within("25"), format!("write `25 windows` or `25s`, but 25 windows {longer}"));
    assert_eq!(within("200 seconds"), format!("write `200s`, but 200s {longer}"));
    assert_eq!(within("25 windws"), format!("25 windows {longer}: make `phases.recovery` longer, or the demand stricter"));
    let direction = corrected("share: 12.5%}, to: stock}", "share: 12.5%}, to: stock, direction: both}");
    for (word, meant) in [("in", "ingress"), ("rx", "ingress"), ("outgoing", "egress"), ("any", "both"), ("egres", "egress")] {
        assert!(loss(&format!("loss: 5%, direction: {word}")).contains(&format!("direction: {meant},")), "{word}");
    }
    assert_eq!(loss("loss: 5%, direction: sideways"), "write `egress`, `ingress` or `both`, as seen from this host");
    assert!(direction.starts_with("leave `direction` out, or write `ingress`:\n"), "{direction}");
}

#[test]
fn a_decimal_comma_in_braces_is_told_as_that() {
    let help = |from: &str, to: &str| {
        let problems = parse(&GOOD.replacen(from, to, 1)).unwrap_err();
        problems.into_iter().map(|problem| problem.help.unwrap()).collect::<Vec<_>>()
    };
    let phases = help("fault: 300s", "fault: 1,5m");
    assert!(phases.iter().any(|help| help.contains("fault: 1.5m,")), "{phases:?}");
    assert_eq!(phases.len(), 1, "{phases:?}");
}

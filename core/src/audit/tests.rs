//! Whole files, read and judged.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::finding::Rule;
use super::kind::Kind;
use super::layer::Tries;
use super::*;

/// The configurations whose audits are shown word for word in the agent's tests, one of each format at least.
const FILES: [(&str, Format, &str); 10] = [
    ("edge.conf", Format::Nginx, include_str!("../../../agent/tests/golden/audit/edge.conf")),
    ("dump.conf", Format::Nginx, include_str!("../../../agent/tests/golden/audit/dump.conf")),
    ("haproxy.cfg", Format::Haproxy, include_str!("../../../agent/tests/golden/audit/haproxy.cfg")),
    ("envoy.yaml", Format::Envoy, include_str!("../../../agent/tests/golden/audit/envoy.yaml")),
    ("istio.yaml", Format::Kubernetes, include_str!("../../../agent/tests/golden/audit/istio.yaml")),
    ("mesh.yaml", Format::Kubernetes, include_str!("../../../agent/tests/golden/audit/mesh.yaml")),
    ("orders-grpc.json", Format::Grpc, include_str!("../../../agent/tests/golden/audit/orders-grpc.json")),
    ("traefik.yaml", Format::Traefik, include_str!("../../../agent/tests/golden/audit/traefik.yaml")),
    ("aws-config", Format::Aws, include_str!("../../../agent/tests/golden/audit/aws-config")),
    ("application.yaml", Format::Spring, include_str!("../../../agent/tests/golden/audit/application.yaml")),
];

fn file(text: &str) -> Input {
    Input::File(File { name: "file".to_owned(), text: text.to_owned(), format: None, only: None })
}

fn one(text: &str) -> Audit {
    audit(vec![file(text)], None).unwrap()
}

fn rules(text: &str) -> Vec<Rule> {
    one(text).findings.into_iter().map(|finding| finding.rule).collect()
}

fn tries(text: &str, kind: Kind) -> Tries {
    one(text).layers[0].policies[0].tries(kind)
}

#[test]
fn every_format_is_recognised_by_its_content() {
    for (name, format, text) in FILES {
        assert_eq!(one(text).layers[0].format, Some(format), "{name}");
        // And the findings' places are what they say.
        for finding in one(text).findings {
            let place = finding.place.unwrap();
            assert!(!text[place.start..place.end].trim().is_empty(), "{name}: {finding:?}");
        }
    }
}

#[test]
fn nothing_that_is_no_configuration_is_taken_for_one() {
    for text in
        ["", "hello", "a: b", "{}", "[]", "root:x:0:0:root:/root:/bin/bash\n", "int main() { return 0; }", "version: 1\nname: a-test\n"]
    {
        let refused = audit(vec![file(text)], None).unwrap_err();
        assert!(refused[0].message.contains("no configuration"), "{text}: {refused:?}");
    }
}

#[test]
fn what_is_broken_is_refused_where_it_breaks() {
    for (text, message, line) in [
        ("http {\n  server {\n    location / { proxy_pass http://a }\n  }\n}\n", "no semicolon", 3),
        ("http {\n  upstream a { server 10.0.0.1; }\n", "not closed", 1),
        ("backend b\n  server a 10.0.0.1 'x\n", "quote is not closed", 2),
        ("backend b\n  mode http\n", "passes requests on", 1),
    ] {
        let refused = audit(vec![file(text)], None).unwrap_err();
        assert!(refused[0].message.contains(message), "{text}: {refused:?}");
        assert_eq!(refused[0].place.line_and_column(text).0, line, "{text}");
    }
    let broken =
        Input::File(File { name: "f".to_owned(), text: "{\"methodConfig\": [".to_owned(), format: Some(Format::Grpc), only: None });
    assert!(audit(vec![broken], None).is_err());
}

/// nginx with two servers, as measured: `client` tries, then nginx, then a service that tries three times and answers 503.
fn measured(client: &str, conditions: &str, server: &str) -> u64 {
    let nginx = format!(
        "upstream u {{ server 127.0.0.1:9151 {server}; server 127.0.0.1:9152 {server}; }}
         server {{ listen 9150; {conditions} location / {{ proxy_pass http://u; }} }}"
    );
    let layers = vec![Input::Stated(stated(client).unwrap()), file(&nginx), Input::Stated(stated("service=3,answers=503").unwrap())];
    audit(layers, None).unwrap().ways[0].calls.product
}

#[test]
fn the_worst_case_of_nginx_is_what_was_measured() {
    let with_503 = "proxy_next_upstream error timeout http_503;";
    assert_eq!(measured("client=1", "", ""), 3);
    assert_eq!(measured("client=3", "", ""), 9);
    assert_eq!(measured("client=1", with_503, "max_fails=0"), 6);
    assert_eq!(measured("client=3", with_503, "max_fails=0"), 18);
}

#[test]
fn a_listed_status_with_the_default_max_fails_is_an_outage_of_its_own() {
    let nginx = |server: &str, conditions: &str| {
        format!(
            "upstream u {{ server 10.0.0.1 {server}; server 10.0.0.2 {server}; }} server {{ location / {{ proxy_pass http://u; {conditions}
             proxy_next_upstream_tries 2; proxy_read_timeout 1s; proxy_next_upstream_timeout 3s; }} }}"
        )
    };
    assert_eq!(rules(&nginx("", "proxy_next_upstream error http_503;")), [Rule::EjectsOnStatus]);
    assert_eq!(rules(&nginx("max_fails=0", "proxy_next_upstream error http_503;")), []);
    assert_eq!(rules(&nginx("", "proxy_next_upstream error timeout;")), []);
    assert_eq!(rules(&nginx("", "proxy_next_upstream error non_idempotent;")), [Rule::RepeatsWrites]);
}

#[test]
fn nginx_tries_each_server_once_unless_a_limit_is_lower() {
    let nginx = |servers: usize, more: &str| {
        let servers = "server 10.0.0.1;".repeat(servers);
        format!("http {{ {more} upstream u {{ {servers} }} server {{ location / {{ proxy_pass http://u; }} }} }}")
    };
    assert_eq!(tries(&nginx(4, ""), Kind::Refused), Tries::AtMost(4));
    assert_eq!(tries(&nginx(4, "proxy_next_upstream_tries 2;"), Kind::Refused), Tries::AtMost(2));
    assert_eq!(tries(&nginx(1, "proxy_next_upstream_tries 2;"), Kind::Refused), Tries::AtMost(1));
    assert_eq!(tries(&nginx(4, "proxy_next_upstream off;"), Kind::Refused), Tries::AtMost(1));
    assert_eq!(tries(&nginx(4, ""), Kind::Http(503)), Tries::AtMost(1));
    // Ten seconds for all, three for one: the fourth begins after nine.
    let timed = "proxy_read_timeout 3s; proxy_next_upstream_timeout 8s;";
    assert_eq!(tries(&nginx(4, timed), Kind::Timeout), Tries::AtMost(3));
    assert_eq!(tries(&nginx(4, timed), Kind::Refused), Tries::AtMost(4));
    // A name has as many servers as addresses.
    assert_eq!(tries("server { location / { proxy_pass http://api.example.com; } }", Kind::Refused), Tries::Unlimited);
}

#[test]
fn settings_are_inherited_and_each_module_has_its_own() {
    let text = "http { proxy_next_upstream_tries 2; grpc_next_upstream error http_503;
        upstream u { server 10.0.0.1; server 10.0.0.2; server 10.0.0.3; }
        server { proxy_next_upstream error http_500;
            location /a { proxy_pass http://u; location /a/b { proxy_pass http://u; proxy_next_upstream_tries 3; } }
            location /g { grpc_pass grpc://u; } } }";
    let policies = &one(text).layers[0].policies;
    let tries = |at: usize, kind| policies[at].tries(kind);
    assert_eq!((tries(0, Kind::Http(500)), tries(0, Kind::Http(503))), (Tries::AtMost(2), Tries::AtMost(1)));
    assert_eq!(tries(1, Kind::Http(500)), Tries::AtMost(3));
    assert_eq!((tries(2, Kind::Http(503)), tries(2, Kind::Http(500))), (Tries::AtMost(3), Tries::AtMost(1)));
}

#[test]
fn a_route_can_be_chosen() {
    let file = |only: &str| {
        let text = FILES[0].2.to_owned();
        Input::File(File { name: "edge.conf".to_owned(), text, format: None, only: Some(only.to_owned()) })
    };
    let found = audit(vec![file("/health")], None).unwrap();
    assert_eq!(found.layers[0].policies.len(), 1);
    assert_eq!(found.ways[0].calls.product, 1);
    // What is wrong with other routes is not said, what concerns the whole file is.
    assert_eq!(found.findings.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [Rule::NotFollowed]);
    let refused = audit(vec![file("/nowhere")], None).unwrap_err();
    assert!(refused[0].help.as_ref().unwrap().contains("location /orders"), "{refused:?}");
}

#[test]
fn envoys_route_of_the_column_makes_three_tries_of_three_kinds() {
    let (_, _, text) = FILES[3];
    let policy = &one(text).layers[0].policies[0];
    for kind in [Kind::Refused, Kind::Reset, Kind::Timeout, Kind::Http(503)] {
        assert_eq!(policy.tries(kind), Tries::AtMost(3), "{kind}");
    }
    assert_eq!(policy.tries(Kind::Http(500)), Tries::AtMost(1));
    assert_eq!(policy.longest(), Some(Duration::from_millis(1500)));
    assert_eq!(policy.marker, Some("x-envoy-attempt-count"));
}

#[test]
fn envoy_does_not_retry_a_call_that_ran_out_of_the_routes_time() {
    let route = |timeouts: &str| {
        format!(
            "virtual_hosts: [{{name: v, routes: [{{match: {{prefix: /}}, route: {{cluster: c, {timeouts}, retry_on: x,
              retry_policy: {{retry_on: 5xx, num_retries: {{value: 4}}, PER}}}}}}]}}]"
        )
    };
    let with = |timeout: &str, per: &str| route(timeout).replace("PER", per);
    assert_eq!(tries(&with("timeout: 3s", "per_try_timeout: 1s"), Kind::Timeout), Tries::AtMost(3));
    assert_eq!(tries(&with("timeout: 3s", "per_try_timeout: 3s"), Kind::Timeout), Tries::AtMost(1));
    assert_eq!(tries(&with("timeout: 3s", "x: y"), Kind::Timeout), Tries::AtMost(1));
    assert_eq!(tries(&with("timeout: 0s", "perTryTimeout: 1s"), Kind::Timeout), Tries::AtMost(5));
    assert_eq!(tries(&with("timeout: 3s", "x: y"), Kind::Reset), Tries::AtMost(5));
}

#[test]
fn yaml_anchors_and_merge_keys_are_followed_and_what_is_written_wins() {
    let text = "x: &retry {retry_on: reset, num_retries: 4, per_try_timeout: 1s}
virtual_hosts:
- routes:
  - {match: {prefix: /a}, route: {cluster: c, timeout: 9s, retry_policy: *retry}}
  - {match: {prefix: /b}, route: {cluster: c, timeout: 9s, retry_policy: {<<: *retry, num_retries: 2}}}
  - {match: {prefix: /c}, route: {cluster: c, timeout: 9s, retry_policy: {num_retries: 1, <<: *retry}}}
";
    let policies = &one(text).layers[0].policies;
    let tries: Vec<Tries> = policies.iter().map(|policy| policy.tries(Kind::Reset)).collect();
    assert_eq!(tries, [5, 3, 2].map(Tries::AtMost));
}

#[test]
fn istio_retries_what_nobody_asked_it_to() {
    let service = |route: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: VirtualService\nspec: {{http: [{{route: [{{destination: {{host: a}}}}], {route}}}]}}"
        )
    };
    assert_eq!(tries(&service("name: x"), Kind::Http(503)), Tries::AtMost(3));
    assert_eq!(tries(&service("retries: {attempts: 0}"), Kind::Http(503)), Tries::AtMost(1));
    assert_eq!(tries(&service("retries: {attempts: 1, retryOn: '500,reset'}"), Kind::Http(500)), Tries::AtMost(2));
}

#[test]
fn grpc_makes_five_attempts_at_most_and_none_after_its_deadline() {
    let config = |policy: &str| {
        format!(
            r#"{{"methodConfig": [{{"name": [{{}}], "timeout": "1s", "retryPolicy": {{{policy}, "initialBackoff": "0.1s",
               "maxBackoff": "1s", "backoffMultiplier": 2}}}}], "retryThrottling": {{"maxTokens": 10, "tokenRatio": 0.1}}}}"#
        )
    };
    let good = config(r#""maxAttempts": 3, "retryableStatusCodes": ["UNAVAILABLE"]"#);
    assert_eq!(rules(&good), []);
    assert_eq!(tries(&good, Kind::Http(503)), Tries::AtMost(3));
    assert_eq!(tries(&good, Kind::Timeout), Tries::AtMost(1));
    assert_eq!(tries(&good, Kind::Http(500)), Tries::AtMost(1));
    let capped = config(r#""maxAttempts": 9, "retryableStatusCodes": [14]"#);
    assert_eq!((tries(&capped, Kind::Refused), rules(&capped)), (Tries::AtMost(5), vec![Rule::AttemptsCapped]));
    assert_eq!(rules(&config(r#""maxAttempts": 1, "retryableStatusCodes": ["UNAVAILABLE"]"#)), [Rule::InvalidPolicy]);
    assert_eq!(rules(&config(r#""maxAttempts": 2, "retryableStatusCodes": []"#)), [Rule::InvalidPolicy]);
    assert_eq!(rules(&config(r#""maxAttempts": 2, "retryableStatusCodes": ["NOT_FOUND"]"#)), [Rule::RetriesRefusals]);
    assert_eq!(rules(&config(r#""maxAttempts": 2, "retryableStatusCodes": ["UNAVAILABEL"]"#)), [Rule::InvalidPolicy, Rule::Unreadable]);
}

#[test]
fn haproxy_makes_four_tries_to_connect_and_repeats_post_if_it_repeats_requests() {
    let backend = |lines: &str| {
        format!(
            "defaults\n  mode http\n  timeout server 1s\n  option redispatch 1\nbackend b\n  {lines}\n  server a 10.0.0.1\n  server b 10.0.0.2\n"
        )
    };
    assert_eq!(tries(&backend(""), Kind::Refused), Tries::AtMost(4));
    assert_eq!(tries(&backend(""), Kind::Reset), Tries::AtMost(1));
    assert_eq!(rules(&backend("")), [Rule::DefaultRetries]);
    assert_eq!(rules(&backend("retries 1")), []);
    assert_eq!(rules(&backend("retries 1\n  no option redispatch")), [Rule::SameServer]);
    assert_eq!(tries(&backend("retries 0"), Kind::Refused), Tries::AtMost(1));
    assert_eq!(rules(&backend("retries 1\n  retry-on conn-failure 503")), [Rule::RepeatsWrites]);
    assert_eq!(rules(&backend("retries 1\n  retry-on conn-failure 503\n  http-request disable-l7-retry unless METH_GET")), []);
}

#[test]
fn a_gateway_over_a_mesh_over_a_client_library_is_as_bad_as_their_product() {
    let layers = ["edge.conf", "istio.yaml", "application.yaml"].map(|name| FILES.iter().find(|(known, ..)| *known == name).unwrap().2);
    let found = audit(layers.map(file).to_vec(), Some(10)).unwrap();
    let worst = &found.ways[0];
    // Four attempts of the library, which may answer anything; Istio's four tries on a 503; nginx's two, for it passes the 503 on. The four
    // servers of nginx's other route are tried on a timeout, which Istio would have to leave as it is, and turns into a 504.
    assert_eq!((worst.calls.product, worst.calls.unlimited), (32, false));
    assert_eq!(worst.steps.iter().map(|step| step.tries).collect::<Vec<_>>(), [2, 4, 4].map(Tries::AtMost));
    assert_eq!(worst.retrying().count(), 3);
    let last: Vec<Rule> = found.findings.iter().rev().take(3).map(|finding| finding.rule).collect();
    assert!(last.contains(&Rule::SeveralLayers) && last.contains(&Rule::TooManyCalls), "{last:?}");
}

#[test]
fn the_aws_sdks_mode_decides_unless_a_number_is_set() {
    let tries = |settings: &str| tries(&format!("[default]\nregion = x\n{settings}\n"), Kind::Http(503));
    assert_eq!(tries("retry_mode = standard"), Tries::AtMost(3));
    assert_eq!(tries("retry_mode=legacy\nmax_attempts=7"), Tries::AtMost(7));
    assert_eq!(tries("retry_mode = legacy"), Tries::Unlimited);
    assert_eq!(tries(""), Tries::Unlimited);
    assert_eq!(rules("[default]\nretry_mode = standard\n"), []);
}

#[test]
fn a_gateway_apis_attempts_are_retries() {
    let route = |retry: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec: {{rules: [{{retry: {retry}, timeouts: {{request: 2s, backendRequest: 500ms}}}}]}}"
        )
    };
    assert_eq!(tries(&route("{attempts: 2, codes: [503]}"), Kind::Http(503)), Tries::AtMost(3));
    assert_eq!(tries(&route("{attempts: 2, codes: [503]}"), Kind::Http(500)), Tries::AtMost(1));
    assert_eq!(rules(&route("{attempts: 2, codes: [503]}")), []);
    assert_eq!(rules(&route("{codes: [503, 404]}")), [Rule::UnlimitedTries, Rule::RetriesRefusals]);
}

/// Whatever is read, nothing panics, and every place can be shown.
fn survives(text: &str) {
    for format in [None].into_iter().chain(Format::ALL.map(Some)) {
        let input = Input::File(File { name: "f".to_owned(), text: text.to_owned(), format, only: None });
        let places: Vec<Place> = match audit(vec![input], Some(1)) {
            Ok(audit) => {
                assert!(!text::text(&audit).is_empty() && !json::json(&audit, &[text]).is_empty());
                audit.findings.iter().filter_map(|finding| finding.place).collect()
            }
            Err(refused) => refused.iter().map(|refused| refused.place).collect(),
        };
        for place in places {
            assert!(text.get(place.start..place.end).is_some(), "{place:?}");
        }
    }
}

#[test]
fn huge_numbers_and_deep_nests_are_survived() {
    for text in [
        "upstream u { server a; server b; } server { location / { proxy_pass http://u; proxy_next_upstream_tries 99999999999; proxy_read_timeout 99999999999999d; } }",
        "backend b\n retries 4294967295\n timeout server 99999999999d\n server a 10.0.0.1\n server b 10.0.0.2\n",
        "{\"methodConfig\": [{\"name\": [{}], \"timeout\": \"1e400s\", \"retryPolicy\": {\"maxAttempts\": 99999999999}}]}",
        "virtual_hosts: [{routes: [{route: {cluster: c, timeout: 18446744073709551615s, retry_policy: {retry_on: 5xx, num_retries: 4294967295, per_try_timeout: 0.000000001s}}}]}]",
        "resilience4j.retry.instances: {a: {maxAttempts: 4294967295, waitDuration: 18446744073709551615}}",
    ] {
        survives(text);
    }
    survives(&"[".repeat(20_000));
    survives(&"a {".repeat(20_000));
    survives(&"{\"a\":".repeat(20_000));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_reader_panic(text in "\\PC{0,200}") {
        survives(&text);
    }

    #[test]
    fn no_damage_to_a_real_file_makes_a_reader_panic(
        which in 0..FILES.len(),
        cut in any::<prop::sample::Index>(),
        length in 0_usize..40,
        put in prop_oneof![Just(String::new()), "[{}\\[\\]:;,#\"'\\\\ \n\t0-9a-z\u{e9}]{1,8}"],
    ) {
        let text = FILES[which].2;
        let start = text.floor_char_boundary(cut.index(text.len()));
        let end = text.floor_char_boundary((start + length).min(text.len())).max(start);
        survives(&format!("{}{put}{}", &text[..start], &text[end..]));
    }
}

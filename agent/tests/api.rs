//! The API by its router: no socket, no kernel, no privilege.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod served;

use std::collections::BTreeSet;

use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use served::{Api, playbook, read, request};

#[tokio::test]
async fn a_drill_is_started_looked_at_and_aborted() {
    let api = Api::new();
    let id = api.started(&playbook("slow", 1)).await;
    let (status, drill) = api.ask("GET", &format!("/v1/drills/{id}")).await;
    assert_eq!((status, &drill["state"], &drill["result"]), (200, &json!("running"), &Value::Null));
    assert_eq!((&drill["edges"][0]["name"], &drill["edges"][0]["role"]), (&json!("store"), &json!("downstream")));
    assert_eq!(api.ask("GET", &format!("/v1/drills/{id}/report")).await.0, 404, "it has no result yet");
    let (status, drill) = api.ask("DELETE", &format!("/v1/drills/{id}")).await;
    assert_eq!((status, &drill["state"], &drill["reason"]), (200, &json!("aborted"), &json!("aborted through the API")));
    assert_eq!(drill["result"]["drill"]["id"], json!(id));
    // Ending it again changes nothing.
    assert_eq!(api.ask("DELETE", &format!("/v1/drills/{id}")).await, (200, drill));
}

#[tokio::test]
async fn a_drill_that_runs_to_its_end_has_a_verdict_and_a_result() {
    let api = Api::new();
    let id = api.started(&playbook("quick", 1)).await;
    let drill = api.ended(&id).await;
    assert_eq!((&drill["state"], &drill["verdict"]), (&json!("finished"), &json!("pass")));
    assert_eq!(drill["result"]["schema"], "stormdrill/run/1");
    let report = api.send(request("GET", &format!("/v1/drills/{id}/report"), &[], "")).await;
    assert!(report.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    let page = String::from_utf8(report.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(page.starts_with("<!") && page.contains("quick"), "{page}");
}

#[tokio::test]
async fn a_second_drill_on_the_same_target_is_refused_with_the_id_of_the_first() {
    let api = Api::new();
    let first = api.started(&playbook("slow", 1)).await;
    let (status, problem) = api.start(&playbook("other", 1), &[]).await;
    assert_eq!((status, &problem["drill"]), (409, &json!(first)));
    // Another target is free, and so is the first one after the end.
    let second = api.started(&playbook("other", 2)).await;
    api.ask("DELETE", &format!("/v1/drills/{first}")).await;
    let third = api.started(&playbook("slow", 1)).await;
    let (_, list) = api.ask("GET", "/v1/drills").await;
    let ids: Vec<&str> = list["drills"].as_array().unwrap().iter().map(|drill| drill["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&third, &second, &first]);
    api.daemon.drills.stop().await;
}

#[tokio::test]
async fn no_more_drills_run_than_are_allowed() {
    let api = Api::with("limits: {drills: 1}", None);
    api.started(&playbook("slow", 1)).await;
    let (status, problem) = api.start(&playbook("slow", 2), &[]).await;
    assert_eq!((status, &problem["type"]), (429, &json!("urn:stormdrill:problem:too-many")));
    api.daemon.drills.stop().await;
    assert_eq!(api.start(&playbook("slow", 2), &[]).await.0, 503, "a daemon that stops starts nothing");
}

#[tokio::test]
async fn a_repeated_request_finds_its_drill_after_a_restart_too() {
    let api = Api::new();
    let key = [("idempotency-key", "k1")];
    let (status, drill) = api.start(&playbook("quick", 1), &key).await;
    assert_eq!(status, 201);
    let (status, again) = api.start(&playbook("quick", 1), &key).await;
    assert_eq!((status, &again["id"]), (200, &drill["id"]));
    let (status, problem) = api.start(&playbook("quick", 2), &key).await;
    assert_eq!((status, &problem["type"]), (422, &json!("urn:stormdrill:problem:idempotency-key-reused")));
    api.ended(drill["id"].as_str().unwrap()).await;
    let (status, later) = api.restarted().start(&playbook("quick", 1), &key).await;
    assert_eq!((status, &later["id"], &later["state"]), (200, &drill["id"], &json!("finished")));
    let long = "k".repeat(256);
    assert_eq!(api.start(&playbook("quick", 1), &[("idempotency-key", &long)]).await.0, 400);
}

#[tokio::test]
async fn a_drill_that_ran_when_the_daemon_died_is_aborted() {
    let api = Api::new();
    let id = api.started(&playbook("slow", 1)).await;
    // The other daemon is still there, but nothing of it reaches the new one except its files.
    let next = api.restarted();
    let (_, drill) = next.ask("GET", &format!("/v1/drills/{id}")).await;
    assert_eq!(drill["state"], "aborted");
    assert!(drill["reason"].as_str().unwrap().contains("daemon"), "{drill}");
    let events = next.send(request("GET", &format!("/v1/drills/{id}/events"), &[("last-event-id", "57")], "")).await;
    let text = String::from_utf8(events.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    assert!(text.contains("event: end") && text.contains("aborted"), "{text}");
    next.started(&playbook("quick", 1)).await;
    api.daemon.drills.stop().await;
}

#[tokio::test]
async fn a_drill_whose_thread_panics_has_failed_and_is_in_nobodys_way() {
    let api = Api::new();
    let id = api.started(&playbook("panics", 1)).await;
    assert_eq!(api.ended(&id).await["state"], "failed");
    api.started(&playbook("quick", 1)).await;
}

#[tokio::test]
async fn only_so_many_results_are_kept_on_disk() {
    let api = Api::with("retention: 3", None);
    let mut ids = Vec::new();
    for _ in 0..5 {
        let id = api.started(&playbook("quick", 1)).await;
        api.ended(&id).await;
        ids.push(id);
    }
    assert_eq!(std::fs::read_dir(api.drills_dir()).unwrap().count(), 6, "a record and a result of each of three");
    assert_eq!(api.ask("GET", &format!("/v1/drills/{}", ids[0])).await.0, 404);
    assert_eq!(api.ask("GET", &format!("/v1/drills/{}", ids[4])).await.0, 200);
}

#[tokio::test]
async fn drills_come_in_pages() {
    let api = Api::new();
    for _ in 0..3 {
        let id = api.started(&playbook("quick", 1)).await;
        api.ended(&id).await;
    }
    let (_, first) = api.ask("GET", "/v1/drills?limit=2").await;
    assert_eq!(first["drills"].as_array().unwrap().len(), 2);
    let (_, rest) = api.ask("GET", &format!("/v1/drills?limit=2&after={}", first["next"].as_str().unwrap())).await;
    assert_eq!((rest["drills"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
    for bad in ["limit=0", "limit=501", "limit=x", "after=nothing"] {
        assert_eq!(api.ask("GET", &format!("/v1/drills?{bad}")).await.0, 400, "{bad}");
    }
}

async fn events(api: &Api, id: &str, last: Option<&str>) -> (u16, String) {
    let headers: Vec<(&str, &str)> = last.map(|last| ("last-event-id", last)).into_iter().collect();
    let response = api.send(request("GET", &format!("/v1/drills/{id}/events"), &headers, "")).await;
    let status = response.status().as_u16();
    (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[tokio::test]
async fn events_are_numbered_end_with_the_drill_and_go_on_where_a_client_left() {
    let api = Api::new();
    let id = api.started(&playbook("slow", 1)).await;
    let path = format!("/v1/drills/{id}");
    let (stream, _) = tokio::join!(events(&api, &id, None), api.ask("DELETE", &path));
    let (status, text) = stream;
    assert_eq!(status, 200);
    let (state, text) = text.split_once("\n\n").unwrap();
    assert!(state.starts_with("event: state\ndata: {\"") && state.contains("\"state\":\"running\""), "{state}");
    assert!(text.starts_with("id: 1\nevent: phase\ndata: {\"phase\":\"baseline\""), "{text}");
    assert!(text.contains("id: 2\nevent: end\ndata: {\"state\":\"aborted\""), "{text}");
    let (_, rest) = events(&api, &id, Some("1")).await;
    let (state, rest) = rest.split_once("\n\n").unwrap();
    assert!(state.contains("\"state\":\"aborted\"") && !state.contains("id:"), "{state}");
    assert!(rest.starts_with("id: 2\nevent: end"), "{rest}");
    assert_eq!(events(&api, &id, Some("2")).await, (204, String::new()));
    assert_eq!(events(&api, &id, Some("x")).await.0, 400);
    assert_eq!(events(&api, "nothing", None).await.0, 404);
}

#[tokio::test]
async fn a_stream_says_at_once_where_the_drill_stands_although_nothing_happens() {
    let api = Api::new();
    let id = api.started(&playbook("attaches", 1)).await;
    let mut stream = api.send(request("GET", &format!("/v1/drills/{id}/events"), &[], "")).await.into_body();
    let frame = stream.frame().await.unwrap().unwrap().into_data().unwrap();
    let expected = "event: state\ndata: {\"state\":\"running\",\"phase\":null,\"phase_seconds_left\":null}\n\n";
    assert_eq!(String::from_utf8(frame.to_vec()).unwrap(), expected);
    api.daemon.drills.stop().await;
}

#[tokio::test]
async fn clients_cannot_open_more_streams_than_there_are() {
    let api = Api::with("limits: {connections: 8}", None);
    let id = api.started(&playbook("slow", 1)).await;
    let path = format!("/v1/drills/{id}/events");
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(api.send(request("GET", &path, &[], "")).await);
    }
    assert_eq!(api.ask("GET", &path).await.0, 503);
    open.pop();
    assert_eq!(api.send(request("GET", &path, &[], "")).await.status(), 200);
    api.daemon.drills.stop().await;
}

#[tokio::test]
async fn a_playbook_of_the_folder_is_started_by_name_with_overrides() {
    let api = Api::new();
    api.write("quick.yaml", &playbook("quick", 1));
    let start = async |body: Value| {
        read(api.send(request("POST", "/v1/drills", &[("content-type", "application/json")], &body.to_string())).await).await
    };
    assert_eq!(start(json!({ "name": "quick", "set": { "phases.fault": "7s", "observe.downstream.store.port": 9 } })).await.0, 201);
    let (status, problem) = start(json!({ "name": "quick", "set": { "phases.folt": "7s" } })).await;
    assert_eq!((status, &problem["problems"][0]["source"]), (422, &json!("set:phases.folt")), "{problem}");
    for (body, expected) in [
        (json!({ "name": "nothing" }), 404),
        (json!({ "name": "../quick" }), 404),
        (json!({ "name": "/etc/passwd" }), 404),
        (json!({ "nam": "quick" }), 400),
        (json!({}), 400),
        (json!({ "name": "quick", "playbook": "" }), 400),
        (json!({ "playbook": "version: 1" }), 422),
        (json!({ "playbook": playbook("quick", 7), "set": { "phases.folt": "1s" } }), 422),
        (json!({ "playbook": playbook("quick", 7), "set": { "phases.fault": "1s" } }), 201),
        (json!({ "name": "quick", "set": { "phases": {} } }), 400),
        (json!([]), 400),
    ] {
        assert_eq!(start(body.clone()).await.0, expected, "{body}");
    }
    let (_, list) = api.ask("GET", "/v1/playbooks").await;
    assert_eq!(list["playbooks"], json!([{ "name": "quick", "valid": true, "description": null }]));
}

#[tokio::test]
async fn a_folder_of_playbooks_that_is_not_there_is_said() {
    let api = Api::with("playbooks: /nonexistent/playbooks", None);
    let (status, problem) = api.ask("GET", "/v1/playbooks").await;
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 503 && detail.contains("names in `playbooks`") && detail.contains("No such file"), "{status} {problem}");
}

#[tokio::test]
async fn a_bad_playbook_is_refused_with_its_problems_and_their_places() {
    let api = Api::new();
    let bad = playbook("slow", 1).replace("faults", "folts");
    let (status, problem) = api.start(&bad, &[]).await;
    assert_eq!((status, &problem["problems"][0]["line"]), (422, &json!(5)), "{problem:#}");
    let validate = async |text: &str| {
        read(api.send(request("POST", "/v1/playbooks/validate", &[("content-type", "application/yaml")], text)).await).await.1
    };
    assert_eq!(validate(&bad).await["valid"], false);
    assert_eq!(validate(&playbook("slow", 1)).await, json!({ "valid": true, "playbook": "slow", "problems": [] }));
    assert_eq!(api.ask("GET", "/v1/drills").await.1["drills"], json!([]));
}

#[tokio::test]
async fn a_text_with_thousands_of_problems_is_answered_soon_and_holds_nobody_up() {
    let api = Api::new();
    let id = api.started(&playbook("slow", 1)).await;
    let bad = format!("{}expect:\n{}", playbook("slow", 2), "- a b < 1\n".repeat(3_000));
    let check = async || {
        let answer = read(api.send(request("POST", "/v1/playbooks/validate", &[("content-type", "application/yaml")], &bad)).await).await.1;
        assert_eq!((&answer["valid"], answer["problems"].as_array().unwrap().len()), (&json!(false), 100));
    };
    // All of it on one thread, as in the daemon: what is asked meanwhile is answered first.
    let others = async {
        assert_eq!(api.ask("GET", "/healthz").await.0, 200);
        api.ask("DELETE", &format!("/v1/drills/{id}")).await
    };
    let (mut checked, mut others) = (std::pin::pin!(async { tokio::join!(check(), check()) }), std::pin::pin!(others));
    tokio::select! {
        biased;
        _ = &mut checked => panic!("a long check came first"),
        (status, drill) = &mut others => assert_eq!((status, &drill["state"]), (200, &json!("aborted"))),
    }
    checked.await;
    let (status, problem) = api.start(&bad, &[]).await;
    assert_eq!((status, &problem["detail"], problem["problems"].as_array().unwrap().len()), (422, &json!("3000 problems"), 100));
}

#[test]
fn a_result_is_read_beside_what_others_ask() {
    // With one place for what blocks, and that taken, whatever is read there waits, and what is not there does not.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let api = Api::new();
        let id = api.started(&playbook("quick", 1)).await;
        api.ended(&id).await;
        for path in [format!("/v1/drills/{id}"), format!("/v1/drills/{id}/report")] {
            let (release, held) = std::sync::mpsc::channel::<()>();
            let place = tokio::task::spawn_blocking(move || held.recv());
            let mut large = std::pin::pin!(api.send(request("GET", &path, &[], "")));
            tokio::select! {
                biased;
                _ = &mut large => panic!("{path} was read on the thread that serves all"),
                (status, _) = api.ask("GET", "/healthz") => assert_eq!(status, 200),
            }
            drop(release);
            assert_eq!(large.await.status(), 200);
            let _ = place.await;
        }
    });
}

#[tokio::test]
async fn an_id_that_is_no_text_is_no_drills() {
    let api = Api::new();
    for (method, path) in [("GET", ""), ("DELETE", ""), ("GET", "/events"), ("GET", "/report")] {
        assert_eq!(api.ask(method, &format!("/v1/drills/%ff{path}")).await.0, 404, "{method} {path}");
    }
}

#[tokio::test]
async fn bodies_are_bounded_and_of_a_known_type() {
    let api = Api::with("limits: {body_bytes: 1024}", None);
    let big = "#".repeat(2_000);
    assert_eq!(api.start(&big, &[]).await.0, 413);
    // One whose length is not announced.
    let chunks = futures_util::stream::iter((0..3).map(|_| Ok::<_, std::io::Error>("#".repeat(500))));
    let mut unannounced = request("POST", "/v1/drills", &[("content-type", "application/yaml")], "");
    *unannounced.body_mut() = Body::from_stream(chunks);
    assert_eq!(read(api.send(unannounced).await).await.0, 413);
    assert_eq!(read(api.send(request("POST", "/v1/drills", &[("content-type", "text/plain")], "x")).await).await.0, 415);
    assert_eq!(read(api.send(request("POST", "/v1/drills", &[], "x")).await).await.0, 415);
    let mut binary = request("POST", "/v1/drills", &[("content-type", "application/yaml")], "");
    *binary.body_mut() = Body::from(vec![0xff, 0xfe]);
    assert_eq!(read(api.send(binary).await).await.0, 400);
}

#[tokio::test]
async fn without_a_token_only_this_host_is_asked_and_no_page_can_ask() {
    let api = Api::new();
    let ask = async |headers: &[(&str, &str)]| read(api.send(request("GET", "/v1/drills", headers, "")).await).await.0;
    for (headers, expected) in [
        (&[("host", "localhost:9464")][..], 200),
        (&[("host", "[::1]:9464")], 200),
        (&[("host", "rebound.example:9464")], 421),
        (&[("origin", "http://127.0.0.1:9464")], 200),
        (&[("origin", "http://evil.example")], 403),
        (&[("origin", "null")], 403),
        (&[("sec-fetch-site", "cross-site")], 403),
        (&[("sec-fetch-site", "same-origin")], 200),
        (&[("host", "127.0.0.1"), ("host", "rebound.example")], 421),
        (&[("origin", "http://127.0.0.1:9464"), ("origin", "http://evil.example")], 403),
        (&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")], 403),
    ] {
        assert_eq!(ask(headers).await, expected, "{headers:?}");
    }
    // People may follow a link to the page; other sites may not frame or load it.
    let link = async |mode: &str, dest: &str| {
        let headers = [("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
        api.send(request("GET", "/", &headers, "")).await.status().as_u16()
    };
    assert_eq!((link("navigate", "document").await, link("navigate", "iframe").await, link("no-cors", "script").await), (200, 403, 403));
}

#[tokio::test]
async fn with_a_token_it_has_to_be_known() {
    let api = Api::with("", Some("0123456789abcdef"));
    let ask = async |path: &str, headers: &[(&str, &str)]| api.send(request("GET", path, headers, "")).await;
    for path in ["/v1/drills", "/metrics", "/readyz", "/openapi.json"] {
        let refused = ask(path, &[]).await;
        assert_eq!(refused.headers()["www-authenticate"], "Bearer");
        assert_eq!(read(refused).await.0, 401);
        assert_eq!(read(ask(path, &[("authorization", "Bearer 0123456789abcdeg")]).await).await.0, 401);
        assert_eq!(read(ask(path, &[("authorization", "Basic 0123456789abcdef")]).await).await.0, 401);
        assert_eq!(ask(path, &[("authorization", "Bearer 0123456789abcdef"), ("host", "drills.example")]).await.status(), 200);
    }
    assert_eq!(ask("/healthz", &[]).await.status(), 200);
}

#[tokio::test]
async fn the_page_is_given_to_anybody_and_lets_nothing_of_others_run() {
    let api = Api::with("", Some("0123456789abcdef"));
    let read = async |path: &str| {
        let response = api.send(request("GET", path, &[], "")).await;
        assert_eq!(response.status(), 200, "{path}");
        let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    };
    let page = read("/").await;
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="), "a policy would refuse it");
    let mut to_read: Vec<String> = page.split('"').filter(|part| part.starts_with("/page/")).map(str::to_owned).collect();
    let mut seen = BTreeSet::new();
    while let Some(path) = to_read.pop() {
        if seen.insert(path.clone()) {
            let text = read(&path).await;
            assert!(!text.contains("innerHTML") && !text.contains("://") || text.contains("www.w3.org/2000/svg"), "{path}");
            to_read.extend(text.split("from \"./").skip(1).map(|rest| format!("/page/{}", rest.split('"').next().unwrap())));
        }
    }
    assert_eq!(seen.len(), 8, "{seen:?}");
    assert_eq!(api.ask("GET", "/page/other.js").await.0, 401);
    assert_eq!(api.ask("POST", "/").await.0, 405);
}

#[tokio::test]
async fn every_documented_operation_is_there_and_answers_as_documented() {
    let api = Api::new();
    let document: Value = serde_json::from_str(&stormdrill::api::document()).unwrap();
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(ids.insert(operation["operationId"].to_string()));
            let (status, _) = api.ask(&method.to_uppercase(), &path.replace("{id}", "nothing")).await;
            assert!(operation["responses"].get(status.to_string()).is_some(), "{method} {path} answers {status}");
            assert_ne!(status, 405, "{method} {path}");
            let (status, _) = api.ask("PATCH", &path.replace("{id}", "nothing")).await;
            assert_eq!(status, 405, "{path}");
        }
    }
    assert_eq!(ids.len(), 14);
    assert_eq!(api.ask("GET", "/v2/drills").await.0, 404);
    assert_eq!(api.ask("GET", "/openapi.json").await.1, document);
}

#[tokio::test]
async fn answers_have_the_members_that_their_schemas_name() {
    let api = Api::new();
    let document: Value = serde_json::from_str(&stormdrill::api::document()).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let required = |schema: &str| {
        let schema = &document["components"]["schemas"][schema]["required"];
        schema.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect::<BTreeSet<String>>()
    };
    let id = api.started(&playbook("quick", 1)).await;
    let drill = api.ended(&id).await;
    assert_eq!(names(&drill), names(&document["components"]["schemas"]["Drill"]["properties"]));
    let (_, list) = api.ask("GET", "/v1/drills").await;
    assert_eq!(names(&list), required("Drills"));
    assert_eq!(names(&list["drills"][0]), required("Drill"));
    for (path, schema) in [("/v1/playbooks", "Playbooks"), ("/v1/edges", "Edges"), ("/v1/connections", "Connections")] {
        assert_eq!(names(&api.ask("GET", path).await.1), required(schema));
    }
    let (_, problem) = api.start("version: 1", &[]).await;
    assert!(names(&problem).is_superset(&required("Problem")));
    assert_eq!(names(&problem["problems"][0]), required("PlaybookProblem"));
}

#[test]
fn the_openapi_document_is_the_one_in_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");
    let document = stormdrill::api::document();
    if std::env::var_os("STORMDRILL_BLESS").is_some() {
        std::fs::write(path, &document).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    assert!(kept == document, "the API has changed: run this test with STORMDRILL_BLESS=1, and read the difference in docs/openapi.json");
}

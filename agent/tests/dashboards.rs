//! What is shown, documented and deployed agrees with what there is: docs/metrics.md, dashboards/, deploy/.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use stormdrill::metrics::name;

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The names of this tool's metrics in a text; a histogram's parts count as the histogram.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    let ours = words.filter(|word| word.starts_with("stormdrill_"));
    ours.map(|word| ["_bucket", "_sum", "_count"].iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word).to_owned()).collect()
}

fn defined() -> BTreeSet<String> {
    name::ALL.iter().map(|definition| definition.name.to_owned()).collect()
}

fn dashboards() -> Vec<(String, Value)> {
    let files = ["drill", "edges", "agent"].map(|name| format!("dashboards/{name}.json"));
    files.into_iter().map(|file| (file.clone(), serde_json::from_str(&read(&file)).unwrap())).collect()
}

/// Every query of a dashboard: panels, annotations, variables.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value {
                    Value::String(text) if ["expr", "definition"].contains(&key.as_str()) => found.push(text.clone()),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

#[test]
fn the_documentation_lists_every_metric_as_it_is_and_no_other() {
    let text = read("docs/metrics.md");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| `stormdrill_")).collect();
    for (definition, row) in name::ALL.iter().zip(&rows) {
        let labels: Vec<String> = definition.labels.iter().map(|label| format!("`{label}`")).collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        assert_eq!(*row, format!("| `{}` | {} | {labels} | {} |", definition.name, definition.kind.as_str(), definition.help));
    }
    assert_eq!(rows.len(), name::ALL.len());
    assert_eq!(names(&text), defined());
}

#[test]
fn dashboards_and_rules_use_every_metric_and_no_other() {
    let mut used = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        let mut found = Vec::new();
        queries(&dashboard, &mut found);
        let here = names(&found.join(" "));
        assert!(here.is_subset(&defined()), "{file} asks for {:?}", here.difference(&defined()));
        used.extend(here);
    }
    assert_eq!(used, defined(), "a metric that no dashboard shows is one that nobody looks at");
    let rules = names(&read("dashboards/rules.yaml"));
    assert!(rules.is_subset(&defined()), "{:?}", rules.difference(&defined()));
}

#[test]
fn dashboards_can_be_imported_as_they_are() {
    let mut uids = BTreeSet::new();
    for (file, dashboard) in dashboards() {
        assert!(uids.insert(dashboard["uid"].to_string()), "{file}");
        let variables = dashboard["templating"]["list"].as_array().unwrap();
        assert!(variables.iter().any(|variable| variable["type"] == "datasource"), "{file} asks for no data source");
        let text = dashboard.to_string();
        // Grafana gives a number to what it imports, and knows the shape from version 8.5 on.
        assert!(dashboard["id"].is_null() && dashboard["schemaVersion"].as_u64().unwrap() >= 36, "{file}");
        for name in ["datasource", "instance", "edge"] {
            let is_used = text.contains(&format!("${name}")) || text.contains(&format!("${{{name}}}"));
            assert_eq!(variables.iter().any(|variable| variable["name"] == name), is_used, "{file}: {name}");
        }
        assert!(!text.contains("${DS_") && !text.contains("\"uid\":\"prom"), "{file} names a data source of somebody's");
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<String> = panels.iter().map(|panel| panel["id"].to_string()).collect();
        assert_eq!(ids.len(), panels.len(), "{file}");
        for panel in panels {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{file}: {}", panel["title"]);
            assert!(!panel["description"].as_str().unwrap().is_empty(), "{file}: {}", panel["title"]);
        }
    }
}

#[test]
fn prometheus_accepts_the_rules_and_they_do_what_they_should() {
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules.test.yaml"]] {
        match Command::new("promtool").args(arguments).current_dir(root("dashboards")).output() {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{said}");
            }
            // Debian has it in the package prometheus.
            Err(error) => assert!(std::env::var_os("CI").is_none(), "promtool: {error}"),
        }
    }
}

#[test]
fn the_shipped_configuration_is_one_of_defaults() {
    use stormdrill_core::playbook::serve::{Config, parse};
    let text = read("deploy/serve.yaml");
    assert_eq!(parse(&text).unwrap(), Config::default());
    // What is behind a comment sign has to be right, too: a line that begins `# key:` or continues one.
    let is_example =
        |line: &&str| line.starts_with("# ") && (line[2..].starts_with("  ") || line[2..].split(' ').next().unwrap().ends_with(':'));
    let examples: String = text.lines().filter(is_example).map(|line| format!("{}\n", &line[2..])).collect();
    let config = parse(&examples).unwrap();
    assert!(config.tls.is_some() && config.etcd.is_some_and(|etcd| etcd.user.is_some() && etcd.identity.is_some()));
    assert!(config.token_file.is_some() && config.playbooks.is_some() && config.socket.is_some(), "{examples}");
    assert_eq!(config.observe.unwrap().edges.len(), 2);
}

#[test]
fn every_problem_is_documented() {
    let text = read("docs/serve.md");
    for kind in stormdrill::api::Kind::ALL {
        assert!(text.contains(&format!("| `{}` | {} | {} |", kind.uri(), kind.status().as_u16(), kind.title())), "{kind:?}");
    }
}

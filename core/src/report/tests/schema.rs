//! The published JSON Schema is that of the views, and written results satisfy it.

use serde_json::Value;

use super::result;
use crate::report::json::{self, Run};

const PUBLISHED: &str = "../docs/schema/run.schema.json";

fn derived() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12();
    let mut schema = serde_json::to_value(settings.into_generator().into_root_schema_for::<Run>()).unwrap();
    schema["title"] = "A stormdrill result".into();
    schema["properties"]["schema"] = serde_json::json!({"const": json::RUN_SCHEMA});
    schema
}

/// With `STORMDRILL_BLESS` set, writes the file instead.
#[test]
#[expect(clippy::disallowed_methods, reason = "core does no I/O, but this test keeps a file of the project")]
fn the_published_schema_is_that_of_the_views() {
    let mut derived = serde_json::to_string_pretty(&derived()).unwrap();
    derived.push('\n');
    if std::env::var_os("STORMDRILL_BLESS").is_some() {
        std::fs::write(PUBLISHED, &derived).unwrap();
    }
    let published = std::fs::read_to_string(PUBLISHED).unwrap_or_default();
    assert!(
        published == derived,
        "docs/schema/run.schema.json is not that of the views: run with STORMDRILL_BLESS=1 and look at the difference"
    );
}

/// What in `value` does not satisfy `schema`: the keywords that our schema uses, and no others.
fn complaints(value: &Value, schema: &Value, root: &Value, at: &str, out: &mut Vec<String>) {
    for (keyword, rule) in schema.as_object().unwrap() {
        let satisfied = match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" | "format" | "default" => true,
            "$ref" => {
                let name = rule.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                complaints(value, &root["$defs"][name], root, at, out);
                true
            }
            "anyOf" => rule.as_array().unwrap().iter().any(|one| {
                let mut found = Vec::new();
                complaints(value, one, root, at, &mut found);
                found.is_empty()
            }),
            "const" => value == rule,
            "type" => match rule {
                Value::Array(types) => types.iter().any(|kind| is(value, kind.as_str().unwrap())),
                kind => is(value, kind.as_str().unwrap()),
            },
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= rule.as_u64().unwrap()),
            "required" => rule.as_array().unwrap().iter().all(|key| value.get(key.as_str().unwrap()).is_some()),
            "properties" => {
                for (key, rule) in rule.as_object().unwrap() {
                    if let Some(value) = value.get(key) {
                        complaints(value, rule, root, &format!("{at}/{key}"), out);
                    }
                }
                true
            }
            "additionalProperties" => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    complaints(value, rule, root, &format!("{at}/{key}"), out);
                }
                true
            }
            "items" => {
                for (index, value) in value.as_array().into_iter().flatten().enumerate() {
                    complaints(value, rule, root, &format!("{at}/{index}"), out);
                }
                true
            }
            other => panic!("a keyword that this test does not know: {other}"),
        };
        if !satisfied {
            out.push(format!("{at}: {keyword}"));
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("{other}"),
    }
}

fn check(text: &str) -> Vec<String> {
    let schema = derived();
    let mut out = Vec::new();
    complaints(&serde_json::from_str(text).unwrap(), &schema, &schema, "", &mut out);
    out
}

#[test]
fn results_satisfy_the_schema_and_others_do_not() {
    let good = json::run(&result());
    assert_eq!(check(&good), Vec::<String>::new());
    let measured = include_str!("measured.json");
    assert_eq!(check(measured), Vec::<String>::new());
    assert!(json::read_run(measured).is_ok());
    for (from, to, complaint) in [
        ("stormdrill/run/1", "stormdrill/run/2", "/schema: const"),
        ("\"verdict\": \"fail\"", "\"verdict\": 3", "/verdict: type"),
        ("\"requests\": 1800", "\"requests\": -1", "/edges/1/phases/fault/requests: minimum"),
        ("\"qps\": 30.0", "\"qps\": \"30\"", "/edges/1/phases/fault/qps: type"),
    ] {
        assert!(good.contains(from), "{from}");
        assert!(check(&good.replacen(from, to, 1)).iter().any(|found| found == complaint), "{complaint}");
    }
}

//! The OpenAPI 3.1 document, made from the operations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::operation::{JSON, Operation};
use super::problem::Kind;
use super::schema;

/// Problems that any operation can have.
const EVERYWHERE: [Kind; 7] =
    [Kind::BadRequest, Kind::Unauthorized, Kind::CrossOrigin, Kind::WrongHost, Kind::MethodNotAllowed, Kind::TooFast, Kind::Busy];

/// The document of these operations.
pub(super) fn document(operations: &[Operation]) -> String {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations {
        paths.entry(operation.path).or_default().insert(operation.method.to_owned(), describe(operation));
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "stormdrill",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Failure drills on this host: start, watch, end and read them. Errors are application/problem+json with a stable `type`.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schema::all(),
        },
    });
    serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
}

fn describe(operation: &Operation) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "responses": answers(operation),
    });
    if !operation.parameters.is_empty() {
        let parameters = operation.parameters.iter().map(|parameter| {
            json!({
                "name": parameter.name,
                "in": parameter.place,
                "required": parameter.place == "path",
                "description": parameter.description,
                "schema": serde_json::from_str::<Value>(parameter.schema).unwrap_or_default(),
            })
        });
        described["parameters"] = parameters.collect();
    }
    if !operation.body.is_empty() {
        let content: Map<String, Value> = operation.body.iter().map(|(media, schema)| media_type(media, schema)).collect();
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn media_type(media: &str, schema: &str) -> (String, Value) {
    (media.to_owned(), json!({ "schema": schema::reference(schema) }))
}

fn answers(operation: &Operation) -> Value {
    let mut answers: BTreeMap<String, Value> = BTreeMap::new();
    for answer in operation.answers {
        let mut described = json!({ "description": answer.description });
        if !answer.media.is_empty() {
            described["content"] = Value::Object([media_type(answer.media, answer.schema)].into_iter().collect());
        }
        if answer.status == 201 && answer.media == JSON {
            described["headers"] = json!({ "Location": { "schema": { "type": "string" } } });
        }
        answers.insert(answer.status.to_string(), described);
    }
    let mut kinds: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
    for kind in operation.problems.iter().chain(&EVERYWHERE) {
        let same_status = kinds.entry(kind.status().as_u16()).or_default();
        if !same_status.contains(kind) {
            same_status.push(*kind);
        }
    }
    for (status, kinds) in kinds {
        let described: Vec<String> = kinds.iter().map(|kind| format!("{} (`{}`)", kind.title(), kind.uri())).collect();
        let content: Map<String, Value> = [media_type("application/problem+json", "Problem")].into_iter().collect();
        answers.insert(status.to_string(), json!({ "description": described.join("; "), "content": content }));
    }
    json!(answers)
}

//! The shapes of bodies, for the OpenAPI document. A test holds real answers against them.

use serde_json::{Value, json};

use super::playbooks::MAX_PROBLEMS;

/// By name, as `#/components/schemas/` has them.
pub(super) fn all() -> Value {
    let text = || json!({ "type": "string" });
    let maybe = |kind: &str| json!({ "type": [kind, "null"] });
    json!({
        "Text": { "type": "string" },
        "Anything": {},
        "Problem": object(&[
            ("type", json!({ "type": "string", "format": "uri" })),
            ("title", text()),
            ("status", json!({ "type": "integer" })),
            ("detail", text()),
        ], &[
            ("drill", json!({ "type": "string", "description": "The drill that is in the way." })),
            ("host", json!({ "type": "string", "description": "The host of that drill, if it is another one." })),
            ("problems", problems()),
        ]),
        "PlaybookProblem": object(&[
            ("code", text()),
            ("message", text()),
            ("source", json!({ "type": "string", "description": "`file`, or `set:` and the path of an override." })),
            ("line", json!({ "type": "integer", "minimum": 1 })),
            ("column", json!({ "type": "integer", "minimum": 1 })),
            ("label", text()),
            ("help", maybe("string")),
        ], &[]),
        "Playbook": {
            "type": "object",
            "description": "A playbook as `stormdrill run` reads it; POST /v1/playbooks/validate says what is wrong with one.",
            "required": ["version", "name", "observe", "phases"],
        },
        "NamedPlaybook": closed(object(&[], &[
            ("name", json!({
                "type": "string",
                "pattern": "^[a-z0-9-]{1,63}$",
                "description": "One of the configured folder, or of etcd. This or `playbook`.",
                "examples": ["retry-amplification"],
            })),
            ("playbook", json!({ "type": "string", "description": "The text of one, YAML." })),
            ("set", json!({ "type": "object", "additionalProperties": { "type": ["string", "number", "boolean"] } })),
        ])),
        "Drill": object(&[
            ("id", text()),
            ("playbook", text()),
            ("state", json!({ "enum": ["running", "finished", "aborted", "failed"] })),
            ("phase", maybe("string")),
            ("phase_seconds_left", maybe("number")),
            ("started_at", json!({ "type": "string", "format": "date-time" })),
            ("ended_at", json!({ "type": ["string", "null"], "format": "date-time" })),
            ("verdict", json!({ "enum": ["pass", "fail", "inconclusive", "vacuous", "invalid", null] })),
            ("reason", maybe("string")),
            ("edges", json!({ "type": "array", "items": reference("Edge"), "description": "While it runs: its edges, with their last final window." })),
            ("faults", json!({ "type": "array", "items": reference("FaultSoFar"), "description": "While it runs: what its faults did so far." })),
        ], &[
            ("result", json!({ "type": ["object", "null"], "description": "The JSON of `stormdrill run`, once the drill has ended." })),
        ]),
        "Drills": object(&[
            ("drills", json!({ "type": "array", "items": reference("Drill") })),
            ("next", maybe("string")),
        ], &[]),
        "Playbooks": object(&[
            ("playbooks", json!({ "type": "array", "items": object(&[
                ("name", text()),
                ("valid", json!({ "type": "boolean" })),
                ("description", maybe("string")),
            ], &[]) })),
        ], &[]),
        "Validation": object(&[
            ("valid", json!({ "type": "boolean" })),
            ("playbook", maybe("string")),
            ("problems", problems()),
        ], &[]),
        "Edge": object(&[
            ("name", text()),
            ("role", json!({ "enum": ["ingress", "downstream"] })),
            ("address", maybe("string")),
            ("port", maybe("string")),
            ("protocol", maybe("string")),
            ("window", json!({ "type": ["object", "null"], "description": "As in `windows` of a result." })),
        ], &[]),
        "FaultSoFar": object(&[
            ("kind", text()),
            ("selected", json!({ "type": "integer", "minimum": 0 })),
            ("hit", json!({ "type": "integer", "minimum": 0 })),
        ], &[]),
        "Edges": object(&[
            ("edges", json!({ "type": "array", "items": reference("Edge") })),
            ("window_index", json!({ "type": ["integer", "null"], "description": "The number of the window that `window` of each is of." })),
        ], &[]),
        "Connections": object(&[
            ("connections", json!({ "type": "array", "maxItems": 1000, "items": object(&[
                ("edge", text()),
                ("role", json!({ "enum": ["ingress", "downstream"] })),
                ("local", text()),
                ("peer", text()),
            ], &[]) })),
            ("total", json!({ "type": "integer", "minimum": 0 })),
        ], &[]),
    })
}

/// A reference to one of them.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn problems() -> Value {
    json!({ "type": "array", "maxItems": MAX_PROBLEMS, "items": reference("PlaybookProblem"), "description": "The first ones, if there are more." })
}

fn object(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    let properties: serde_json::Map<String, Value> =
        required.iter().chain(optional).map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": names, "properties": properties })
}

fn closed(mut object: Value) -> Value {
    object["additionalProperties"] = json!(false);
    object
}

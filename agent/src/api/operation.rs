//! What the API can do, as values: the router and the OpenAPI document are both made from them, so that neither has what the other lacks.

use axum::routing::MethodRouter;

use super::App;
use super::problem::Kind;

/// One method on one path.
pub(super) struct Operation {
    /// In lower case.
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// `operationId`, unique.
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) parameters: &'static [Parameter],
    /// Media types of the body, each with its schema.
    pub(super) body: &'static [(&'static str, &'static str)],
    pub(super) answers: &'static [Answer],
    pub(super) problems: &'static [Kind],
    pub(super) route: MethodRouter<App>,
}

/// One parameter.
pub(super) struct Parameter {
    pub(super) name: &'static str,
    /// `path`, `query` or `header`.
    pub(super) place: &'static str,
    /// What the schema says beside the type, as JSON.
    pub(super) schema: &'static str,
    pub(super) description: &'static str,
}

/// One answer that is no problem.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) description: &'static str,
    pub(super) media: &'static str,
    /// A name among the schemas.
    pub(super) schema: &'static str,
}

pub(super) const JSON: &str = "application/json";
pub(super) const YAML: &str = "application/yaml";

pub(super) const ID: Parameter =
    Parameter { name: "id", place: "path", schema: r#"{"type": "string"}"#, description: "The drill's identifier." };

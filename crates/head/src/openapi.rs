//! The OpenAPI 3.1 description of the API. It is generated from the routes and the types of the handlers' arguments and
//! responses.

use std::future::Future;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{DefaultBodyLimit, State};
use axum::handler::Handler;
use axum::http::HeaderMap;
use axum::response::{NoContent, Response, Sse};
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Router};
use hostler_model::{Digest, JobId, NodeName, PartitionName, UserName};
use hostler_proto::api::{BASE, ErrorBody, Notice};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api::error::ApiError;
use crate::api::extract::{Json, Path, Query};
use crate::api::reply::{Binary, EventStream, JsonText, List, OrNull};
use crate::api::who::{Agent, Anyone, Certified, User};
use crate::audit::About;
use crate::head::Head;
use crate::identity::Person;
use crate::rights::Who;

/// Routes, with the accepted callers and the description of each.
pub(crate) struct Api {
    pub(crate) router: Router<Arc<Head>>,
    pub(crate) operations: Vec<Operation>,
}

/// An operation of the API.
pub(crate) struct Operation {
    /// HTTP method in lower case.
    pub(crate) method: &'static str,
    /// Path relative to [`BASE`].
    pub(crate) path: &'static str,
    pub(crate) who: Who,
    summary: &'static str,
    /// Makes the description. Only who asks for the document pays for it, in time and memory.
    draft: fn() -> Draft,
}

/// The description collected so far from the types of a handler.
#[derive(Default)]
pub(crate) struct Draft {
    /// Schemas of the path parameters, in order.
    in_path: Vec<Value>,
    parameters: Vec<Value>,
    /// Content of the body, and whether it is required.
    body: Option<(Value, bool)>,
    answer: Option<(&'static str, Value)>,
    /// Referenced schemas.
    schemas: Vec<(String, Value)>,
}

/// An argument of a handler.
pub(crate) trait Input {
    /// Adds the part of the request that the argument reads. By default, adds nothing.
    fn describe(_: &mut Draft) {}
}

/// The response of a handler.
pub(crate) trait Output {
    /// Adds the response to the description.
    fn describe(draft: &mut Draft);
}

/// A function whose arguments and response have descriptions.
pub(crate) trait Described<Arguments> {
    fn draft() -> Draft;
}

macro_rules! described {
    ($($argument:ident),*) => {
        impl<F, Answering, Answer, $($argument),*> Described<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Answering,
            Answering: Future<Output = Answer>,
            Answer: Output,
            $($argument: Input,)*
        {
            fn draft() -> Draft {
                let mut draft = Draft::default();
                $($argument::describe(&mut draft);)*
                Answer::describe(&mut draft);
                draft
            }
        }
    };
}

described!();
described!(A);
described!(A, B);
described!(A, B, C);
described!(A, B, C, D);
described!(A, B, C, D, E);
described!(A, B, C, D, E, G);

macro_rules! method {
    ($name:ident) => {
        /// Adds an operation with this method.
        pub(crate) fn $name<H, T, A>(self, path: &'static str, who: Who, handler: H, summary: &'static str) -> Self
        where
            H: Handler<T, Arc<Head>> + Described<A>,
            T: 'static,
        {
            let operation = Operation { method: stringify!($name), path, who, summary, draft: H::draft };
            self.with(operation, $name(handler))
        }
    };
}

impl Api {
    pub(crate) fn new() -> Self {
        Self { router: Router::new(), operations: Vec::new() }
    }

    method!(get);
    method!(post);
    method!(put);
    method!(delete);

    fn with(mut self, operation: Operation, route: MethodRouter<Arc<Head>>) -> Self {
        self.router = self.router.route(operation.path, route);
        self.operations.push(operation);
        self
    }

    /// Limits the size of bodies for the operations added so far.
    pub(crate) fn limit_bodies(mut self, bytes: usize) -> Self {
        self.router = self.router.layer(DefaultBodyLimit::max(bytes));
        self
    }

    /// Adds the operations of `other`.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.operations.extend(other.operations);
        self
    }
}

impl Draft {
    /// Adds the schema of `T` and returns a reference to it.
    fn reference<T: ToSchema>(&mut self) -> Value {
        self.collect::<T>();
        self.schemas.push((T::name().into_owned(), inline::<T>()));
        json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
    }

    /// Adds the schemas that the schema of `T` refers to.
    fn collect<T: ToSchema>(&mut self) {
        let mut schemas = Vec::new();
        T::schemas(&mut schemas);
        self.schemas.extend(schemas.into_iter().map(|(name, schema)| (name, value(&schema))));
    }

    fn answers(&mut self, media: &str, schema: &Value) {
        let content = json!({ media: { "schema": schema } });
        self.answer = Some(("200", json!({ "description": "Done.", "content": content })));
    }
}

fn inline<T: ToSchema>() -> Value {
    value(&T::schema())
}

fn value(schema: &impl serde::Serialize) -> Value {
    serde_json::to_value(schema).expect("a schema is JSON")
}

const JSON: &str = "application/json";
const BINARY: &str = "application/octet-stream";

fn bytes() -> Value {
    json!({ "type": "string", "format": "binary" })
}

impl Input for User {}
impl Input for Person {}
impl Input for Agent {}
impl Input for Certified {}
impl Input for Anyone {}
impl Input for HeaderMap {}
impl Input for State<Arc<Head>> {}
impl<T> Input for Extension<T> {}
impl<T> Input for Option<Extension<T>> {}
impl<A, B> Input for (Extension<A>, Extension<B>) {}

impl Input for Body {
    fn describe(draft: &mut Draft) {
        draft.body = Some((json!({ BINARY: { "schema": bytes() } }), false));
    }
}

impl<T: ToSchema> Input for Json<T> {
    fn describe(draft: &mut Draft) {
        let schema = draft.reference::<T>();
        draft.body = Some((json!({ JSON: { "schema": schema } }), true));
    }
}

/// Describes each field of `T` as a query parameter. The parameters are never null, because a query omits such fields.
impl<T: ToSchema> Input for Query<T> {
    fn describe(draft: &mut Draft) {
        draft.collect::<T>();
        let mut object = inline::<T>();
        let required = object["required"].take();
        let Some(fields) = object["properties"].as_object_mut() else { return };
        for (name, schema) in fields {
            let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
            let mut parameter = json!({ "name": name, "in": "query", "schema": without_null(schema.take()) });
            parameter["required"] = json!(required.as_array().is_some_and(|names| names.iter().any(|it| it == name)));
            if let Some(description) = description {
                parameter["description"] = description;
            }
            draft.parameters.push(parameter);
        }
    }
}

fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema["type"].as_array().cloned() {
        schema["type"] = kinds.into_iter().find(|kind| kind != "null").unwrap_or_default();
    }
    if let Some(kinds) = schema["oneOf"].as_array() {
        return kinds.iter().find(|kind| kind["type"] != "null").cloned().unwrap_or_default();
    }
    schema
}

/// The parameters of a path.
pub(crate) trait PathParts {
    /// A schema for each parameter.
    fn schemas() -> Vec<Value>;
}

macro_rules! path_part {
    ($($part:ty),*) => { $(
        impl PathParts for $part {
            fn schemas() -> Vec<Value> {
                vec![inline::<$part>()]
            }
        }
    )* };
}

path_part!(JobId, NodeName, PartitionName, UserName, Digest, String);

impl<A: ToSchema, B: ToSchema> PathParts for (A, B) {
    fn schemas() -> Vec<Value> {
        vec![inline::<A>(), inline::<B>()]
    }
}

impl<A: ToSchema, B: ToSchema, C: ToSchema> PathParts for (A, B, C) {
    fn schemas() -> Vec<Value> {
        vec![inline::<A>(), inline::<B>(), inline::<C>()]
    }
}

impl<T: PathParts> Input for Path<T> {
    fn describe(draft: &mut Draft) {
        draft.in_path = T::schemas();
    }
}

impl Input for WebSocketUpgrade {
    fn describe(draft: &mut Draft) {
        draft.answer = Some(("101", json!({ "description": "A WebSocket." })));
    }
}

impl<T: Output> Output for Result<T, ApiError> {
    fn describe(draft: &mut Draft) {
        T::describe(draft);
    }
}

impl<T: Output> Output for (Extension<About>, T) {
    fn describe(draft: &mut Draft) {
        T::describe(draft);
    }
}

impl Output for NoContent {
    fn describe(draft: &mut Draft) {
        draft.answer = Some(("204", json!({ "description": "Done." })));
    }
}

/// Adds nothing: the argument that opens the WebSocket describes the response.
impl Output for Response {
    fn describe(_: &mut Draft) {}
}

impl Output for Binary {
    fn describe(draft: &mut Draft) {
        draft.answers(BINARY, &bytes());
    }
}

impl<T: ToSchema> Output for axum::Json<T> {
    fn describe(draft: &mut Draft) {
        let schema = draft.reference::<T>();
        draft.answers(JSON, &schema);
    }
}

impl<T: ToSchema> Output for JsonText<T> {
    fn describe(draft: &mut Draft) {
        axum::Json::<T>::describe(draft);
    }
}

impl<T: ToSchema> Output for List<T> {
    fn describe(draft: &mut Draft) {
        let schema = draft.reference::<T>();
        draft.answers(JSON, &json!({ "type": "array", "items": schema }));
    }
}

impl<T: ToSchema> Output for OrNull<T> {
    fn describe(draft: &mut Draft) {
        let schema = draft.reference::<T>();
        draft.answers(JSON, &json!({ "oneOf": [{ "type": "null" }, schema] }));
    }
}

impl<T: ToSchema> Output for EventStream<T> {
    fn describe(draft: &mut Draft) {
        let schema = draft.reference::<T>();
        draft.answers("text/event-stream", &schema);
    }
}

impl<S> Output for Sse<S> {
    fn describe(draft: &mut Draft) {
        let schema = draft.reference::<Notice>();
        draft.answers("text/event-stream", &schema);
    }
}

/// The OpenAPI document of these operations, pretty-printed JSON with a final newline.
pub(crate) fn document(operations: &[Operation]) -> String {
    let mut text = serde_json::to_string_pretty(&describe(operations)).expect("a JSON value can be written");
    text.push('\n');
    text
}

fn describe(operations: &[Operation]) -> Value {
    let mut errors = Draft::default();
    let error = errors.reference::<ErrorBody>();
    let mut schemas: Map<String, Value> = errors.schemas.into_iter().collect();
    for operation in operations {
        schemas.extend((operation.draft)().schemas);
    }
    let mut paths = Map::new();
    for operation in operations {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        item[operation.method] = operation.describe(&error);
        add_links(operation, operations, &schemas, &mut item[operation.method]);
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hostler",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
            "description": "The API of a Hostler head. Users reach it through the Unix socket of the head or of a node, where the \
                            kernel identifies them, or over TLS with the token of a login. Agents reach it over TLS with a \
                            certificate of the cluster. Times are milliseconds since the Unix epoch, sizes are bytes. Clients \
                            ignore unknown fields. The request header `hostler-api` may contain the client's API version; the \
                            head rejects any version except its own. If this document excludes a request, the response is 400 \
                            or 422. If a request contradicts itself or the state of the cluster, the response is 404 or 409.",
        },
        "servers": [{ "url": BASE }],
        "paths": paths,
        "components": { "schemas": schemas },
    });
    complete(&mut document);
    // utoipa ignores `deny_unknown_fields` of structs with flattened fields.
    document["components"]["schemas"]["Submission"]["additionalProperties"] = false.into();
    document
}

impl Operation {
    /// Operation id, e.g. `get_jobs_id_why`.
    fn id(&self) -> String {
        let words = self.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        std::iter::once(self.method).chain(words).collect::<Vec<_>>().join("_")
    }

    /// Returns the names of the parameters in the path.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    fn describe(&self, error: &Value) -> Value {
        let draft = (self.draft)();
        let in_path = self.names().zip(&draft.in_path);
        let in_path =
            in_path.map(|(name, schema)| json!({ "name": name, "in": "path", "required": true, "schema": schema }));
        let parameters: Vec<Value> = in_path.chain(draft.parameters).collect();
        let who = match self.who {
            Who::Viewers => "For users. If the setting `dashboard-public` is on, for anyone.",
            Who::Users => "For users.",
            Who::Owners => "For users, for their own objects; for operators, for all objects.",
            Who::Operators => "For operators and admins.",
            Who::Admins => {
                "For admins: root and the user that runs the head, on the head's socket, and users with the role admin."
            }
            Who::Agents => "For agents.",
            Who::UsersAndAgents => "For users and agents.",
            Who::Anyone => "For anyone.",
        };
        let mut operation = json!({
            "operationId": self.id(),
            "summary": self.summary,
            "description": who,
            "parameters": parameters,
            "responses": { "default": { "description": "The error.", "content": { JSON: { "schema": error } } } },
        });
        if let Some((status, answer)) = draft.answer {
            operation["responses"][status] = answer;
        }
        if let Some((content, is_required)) = draft.body {
            operation["requestBody"] = json!({ "required": is_required, "content": content });
        }
        operation
    }
}

/// Links an operation that creates an object to the operations on it: `POST /jobs` returns the `id` of `/jobs/{id}`.
fn add_links(maker: &Operation, operations: &[Operation], schemas: &Map<String, Value>, description: &mut Value) {
    let answer = &mut description["responses"]["200"];
    let schema = answer["content"][JSON]["schema"]["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    let Some(fields) = schema.and_then(|name| schemas[name]["properties"].as_object()) else { return };
    let mut links = Map::new();
    for about in operations.iter().filter(|_| maker.method == "post") {
        let names: Vec<_> = about.names().collect();
        let [name] = names[..] else { continue };
        let below = about.path.strip_prefix(maker.path).is_some_and(|rest| rest.starts_with(&format!("/{{{name}}}")));
        if below && fields.contains_key(name) {
            let parameters = json!({ name: format!("$response.body#/{name}") });
            links.insert(about.id(), json!({ "operationId": about.id(), "parameters": parameters }));
        }
    }
    if !links.is_empty() {
        answer["links"] = links.into();
    }
}

/// Adds the ranges of numbers, which the types do not contain, and removes `uniqueItems`: the head accepts repetitions in
/// lists that it reads as sets.
fn complete(schema: &mut Value) {
    match schema {
        Value::Array(parts) => parts.iter_mut().for_each(complete),
        Value::Object(fields) => {
            fields.values_mut().for_each(complete);
            merge_parts(fields);
            fields.remove("uniqueItems");
            let kind = &fields.get("type").cloned().unwrap_or_default();
            let is_integer =
                kind == "integer" || kind.as_array().is_some_and(|kinds| kinds.contains(&json!("integer")));
            if is_integer {
                // OpenAPI's registry of formats spells the names of these formats without a hyphen.
                let format = fields.get("format").and_then(Value::as_str).map(|format| format.replace('-', ""));
                let (least, most) = match format.as_deref() {
                    Some("uint8") => (json!(0), json!(u8::MAX)),
                    Some("uint16") => (json!(0), json!(u16::MAX)),
                    Some("uint32") => (json!(0), json!(u32::MAX)),
                    Some("int32") => (json!(i32::MIN), json!(i32::MAX)),
                    Some("int64") => (json!(i64::MIN), json!(i64::MAX)),
                    _ => (json!(0), json!(u64::MAX)),
                };
                if let Some(format) = format {
                    fields.insert("format".to_owned(), format.into());
                }
                fields.entry("minimum").or_insert(least);
                fields.entry("maximum").or_insert(most);
            }
        }
        _ => {}
    }
}

/// Makes one object of the described, not referenced parts of an `allOf`: of a struct and its flattened fields.
fn merge_parts(fields: &mut Map<String, Value>) {
    let Some(Value::Array(parts)) = fields.get_mut("allOf") else { return };
    let described: Vec<Value> = parts.extract_if(.., |part| part.get("$ref").is_none()).collect();
    let mut whole = Map::new();
    for (name, value) in described.into_iter().filter_map(|part| Some(part.as_object()?.clone())).flatten() {
        match (whole.get_mut(&name), value) {
            (Some(Value::Object(all)), Value::Object(more)) => all.extend(more),
            (Some(Value::Array(all)), Value::Array(more)) => all.extend(more),
            (_, value) => drop(whole.insert(name, value)),
        }
    }
    if parts.is_empty() {
        fields.remove("allOf");
        for (name, value) in whole {
            fields.entry(name).or_insert(value);
        }
    } else if !whole.is_empty() {
        parts.push(whole.into());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::api::OPERATIONS;

    #[test]
    fn references_resolve_and_operation_ids_are_unique() {
        let document = describe(&OPERATIONS);
        for reference in document.to_string().split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().expect("split yields at least one part");
            assert!(document["components"]["schemas"].get(name).is_some(), "{name} is not described");
        }
        let ids: BTreeSet<String> = OPERATIONS.iter().map(Operation::id).collect();
        assert_eq!(ids.len(), OPERATIONS.len());
    }

    #[test]
    fn schema_names_are_unique() {
        let mut known: BTreeMap<String, Value> = BTreeMap::new();
        for (name, schema) in OPERATIONS.iter().flat_map(|operation| (operation.draft)().schemas) {
            let before = known.insert(name.clone(), schema);
            assert!(before.is_none_or(|before| before == known[&name]), "two types have the name {name}");
        }
    }

    #[test]
    fn paths_answers_and_numbers_are_described() {
        let document = describe(&OPERATIONS);
        for operation in OPERATIONS.iter() {
            let draft = (operation.draft)();
            assert_eq!(operation.names().count(), draft.in_path.len(), "{}", operation.path);
            assert!(draft.answer.is_some(), "{}", operation.path);
        }
        let schemas = &document["components"]["schemas"];
        assert_eq!(schemas["JobId"]["minimum"], 1);
        assert_eq!(schemas["JobId"]["maximum"], u64::MAX);
        assert_eq!(schemas["PartialRequest"]["properties"]["memory_bytes"]["minimum"], 8_388_608);
        let submitted = &document["paths"]["/jobs"]["post"]["responses"]["200"]["links"];
        assert_eq!(submitted["get_jobs_id_why"]["parameters"]["id"], "$response.body#/id");
    }

    #[test]
    fn every_reason_is_described() {
        let schemas = &describe(&OPERATIONS)["components"]["schemas"];
        let kinds = schemas["Reason"]["oneOf"].as_array().expect("a job waits for one of several reasons");
        let words: Vec<_> = kinds.iter().map(|kind| &kind["properties"]["kind"]["enum"][0]).collect();
        for word in ["waking", "nodes_asleep", "scheduling"] {
            assert!(words.iter().any(|it| **it == word), "{word} is not among {words:?}");
        }
    }
}

//! The description of the API, OpenAPI 3.1: one table of routes and one of shapes.
//!
//! Written by hand, since the shapes live in a crate that knows nothing of OpenAPI and a table is easier to read than a hundred
//! attributes. Tests keep it honest: every route of the router is in the table and every route of the table in the router, and each
//! shape has exactly the fields that its type serialises to.

mod tables;

use hostler_proto::api::BASE;
use serde_json::{Map, Value, json};

use self::tables::Payload::{self, Bytes, Events, Json, Nothing, WebSocket};
pub(crate) use self::tables::ROUTES;
use self::tables::{Field, Route, SHAPES};
use crate::rights::Who::{Admins, Agents, Anyone, Operators, Owners, Users, UsersAndAgents};

/// The OpenAPI document, pretty-printed JSON with a final newline.
///
/// # Panics
/// Never: the document is a constant.
#[must_use]
pub fn openapi() -> String {
    let mut text = serde_json::to_string_pretty(&document()).expect("a JSON value can be written");
    text.push('\n');
    text
}

fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Hostler",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
            "description": "The API of a Hostler head. Users reach it through the head's or a node's Unix socket, where the kernel \
                            says who they are, or over TLS with the token of a login; agents over TLS with a certificate of the \
                            cluster. Times are milliseconds since the Unix \
                            epoch, sizes are bytes. Clients ignore fields they do not know. A client may say the version of the \
                            API that it speaks in the header `hostler-api`; another one than the head's is refused.",
        },
        "servers": [{ "url": BASE }],
        "paths": paths,
        "components": { "schemas": schemas() },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path.map(path_parameter).collect();
    parameters.extend(route.query.iter().map(|(name, kind, meaning)| {
        json!({ "name": name, "in": "query", "required": false, "description": meaning, "schema": schema(kind) })
    }));
    let who = match route.who {
        Users => "For users.",
        Owners => "For users, about what is theirs; for operators about everything.",
        Operators => "For operators and admins.",
        Admins => "For admins: on the head's socket root and the user that runs the head, and whom they have made one.",
        Agents => "For agents.",
        UsersAndAgents => "For users and agents.",
        Anyone => "For anyone.",
    };
    let mut operation = json!({
        "operationId": operation_id(route),
        "summary": route.summary,
        "description": who,
        "parameters": parameters,
        "responses": {
            "default": { "description": "What went wrong.", "content": content(Json("Error")) },
        },
    });
    let (status, answer) = match route.answer {
        Nothing => ("204", json!({ "description": "Done." })),
        WebSocket(messages) => ("101", json!({ "description": format!("A WebSocket: {messages}.") })),
        payload => ("200", json!({ "description": "Done.", "content": content(payload) })),
    };
    operation["responses"][status] = answer;
    if !matches!(route.body, Nothing) {
        operation["requestBody"] = json!({ "required": true, "content": content(route.body) });
    }
    operation
}

/// `get_jobs_id_why`.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    std::iter::once(route.method).chain(words).collect::<Vec<_>>().join("_")
}

fn path_parameter(name: &str) -> Value {
    let (kind, meaning) = match name {
        "id" => ("string", "a job id, or the name of a stream"),
        "name" => ("string", "the name of a node, a user, a group or a setting"),
        "index" => ("integer", "a task's index, 0 for a job that is no array"),
        "output" => ("Output", "which output"),
        _ => ("string", "BLAKE3, 64 hexadecimal digits"),
    };
    json!({ "name": name, "in": "path", "required": true, "description": meaning, "schema": schema(kind) })
}

fn content(payload: Payload) -> Value {
    match payload {
        Nothing | WebSocket(_) => json!({}),
        Json(kind) => json!({ "application/json": { "schema": schema(kind) } }),
        Bytes(media) => json!({ media: { "schema": { "type": "string", "format": "binary" } } }),
        Events => json!({ "text/event-stream": { "schema": schema("Notice") } }),
    }
}

/// The schema that a type of [`Field`] stands for.
fn schema(kind: &str) -> Value {
    if let Some(inner) = kind.strip_suffix('*') {
        return schema(inner);
    }
    if let Some(inner) = kind.strip_suffix('?') {
        return json!({ "oneOf": [schema(inner), { "type": "null" }] });
    }
    if let Some(inner) = kind.strip_prefix('[').and_then(|kind| kind.strip_suffix(']')) {
        return json!({ "type": "array", "items": schema(inner) });
    }
    match kind {
        "string" | "integer" | "boolean" | "object" => json!({ "type": kind }),
        name => json!({ "$ref": format!("#/components/schemas/{name}") }),
    }
}

fn object(meaning: &str, fields: &[Field]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, kind, meaning)| {
            let mut schema = schema(kind);
            schema["description"] = json!(meaning);
            ((*name).to_owned(), schema)
        })
        .collect();
    let required: Vec<&str> = fields.iter().filter(|field| !field.1.ends_with('*')).map(|field| field.0).collect();
    json!({ "type": "object", "description": meaning, "properties": properties, "required": required })
}

fn words(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

/// Every shape, with those that are no plain objects.
fn schemas() -> Value {
    let mut all: Map<String, Value> =
        SHAPES.iter().map(|(name, meaning, fields)| ((*name).to_owned(), object(meaning, fields))).collect();
    let detail = all["JobDetail"].take();
    all.insert("JobDetail".to_owned(), json!({ "allOf": [schema("JobSummary"), detail] }));
    let detail = all["NodeDetail"].take();
    all.insert("NodeDetail".to_owned(), json!({ "allOf": [schema("Node"), detail] }));
    let states: Vec<&str> = hostler_model::JobState::ALL.iter().map(|state| state.as_str()).collect();
    all.insert("JobState".to_owned(), words(&states));
    all.insert("PowerByNode".to_owned(), json!({ "type": "object", "additionalProperties": schema("Power") }));
    all.insert("PowerState".to_owned(), words(&["off", "waking", "up", "idle", "stopping", "failed", "unknown"]));
    all.insert("Supply".to_owned(), words(&["on", "off"]));
    all.insert("Gauge".to_owned(), words(&["agent", "controller"]));
    all.insert("PowerAction".to_owned(), words(&["on", "off", "look"]));
    let states = ["up", "suspect", "down", "off", "waking", "stopping", "draining", "drained", "removed"];
    all.insert("NodeState".to_owned(), words(&states));
    all.insert("QuotaKind".to_owned(), words(&["cpus", "memory", "jobs"]));
    all.insert("Vendor".to_owned(), words(&["nvidia", "amd", "intel"]));
    all.insert("Role".to_owned(), words(&["user", "operator", "admin"]));
    all.insert("LiveJobs".to_owned(), words(&["refuse", "keep", "cancel"]));
    all.insert("Unsaid".to_owned(), words(&["nodes", "tasks_per_node", "cpus", "memory_bytes", "time_limit_ms"]));
    all.insert("Output".to_owned(), words(&["stdout", "stderr", "setup"]));
    all.insert("Environment".to_owned(), json!({ "type": "object", "additionalProperties": { "type": "string" } }));
    all.insert("Totals".to_owned(), json!({ "type": "object", "additionalProperties": { "type": "integer" } }));
    let count = json!({ "type": "integer", "minimum": 1, "maximum": 1_000_000_000 });
    all.insert("Counted".to_owned(), json!({ "type": "object", "additionalProperties": count, "maxProperties": 64 }));
    all.insert(
        "Work".to_owned(),
        tagged(
            "kind",
            &[
                (
                    "project",
                    &[
                        ("snapshot", "string", "the hash of the captured folder's manifest"),
                        ("entrypoint", "string", "what of it to run"),
                        ("args", "[string]*", "arguments"),
                    ],
                ),
                (
                    "command",
                    &[
                        ("argv", "[string]", "the command and its arguments"),
                        ("directory", "string", "where to run it, an absolute path on the node"),
                    ],
                ),
            ],
        ),
    );
    all.insert(
        "Notice".to_owned(),
        tagged(
            "event",
            &[
                ("job", &[("id", "integer", "the job"), ("state", "JobState", "where it stands now")]),
                ("node", &[("name", "string", "the node"), ("state", "NodeState", "whether it can be given work")]),
                ("missed", &[]),
            ],
        ),
    );
    all.insert(
        "Reason".to_owned(),
        tagged(
            "kind",
            &[
                ("held", &[]),
                ("dependency", &[("jobs", "[integer]", "the jobs it still waits for")]),
                ("array_limit", &[("limit", "integer", "how many of its tasks may run at once")]),
                (
                    "quota",
                    &[
                        ("whose", "string", "a user, or `group` and its name"),
                        ("of", "QuotaKind", "what is limited"),
                        ("used", "integer", "how much of it is used, by what runs and what is ahead in the queue"),
                        ("limit", "integer", "the limit"),
                    ],
                ),
                (
                    "blocked",
                    &[
                        ("user", "string", "the account that is blocked"),
                        ("why", "string?", "why, in an admin's words"),
                    ],
                ),
                ("partition_paused", &[("partition", "string", "its partition")]),
                ("partition_gone", &[("partition", "string", "its partition")]),
                (
                    "no_nodes",
                    &[
                        ("partition", "string?", "whose nodes it may use; all when null"),
                        ("constraint", "string?", "what they must have"),
                        ("for_root", "boolean", "whether there are such nodes, and none of them runs jobs of root"),
                    ],
                ),
                ("resources", &[("closest", "[Shortfall]", "the nodes that came closest, best first")]),
                (
                    "too_few_nodes",
                    &[
                        ("wanted", "integer", "how many nodes it needs at once"),
                        ("enough", "integer", "how many have enough free"),
                        ("closest", "[Shortfall]", "the others that came closest, best first"),
                    ],
                ),
                ("priority", &[("ahead", "integer", "how many jobs are ahead")]),
                ("reservation", &[("job", "integer", "the job that it could delay")]),
                (
                    "nodes_down",
                    &[
                        ("wanted", "integer", "how many nodes it needs at once"),
                        ("nodes", "[string]", "the nodes that could run it"),
                    ],
                ),
                (
                    "nodes_drained",
                    &[
                        ("wanted", "integer", "how many nodes it needs at once"),
                        ("nodes", "[string]", "the nodes that could run it and are drained"),
                        ("down", "[string]", "others that could and are down or suspect"),
                    ],
                ),
                ("scheduling", &[]),
            ],
        ),
    );
    all.insert(
        "Shortfall".to_owned(),
        object(
            "What one node lacks for a job.",
            &[
                ("node", "string", "the node"),
                ("cpus", "integer", "free CPUs it lacks"),
                ("memory_bytes", "integer", "free memory it lacks"),
                ("gpus", "integer*", "free GPUs it lacks; none when absent"),
                ("counted", "Counted*", "what it lacks of what configurations count; nothing when absent"),
            ],
        ),
    );
    Value::Object(all)
}

/// One of several objects, told apart by a word in the field `tag`.
fn tagged(tag: &str, kinds: &[(&str, &[Field])]) -> Value {
    let kinds: Vec<Value> = kinds
        .iter()
        .map(|(word, fields)| {
            let mut one = object(word, fields);
            one["properties"][tag] = json!({ "const": word });
            one["required"].as_array_mut().expect("objects list what they require").insert(0, json!(tag));
            one
        })
        .collect();
    json!({ "oneOf": kinds })
}

#[cfg(test)]
mod tests;

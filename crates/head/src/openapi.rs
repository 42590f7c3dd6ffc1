//! The description of the API, OpenAPI 3.1: one table of routes and one of shapes.
//!
//! Written by hand, since the shapes live in a crate that knows nothing of OpenAPI and a table is easier to read than a hundred
//! attributes. Tests keep it honest: every route of the router is in the table and every route of the table in the router, and each
//! shape has exactly the fields that its type serialises to.

use hostler_proto::api::BASE;
use serde_json::{Map, Value, json};

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

/// One operation.
struct Route {
    method: &'static str,
    /// Below [`BASE`].
    path: &'static str,
    who: Who,
    summary: &'static str,
    /// Name, type and meaning.
    query: &'static [Field],
    body: Payload,
    answer: Payload,
}

/// Who may call it.
#[derive(Clone, Copy)]
enum Who {
    Users,
    Operators,
    Agents,
    UsersAndAgents,
    Anyone,
}

/// A body.
#[derive(Clone, Copy)]
enum Payload {
    Nothing,
    Json(&'static str),
    Bytes(&'static str),
    Events,
    WebSocket(&'static str),
}

/// Name, type and meaning. Types: `string`, `integer`, `boolean`, the name of a shape, `[T]` a list, `T?` may be null, and `T*`
/// may be left out.
type Field = (&'static str, &'static str, &'static str);

use Payload::{Bytes, Events, Json, Nothing, WebSocket};
use Who::{Agents, Anyone, Operators, Users, UsersAndAgents};

const INDEX: Field = ("index", "integer", "one task of an array; all when absent");

const fn route(
    method: &'static str,
    path: &'static str,
    who: Who,
    query: &'static [Field],
    body: Payload,
    answer: Payload,
    summary: &'static str,
) -> Route {
    Route { method, path, who, summary, query, body, answer }
}

#[rustfmt::skip]
const ROUTES: &[Route] = &[
    route("get", "/info", Users, &[], Nothing, Json("Info"), "The cluster at a glance."),
    route("get", "/openapi.json", Anyone, &[], Nothing, Json("object"), "This document."),
    route("post", "/shutdown", Operators, &[], Json("Shutdown"), Nothing, "Stops the head, and the agents of an embedded cluster. 409 `jobs_live` when jobs have not ended and are to be neither kept nor cancelled."),
    route("get", "/nodes", Users, &[], Nothing, Json("[Node]"), "Every node."),
    route("post", "/nodes/invite", Operators, &[], Json("Invite"), Json("Invitation"), "A join code for one node, good for an hour and one use."),
    route("post", "/jobs", Users, &[], Json("SubmitRequest"), Json("Submitted"), "Submits a job. When this is answered the job is on disk; the same key gives the same job. 409 `snapshot_missing`, 422 `never_fits`, 507 `disk_full`."),
    route("get", "/jobs", Users, &[
        ("state", "string", "states, separated by commas; all when absent"),
        ("user", "string", "of this user; of all when absent"),
        ("limit", "integer", "at most this many, 100 when absent, never more than 1000"),
        ("before", "integer", "the `next` of the page before"),
    ], Nothing, Json("JobPage"), "Jobs, newest first."),
    route("get", "/jobs/{id}", Users, &[
        ("tasks", "integer", "how many ended tasks to show, 100 when absent"),
        ("wait_ms", "integer", "answer when the job has ended, or after this time"),
    ], Nothing, Json("JobDetail"), "One job with its tasks."),
    route("get", "/jobs/{id}/why", Users, &[], Nothing, Json("Why"), "Why a job waits, in sentences."),
    route("post", "/jobs/{id}/cancel", Users, &[INDEX], Nothing, Json("JobSummary"), "Ends a job."),
    route("post", "/jobs/{id}/hold", Users, &[INDEX], Nothing, Json("JobSummary"), "Does not start what has not started."),
    route("post", "/jobs/{id}/release", Users, &[INDEX], Nothing, Json("JobSummary"), "Undoes a hold."),
    route("post", "/jobs/{id}/requeue", Users, &[INDEX], Nothing, Json("JobSummary"), "Runs a job again from the start."),
    route("post", "/jobs/{id}/fetched", Users, &[], Json("Fetched"), Nothing, "Says that results are safely at the client."),
    route("get", "/jobs/{id}/tasks/{index}/output/{output}", Users, &[
        ("from", "integer", "offset of the first byte"),
        ("follow", "boolean", "go on until the run has ended; a task that has not started is waited for"),
    ], Nothing, Bytes("application/octet-stream"), "`stdout`, `stderr` or `setup` of a task. The header `hostler-attempt` says which attempt wrote it."),
    route("get", "/jobs/{id}/tasks/{index}/attach", Users, &[
        ("rows", "integer", "lines of the window"),
        ("columns", "integer", "characters a line"),
    ], Nothing, WebSocket("binary messages are bytes, text messages a new size as JSON `{\"rows\":24,\"columns\":80}`"), "A task's terminal."),
    route("get", "/results", Users, &[
        ("unfetched", "boolean", "only those that were never fetched"),
        ("jobs", "string", "job ids, separated by commas; all of the user when absent"),
    ], Nothing, Json("ResultPage"), "Results that can be fetched."),
    route("get", "/events", Users, &[], Nothing, Events, "What changes, as server-sent events; each has a `Notice` as data."),
    route("post", "/blobs/missing", UsersAndAgents, &[], Json("DigestList"), Json("DigestList"), "Which of these blobs the head lacks."),
    route("post", "/blobs", UsersAndAgents, &[], Bytes("application/octet-stream"), Nothing, "Uploads a pack of chunks. 507 `disk_full`."),
    route("post", "/blobs/fetch", UsersAndAgents, &[], Json("DigestList"), Bytes("application/octet-stream"), "A pack with these chunks."),
    route("get", "/blobs/{digest}", UsersAndAgents, &[], Nothing, Bytes("application/octet-stream"), "One blob."),
    route("post", "/snapshots/{digest}/commit", UsersAndAgents, &[], Nothing, Nothing, "Makes a manifest and its chunks durable. 409 `chunks_missing`."),
    route("post", "/agent/join", Anyone, &[], Json("JoinRequest"), Json("Joined"), "A certificate for a node that was invited."),
    route("get", "/agent/link", Agents, &[], Nothing, WebSocket("frames of the agent link, MessagePack"), "The agent's link."),
    route("put", "/agent/streams/{id}", Agents, &[], Bytes("application/octet-stream"), Nothing, "The output that the head asked for."),
    route("get", "/agent/streams/{id}/terminal", Agents, &[], Nothing, WebSocket("as for `attach`"), "The terminal that the head asked for."),
];

/// An object: its name, meaning and fields.
type Shape = (&'static str, &'static str, &'static [Field]);

#[rustfmt::skip]
const SHAPES: &[Shape] = &[
    ("Error", "An error as people read it.", &[
        ("code", "string", "a stable word for programs"),
        ("message", "string", "what happened and why"),
        ("hints", "[string]", "what to do"),
    ]),
    ("Info", "The cluster at a glance.", &[
        ("head", "HeadInfo", "the head"),
        ("nodes", "NodeCounts", "nodes by state"),
        ("tasks", "LiveCounts", "live tasks by state"),
        ("cpus", "Amount", "CPUs of the nodes that are up"),
        ("memory_bytes", "Amount", "memory of the nodes that are up"),
    ]),
    ("HeadInfo", "The head process.", &[
        ("pid", "integer", "its process id"),
        ("version", "string", "its release"),
        ("api", "integer", "the version of this API"),
        ("epoch", "integer", "how often a head has started on this store"),
        ("embedded", "boolean", "whether it is part of an embedded cluster"),
        ("address", "string", "where agents connect"),
        ("directory", "string", "its state directory"),
        ("refusing", "string?", "why submissions are refused at the moment"),
    ]),
    ("NodeCounts", "Nodes by state.", &[
        ("up", "integer", "connected"),
        ("suspect", "integer", "silent for a short while"),
        ("down", "integer", "given up"),
    ]),
    ("LiveCounts", "Live tasks by state.", &[
        ("pending", "integer", "waiting"),
        ("starting", "integer", "placed, not yet running"),
        ("running", "integer", "running"),
        ("completing", "integer", "sending results"),
    ]),
    ("Amount", "A total and what is free of it.", &[
        ("total", "integer", "all"),
        ("free", "integer", "what no job holds"),
    ]),
    ("Node", "One node.", &[
        ("name", "string", "its name"),
        ("state", "NodeState", "whether it can be given work"),
        ("power", "string", "`on` or `unknown`"),
        ("cpus", "integer", "CPUs"),
        ("cpus_free", "integer", "CPUs that no job holds"),
        ("memory_bytes", "integer", "memory"),
        ("memory_free_bytes", "integer", "memory that no job holds"),
        ("tasks", "integer", "tasks it holds"),
        ("agent_pid", "integer", "the agent's process id, 0 while it is not connected"),
        ("version", "string", "the agent's release"),
    ]),
    ("Shutdown", "What a shutdown does about jobs that have not ended.", &[
        ("jobs", "LiveJobs*", "`refuse` when absent"),
    ]),
    ("Invite", "Whom to invite.", &[("node", "string", "the node's name")]),
    ("Invitation", "An invitation.", &[("code", "string", "a join code")]),
    ("SubmitRequest", "A submission.", &[
        ("key", "string", "made by the client, unique for each intended submission"),
        ("spec", "JobSpec", "what to run"),
    ]),
    ("Submitted", "An accepted submission.", &[
        ("id", "integer", "the job"),
        ("duplicate", "boolean", "whether this key had been accepted before"),
    ]),
    ("JobSpec", "What to run and what it may use. Unknown fields are errors.", &[
        ("name", "string", "1 to 255 characters"),
        ("work", "Work", "what to run"),
        ("request", "Request", "what each task needs"),
        ("time_limit_ms", "integer*", "how long a task may run"),
        ("array", "string*", "indices such as `0-99%10`"),
        ("after", "[string]*", "dependencies such as `afterok:12`"),
        ("priority", "integer*", "higher goes first"),
        ("hold", "boolean*", "wait until released"),
        ("requeue", "boolean*", "run again when its node is lost"),
        ("environment", "Environment*", "variables of its processes"),
        ("pty", "WindowSize*", "run it in a terminal of this size"),
        ("grace_ms", "integer*", "between TERM and KILL"),
        ("umask", "integer*", "the umask of its processes"),
    ]),
    ("Request", "What each task needs.", &[
        ("cpus", "integer", "CPUs, at least 1"),
        ("memory_bytes", "integer", "memory"),
    ]),
    ("WindowSize", "The size of a terminal.", &[
        ("rows", "integer", "lines"),
        ("columns", "integer", "characters a line"),
    ]),
    ("JobPage", "A page of jobs.", &[
        ("jobs", "[JobSummary]", "newest first"),
        ("total", "integer", "how many match in all"),
        ("next", "integer?", "pass as `before` for the next page"),
    ]),
    ("JobSummary", "A job in a list.", JOB),
    ("TaskCounts", "Tasks of a job by state.", &[
        ("total", "integer", "all"),
        ("pending", "integer", "waiting"),
        ("live", "integer", "placed, running or sending results"),
        ("completed", "integer", "ended with exit code 0"),
        ("failed", "integer", "ended in any other way"),
    ]),
    ("JobDetail", "A job with its tasks: what the list shows, and more.", &[
        ("priority", "integer", "higher goes first"),
        ("requeue", "boolean", "run again when its node is lost"),
        ("after", "[string]", "dependencies"),
        ("command", "string", "what it runs"),
        ("snapshot", "string?", "the captured folder; its owner and operators see it"),
        ("limits", "[Limit]", "each limit and whether the kernel enforces it"),
        ("unfetched", "integer", "tasks whose results have not been fetched"),
        ("tasks_shown", "[Task]", "its tasks: all that are placed, and the first that ended"),
    ]),
    ("Limit", "A limit on a job.", &[
        ("name", "string", "`cpus`, `memory` or `time`"),
        ("value", "integer", "a count, bytes or milliseconds"),
        ("enforcement", "string", "`enforced` or `advisory`"),
        ("why", "string?", "why it is advisory"),
    ]),
    ("Task", "One task of a job.", &[
        ("index", "integer", "its index"),
        ("state", "JobState", "where it stands"),
        ("attempt", "integer", "which placement"),
        ("node", "string?", "where"),
        ("exit_code", "integer?", "what the shell would show"),
        ("message", "string?", "what a person should know beyond the state"),
        ("started_at", "integer?", "ms since the epoch"),
        ("ended_at", "integer?", "ms since the epoch"),
        ("result", "string?", "the hash of its result manifest"),
        ("fetched", "boolean", "whether its result has been fetched"),
        ("usage", "Usage?", "what it used"),
    ]),
    ("Usage", "What a run used.", &[
        ("wall_ms", "integer", "from start to end"),
        ("user_ms", "integer", "CPU time in user mode"),
        ("system_ms", "integer", "CPU time in the kernel"),
        ("max_rss_bytes", "integer", "largest resident memory of one process"),
    ]),
    ("Why", "Why a job waits.", &[
        ("id", "integer", "the job"),
        ("state", "JobState", "where it stands"),
        ("reason", "Reason?", "why it waits; null when it does not"),
        ("lines", "[string]", "the same as sentences, the first being the answer"),
        ("expected_start_at", "integer?", "when it should start at the latest, ms since the epoch"),
    ]),
    ("Fetched", "Results that are safely at the client.", &[("indices", "string", "task indices such as `0-5,7`")]),
    ("ResultPage", "Results.", &[("results", "[Result]", "in order of job and index")]),
    ("Result", "One result.", &[
        ("job", "integer", "the job"),
        ("name", "string", "the job's name"),
        ("index", "integer?", "the task's index; null when the job is no array"),
        ("state", "JobState", "how it ended"),
        ("manifest", "string", "the hash of its result manifest"),
        ("fetched", "boolean", "whether it has been fetched before"),
    ]),
    ("DigestList", "Hashes.", &[("digests", "[string]", "BLAKE3, 64 hexadecimal digits each")]),
    ("JoinRequest", "A node that was invited.", &[
        ("secret", "string", "the one-time secret of the join code"),
        ("node", "string", "its name"),
        ("csr", "string", "a certificate signing request, PEM"),
    ]),
    ("Joined", "A node's certificate.", &[
        ("certificate", "string", "PEM"),
        ("authority", "string", "the cluster's authority, PEM"),
    ]),
];

const JOB: &[Field] = &[
    ("id", "integer", "its id"),
    ("name", "string", "its name"),
    ("user", "string", "who submitted it"),
    ("state", "JobState", "where it stands"),
    ("reason", "string?", "why it waits, as a sentence"),
    ("attempt", "integer", "how many times it has been placed"),
    ("nodes", "[string]", "where it runs or ran"),
    ("exit_code", "integer?", "what the shell would show"),
    ("cpus", "integer", "CPUs a task"),
    ("memory_bytes", "integer", "memory a task"),
    ("array", "string?", "the array, as it was asked for"),
    ("tasks", "TaskCounts", "tasks by state"),
    ("submitted_at", "integer", "ms since the epoch"),
    ("started_at", "integer?", "ms since the epoch"),
    ("ended_at", "integer?", "ms since the epoch"),
];

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
            "description": "The API of a Hostler head. Users reach it through the head's Unix socket, where the kernel says who \
                            they are; agents over TLS with a certificate of the cluster. Times are milliseconds since the Unix \
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
        Operators => "For operators: root and the user that runs the head.",
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
    let states: Vec<&str> = hostler_model::JobState::ALL.iter().map(|state| state.as_str()).collect();
    all.insert("JobState".to_owned(), words(&states));
    all.insert("NodeState".to_owned(), words(&["up", "suspect", "down"]));
    all.insert("LiveJobs".to_owned(), words(&["refuse", "keep", "cancel"]));
    all.insert("Output".to_owned(), words(&["stdout", "stderr", "setup"]));
    all.insert("Environment".to_owned(), json!({ "type": "object", "additionalProperties": { "type": "string" } }));
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
                ("dependency_never_satisfied", &[("job", "integer", "the job that ended otherwise")]),
                ("array_limit", &[("limit", "integer", "how many of its tasks may run at once")]),
                ("resources", &[("closest", "[Shortfall]", "the nodes that came closest, best first")]),
                ("priority", &[("ahead", "integer", "how many jobs are ahead")]),
                ("reservation", &[("job", "integer", "the job that it could delay")]),
                ("nodes_down", &[("nodes", "[string]", "the nodes that could run it")]),
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
mod tests {
    use std::collections::BTreeSet;

    use hostler_model::{
        Attempt, Digest, IndexSet, JobId, JobSpec, JobState, NodeState, Reason, Request, Shortfall, WallTime,
        WindowSize, Work,
    };
    use hostler_proto::api::{
        Amount, DigestList, ErrorBody, Fetched, HeadInfo, Info, Invitation, JobDetail, JobPage, JobSummary,
        JoinRequest, Joined, LimitView, LiveCounts, NodeCounts, NodeView, Notice, ResultPage, ResultView,
        SubmitRequest, Submitted, TaskCounts, TaskView, Why,
    };
    use hostler_proto::link::Usage;

    use super::*;

    #[test]
    fn the_table_and_the_router_agree() {
        let source = include_str!("api/mod.rs");
        let mut routed = BTreeSet::new();
        for line in source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")) {
            let (path, handlers) = line.split_once("\", ").expect("a path, then what handles it");
            for method in ["get", "post", "put", "delete", "patch"] {
                if handlers.starts_with(&format!("{method}(")) || handlers.contains(&format!(").{method}(")) {
                    routed.insert(format!("{method} {path}"));
                }
            }
        }
        let described: BTreeSet<String> = ROUTES.iter().map(|it| format!("{} {}", it.method, it.path)).collect();
        assert_eq!(routed, described);
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_its_own_name() {
        let document = document();
        let text = document.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().expect("split yields at least one part");
            assert!(document["components"]["schemas"].get(name).is_some(), "{name} is not described");
        }
        let ids: BTreeSet<String> = ROUTES.iter().map(operation_id).collect();
        assert_eq!(ids.len(), ROUTES.len());
    }

    /// The fields that a value serialises to are those of the shape.
    #[track_caller]
    fn check(shape: &str, value: &impl serde::Serialize) {
        let value = serde_json::to_value(value).expect("API types are valid JSON");
        let fields: BTreeSet<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
        let (_, _, described) = SHAPES.iter().find(|(name, _, _)| *name == shape).expect("the shape is in the table");
        let also: &[Field] = if shape == "JobDetail" { JOB } else { &[] };
        let described: BTreeSet<&str> = described.iter().chain(also).map(|field| field.0).collect();
        assert_eq!(fields, described, "{shape}");
    }

    fn summary() -> JobSummary {
        JobSummary {
            id: JobId(1),
            name: String::new(),
            user: String::new(),
            state: JobState::Pending,
            reason: None,
            attempt: Attempt(1),
            nodes: Vec::new(),
            exit_code: None,
            cpus: 1,
            memory_bytes: 1,
            array: None,
            tasks: TaskCounts::default(),
            submitted_at: WallTime(0),
            started_at: None,
            ended_at: None,
        }
    }

    fn spec() -> JobSpec {
        JobSpec {
            name: "x".to_owned(),
            work: Work::Command { argv: Vec::new(), directory: "/".to_owned() },
            request: Request { cpus: 1, memory_bytes: 1 },
            time_limit_ms: Some(1),
            array: Some("0-1".parse().expect("an array")),
            after: vec!["afterok:1".parse().expect("a dependency")],
            priority: 0,
            hold: false,
            requeue: false,
            environment: [("A".to_owned(), "B".to_owned())].into(),
            pty: Some(WindowSize { rows: 1, columns: 1 }),
            grace_ms: Some(1),
            umask: Some(1),
        }
    }

    #[test]
    fn jobs_are_described_as_they_are_sent() {
        check("JobSummary", &summary());
        check("TaskCounts", &TaskCounts::default());
        check("JobPage", &JobPage { jobs: Vec::new(), total: 0, next: None });
        check("SubmitRequest", &SubmitRequest { key: String::new(), spec: spec() });
        check("Submitted", &Submitted { id: JobId(1), duplicate: false });
        check("JobSpec", &spec());
        check("Request", &spec().request);
        check("WindowSize", &WindowSize { rows: 1, columns: 1 });
        check("Limit", &LimitView { name: String::new(), value: 1, enforcement: String::new(), why: None });
        check("Usage", &Usage::default());
        check(
            "Why",
            &Why { id: JobId(1), state: JobState::Pending, reason: None, lines: Vec::new(), expected_start_at: None },
        );
        check("Fetched", &Fetched { indices: IndexSet::one(1) });
        check(
            "Task",
            &TaskView {
                index: 0,
                state: JobState::Pending,
                attempt: Attempt(1),
                node: None,
                exit_code: None,
                message: None,
                started_at: None,
                ended_at: None,
                result: None,
                fetched: false,
                usage: None,
            },
        );
        check(
            "JobDetail",
            &JobDetail {
                summary: summary(),
                priority: 0,
                requeue: false,
                after: Vec::new(),
                command: String::new(),
                snapshot: None,
                limits: Vec::new(),
                unfetched: 0,
                tasks_shown: Vec::new(),
            },
        );
    }

    #[test]
    fn the_cluster_is_described_as_it_is_sent() {
        let node = || "n".parse().expect("a valid name");
        let head = HeadInfo {
            pid: 1,
            version: String::new(),
            api: 1,
            epoch: 1,
            embedded: false,
            address: String::new(),
            directory: String::new(),
            refusing: None,
        };
        check("HeadInfo", &head);
        check("NodeCounts", &NodeCounts::default());
        check("LiveCounts", &LiveCounts::default());
        check("Amount", &Amount::default());
        let (nodes, tasks, cpus) = (NodeCounts::default(), LiveCounts::default(), Amount::default());
        check("Info", &Info { head, nodes, tasks, cpus, memory_bytes: cpus });
        check(
            "Node",
            &NodeView {
                name: node(),
                state: NodeState::Up,
                power: String::new(),
                cpus: 1,
                cpus_free: 1,
                memory_bytes: 1,
                memory_free_bytes: 1,
                tasks: 0,
                agent_pid: 1,
                version: String::new(),
            },
        );
        check("Error", &ErrorBody { code: String::new(), message: String::new(), hints: Vec::new() });
        check("Invitation", &Invitation { code: String::new() });
        check("JoinRequest", &JoinRequest { secret: String::new(), node: node(), csr: String::new() });
        check("Joined", &Joined { certificate: String::new(), authority: String::new() });
        check("DigestList", &DigestList { digests: Vec::new() });
        check("ResultPage", &ResultPage { results: Vec::new() });
        check(
            "Result",
            &ResultView {
                job: JobId(1),
                name: String::new(),
                index: None,
                state: JobState::Completed,
                manifest: Digest([0; 32]),
                fetched: false,
            },
        );
    }

    /// The fields of each kind of a tagged object are those that a value of it serialises to.
    #[track_caller]
    fn check_tagged(shape: &str, tag: &str, value: &impl serde::Serialize) {
        let value = serde_json::to_value(value).expect("API types are valid JSON");
        let fields: BTreeSet<&String> = value.as_object().expect("an object").keys().collect();
        let schemas = schemas();
        let kinds = schemas[shape]["oneOf"].as_array().expect("several kinds");
        let kind =
            kinds.iter().find(|kind| kind["properties"][tag]["const"] == value[tag]).expect("the kind is described");
        let described: BTreeSet<&String> = kind["properties"].as_object().expect("an object").keys().collect();
        assert_eq!(fields, described, "{shape}");
    }

    #[test]
    fn what_comes_in_kinds_is_described_as_it_is_sent() {
        let node: hostler_model::NodeName = "n".parse().expect("a valid name");
        let reasons = [
            Reason::Held,
            Reason::Dependency { jobs: Vec::new() },
            Reason::DependencyNeverSatisfied { job: JobId(1) },
            Reason::ArrayLimit { limit: 1 },
            Reason::Resources { closest: vec![Shortfall { node: node.clone(), cpus: 1, memory_bytes: 1 }] },
            Reason::Priority { ahead: 1 },
            Reason::Reservation { job: JobId(1) },
            Reason::NodesDown { nodes: Vec::new() },
            Reason::Scheduling,
        ];
        reasons.iter().for_each(|reason| check_tagged("Reason", "kind", reason));
        check_tagged("Notice", "event", &Notice::Job { id: JobId(1), state: JobState::Pending });
        check_tagged("Notice", "event", &Notice::Node { name: node, state: NodeState::Up });
        check_tagged("Notice", "event", &Notice::Missed);
        check_tagged("Work", "kind", &spec().work);
        let project = Work::Project { snapshot: Digest([0; 32]), entrypoint: String::new(), args: Vec::new() };
        check_tagged("Work", "kind", &project);
    }
}

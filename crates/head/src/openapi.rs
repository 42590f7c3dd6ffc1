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
    all.insert("NodeState".to_owned(), words(&["up", "suspect", "down", "draining", "drained", "removed"]));
    all.insert("QuotaKind".to_owned(), words(&["cpus", "memory", "jobs"]));
    all.insert("Vendor".to_owned(), words(&["nvidia", "amd", "intel"]));
    all.insert("Role".to_owned(), words(&["user", "operator", "admin"]));
    all.insert("LiveJobs".to_owned(), words(&["refuse", "keep", "cancel"]));
    all.insert("Unsaid".to_owned(), words(&["nodes", "tasks_per_node", "cpus", "memory_bytes", "time_limit_ms"]));
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
                ("partition_paused", &[("partition", "string", "its partition")]),
                ("partition_gone", &[("partition", "string", "its partition")]),
                (
                    "no_nodes",
                    &[
                        ("partition", "string?", "whose nodes it may use; all when null"),
                        ("constraint", "string?", "what they must have"),
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
                ("nodes_down", &[("nodes", "[string]", "the nodes that could run it")]),
                (
                    "nodes_drained",
                    &[
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
                ("gpus", "integer", "free GPUs it lacks"),
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
        Advisory, Attempt, Digest, GpuId, IndexSet, JobId, JobSpec, JobState, NodeState, Quota, QuotaKind, Reason,
        Request, Role, Shortfall, TaskId, WallTime, WindowSize, Work,
    };
    use hostler_proto::api::{
        Amount, BlobRequest, CertificateView, DigestList, DrainRequest, DrainView, ErrorBody, Fetched, GpuView,
        HeadInfo, HeadMachine, Info, Invitation, Invite, JobDetail, JobPage, JobSummary, JoinRequest, Joined,
        LimitView, LiveCounts, NodeCounts, NodeDetail, NodeRunView, NodeView, Notice, PartView, RenewRequest,
        ResultPage, ResultView, SubmitRequest, Submitted, TaskCounts, TaskView, Unsaid, Why,
    };
    use hostler_proto::link::{IoSource, IoUsage, Usage};
    use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView, TraitsChange};
    use hostler_proto::settings::{NewValue, SettingSource, SettingView};
    use hostler_proto::users::*;

    use super::tables::JOB;
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
        let of_shape = |name| SHAPES.iter().find(|shape| shape.0 == name).map_or(&[][..], |shape| shape.2);
        let also: &[Field] = match shape {
            "JobDetail" => JOB,
            "NodeDetail" => of_shape("Node"),
            _ => &[],
        };
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
            command: Some(String::new()),
            partition: Some(partition()),
            node_count: 1,
            cpus: 1,
            memory_bytes: 1,
            gpus: 1,
            array: None,
            tasks: TaskCounts::default(),
            submitted_at: WallTime(0),
            started_at: None,
            ended_at: None,
        }
    }

    fn partition() -> hostler_model::PartitionName {
        "gpu".parse().expect("a name")
    }

    fn part() -> PartView {
        PartView {
            node: "n1".parse().expect("a name"),
            state: JobState::Pending,
            gpu_ids: vec![GpuId::from_name("x")],
            exit_code: None,
            message: None,
            result: None,
            usage: None,
        }
    }

    fn spec() -> JobSpec {
        JobSpec {
            name: "x".to_owned(),
            work: Work::Command { argv: Vec::new(), directory: "/".to_owned() },
            request: Request { cpus: 1, memory_bytes: 1, gpus: 1 },
            nodes: 2,
            tasks_per_node: 2,
            first_node: true,
            label: true,
            partition: Some(partition()),
            constraint: Some("a".parse().expect("a constraint")),
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
        check("SubmitRequest", &SubmitRequest { key: String::new(), spec: spec(), unsaid: vec![Unsaid::Nodes] });
        check("Submitted", &Submitted { id: JobId(1), duplicate: false });
        check("JobSpec", &spec());
        check("Request", &spec().request);
        check("WindowSize", &WindowSize { rows: 1, columns: 1 });
        check("Limit", &LimitView { name: String::new(), value: 1, enforcement: String::new(), why: None });
        check("Usage", &Usage::default());
        check("IoUsage", &IoUsage { read_bytes: 1, write_bytes: 1, source: IoSource::Cgroup });
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
                gpu_ids: vec![GpuId::from_name("x")],
                exit_code: None,
                message: None,
                started_at: None,
                ended_at: None,
                result: None,
                fetched: false,
                usage: None,
                parts: vec![part()],
            },
        );
        check("Part", &part());
        check(
            "JobDetail",
            &JobDetail {
                summary: summary(),
                priority: 0,
                requeue: false,
                constraint: Some("a".parse().expect("a constraint")),
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
            authority: None,
            directory: String::new(),
            refusing: None,
            results_bytes: None,
            results_cap_bytes: 0,
            warning: None,
            machine: Some(HeadMachine { name: String::new(), cpus: 1, memory_bytes: 1 }),
        };
        check("HeadInfo", &head);
        check("HeadMachine", &head.machine);
        check("NodeCounts", &NodeCounts::default());
        check("LiveCounts", &LiveCounts::default());
        check("Amount", &Amount::default());
        let (nodes, tasks, cpus) = (NodeCounts::default(), LiveCounts::default(), Amount::default());
        check("Info", &Info { head, nodes, tasks, cpus, memory_bytes: cpus, gpus: cpus });
        let view = NodeView {
            name: node(),
            state: NodeState::Up,
            power: String::new(),
            cpus: 1,
            cpus_free: 1,
            memory_bytes: 1,
            memory_free_bytes: 1,
            gpus: 1,
            gpus_free: 1,
            tasks: 0,
            agent_pid: 1,
            version: String::new(),
            reason: None,
            advisory: Advisory::default(),
            partitions: Vec::new(),
            features: BTreeSet::new(),
            weight: 0,
        };
        check("Node", &view);
        let drain = DrainView { by: String::new(), reason: None, at: WallTime(1) };
        let run = NodeRunView { job: JobId(1), index: 0, cpu_ids: String::new(), memory_bytes: 1, gpu_ids: Vec::new() };
        let gpu = GpuView {
            id: GpuId::from_name("x"),
            vendor: None,
            name: String::new(),
            memory_bytes: None,
            numa: None,
            held_by: None,
        };
        check("Gpu", &gpu);
        let certificate = CertificateView { age_ms: 1, life_ms: 2, is_being_renewed: false };
        check("DrainView", &drain);
        check("NodeRun", &run);
        check("Certificate", &certificate);
        check(
            "NodeDetail",
            &NodeDetail {
                node: view,
                drain: Some(drain),
                silent_ms: 0,
                cpu_ids: String::new(),
                gpu_list: vec![gpu],
                runs: vec![run],
                certificate: Some(certificate),
            },
        );
        check("Invite", &Invite::default());
        check("Drain", &DrainRequest::default());
        check("RenewRequest", &RenewRequest { csr: String::new() });
        check("Advisory", &Advisory::default());
        check("Error", &ErrorBody { code: String::new(), message: String::new(), hints: Vec::new() });
        check("Invitation", &Invitation { code: String::new() });
        check("JoinRequest", &JoinRequest { secret: String::new(), node: None, machine: None, csr: String::new() });
        let joined = Joined { certificate: String::new(), authority: String::new(), node: node(), renew_in_ms: 1 };
        check("Joined", &joined);
        check("NewValue", &NewValue { value: String::new() });
        check(
            "Setting",
            &SettingView {
                name: String::new(),
                unit: String::new(),
                meaning: String::new(),
                allowed: String::new(),
                default: String::new(),
                value: String::new(),
                source: SettingSource::Default,
                by: None,
                set_at: None,
            },
        );
        check("DigestList", &DigestList { digests: Vec::new() });
        check("BlobRequest", &BlobRequest::default());
        check("TaskId", &TaskId { job: JobId(1), index: 0 });
        check("ResultPage", &ResultPage { results: Vec::new() });
        check(
            "Result",
            &ResultView {
                job: JobId(1),
                name: String::new(),
                index: None,
                node_rank: Some(0),
                state: JobState::Completed,
                manifest: Digest([0; 32]),
                fetched: false,
            },
        );
    }

    #[test]
    fn partitions_are_described_as_they_are_sent() {
        let nodes = "*".parse::<hostler_model::NodePatterns>().expect("a pattern");
        let about = PartitionChange {
            nodes: Some(nodes.clone()),
            is_default: Some(true),
            state: Some(hostler_model::PartitionState::Open),
            priority: Some(0),
            default_time_ms: Some(1),
            max_time_ms: Some(1),
            max_nodes: Some(1),
            users: Some(BTreeSet::new()),
            groups: Some(BTreeSet::new()),
        };
        check("PartitionChange", &about);
        check("NewPartition", &NewPartition { name: partition(), about });
        check("Traits", &TraitsChange { weight: Some(1), features: Some(BTreeSet::new()) });
        let view = PartitionView {
            name: partition(),
            nodes,
            is_default: false,
            state: hostler_model::PartitionState::Open,
            priority: 0,
            default_time_ms: None,
            max_time_ms: None,
            max_nodes: None,
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
            node_count: 0,
            nodes_up: 0,
            cpus: 0,
            cpus_free: 0,
            waiting: 0,
        };
        check("Partition", &view);
    }

    #[test]
    fn users_are_described_as_they_are_sent() {
        let name = || "ada".parse::<hostler_model::UserName>().expect("a valid name");
        let (groups, keys, quota) = (BTreeSet::new(), Vec::new(), Quota::default());
        let user = UserView { name: name(), uid: 1, role: Role::User, groups, keys, quota };
        check("User", &user);
        check("Quota", &quota);
        check("Group", &GroupView { name: name(), quota });
        let add = AddUser { name: name(), uid: None, role: Role::User, groups: BTreeSet::new(), keys: Vec::new() };
        check("AddUser", &add);
        check("ImportUsers", &ImportUsers { users: vec![add] });
        check("SetRole", &SetRole { role: Role::Admin });
        check("ChangeKeys", &ChangeKeys::default());
        check("Challenge", &Challenge { nonce: String::new(), cluster: Digest([0; 32]) });
        check("KeyLogin", &KeyLogin { user: String::new(), nonce: String::new(), signature: String::new() });
        check("CodeLogin", &CodeLogin { secret: String::new() });
        check("LoggedIn", &LoggedIn { user: name(), role: Role::User, token: String::new(), ends_in_ms: 0 });
        check("AuditPage", &AuditPage::default());
        check(
            "AuditEntry",
            &AuditEntry {
                at: WallTime(0),
                clock_ms: 0,
                user: None,
                from: String::new(),
                uid: None,
                node: None,
                address: None,
                action: String::new(),
                about: None,
                status: 200,
                error: None,
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
            Reason::ArrayLimit { limit: 1 },
            Reason::Quota { whose: String::new(), kind: QuotaKind::Cpus, used: 1, limit: 1 },
            Reason::Resources { closest: vec![Shortfall { node: node.clone(), cpus: 1, memory_bytes: 1, gpus: 1 }] },
            Reason::TooFewNodes { wanted: 2, enough: 1, closest: Vec::new() },
            Reason::Priority { ahead: 1 },
            Reason::Reservation { job: JobId(1) },
            Reason::NodesDown { wanted: 1, nodes: Vec::new() },
            Reason::NodesDrained { wanted: 1, nodes: Vec::new(), down: Vec::new() },
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

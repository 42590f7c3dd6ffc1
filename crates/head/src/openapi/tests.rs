//! The description says what the types are: each shape is compared with a value of its type.

use std::collections::BTreeSet;

use hostler_model::{
    Advisory, Attempt, Counted, Digest, Gauge, GpuId, IndexSet, JobId, JobSpec, JobState, NodeState, PowerState, Quota,
    QuotaKind, Reason, Request, Role, Shortfall, TaskId, WallTime, WindowSize, Work,
};
use hostler_proto::api::{
    Amount, BlobRequest, CertificateView, DigestList, DrainRequest, DrainView, ErrorBody, Fetched, GpuView, HeadInfo,
    HeadMachine, Info, Invitation, Invite, JobDetail, JobPage, JobSummary, JoinRequest, Joined, LimitView, LiveCounts,
    NodeCounts, NodeDetail, NodeRunView, NodeView, Notice, PartView, RenewRequest, ResultPage, ResultView,
    SubmitRequest, Submitted, TaskCounts, TaskView, Unsaid, Why,
};
use hostler_proto::link::{IoSource, IoUsage, Usage};
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView, TraitsChange};
use hostler_proto::power::{EnergyView, JobEnergy, PowerAction, PowerRequest, PowerView};
use hostler_proto::settings::{NewValue, SettingSource, SettingView};
use hostler_proto::users::*;

use super::tables::JOB;
use super::*;

#[test]
fn the_table_and_the_router_agree() {
    let source = include_str!("../api/mod.rs");
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

fn all_of_it() -> Request {
    Request { gpus: 1, counted: "license=1".parse().expect("a count"), ..Request::new(1, 1) }
}

fn summary() -> JobSummary {
    JobSummary {
        id: JobId(1),
        name: String::new(),
        user: String::new(),
        state: JobState::Pending,
        reason: None,
        node_problem: Some(String::new()),
        attempt: Attempt(1),
        nodes: Vec::new(),
        exit_code: None,
        command: Some(String::new()),
        partition: Some(partition()),
        node_count: 1,
        cpus: 1,
        memory_bytes: 1,
        gpus: 1,
        counted: Counted::NONE,
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
        name: "x".into(),
        work: Work::Command { argv: Vec::new(), directory: "/".into() },
        request: all_of_it(),
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
    let energy = JobEnergy { joules: 2, measured_joules: 1 };
    check("JobEnergy", &energy);
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
            energy: Some(energy),
            unfetched: 0,
            tasks_shown: Vec::new(),
            tasks_next: Some(1),
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
    let (counted, counted_free) = (Default::default(), Default::default());
    check("Info", &Info { head, nodes, tasks, cpus, memory_bytes: cpus, gpus: cpus, counted, counted_free });
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
        counted: Counted::NONE,
        counted_free: Counted::NONE,
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
    let run = NodeRunView {
        job: JobId(1),
        index: 0,
        cpu_ids: String::new(),
        memory_bytes: 1,
        gpu_ids: Vec::new(),
        counted: Counted::NONE,
    };
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
    let power = PowerView {
        state: PowerState::Off,
        for_ms: 1,
        since: WallTime(1),
        why: String::new(),
        supply: None,
        supply_age_ms: None,
        fault: None,
        boot_ms: 1,
        boots: 1,
        starts: 1,
        failures: 0,
        watts: 1,
        gauge: Some(Gauge::Agent),
        are_watts_assumed: false,
        watt_hours: 1,
        measured_watt_hours: 1,
        always_on_watt_hours: 1,
        off_ms: 1,
    };
    check("Power", &power);
    check("Energy", &EnergyView { nodes: [(node(), power.clone())].into(), ..EnergyView::default() });
    check("PowerRequest", &PowerRequest { action: PowerAction::On, force: false });
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
            power_detail: Some(power.clone()),
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
    check("ResultPage", &ResultPage { results: Vec::new(), next: Some(JobId(1)) });
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
    let block = BlockView { by: String::new(), reason: None, at: WallTime(0) };
    let blocked = Some(block.clone());
    let user = UserView { name: name(), uid: 1, role: Role::User, groups, keys, quota, added: true, blocked };
    check("User", &user);
    check("Block", &block);
    check("BlockUser", &BlockUser::default());
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
    let kind = kinds.iter().find(|kind| kind["properties"][tag]["const"] == value[tag]).expect("the kind is described");
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
        Reason::Blocked { user: String::new(), why: None },
        Reason::PartitionPaused { partition: partition() },
        Reason::PartitionGone { partition: partition() },
        Reason::NoNodes { partition: None, constraint: None, for_root: false },
        Reason::Resources { closest: vec![Shortfall { node: node.clone(), lacks: all_of_it() }] },
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

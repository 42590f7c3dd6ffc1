//! Jobs as JSON, as `squeue --json` and `scontrol show job --json` print them (`data_parser` v0.0.41).

use hostler_model::WallTime;
use hostler_slurm::state::State;
use serde_json::{Map, Value, json};

use super::CLUSTER;
use super::json::{self, number, seconds, unlimited};
use super::rows::{Accounts, Row};

/// The document with all jobs.
pub(crate) fn document(rows: &[Row<'_>], now: WallTime, accounts: &mut Accounts) -> String {
    json::document("jobs", &["last_backfill", "last_update"], now, rows.iter().map(|row| job(row, accounts)))
}

/// The exit code of a row.
pub(crate) fn exit_code(state: State, (code, signal): (i32, i32)) -> Value {
    let status = match (state.is_ended(), code, signal) {
        (false, ..) => "PENDING",
        (true, 0, 0) => "SUCCESS",
        (true, _, 0) => "ERROR",
        (true, ..) => "SIGNALED",
    };
    let signal = u64::try_from(signal).ok().filter(|signal| *signal > 0);
    json!({
        "status": [status],
        "return_code": number(u64::try_from(code).ok()),
        "signal": { "id": number(signal), "name": "" },
    })
}

fn job(row: &Row<'_>, accounts: &mut Accounts) -> Value {
    let parts = [who(row, accounts), what(row), when(row), resources(row), unused()];
    Value::Object(parts.into_iter().flatten().collect())
}

fn entries<const N: usize>(entries: [(&str, Value); N]) -> Map<String, Value> {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Ids, owners and names.
fn who(row: &Row<'_>, accounts: &mut Accounts) -> Map<String, Value> {
    let (job, user) = (row.job, row.job.user.as_str());
    let label = |name: &str| json!(row.label(name).unwrap_or_default());
    let is_array = job.array.is_some();
    let is_group = is_array && row.index().is_none();
    entries([
        ("account", json!(row.account())),
        ("array_job_id", number(Some(if is_array { job.id.0 } else { 0 }))),
        ("array_max_tasks", number(Some(job.array.as_ref().and_then(|array| array.limit).map_or(0, u64::from)))),
        ("array_task_id", number(row.index().filter(|_| is_array).map(u64::from))),
        ("array_task_string", json!(row.array_task().filter(|_| is_group).unwrap_or_default())),
        ("allocating_node", label("slurm.submit_host")),
        ("cluster", json!(CLUSTER)),
        ("comment", label("comment")),
        ("group_id", json!(accounts.gid(user))),
        ("group_name", json!(accounts.group(user))),
        ("job_id", json!(row.raw_id())),
        ("name", json!(job.name)),
        ("partition", json!(row.partition())),
        ("qos", json!(row.qos())),
        ("resv_name", label("reservation")),
        ("user_id", json!(accounts.uid(user))),
        ("user_name", json!(user)),
        ("wckey", label("wckey")),
    ])
}

/// State and command.
fn what(row: &Row<'_>) -> Map<String, Value> {
    let job = row.job;
    let [input, output, error] = row.files();
    let state = row.state();
    entries([
        ("batch_flag", json!(!job.allocation)),
        ("batch_host", json!(row.batch_host().unwrap_or_default())),
        ("command", json!(row.command().unwrap_or_default())),
        ("current_working_directory", json!(job.directory.as_deref().unwrap_or_default())),
        ("dependency", json!(row.dependency())),
        ("derived_exit_code", exit_code(State::Completed, row.derived_exit(&[]))),
        ("exit_code", exit_code(state, row.exit())),
        ("flags", json!([])),
        ("hold", json!(row.is_held())),
        ("job_state", json!([state.name()])),
        ("nice", json!(row.number("slurm.nice").unwrap_or(0_i32))),
        ("priority", number(Some(row.priority().into()))),
        ("requeue", json!(job.requeue)),
        ("shared", if job.surroundings.exclusive { json!(["none"]) } else { json!([]) }),
        ("restart_cnt", json!(row.restarts())),
        ("standard_error", json!(error)),
        ("standard_input", json!(input)),
        ("standard_output", json!(output)),
        ("state_description", json!("")),
        ("state_reason", json!(row.reason())),
    ])
}

fn when(row: &Row<'_>) -> Map<String, Value> {
    let limit = unlimited(row.limit().map(|limit| limit.div_ceil(60)));
    entries([
        ("accrue_time", seconds(row.eligible_at())),
        ("deadline", seconds(None)),
        ("eligible_time", seconds(row.eligible_at())),
        ("end_time", seconds(row.expected_end())),
        ("last_sched_evaluation", seconds(row.started_at())),
        ("preempt_time", seconds(None)),
        ("preemptable_time", seconds(None)),
        ("pre_sus_time", seconds(None)),
        ("resize_time", seconds(None)),
        ("start_time", seconds(row.expected_start())),
        ("submit_time", seconds(Some(row.job.submitted_at))),
        ("suspend_time", seconds(None)),
        ("time_limit", limit),
        ("time_minimum", seconds(None)),
    ])
}

fn resources(row: &Row<'_>) -> Map<String, Value> {
    let job = row.job;
    let label = |name: &str| json!(row.label(name).unwrap_or_default());
    let (per_cpu, per_node) = (row.memory_mib_per_cpu(), row.memory_mib_per_node());
    let tres = row.tres(hostler_slurm::size::Conversion::Exact);
    let is_allocated = !row.nodes().is_empty();
    entries([
        ("billable_tres", number(Some(row.cpus()))),
        ("cpus", number(Some(row.cpus()))),
        ("cpus_per_task", number(Some(row.cpus_per_task().into()))),
        ("excluded_nodes", label("slurm.exclude")),
        ("features", label("slurm.features")),
        ("gres_detail", json!([])),
        ("job_resources", job_resources(row)),
        ("licenses", label("licenses")),
        ("max_cpus", number(Some(0))),
        ("max_nodes", number(Some(0))),
        ("memory_per_cpu", number(per_cpu)),
        ("memory_per_node", number(Some(per_node).filter(|_| per_cpu.is_none()))),
        ("minimum_cpus_per_node", number(Some(row.min_cpus_per_node().into()))),
        ("node_count", number(Some(job.nodes.into()))),
        ("nodes", json!(row.node_list())),
        ("required_nodes", label("slurm.nodelist")),
        ("scheduled_nodes", json!("")),
        ("tasks", number(Some(row.tasks()))),
        ("tasks_per_node", number(row.number("slurm.ntasks_per_node"))),
        ("tres_alloc_str", json!(if is_allocated { tres.as_str() } else { "" })),
        ("tres_per_node", json!(row.gres())),
        ("tres_req_str", json!(tres)),
    ])
}

/// The nodes of a job that has some.
fn job_resources(row: &Row<'_>) -> Value {
    let nodes = row.nodes();
    if nodes.is_empty() || row.state().is_ended() {
        return Value::Null;
    }
    let (job, memory) = (row.job, row.memory_mib_per_node());
    let one = |(index, name): (usize, &&str)| {
        json!({
            "index": index,
            "name": name,
            "cpus": { "count": job.cpus, "used": job.cpus },
            "memory": { "used": 0, "allocated": memory },
            "sockets": [],
        })
    };
    let allocation: Vec<Value> = nodes.iter().enumerate().map(one).collect();
    json!({
        "select_type": ["CPU", "MEMORY"],
        "nodes": {
            "count": nodes.len(),
            "select_type": ["AVAILABLE"],
            "list": row.node_list(),
            "whole": false,
            "allocation": allocation,
        },
        "cpus": row.cpus(),
        "threads_per_core": number(None),
    })
}

/// What no job of this cluster has.
fn unused() -> Map<String, Value> {
    const TEXTS: &[&str] = &[
        "admin_comment",
        "batch_features",
        "burst_buffer",
        "burst_buffer_state",
        "cluster_features",
        "container",
        "container_id",
        "cpus_per_tres",
        "cron",
        "extra",
        "failed_node",
        "federation_origin",
        "federation_siblings_active",
        "federation_siblings_viable",
        "het_job_id_set",
        "mail_user",
        "mcs_label",
        "memory_per_tres",
        "network",
        "prefer",
        "selinux_context",
        "system_comment",
        "tres_bind",
        "tres_freq",
        "tres_per_job",
        "tres_per_socket",
        "tres_per_task",
    ];
    const NUMBERS: &[&str] = &[
        "cores_per_socket",
        "cpu_frequency_governor",
        "cpu_frequency_maximum",
        "cpu_frequency_minimum",
        "sockets_per_node",
        "tasks_per_board",
        "tasks_per_core",
        "tasks_per_socket",
        "tasks_per_tres",
        "threads_per_core",
    ];
    const ZEROS: &[&str] = &["delay_boot", "het_job_id", "het_job_offset", "minimum_tmp_disk_per_node"];
    const INTEGERS: &[&str] = &["association_id", "maximum_switch_wait_time", "minimum_switches", "sockets_per_board"];
    const LISTS: &[&str] = &["job_size_str", "mail_type", "profile"];
    const NULLS: &[&str] = &["core_spec", "thread_spec"];
    const FALSE: &[&str] = &["contiguous", "reboot"];
    let all = |names: &'static [&'static str], value: Value| {
        names.iter().map(move |name| ((*name).to_owned(), value.clone()))
    };
    all(TEXTS, json!(""))
        .chain(all(NUMBERS, number(None)))
        .chain(all(ZEROS, number(Some(0))))
        .chain(all(INTEGERS, json!(0)))
        .chain(all(LISTS, json!([])))
        .chain(all(NULLS, Value::Null))
        .chain(all(FALSE, json!(false)))
        .collect()
}

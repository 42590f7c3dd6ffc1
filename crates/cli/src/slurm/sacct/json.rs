//! Jobs as JSON, as `sacct --json` prints them: the shape of `data_parser` v0.0.41, but the state is a single text, which more
//! programs understand.

use hostler_model::WallTime;
use hostler_slurm::state::State;
use serde_json::{Value, json};

use super::super::CLUSTER;
use super::super::job_json::exit_code;
use super::super::json::{self, number, unlimited};
use super::entry::{Entry, Report};

/// The document with all jobs, each with its steps.
pub(super) fn document(entries: &[Entry<'_>], report: &mut Report) -> String {
    let mut jobs: Vec<Value> = Vec::new();
    for (position, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.is_step) {
        let steps = entries[position + 1..].iter().take_while(|next| next.is_step);
        let steps: Vec<Value> = steps.map(|entry| step(entry, report)).collect();
        jobs.push(job(entry, &steps, report));
    }
    json::document("jobs", jobs)
}

fn time(at: Option<WallTime>) -> i64 {
    at.map_or(0, |at| at.0.div_euclid(1000))
}

fn cpu(ms: u64) -> Value {
    json!({ "seconds": ms / 1000, "microseconds": ms % 1000 * 1000 })
}

fn times(entry: &Entry<'_>, report: &Report) -> Value {
    let row = &entry.row;
    let (user, system) = entry.usage().map_or((0, 0), |usage| (usage.user_ms, usage.system_ms));
    json!({
        "elapsed": report.elapsed(entry),
        "eligible": time(row.eligible_at()),
        "end": time(report.end(entry)),
        "planned": number(Some(report.planned(entry))),
        "start": time(report.start(entry)),
        "submission": time(Some(row.job.submitted_at)),
        "suspended": 0,
        "limit": unlimited(row.limit().map(|limit| limit.div_ceil(60))),
        "system": cpu(system),
        "user": cpu(user),
        "total": cpu(user + system),
    })
}

/// The resources of a job or step.
fn tres(entry: &Entry<'_>) -> Value {
    let (row, is_step) = (&entry.row, entry.is_step);
    let nodes = if is_step { 1 } else { u64::from(row.job.nodes) };
    let cpus = if is_step { u64::from(row.job.cpus) } else { row.cpus() };
    let memory = if is_step { row.memory_mib_per_node() } else { row.memory_mib() };
    let one =
        |kind: &str, name: &str, id: u32, count: u64| json!({ "type": kind, "name": name, "id": id, "count": count });
    let mut all = vec![one("cpu", "", 1, cpus), one("mem", "", 2, memory), one("node", "", 4, nodes)];
    if !is_step {
        all.push(one("billing", "", 5, cpus));
    }
    if row.job.gpus > 0 {
        all.push(one("gres", "gpu", 1001, u64::from(row.job.gpus) * nodes));
    }
    json!(all)
}

fn job(entry: &Entry<'_>, steps: &[Value], report: &mut Report) -> Value {
    let (row, job) = (&entry.row, entry.row.job);
    let label = |name: &str| row.label(name).unwrap_or_default().to_owned();
    let is_array = job.array.is_some();
    let by = entry.cancelled_by(&mut report.accounts);
    let resources = tres(entry);
    let [input, output, error] = row.files();
    let group = report.accounts.group(&job.user);
    let per_node = row.memory_mib_per_node();
    let mut value = json!({
        "account": row.account(),
        "allocation_nodes": row.nodes().len(),
        "array": {
            "job_id": if is_array { job.id.0 } else { 0 },
            "limits": { "max": { "running": { "tasks": job.array.as_ref().and_then(|it| it.limit).unwrap_or(0) } } },
            "task_id": number(row.index().filter(|_| is_array).map(u64::from)),
            "task": row.array_task().filter(|_| row.index().is_none()).unwrap_or_default(),
        },
        "association": {
            "account": row.account(),
            "cluster": CLUSTER,
            "partition": "",
            "user": job.user,
            "id": 0,
        },
        "block": "",
        "cluster": CLUSTER,
        "comment": { "administrator": "", "job": label("comment"), "system": "" },
        "constraints": label("slurm.features"),
        "container": "",
        "derived_exit_code": exit_code(State::Completed, row.derived_exit(&[])),
        "exit_code": exit_code(entry.state(), entry.exit()),
        "extra": "",
        "failed_node": "",
        "flags": [],
        "group": group,
        "het": { "job_id": 0, "job_offset": number(None) },
        "job_id": row.raw_id(),
        "kill_request_user": by.map_or_else(String::new, |_| job.user.clone()),
        "licenses": label("licenses"),
    });
    let more = json!({
        "hold": matches!(job.reason, Some(hostler_model::Reason::Held)),
        "mcs": { "label": "" },
        "name": job.name,
        "nodes": entry.node_list(),
        "partition": row.partition(),
        "priority": number(Some(row.priority().into())),
        "qos": row.qos(),
        "required": { "CPUs": row.cpus(), "memory_per_cpu": number(None), "memory_per_node": number(Some(per_node)) },
        "reservation": { "id": 0, "name": label("reservation") },
        "restart_cnt": row.restarts(),
        "script": "",
        "state": { "current": entry.state().name(), "reason": row.reason() },
        "stderr": error,
        "stdin": input,
        "stdout": output,
        "steps": steps,
        "submit_line": "",
        "time": times(entry, report),
        "tres": { "allocated": if row.nodes().is_empty() { json!([]) } else { resources.clone() }, "requested": resources },
        "used_gres": "",
        "user": job.user,
        "wckey": { "wckey": label("wckey"), "flags": [] },
        "working_directory": job.directory.as_deref().unwrap_or_default(),
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut value, more) {
        all.extend(more);
    }
    value
}

fn step(entry: &Entry<'_>, report: &Report) -> Value {
    let figure = |kind: &str, id: u32, count: u64| json!({ "type": kind, "name": "", "id": id, "count": count });
    let consumed: Vec<Value> = entry.usage().map_or_else(Vec::new, |usage| {
        vec![figure("cpu", 1, usage.user_ms + usage.system_ms), figure("mem", 2, usage.max_rss_bytes)]
    });
    let node = entry.node_list();
    json!({
        "CPU": { "requested_frequency": { "min": number(Some(0)), "max": number(Some(0)) }, "governor": "0" },
        "exit_code": exit_code(entry.state(), entry.exit()),
        "kill_request_user": "",
        "nodes": { "count": entry.nodes(), "range": node, "list": [node] },
        "pid": "",
        "state": entry.state().name(),
        "statistics": { "CPU": { "actual_frequency": 0 }, "energy": { "consumed": number(Some(0)) } },
        "step": { "id": entry.id(), "name": entry.name() },
        "task": { "distribution": "Unknown" },
        "tasks": { "count": entry.tasks() },
        "time": times(entry, report),
        "tres": {
            "allocated": tres(entry),
            "requested": { "average": consumed, "max": consumed, "min": consumed, "total": consumed },
            "consumed": { "average": [], "max": [], "min": [], "total": [] },
        },
    })
}

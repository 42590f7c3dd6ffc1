//! Jobs as JSON, as `sacct --json` prints them: the shape of `data_parser` v0.0.41.

use hostler_model::WallTime;
use hostler_slurm::state::State;
use serde_json::{Value, json};

use super::super::CLUSTER;
use super::super::job_json::exit_code;
use super::super::json::{self, number, seconds, unlimited};
use super::columns::submit_line;
use super::entry::{Entry, Report};

/// The document with all jobs, each with its steps.
pub(super) fn document(entries: &[Entry<'_>], report: &mut Report) -> String {
    let mut jobs: Vec<Value> = Vec::new();
    for (position, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.is_step) {
        let steps = entries[position + 1..].iter().take_while(|next| next.is_step);
        let steps: Vec<Value> = steps.map(|entry| step(entry, report)).collect();
        jobs.push(job(entry, &steps, report));
    }
    json::document("jobs", &[], report.clock.now, jobs)
}

fn time(at: Option<WallTime>) -> i64 {
    at.map_or(0, |at| at.0.div_euclid(1000))
}

fn cpu(ms: u64) -> Value {
    json!({ "seconds": ms / 1000, "microseconds": ms % 1000 * 1000 })
}

/// CPU time of the user and of the kernel, in milliseconds.
fn cpu_ms(entry: &Entry<'_>) -> (u64, u64) {
    entry.usage().map_or((0, 0), |usage| (usage.user_ms, usage.system_ms))
}

fn times(entry: &Entry<'_>, report: &Report) -> Value {
    let row = &entry.row;
    let (user, system) = cpu_ms(entry);
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
        "script": "",
        "state": { "current": [entry.state().name()], "reason": row.reason() },
        "stderr": error,
        "stdin": input,
        "stdout": output,
        "steps": steps,
        "submit_line": submit_line(job),
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
    let (user, system) = cpu_ms(entry);
    let figure = |kind: &str, id: u32, count: u64| json!({ "type": kind, "name": "", "id": id, "count": count });
    let consumed: Vec<Value> = entry.usage().map_or_else(Vec::new, |usage| {
        vec![figure("cpu", 1, usage.user_ms + usage.system_ms), figure("mem", 2, usage.max_rss_bytes)]
    });
    json!({
        "CPU": { "requested_frequency": { "min": number(Some(0)), "max": number(Some(0)) }, "governor": "0" },
        "exit_code": exit_code(entry.state(), entry.exit()),
        "kill_request_user": "",
        "nodes": { "count": entry.nodes(), "range": entry.node_list(), "list": entry.node_names() },
        "pid": "",
        "state": [entry.state().name()],
        "statistics": { "CPU": { "actual_frequency": 0 }, "energy": { "consumed": number(Some(0)) } },
        "step": { "id": entry.id(), "name": entry.name() },
        "task": { "distribution": "Unknown" },
        "tasks": { "count": entry.tasks() },
        "time": {
            "elapsed": report.elapsed(entry),
            "end": seconds(report.end(entry)),
            "start": seconds(report.start(entry)),
            "suspended": 0,
            "system": cpu(system),
            "user": cpu(user),
            "total": cpu(user + system),
        },
        "tres": {
            "allocated": tres(entry),
            "requested": { "average": consumed, "max": consumed, "min": consumed, "total": consumed },
            "consumed": { "average": [], "max": [], "min": [], "total": [] },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hostler_model::TaskId;
    use hostler_slurm::size::Conversion;

    use super::super::super::clock::Clock;
    use super::super::super::rows::{Accounts, rows};
    use super::super::selection::{LiveSteps, Selection};
    use super::super::tests::running_job;
    use super::*;

    /// Checks a value against a type: a word, a list with the type of its items, or an object with those of its fields.
    fn check(path: &str, value: &Value, expected: &Value) {
        let fields = |value: &Value| -> BTreeSet<String> {
            value.as_object().into_iter().flat_map(|it| it.keys().cloned()).collect()
        };
        let is_right = match expected {
            Value::String(word) => match word.as_str() {
                "text" => value.is_string(),
                "integer" => value.is_i64() || value.is_u64(),
                "boolean" => value.is_boolean(),
                "number" => value["set"].is_boolean() && value["infinite"].is_boolean() && value["number"].is_u64(),
                other => panic!("{other}"),
            },
            Value::Array(item) => {
                let items = value.as_array().unwrap_or_else(|| panic!("{path}: {value}"));
                items.iter().for_each(|one| check(&format!("{path}[]"), one, &item[0]));
                true
            }
            _ => {
                assert_eq!(fields(value), fields(expected), "{path}");
                fields(value).iter().for_each(|name| check(&format!("{path}.{name}"), &value[name], &expected[name]));
                true
            }
        };
        assert!(is_right, "{path} is not of the type {expected}: {value}");
    }

    /// `types.json` has the types of the jobs in the OpenAPI document of Slurm's v0.0.41.
    #[test]
    fn values_have_the_types_of_the_data_parser() {
        let expected: Value = serde_json::from_str(include_str!("types.json")).expect("JSON");
        let mut job = running_job();
        job.array = Some("3-5%2".parse().expect("an array"));
        job.tasks[0].index = 3;
        let step = json!({ "step": 0, "name": "x", "nodes": ["n1", "n2"], "tasks": 4, "cpus": 0, "started_at": 20_000,
            "ended_at": 50_000, "exit_code": 3, "cpu_ms": 1500, "system_ms": 500 });
        let steps = vec![serde_json::from_value(step).expect("a step")];
        let live = LiveSteps::from([(TaskId { job: job.id, index: 3 }, steps)]);
        let (clock, accounts) = (Clock::of_process(), Accounts::default());
        let mut report = Report { clock, accounts, conversion: Conversion::Exact, cut: None };
        let rows = rows(&job, false);
        let text = document(&Selection::default().entries(&rows, &live), &mut report);
        let value: Value = serde_json::from_str(&text).expect("JSON");
        check("", &value, &expected);
        let step = &value["jobs"][0]["steps"][1];
        assert_eq!(step["nodes"]["list"], json!(["n1", "n2"]));
        assert_eq!(step["state"], json!(["FAILED"]));
        assert_eq!((&step["time"]["end"]["number"], &step["time"]["user"]["seconds"]), (&json!(50), &json!(1)));
    }
}

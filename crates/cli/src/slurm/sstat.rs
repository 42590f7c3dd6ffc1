//! `sstat`: prints figures of running jobs and lists their steps.
//!
//! The head measures a job as a whole, so the figures of a job are in the row of its script. Rows of other steps have none.
//! `hostler top` shows more.

use std::ffi::OsString;

use hostler_client::{Client, ClientError, RecordFilter};
use hostler_model::{Metric, NodeName, TaskId};
use hostler_proto::api::JobRecord;
use hostler_proto::link::StepRecord;
use hostler_proto::usage::{SeriesView, UsageView};
use hostler_slurm::getopt::Takes::{Nothing, Value};
use hostler_slurm::hostlist::compress;
use hostler_slurm::size::{Conversion, Unit, convert};
use hostler_slurm::state::State;
use hostler_slurm::table::{Column, Style, choose, names, write_header};
use hostler_slurm::time::long;

use super::clock::Clock;
use super::options::{self, Setter, checked, flag, nothing, prints, value, version};
use super::rows::Row;
use super::squeue::ids::{Named, named_rows, parse_list};
use super::steps::{self, BATCH};
use super::table::write_row;
use super::{Ended, Outcome, check_clusters, items, print, tell};
use crate::context::{Context, block_on};

pub(crate) const NAME: &str = "sstat";

const USAGE: &str = "Usage: sstat [-aeinopPvV] -j job[.step][,...]\n";

const COLUMNS: &[Column] = &[
    Column::new("AveCPU", 10),
    Column::new("AveCPUFreq", 10),
    Column::new("AveDiskRead", 12),
    Column::new("AveDiskWrite", 12),
    Column::new("AvePages", 10),
    Column::new("AveRSS", 10),
    Column::new("AveVMSize", 10),
    Column::new("ConsumedEnergy", 14),
    Column::new("ConsumedEnergyRaw", 17),
    Column::new("JobID", -12),
    Column::new("MaxDiskRead", 12),
    Column::new("MaxDiskReadNode", 15),
    Column::new("MaxDiskReadTask", 15),
    Column::new("MaxDiskWrite", 12),
    Column::new("MaxDiskWriteNode", 16),
    Column::new("MaxDiskWriteTask", 16),
    Column::new("MaxPages", 8),
    Column::new("MaxPagesNode", 12),
    Column::new("MaxPagesTask", 14),
    Column::new("MaxRSS", 10),
    Column::new("MaxRSSNode", 10),
    Column::new("MaxRSSTask", 10),
    Column::new("MaxVMSize", 10),
    Column::new("MaxVMSizeNode", 14),
    Column::new("MaxVMSizeTask", 14),
    Column::new("MinCPU", 10),
    Column::new("MinCPUNode", 10),
    Column::new("MinCPUTask", 10),
    Column::new("Nodelist", 20),
    Column::new("NTasks", 8),
    Column::new("Pids", 20),
    Column::new("ReqCPUFreq", 10),
    Column::new("ReqCPUFreqMin", 13),
    Column::new("ReqCPUFreqMax", 13),
    Column::new("ReqCPUFreqGov", 13),
    Column::new("TRESUsageInAve", 14),
    Column::new("TRESUsageInMax", 14),
    Column::new("TRESUsageInMaxNode", 18),
    Column::new("TRESUsageInMaxTask", 18),
    Column::new("TRESUsageInMin", 14),
    Column::new("TRESUsageInMinNode", 18),
    Column::new("TRESUsageInMinTask", 18),
    Column::new("TRESUsageInTot", 14),
    Column::new("TRESUsageOutAve", 15),
    Column::new("TRESUsageOutMax", 15),
    Column::new("TRESUsageOutMaxNode", 19),
    Column::new("TRESUsageOutMaxTask", 19),
    Column::new("TRESUsageOutMin", 15),
    Column::new("TRESUsageOutMinNode", 19),
    Column::new("TRESUsageOutMinTask", 19),
    Column::new("TRESUsageOutTot", 15),
];

const USUAL: &str = "JobID,MaxVMSize,MaxVMSizeNode,MaxVMSizeTask,AveVMSize,MaxRSS,MaxRSSNode,MaxRSSTask,AveRSS,MaxPages,\
    MaxPagesNode,MaxPagesTask,AvePages,MinCPU,MinCPUNode,MinCPUTask,AveCPU,NTasks,AveCPUFreq,ReqCPUFreqMin,ReqCPUFreqMax,\
    ReqCPUFreqGov,ConsumedEnergy,MaxDiskRead,MaxDiskReadNode,MaxDiskReadTask,AveDiskRead,MaxDiskWrite,MaxDiskWriteNode,\
    MaxDiskWriteTask,AveDiskWrite,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask,TRESUsageInMin,\
    TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,TRESUsageOutMaxNode,\
    TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot";

/// The options as they were given.
#[derive(Default)]
struct Given {
    format: Option<String>,
    style: Style,
    no_header: bool,
    no_convert: bool,
    jobs: Vec<String>,
}

const OPTIONS: &[Setter<Given>] = &[
    nothing("allsteps", "a", Nothing),
    checked("clusters", "M", Value, |_, list| list.map_or(Ok(()), check_clusters)),
    value("fields format", "o", |given, fields| given.format = Some(fields.to_owned())),
    prints("help", "h", || USAGE.to_owned()),
    prints("helpformat", "e", || names(COLUMNS)),
    value("jobs", "j", |given, list| given.jobs.extend(items(list))),
    flag("noconvert", "", |given| given.no_convert = true),
    flag("noheader", "n", |given| given.no_header = true),
    flag("parsable", "p", |given| given.style = Style::bars(true)),
    flag("parsable2", "P", |given| given.style = Style::bars(false)),
    flag("pidformat", "i", |given| given.format = Some("JobID,Nodelist,Pids".to_owned())),
    value("steps", "", |given, list| given.jobs.extend(items(list))),
    prints("usage", "", || USAGE.to_owned()),
    nothing("verbose", "v", Nothing),
    prints("version", "V", version),
];

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let mut given = Given::default();
    let operands = options::read(NAME, OPTIONS, args, &mut given)?;
    let Given { format, style, no_header, no_convert, jobs: named } = given;
    let mut jobs: Vec<String> = operands.iter().flat_map(|word| items(&word.to_string_lossy())).collect();
    jobs.extend(named);
    let conversion = if no_convert { Conversion::Keep } else { Conversion::Exact };
    if jobs.is_empty() {
        return Err(Ended::error("You didn't give me any jobs to stat."));
    }
    let unknown = |name: String| Ended::error(format!("Invalid field requested: \"{name}\""));
    let columns = choose(format.as_deref().unwrap_or(USUAL), COLUMNS).map_err(unknown)?;
    let named = parse_list(&jobs.join(",")).map_err(|bad| Ended::fatal(format!("Bad job/step specified: {bad}")))?;
    let mut out = String::new();
    if !no_header {
        write_header(&columns, &style, &mut out);
        print(context, &out);
    }
    let client = context.client()?;
    let filter = RecordFilter { jobs: named.iter().map(|it| it.job).collect(), ..RecordFilter::default() };
    let records = block_on(async { Ok(client.records(&filter).await?) })?;
    for named in &named {
        let record = records.iter().find(|record| named.is_of(record));
        let used = record.map(|record| block_on(async { Ok(used(&client, record, named).await) })).transpose()?;
        let Some(Ok(used)) = used else {
            tell(context, NAME, &[format!("error: couldn't get steps for job {}", named.job)]);
            continue;
        };
        if used.is_empty() {
            tell(context, NAME, &[format!("error: No steps running for job {}", named.job)]);
        }
        for used in used {
            out.clear();
            write_row(&columns, &style, &mut out, |column, out| {
                out.push_str(&used.value(&column.name, conversion).unwrap_or_default());
            });
            print(context, &out);
        }
    }
    Ok(0)
}

/// A running task, or a step that it has launched.
struct Used<'a> {
    row: Row<'a>,
    /// The step; `None` stands for the script.
    step: Option<StepRecord>,
    /// Seconds since the start of the task.
    elapsed: u64,
    /// What the task has used so far, on each of its nodes in order of rank. Empty for steps: the head measures only tasks.
    nodes: Vec<UsageView>,
}

/// The tasks of a job that run, each with its running steps.
async fn used<'a>(client: &Client, record: &'a JobRecord, named: &Named) -> Result<Vec<Used<'a>>, ClientError> {
    let is_wanted = |step: &str| named.step.as_deref().is_none_or(|wanted| wanted == step);
    let mut rows = named_rows(record, Some(std::slice::from_ref(named)), false);
    rows.retain(|row| row.state() == State::Running);
    let wants_launched = named.step.as_deref() != Some(BATCH);
    let asked = rows.iter().copied().filter(|_| wants_launched);
    let mut launched = steps::launched_by(client, asked).await?;
    let now = Clock::of_head(client).await?.now;
    let mut all = Vec::new();
    for row in rows {
        let task = TaskId { job: record.id, index: row.index().unwrap_or_default() };
        let elapsed = row.elapsed(now);
        if is_wanted(BATCH) {
            let from = row.started_at().unwrap_or_default().0;
            let mut nodes = Vec::new();
            for rank in 0..row.nodes().len() {
                // One value for the whole time.
                nodes.push(client.task_usage(task, &format!("?points=1&from={from}&node_rank={rank}")).await?);
            }
            all.push(Used { row, step: None, elapsed, nodes });
        }
        for step in launched.remove(&task).unwrap_or_default() {
            if step.ended_at.is_none() && is_wanted(&step.step.to_string()) {
                all.push(Used { row, step: Some(step), elapsed, nodes: Vec::new() });
            }
        }
    }
    Ok(all)
}

/// The first value of a curve.
fn first(values: &[Option<f32>]) -> Option<f64> {
    values.first().copied().flatten().map(f64::from)
}

impl Used<'_> {
    /// A figure of each node that has it.
    fn each(&self, metric: Metric, of: fn(&SeriesView) -> Option<f64>) -> Vec<(usize, f64)> {
        let find = |usage: &UsageView| usage.series.iter().find(|series| series.name == metric).and_then(of);
        self.nodes.iter().enumerate().filter_map(|(rank, usage)| Some((rank, find(usage)?))).collect()
    }

    /// The largest figure, with the rank of its node.
    fn largest(&self, metric: Metric, of: fn(&SeriesView) -> Option<f64>) -> Option<(usize, f64)> {
        self.each(metric, of).into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// The mean of the nodes.
    fn mean(&self, metric: Metric) -> Option<f64> {
        let all = self.each(metric, |series| first(&series.mean));
        let sum: f64 = all.iter().map(|(_, value)| value).sum();
        (!all.is_empty()).then(|| sum / all.len() as f64)
    }

    /// The value of a column; `None` if nothing measures it.
    fn value(&self, column: &str, conversion: Conversion) -> Option<String> {
        let size = |bytes: f64| convert((bytes / 1024.0).round(), Unit::Kilo, conversion);
        let so_far = |rate: f64| rate * self.elapsed as f64;
        let mean: fn(&SeriesView) -> Option<f64> = |series| first(&series.mean);
        let most_memory = || self.largest(Metric::Memory, |series| first(&series.max));
        let node = |found: Option<(usize, f64)>| self.row.nodes().get(found?.0).map(|node| (*node).to_owned());
        let (cpu, read, write) = (Metric::Cpu, Metric::DiskRead, Metric::DiskWrite);
        Some(match column {
            "JobID" => match &self.step {
                Some(step) => format!("{}.{}", self.row.id(), step.step),
                None => format!("{}.{BATCH}", self.row.id()),
            },
            "Nodelist" => match &self.step {
                Some(step) => compress(&step.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>()),
                None => self.row.node_list(),
            },
            "NTasks" => match &self.step {
                Some(step) => step.tasks.to_string(),
                None => self.row.nodes().len().to_string(),
            },
            "AveCPU" => long(so_far(self.mean(cpu)?) as u64),
            "MaxRSS" => size(most_memory()?.1),
            "MaxRSSNode" => node(most_memory())?,
            "AveRSS" => size(self.mean(Metric::Memory)?),
            "AveDiskRead" => size(so_far(self.mean(read)?)),
            "MaxDiskRead" => size(so_far(self.largest(read, mean)?.1)),
            "MaxDiskReadNode" => node(self.largest(read, mean))?,
            "AveDiskWrite" => size(so_far(self.mean(write)?)),
            "MaxDiskWrite" => size(so_far(self.largest(write, mean)?.1)),
            "MaxDiskWriteNode" => node(self.largest(write, mean))?,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::rows::rows;
    use super::*;

    fn usage(cpu: f64, memory: f64) -> UsageView {
        let series = |name: &str, unit: &str, value: f64| json!({ "name": name, "unit": unit, "limit": null, "min": [value], "mean": [value], "max": [2.0 * value] });
        let series: Vec<Value> = vec![series("cpu", "cpus", cpu), series("memory", "bytes", memory)];
        let view = json!({ "from": 0, "step_ms": 7_200_000, "len": 1, "series": series });
        serde_json::from_value(view).expect("figures")
    }

    #[test]
    fn figures_of_several_nodes_are_summarized() {
        let part = |node: &str| json!({ "node": node, "state": "running", "exit_code": null, "message": null, "result": null, "usage": null });
        let task = json!({
            "index": 0, "state": "running", "attempt": 1, "node": null, "exit_code": null, "message": null, "started_at": 0,
            "ended_at": null, "result": null, "fetched": false, "usage": null, "parts": [part("n1"), part("n2")],
        });
        let record: JobRecord = serde_json::from_value(json!({
            "id": 12, "name": "x", "user": "ada", "state": "running", "nodes": 2, "tasks_per_node": 1, "cpus": 1,
            "memory_bytes": 1, "attempt": 1, "priority": 0, "requeue": false, "submitted_at": 0, "tasks": [task],
        }))
        .expect("a record");
        let row = rows(&record, false)[0];
        let used = Used { row, step: None, elapsed: 3660, nodes: vec![usage(0.5, 2048.0), usage(1.5, 4096.0)] };
        let value = |column: &str| used.value(column, Conversion::Exact);
        for (column, expected) in [
            ("JobID", Some("12.batch")),
            ("Nodelist", Some("n[1-2]")),
            ("NTasks", Some("2")),
            // One CPU for an hour and a minute, whatever the length of the bucket.
            ("AveCPU", Some("01:01:00")),
            ("AveRSS", Some("3K")),
            ("MaxRSS", Some("8K")),
            ("MaxRSSNode", Some("n2")),
            ("MaxDiskRead", None),
            ("MaxVMSize", None),
        ] {
            assert_eq!(value(column).as_deref(), expected, "{column}");
        }
        assert_eq!(
            Used { row, step: None, elapsed: 1, nodes: Vec::new() }.value("AveCPU", Conversion::Exact),
            None,
            "not measured yet"
        );
        let step = serde_json::from_value(json!({
            "step": 3, "name": "sh", "nodes": ["n2"], "tasks": 4, "cpus": 4, "started_at": 0,
        }));
        let step = Used { row, step: Some(step.expect("a step")), elapsed: 1, nodes: Vec::new() };
        let values = ["JobID", "Nodelist", "NTasks", "AveCPU", "MaxRSS"].map(|it| step.value(it, Conversion::Exact));
        let expected = [Some("12.3"), Some("n2"), Some("4"), None, None].map(|it| it.map(str::to_owned));
        assert_eq!(values, expected, "the head measures no single steps");
    }
}

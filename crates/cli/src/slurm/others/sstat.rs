//! `sstat`: prints figures of running jobs.
//!
//! The head measures a job as a whole, so each job has one row, which stands for its script with all steps. `hostler top`
//! shows more.

use std::ffi::OsString;

use hostler_client::{Client, RecordFilter};
use hostler_model::{Metric, TaskId};
use hostler_proto::api::JobRecord;
use hostler_proto::usage::{SeriesView, UsageView};
use hostler_slurm::getopt::{Opt, Takes};
use hostler_slurm::size::{Conversion, Unit, convert};
use hostler_slurm::state::State;
use hostler_slurm::table::{Column, Style, choose, header, line};
use hostler_slurm::time::long;

use super::super::rows::Row;
use super::super::squeue::ids::{Named, named_rows, parse_list};
use super::super::{Ended, Outcome, VERSION, check_clusters, items, opt, parse, print, tell, text};
use super::sshare::help_format;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Clusters,
    Format,
    Help,
    HelpFormat,
    Jobs,
    NoConvert,
    NoHeader,
    Nothing(&'static str),
    Parsable,
    Parsable2,
    PidFormat,
    Version,
}

const OPTIONS: &[Opt<Key>] = &[
    opt(Key::Nothing("allsteps"), "allsteps", b'a', Takes::Nothing),
    opt(Key::Clusters, "clusters", b'M', Takes::Value),
    opt(Key::Format, "fields", 0, Takes::Value),
    opt(Key::Format, "format", b'o', Takes::Value),
    opt(Key::Help, "help", b'h', Takes::Nothing),
    opt(Key::HelpFormat, "helpformat", b'e', Takes::Nothing),
    opt(Key::Jobs, "jobs", b'j', Takes::Value),
    opt(Key::NoConvert, "noconvert", 0, Takes::Nothing),
    opt(Key::NoHeader, "noheader", b'n', Takes::Nothing),
    opt(Key::Parsable, "parsable", b'p', Takes::Nothing),
    opt(Key::Parsable2, "parsable2", b'P', Takes::Nothing),
    opt(Key::PidFormat, "pidformat", b'i', Takes::Nothing),
    opt(Key::Jobs, "steps", 0, Takes::Value),
    opt(Key::Help, "usage", 0, Takes::Nothing),
    opt(Key::Nothing("verbose"), "verbose", b'v', Takes::Nothing),
    opt(Key::Version, "version", b'V', Takes::Nothing),
];

pub(crate) fn run(context: &Context, args: Vec<OsString>) -> Outcome {
    let given = parse(NAME, OPTIONS, args)?;
    let (mut format, mut style, mut has_header) = (USUAL.to_owned(), Style::Padded, true);
    let mut conversion = Conversion::Exact;
    let mut jobs: Vec<String> = given.operands.iter().flat_map(|word| items(&word.to_string_lossy())).collect();
    for (key, value) in &given.options {
        let value = text(value.as_ref());
        match key {
            Key::Help => return Ok(print(context, USAGE)),
            Key::HelpFormat => return Ok(print(context, &help_format(COLUMNS))),
            Key::Version => return Ok(print(context, &format!("{VERSION}\n"))),
            Key::Clusters => check_clusters(&value)?,
            Key::Format => format = value,
            Key::Jobs => jobs.extend(items(&value)),
            Key::NoConvert => conversion = Conversion::Keep,
            Key::NoHeader => has_header = false,
            Key::Parsable => style = Style::Parsable,
            Key::Parsable2 => style = Style::Parsable2,
            Key::PidFormat => "JobID,Nodelist,Pids".clone_into(&mut format),
            Key::Nothing(_) => {}
        }
    }
    if jobs.is_empty() {
        return Err(Ended::error("You didn't give me any jobs to stat."));
    }
    let unknown = |name: String| Ended::error(format!("Invalid field requested: \"{name}\""));
    let columns = choose(&format, COLUMNS).map_err(unknown)?;
    let named = parse_list(&jobs.join(",")).map_err(|bad| Ended::fatal(format!("Bad job/step specified: {bad}")))?;
    if has_header {
        print(context, &header(&columns, style));
    }
    let client = context.client()?;
    let filter = RecordFilter { jobs: named.iter().map(|it| it.job).collect(), ..RecordFilter::default() };
    let records = block_on(async { Ok(client.records(&filter).await?) })?;
    for named in &named {
        let record = records.iter().find(|record| record.id == named.job);
        let Some(record) = record else {
            tell(context, NAME, &[format!("error: couldn't get steps for job {}", named.job)]);
            continue;
        };
        let running = figures(&client, record, named)?;
        if running.is_empty() {
            tell(context, NAME, &[format!("error: No steps running for job {}", named.job)]);
        }
        for (row, usage) in running {
            let values: Vec<String> =
                columns.iter().map(|column| value(column.name, &row, &usage, conversion).unwrap_or_default()).collect();
            print(context, &line(&columns, &values, style));
        }
    }
    Ok(0)
}

/// The tasks of a job that run, with what they have used.
fn figures<'a>(client: &Client, record: &'a JobRecord, named: &Named) -> Result<Vec<(Row<'a>, UsageView)>, Ended> {
    let rows = named_rows(record, Some(std::slice::from_ref(named)), false).into_iter();
    let mut all = Vec::new();
    for row in rows.filter(|row| row.state() == State::Running) {
        let task = TaskId { job: record.id, index: row.index().unwrap_or_default() };
        // One value for the whole time.
        all.push((row, block_on(async { Ok(client.task_usage(task, "?points=1").await?) })?));
    }
    Ok(all)
}

/// The value of a column; `None` if nothing measures it.
fn value(column: &str, row: &Row<'_>, usage: &UsageView, conversion: Conversion) -> Option<String> {
    let series = |metric| usage.series.iter().find(|series| series.name == metric);
    let first = |values: &[Option<f32>]| values.first().copied().flatten().map(f64::from);
    let size = |bytes: f64| convert((bytes / 1024.0).round(), Unit::Kilo, conversion);
    let over_time = |series: &SeriesView| Some(first(&series.mean)? * usage.step_ms as f64 / 1000.0);
    let first_node = || row.nodes().first().map(|node| (*node).to_owned());
    Some(match column {
        "JobID" => format!("{}.batch", row.id()),
        "Nodelist" => row.node_list(),
        "NTasks" => "1".to_owned(),
        "AveCPU" | "MinCPU" => long(over_time(series(Metric::Cpu)?)? as u64),
        "MaxRSS" => size(first(&series(Metric::Memory)?.max)?),
        "AveRSS" => size(first(&series(Metric::Memory)?.mean)?),
        "AveDiskRead" | "MaxDiskRead" => size(over_time(series(Metric::DiskRead)?)?),
        "AveDiskWrite" | "MaxDiskWrite" => size(over_time(series(Metric::DiskWrite)?)?),
        "MaxRSSNode" | "MinCPUNode" | "MaxDiskReadNode" | "MaxDiskWriteNode" => first_node()?,
        "MaxRSSTask" | "MinCPUTask" | "MaxDiskReadTask" | "MaxDiskWriteTask" => "0".to_owned(),
        _ => return None,
    })
}

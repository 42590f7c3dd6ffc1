//! `update`: changes a job that has been submitted.

use std::collections::BTreeMap;
use std::str::FromStr;

use clap::Args;
use hostler_model::{Constraint, Counted, ParseError, PartitionName};
use hostler_proto::api::JobChange;

use super::choice::{Word, one};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::{BeginTime, Dependencies, Memory, TimeLimit, counted};

/// Change a job after its submission
///
/// The rules for new jobs apply: the limits of the partition, quotas and `user-priority`. Values that are not given stay.
///
/// Name, tags, time limit and --requeue can change while the job runs. Owners may lower the time limit of a running job;
/// operators may also raise it. Priority, --after, --begin and --array-limit affect waiting tasks. All other values can
/// change only while no task of the job runs.
#[derive(Debug, Args)]
#[command(override_usage = "hostler update [OPTIONS] <JOB>")]
pub struct Update {
    /// Id or name of the job, or `last`; the change applies to all tasks of an array
    #[arg(value_name = "JOB")]
    job: Word,

    #[command(flatten)]
    values: Values,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Values {
    /// Time limit of the job or of each array task, e.g. 90s, 1h30m or 1-12:00:00; or none
    ///
    /// Counts from the start, also for a running job: a limit that has passed ends the job.
    #[arg(short, long, value_name = "TIME")]
    time: Option<OrNone<TimeLimit>>,

    /// Priority; jobs with a higher number start first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Move the job to this partition
    #[arg(short, long, value_name = "NAME")]
    partition: Option<PartitionName>,

    /// Run only on nodes with these features or names, e.g. ssd, 'intel&!old', 'n1|n2'; or none
    #[arg(long, value_name = "FEATURES")]
    constraint: Option<OrNone<Constraint>>,

    /// Start only after these jobs instead of earlier ones, e.g. 12 or afterany:12:13; or none
    #[arg(short = 'd', long, value_name = "JOBS")]
    after: Option<OrNone<Dependencies>>,

    /// Earliest time at which the job starts, e.g. 18:00, 2026-12-24T18:00 or +2h; or none
    #[arg(long, value_name = "TIME")]
    begin: Option<OrNone<BeginTime>>,

    /// Name of the job
    #[arg(long, value_name = "NAME", value_parser = super::target::job_name)]
    name: Option<String>,

    /// Run the job again from the start if one of its nodes is lost
    #[arg(long, overrides_with = "no_requeue")]
    requeue: bool,

    /// End the job if one of its nodes is lost
    #[arg(long, overrides_with = "requeue")]
    no_requeue: bool,

    /// Set a label of the job, e.g. project=apollo; an empty value removes it; repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    tag: Vec<String>,

    /// How many tasks of the array may run at the same time; 0 for no limit
    #[arg(long, value_name = "N")]
    array_limit: Option<u32>,

    /// Number of nodes
    #[arg(short = 'N', long, value_name = "N", value_parser = crate::flags::at_least_one)]
    nodes: Option<u32>,

    /// Processes per node
    #[arg(short = 'n', long, value_name = "N", value_parser = crate::flags::number::<1, 4096>)]
    tasks_per_node: Option<u32>,

    /// CPUs on each node
    #[arg(short, long, value_name = "N", value_parser = crate::flags::at_least_one)]
    cpus: Option<u32>,

    /// Memory on each node, e.g. 600M or 2G
    #[arg(short, long, value_name = "SIZE")]
    memory: Option<Memory>,

    /// GPUs on each node
    #[arg(short, long, value_name = "N")]
    gpus: Option<u32>,

    /// Counted resources on each node instead of earlier ones, e.g. license=2; repeatable
    #[arg(long, value_name = "NAME=COUNT")]
    resource: Vec<Counted>,
}

/// A value, or `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OrNone<T>(Option<T>);

impl<T: FromStr<Err = ParseError>> FromStr for OrNone<T> {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|value| Self(Some(value))) }
    }
}

impl Update {
    pub fn run(self, context: &Context) -> Outcome {
        let Self { job, values } = self;
        let change = values.change()?;
        let client = context.client()?;
        let target = block_on(one(&client, &job))?;
        if target.index.is_some() {
            return Err(Failure::usage("single tasks of an array cannot be changed")
                .hint(format!("`hostler update {}` changes all tasks", target.job)));
        }
        let summary = block_on(async { Ok(client.change_job(target.job, &change).await?) })?;
        context.output.say(&format!("job {target} is changed"));
        if context.output.is_json() {
            context.output.json(&summary);
        }
        Ok(exit::OK)
    }
}

impl Values {
    fn change(self) -> Result<JobChange, Failure> {
        let memory_bytes = self.memory.map(|memory| memory.bytes_for("a job")).transpose()?;
        let resources = (!self.resource.is_empty()).then(|| counted(&self.resource)).transpose()?;
        Ok(JobChange {
            name: self.name,
            time_limit_ms: self.time.map(|limit| limit.0.map_or(0, TimeLimit::as_ms)),
            priority: self.priority,
            partition: self.partition,
            constraint: self.constraint.map(|constraint| constraint.0),
            after: self.after.map(|after| after.0.map(|Dependencies(list)| list).unwrap_or_default()),
            begin: self.begin.map(|begin| begin.0.map(|BeginTime(at)| at)),
            requeue: (self.requeue || self.no_requeue).then_some(self.requeue),
            array_limit: self.array_limit,
            labels: self.tag.iter().map(|tag| label(tag)).collect::<Result<BTreeMap<_, _>, _>>()?,
            nodes: self.nodes,
            tasks_per_node: self.tasks_per_node,
            cpus: self.cpus,
            memory_bytes,
            gpus: self.gpus,
            counted: resources,
        })
    }
}

/// Splits a label; an empty value removes the label.
fn label(text: &str) -> Result<(String, Option<String>), Failure> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| Failure::usage(format!("`--tag {text}` has no value")).hint("write NAME=VALUE"))?;
    Ok((name.to_owned(), Some(value.to_owned()).filter(|value| !value.is_empty())))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        update: Update,
    }

    fn change(words: &str) -> Result<JobChange, String> {
        let line = Line::try_parse_from(words.split(' ')).map_err(|error| error.to_string())?;
        line.update.values.change().map_err(|failure| failure.render())
    }

    #[test]
    fn values_are_parsed_and_none_removes_them() {
        let all = change("update 12 -t 1h --priority -3 --after 7:8 --tag a=b --tag c= --requeue").expect_err("a list");
        assert!(all.contains("dependency"), "{all}");
        let all = change("update 12 -t 1h --priority -3 --after afterok:7:8 --tag a=b --tag c= --no-requeue");
        let all = all.expect("valid");
        assert_eq!((all.time_limit_ms, all.priority, all.requeue), (Some(3_600_000), Some(-3), Some(false)));
        assert_eq!(all.after.map(|after| after.len()), Some(2));
        assert_eq!((all.labels["a"].as_deref(), all.labels["c"].as_deref()), (Some("b"), None));
        let none = change("update 12 -t none --after none --begin none --constraint none").expect("valid");
        assert_eq!((none.time_limit_ms, none.after, none.begin), (Some(0), Some(Vec::new()), Some(None)));
        assert_eq!(none.constraint, Some(None));
        assert!(change("update 12").expect_err("no value").contains("required"));
    }
}

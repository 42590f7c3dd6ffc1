//! `cminfo`: prints the tables of head nodes, compute nodes and jobs.

use clap::Args;
use hostler_client::JobFilter;
use hostler_model::{JobState, NodeState, shortened};
use hostler_proto::api::{Info, JobPage, JobSummary, NodeView};
use serde::Serialize;

use super::Tool;
use crate::commands::jobs::list;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output;
use crate::output::table::{Align, Table};

/// Maximum number of jobs in the table.
const MAX_JOBS: u32 = 10_000;

/// Maximum length of names in the table, in characters.
const NAME_LEN: usize = 32;
const COMMAND_LEN: usize = 48;

/// Show head nodes, compute nodes, and running and waiting jobs
///
/// Memory is in megabytes. Free resources are resources that no job has reserved. The state of a compute node that can
/// run jobs is Idle or InUse.
#[derive(Debug, Args)]
pub(crate) struct Cminfo {}

/// The rows of the three tables.
#[derive(Debug, Serialize)]
struct Overview {
    heads: Vec<NodeRow>,
    nodes: Vec<NodeRow>,
    jobs: Vec<JobRow>,
}

#[derive(Debug, Serialize)]
struct NodeRow {
    node: String,
    status: String,
    cpus: u32,
    memory_bytes: u64,
    cpus_free: u32,
    memory_free_bytes: u64,
}

#[derive(Debug, Serialize)]
struct JobRow {
    id: u64,
    name: String,
    user: String,
    status: &'static str,
    command: String,
    nodes: Vec<String>,
}

impl Tool for Cminfo {
    const NAME: &'static str = "cminfo";

    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let (info, nodes, page) = block_on(async {
            let (info, nodes) = (client.info().await?, client.nodes().await?);
            Ok((info, nodes, list(&client, valid_jobs(), MAX_JOBS).await?))
        })?;
        let JobPage { mut jobs, total, .. } = page;
        jobs.reverse();
        let left_out = total.saturating_sub(jobs.len() as u64);
        let overview = Overview {
            heads: vec![head_row(&info)],
            nodes: nodes.iter().map(node_row).collect(),
            jobs: jobs.into_iter().map(job_row).collect(),
        };
        match context.output.is_json() {
            true => context.output.json(&overview),
            false => context.output.data(&overview.text(output::width())),
        }
        if left_out > 0 {
            context.output.say(&format!("{left_out} older jobs are not shown; `hostler jobs --limit` lists more"));
        }
        Ok(exit::OK)
    }
}

/// Selects jobs that have not ended, with their commands.
fn valid_jobs() -> JobFilter {
    JobFilter { states: JobState::LIVE.to_vec(), commands: true, ..JobFilter::default() }
}

/// The row of the head's machine. All resources count as free, because the head runs no jobs.
fn head_row(info: &Info) -> NodeRow {
    let machine = info.head.machine.as_ref();
    let (cpus, memory_bytes) = machine.map_or((0, 0), |machine| (machine.cpus, machine.memory_bytes));
    NodeRow {
        node: machine.map_or_else(|| info.head.address.clone(), |machine| machine.name.clone()),
        status: "Up".to_owned(),
        cpus,
        memory_bytes,
        cpus_free: cpus,
        memory_free_bytes: memory_bytes,
    }
}

fn node_row(node: &NodeView) -> NodeRow {
    let status = match node.state {
        NodeState::Up if node.tasks == 0 => "Idle".to_owned(),
        NodeState::Up => "InUse".to_owned(),
        other => capitalised(other.as_str()),
    };
    NodeRow {
        node: node.name.to_string(),
        status,
        cpus: node.cpus,
        memory_bytes: node.memory_bytes,
        cpus_free: node.cpus_free,
        memory_free_bytes: node.memory_free_bytes,
    }
}

fn job_row(job: JobSummary) -> JobRow {
    let status = if job.shown_state() == "unknown" { "Unknown" } else { status(job.state) };
    JobRow {
        id: job.id.0,
        name: job.name,
        user: job.user,
        status,
        command: job.command.unwrap_or_default(),
        nodes: job.nodes.iter().map(ToString::to_string).collect(),
    }
}

/// The name of a job state in the original `cminfo`, which calls preempted jobs failed.
const fn status(state: JobState) -> &'static str {
    match state {
        JobState::Pending => "Pending",
        JobState::Starting => "Started",
        JobState::Running => "Running",
        JobState::Completing => "Completing",
        JobState::Completed => "Completed",
        JobState::Cancelled => "Killed",
        JobState::Failed | JobState::Timeout | JobState::OutOfMemory | JobState::NodeFail | JobState::Preempted => {
            "Failed"
        }
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

impl Overview {
    fn text(&self, width: Option<usize>) -> String {
        let heads = nodes_table(&self.heads, width);
        let nodes = nodes_table(&self.nodes, width);
        let jobs = jobs_table(&self.jobs, width);
        format!("Head nodes\n{heads}\nCompute nodes\n{nodes}\nJobs\n{jobs}")
    }
}

fn nodes_table(nodes: &[NodeRow], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("Node", Align::Left),
        ("Status", Align::Left),
        ("# CPUs", Align::Right),
        ("Memory", Align::Right),
        ("# Free CPUs", Align::Right),
        ("Free Memory", Align::Right),
    ]);
    for node in nodes {
        table.row([
            node.node.clone(),
            node.status.clone(),
            node.cpus.to_string(),
            megabytes(node.memory_bytes),
            node.cpus_free.to_string(),
            megabytes(node.memory_free_bytes),
        ]);
    }
    table.render(width)
}

fn jobs_table(jobs: &[JobRow], width: Option<usize>) -> String {
    let mut table = Table::new(&[
        ("ID", Align::Right),
        ("Name", Align::Left),
        ("User", Align::Left),
        ("Status", Align::Left),
        ("Command", Align::Left),
        ("Nodes", Align::Left),
    ]);
    for job in jobs {
        table.row([
            job.id.to_string(),
            shortened(&job.name, NAME_LEN),
            job.user.clone(),
            job.status.to_owned(),
            shortened(&job.command, COMMAND_LEN),
            job.nodes.join(", "),
        ]);
    }
    table.render(width)
}

fn megabytes(bytes: u64) -> String {
    (bytes >> 20).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, status: &str, cpus_free: u32, memory_free: u64) -> NodeRow {
        NodeRow {
            node: name.to_owned(),
            status: status.to_owned(),
            cpus: 2,
            memory_bytes: 512 << 20,
            cpus_free,
            memory_free_bytes: memory_free << 20,
        }
    }

    #[test]
    fn tables_match_the_original_tool() {
        let job = |id, name: &str, user: &str, command: &str, nodes: &[&str]| JobRow {
            id,
            name: name.to_owned(),
            user: user.to_owned(),
            status: status(JobState::Running),
            command: command.to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
        };
        let overview = Overview {
            heads: vec![node("ddf755c958ba", "Up", 2, 512)],
            nodes: vec![
                node("11541c0bf7a9", "InUse", 0, 384),
                node("3c0636c23612", "InUse", 0, 384),
                node("3b279dde2676", "InUse", 0, 256),
                node("376c77a1b192", "InUse", 0, 256),
            ],
            jobs: vec![
                job(1, "scrape", "louie", "./mini_scraper.sh -c", &["11541c0bf7a9", "3c0636c23612"]),
                job(2, "minig", "larry", "./mini_gpt_dist.sh 2", &["3b279dde2676", "376c77a1b192"]),
            ],
        };
        let expected = "\
Head nodes
Node          Status  # CPUs  Memory  # Free CPUs  Free Memory
ddf755c958ba  Up           2     512            2          512

Compute nodes
Node          Status  # CPUs  Memory  # Free CPUs  Free Memory
11541c0bf7a9  InUse        2     512            0          384
3c0636c23612  InUse        2     512            0          384
3b279dde2676  InUse        2     512            0          256
376c77a1b192  InUse        2     512            0          256

Jobs
ID  Name    User   Status   Command               Nodes
 1  scrape  louie  Running  ./mini_scraper.sh -c  11541c0bf7a9, 3c0636c23612
 2  minig   larry  Running  ./mini_gpt_dist.sh 2  3b279dde2676, 376c77a1b192
";
        assert_eq!(overview.text(None), expected);
        assert!(overview.text(Some(60)).lines().all(|line| line.chars().count() <= 60));
    }

    #[test]
    fn other_states_are_capitalised() {
        assert_eq!(capitalised("suspect"), "Suspect");
        assert_eq!(capitalised(""), "");
    }
}

//! `hostler configure partition`: manages partitions.

use std::collections::BTreeSet;
use std::str::FromStr;

use clap::{Args, Subcommand};
use hostler_client::Client;
use hostler_model::{
    ExclusiveRule, NodePatterns, PartitionName, PartitionState, SandboxNetwork, SandboxRule, UserName,
};
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView};

use super::note_empty_groups;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::TimeLimit;
use crate::output::{self, partitions};

/// Manage partitions: sets of nodes with their own limits and priority
#[derive(Debug, Args)]
pub(crate) struct Partition {
    #[command(subcommand)]
    command: PartitionCommand,
}

#[derive(Debug, Subcommand)]
enum PartitionCommand {
    /// List partitions
    List,
    /// Show the details of a partition
    Show(Named),
    /// Add a partition
    ///
    /// A node may be in several partitions. A node that joins later belongs to each partition whose --nodes match the
    /// node's name.
    Add(Add),
    /// Change a partition; options that are not given keep their values
    ///
    /// The change also applies to waiting jobs.
    Set(Set),
    /// Remove a partition; fails while jobs wait in the partition
    Remove(Named),
}

#[derive(Debug, Args)]
struct Named {
    /// Name of the partition, e.g. gpu
    name: PartitionName,
}

#[derive(Debug, Args)]
struct Add {
    /// Name of the partition
    name: PartitionName,

    /// Nodes of the partition, e.g. n1,n3 or n[1-4,7] or gpu*; * means all nodes
    #[arg(long, value_name = "NODES")]
    nodes: NodePatterns,

    #[command(flatten)]
    about: About,
}

#[derive(Debug, Args)]
struct Set {
    /// Name of the partition, e.g. gpu
    name: PartitionName,

    /// Nodes of the partition, e.g. n1,n3 or n[1-4,7] or gpu*; * means all nodes
    #[arg(long, value_name = "NODES")]
    nodes: Option<NodePatterns>,

    /// End the join code of `hostler node invite --partition`; nodes that have joined stay
    #[arg(long)]
    end_join_code: bool,

    #[command(flatten)]
    about: About,
}

/// Options of `add` and `set`.
#[derive(Debug, Args)]
struct About {
    /// Use this partition for jobs that name no partition
    ///
    /// Only one partition can be the default. --default without a value means yes.
    #[arg(long, value_name = "YES|NO", num_args = 0..=1, default_missing_value = "yes")]
    default: Option<YesNo>,

    /// Time limit of jobs that set no time limit; `none` removes the default
    ///
    /// [default: the value of --max-time]
    #[arg(long, value_name = "TIME")]
    default_time: Option<Limit<TimeLimit>>,

    /// Longest time limit that a job may set; `none` removes the maximum
    #[arg(long, value_name = "TIME")]
    max_time: Option<Limit<TimeLimit>>,

    /// Largest number of nodes that a job may request; `none` removes the maximum
    #[arg(long, value_name = "N")]
    max_nodes: Option<Limit<u32>>,

    /// Priority of the partition
    ///
    /// Jobs in the partition with the higher number start first, whatever their own --priority. A new partition has the
    /// priority 0.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Users who may use the partition, e.g. ada,bob; `all` removes all names
    ///
    /// If the partition has neither users nor groups, all users may use it.
    #[arg(long, value_name = "USERS")]
    users: Option<Names>,

    /// Groups whose users may use the partition, besides --users; `all` removes all names
    ///
    /// If the partition has neither users nor groups, all users may use it.
    #[arg(long, value_name = "GROUPS")]
    groups: Option<Names>,

    /// Whether jobs run in a sandbox: `always`, or `optional` for those that ask for it
    ///
    /// With `always`, the partition refuses jobs that a sandbox cannot run, such as jobs on several nodes, and `salloc`.
    /// Jobs that name no partition and have no sandbox do not use the partition's nodes. Running jobs
    /// are not affected. A new partition has `optional`.
    #[arg(long, value_name = "RULE")]
    sandbox: Option<SandboxRule>,

    /// The most network of jobs if all run in a sandbox: `none`, `job` or `host`
    ///
    /// With `job`, jobs of a partition with `--sandbox always` may ask for a network of only their nodes with
    /// `--network job`. With `host`, they may also ask for the network of their nodes. Others have no network. A new
    /// partition has `none`.
    #[arg(long, value_name = "NETWORK")]
    sandbox_network: Option<SandboxNetwork>,

    /// Whether jobs have their nodes to themselves: `always`, `never`, or `optional` for those that ask for it
    ///
    /// With `always`, each job has its nodes to itself as if it had --exclusive, e.g. for measurements. With `never`, jobs with
    /// --exclusive are refused, and those that name no partition do not use the partition's nodes. Applies to jobs that are
    /// submitted or moved to the partition from then on. --exclusive without a value means always. A new partition has `optional`.
    #[arg(long, value_name = "RULE", num_args = 0..=1, default_missing_value = "always")]
    exclusive: Option<ExclusiveRule>,

    /// State of the partition: `open`, `paused` or `closed`
    ///
    /// A paused partition accepts jobs but starts none. A closed partition accepts no new jobs but starts waiting jobs.
    /// A new partition is open.
    #[arg(long, value_name = "STATE")]
    state: Option<PartitionState>,
}

#[derive(Debug, Clone, Copy)]
struct YesNo(bool);

impl FromStr for YesNo {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "yes" => Ok(Self(true)),
            "no" => Ok(Self(false)),
            _ => Err("write yes or no"),
        }
    }
}

/// A limit; `None` removes it.
#[derive(Debug, Clone, Copy)]
struct Limit<T>(Option<T>);

impl<T: FromStr<Err: std::fmt::Display>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            _ => text
                .parse()
                .map(|limit| Self(Some(limit)))
                .map_err(|error: T::Err| format!("{error}; write `none` for no limit")),
        }
    }
}

/// Names separated by commas. Empty means all users.
#[derive(Debug, Clone)]
struct Names(BTreeSet<UserName>);

impl FromStr for Names {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(BTreeSet::new()));
        }
        let names = text.split(',').map(|name| name.trim().parse::<UserName>());
        names.collect::<Result<_, _>>().map(Self).map_err(|error| error.to_string())
    }
}

impl Partition {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        match self.command {
            PartitionCommand::List => list(context, &client),
            PartitionCommand::Show(Named { name }) => show(context, &client, &name),
            PartitionCommand::Add(command) => command.run(context, &client),
            PartitionCommand::Set(command) => command.run(context, &client),
            PartitionCommand::Remove(Named { name }) => remove(context, &client, &name),
        }
    }
}

fn list(context: &Context, client: &Client) -> Outcome {
    let all = block_on(async { Ok(client.partitions().await?) })?;
    let output = &context.output;
    if output.is_json() {
        output.json(&all);
    } else if output.is_quiet() {
        all.iter().for_each(|partition| output.data(partition.name.as_str()));
    } else if all.is_empty() {
        output.say("no partitions: jobs may run on all nodes");
    } else {
        output.data(&partitions::list(&all, output::width()));
    }
    Ok(exit::OK)
}

fn show(context: &Context, client: &Client, name: &PartitionName) -> Outcome {
    let partition = block_on(async { Ok(client.partition(name).await?) })?;
    match context.output.is_json() {
        true => context.output.json(&partition),
        false => context.output.data(&partitions::one(&partition)),
    }
    Ok(exit::OK)
}

fn remove(context: &Context, client: &Client, name: &PartitionName) -> Outcome {
    block_on(async { Ok(client.remove_partition(name).await?) })?;
    if context.output.is_json() {
        context.output.json(name);
    }
    context.output.say(&format!("partition {name} is removed"));
    Ok(exit::OK)
}

impl Add {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let about = PartitionChange { nodes: Some(self.nodes), ..self.about.change() };
        let new = NewPartition { name: self.name, about };
        let partition = block_on(async { Ok(client.add_partition(&new).await?) })?;
        if context.output.is_json() {
            context.output.json(&partition);
        }
        context.output.say(&format!("partition {} has {}", partition.name, partitions::nodes(&partition)));
        note_no_nodes(context, &partition);
        note_empty_groups(context, client, new.about.groups.iter().flatten(), None);
        Ok(exit::OK)
    }
}

fn note_no_nodes(context: &Context, partition: &PartitionView) {
    if partition.node_count == 0 {
        context.output.say(&format!("note: no node has a name that matches {}", partition.nodes));
    }
}

impl Set {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let change = PartitionChange { nodes: self.nodes, ends_join_code: self.end_join_code, ..self.about.change() };
        if change == PartitionChange::default() {
            return Err(
                Failure::usage("no change is given").hint("pass an option, e.g. --max-time 4h; `--help` lists all")
            );
        }
        let partition = block_on(async { Ok(client.change_partition(&self.name, &change).await?) })?;
        if context.output.is_json() {
            context.output.json(&partition);
        } else if !context.output.is_quiet() {
            context.output.data(&partitions::one(&partition));
        }
        if change.nodes.is_some() {
            note_no_nodes(context, &partition);
        }
        note_empty_groups(context, client, change.groups.iter().flatten(), None);
        Ok(exit::OK)
    }
}

impl About {
    fn change(self) -> PartitionChange {
        let time = |limit: Limit<TimeLimit>| limit.0.map_or(0, TimeLimit::as_ms);
        PartitionChange {
            nodes: None,
            is_default: self.default.map(|yes| yes.0),
            state: self.state,
            priority: self.priority,
            default_time_ms: self.default_time.map(time),
            max_time_ms: self.max_time.map(time),
            max_nodes: self.max_nodes.map(|limit| limit.0.unwrap_or(0)),
            users: self.users.map(|names| names.0),
            groups: self.groups.map(|names| names.0),
            sandbox: self.sandbox,
            sandbox_network: self.sandbox_network,
            exclusive: self.exclusive,
            ends_join_code: false,
        }
    }
}

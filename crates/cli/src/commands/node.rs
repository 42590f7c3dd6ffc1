//! `hostler node`: manages nodes.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use clap::{Args, Subcommand};
use hostler_model::{Feature, NodeName, NodeState, Offer, PartitionName, Request};
use hostler_proto::api::{Invite, NodeView};
use hostler_proto::join::Address;
use hostler_proto::partitions::{InvitePartition, TraitsChange};

use super::discover::Discover;
use super::nodes::Nodes;
use super::power::{Power, PowerTest};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};
use crate::flags::{Memory, TimeLimit};
use crate::output::{node_views, table, text};

/// Manage nodes: invite, drain, resume, switch on and off, remove
#[derive(Debug, Args)]
pub struct Node {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    List(Nodes),
    Discover(Discover),
    Invite(InviteNode),
    Show(Show),
    Set(SetTraits),
    Drain(Drain),
    Resume(Resume),
    Power(Power),
    PowerTest(PowerTest),
    Remove(Remove),
    Forget(Forget),
}

/// Print a join code, valid for one machine and one hour
///
/// Run `hostler agent join -` on the new machine and paste the code. Keep the code secret, like a password. With --partition, the
/// code is for any number of machines, e.g. for the image of machines in a cloud.
#[derive(Debug, Args)]
struct InviteNode {
    /// Name of the new node [default: the hostname of the new machine]
    ///
    /// If a node of this name exists, the new machine replaces it.
    #[arg(value_name = "NAME")]
    name: Option<NodeName>,

    /// Invite all machines with the name of a node of this partition
    ///
    /// A machine replaces a node of its name that is down or off and has no tasks. The code replaces the partition's earlier one.
    /// `hostler configure partition set NAME --end-join-code` ends it.
    #[arg(long, value_name = "NAME", conflicts_with = "name")]
    partition: Option<PartitionName>,

    /// How long the invitation of --partition is valid, e.g. 12h or 90d, at most 366 days [default: 7d]
    #[arg(long, value_name = "TIME", requires = "partition")]
    valid_for: Option<TimeLimit>,

    /// Address of the head for the new machine [default: from the head's settings]
    #[arg(long, value_name = "HOST[:PORT]")]
    address: Option<Address>,
}

/// Show the details of a node: state, resources, tasks and certificate
#[derive(Debug, Args)]
struct Show {
    /// Name of the node, e.g. n4
    #[arg(value_name = "NAME")]
    name: NodeName,
}

/// Set the features and the weight of nodes, and how much of them jobs may use
///
/// Options that are not given keep their values. Running jobs keep what they have, also if the node now offers less.
#[derive(Debug, Args)]
struct SetTraits {
    /// Names of the nodes, e.g. n4 n5
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,

    /// Features that `--constraint` can require, e.g. ssd,rack-2; `none` removes all
    ///
    /// The list replaces the features that an earlier call has set. Features that the node's agent reports stay.
    #[arg(long, value_name = "WORDS")]
    features: Option<Features>,

    /// Weight of the node; jobs use nodes with a lower weight first
    ///
    /// New nodes have the weight 0.
    #[arg(long, value_name = "N")]
    weight: Option<u32>,

    /// CPUs that the node offers to jobs, or `all` that it has
    #[arg(long, value_name = "N|all")]
    cpus: Option<Most<u32>>,

    /// Memory that the node offers to jobs, e.g. 8G, or `all` that it has
    #[arg(long, value_name = "SIZE|all")]
    memory: Option<Most<Memory>>,

    /// GPUs that the node offers to jobs, or `all` that it has
    #[arg(long, value_name = "N|all")]
    gpus: Option<Most<u32>>,

    /// Counted resource that the node offers to jobs, e.g. license=2, license=0 or license=all; repeat for several
    #[arg(long, value_name = "NAME=COUNT|all", value_parser = most_counted)]
    resource: Vec<(String, Most<u64>)>,
}

/// The most that a node offers; `None` is all that it has.
#[derive(Debug, Clone, Copy)]
struct Most<T>(Option<T>);

impl<T: FromStr<Err: fmt::Display>> FromStr for Most<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = (text != "all").then(|| text.parse()).transpose();
        parsed.map(Self).map_err(|error: T::Err| format!("{error}; `all` offers all that the node has"))
    }
}

fn most_counted(text: &str) -> Result<(String, Most<u64>), String> {
    let (name, count) = text.split_once('=').ok_or("not of the form NAME=COUNT, such as license=2")?;
    Ok((name.to_owned(), count.parse()?))
}

/// Features separated by commas.
#[derive(Debug, Clone)]
struct Features(BTreeSet<Feature>);

impl FromStr for Features {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(BTreeSet::new()));
        }
        let words = text.split(',').map(|word| word.trim().parse::<Feature>());
        words.collect::<Result<_, _>>().map(Self).map_err(|error| error.to_string())
    }
}

/// Start no new tasks on nodes; running tasks continue
///
/// When the last task has ended, the node's state is `drained`. The node starts no tasks, even after a restart, until
/// `hostler node resume`.
#[derive(Debug, Args)]
struct Drain {
    /// Names of the nodes, e.g. n4 n5
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,

    /// Reason to show to users
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Allow drained nodes to run jobs again
#[derive(Debug, Args)]
struct Resume {
    /// Names of the nodes, e.g. n4 n5
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,
}

/// Remove nodes from the cluster at once and permanently
///
/// The head revokes the node's certificate and closes the connection to the node. Tasks on the node end as `node_fail`,
/// or wait again if their job was submitted with `--requeue`. To let the tasks finish, drain the node first.
#[derive(Debug, Args)]
struct Remove {
    /// Names of the nodes, e.g. n4 n5
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,

    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// Remove nodes that are permanently offline from the list
///
/// A node that is connected or still has a task stays on the list. A removed node returns to the list if its agent
/// connects again, because the node's certificate stays valid. To revoke the certificate, use `hostler node remove`.
#[derive(Debug, Args)]
struct Forget {
    /// Names of the nodes, e.g. n4 n5
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,
}

impl Node {
    pub fn run(self, context: &Context) -> Outcome {
        match self.command {
            NodeCommand::List(command) => command.run(context),
            NodeCommand::Discover(command) => command.run(context),
            NodeCommand::Invite(command) => command.run(context),
            NodeCommand::Show(command) => command.run(context),
            NodeCommand::Set(command) => command.run(context),
            NodeCommand::Drain(command) => command.run(context),
            NodeCommand::Resume(command) => command.run(context),
            NodeCommand::Power(command) => command.run(context),
            NodeCommand::PowerTest(command) => command.run(context),
            NodeCommand::Remove(command) => command.run(context),
            NodeCommand::Forget(command) => command.run(context),
        }
    }
}

impl InviteNode {
    fn run(self, context: &Context) -> Outcome {
        let address = self.address.map(|address| address.to_string());
        let client = context.client()?;
        let (invitation, until) = block_on(async {
            let Some(partition) = &self.partition else {
                return Ok((client.invite_as(&Invite { node: self.name, address }).await?, None));
            };
            let invite = InvitePartition { valid_ms: self.valid_for.map(TimeLimit::as_ms), address };
            let invitation = client.invite_partition(partition, &invite).await?;
            Ok((invitation, client.partition(partition).await?.join_code_until))
        })?;
        let output = &context.output;
        if output.is_json() {
            output.json(&invitation);
            return Ok(exit::OK);
        }
        output.data(&invitation.code);
        output.say("on the new machine, run `hostler agent join -`, paste this code, then run `hostler agent run`");
        output.say(&match (until, &self.partition) {
            (Some(until), Some(partition)) => format!(
                "the code is valid until {}, for each machine with the name of a node of partition {partition}",
                text::Moment::now().date(until)
            ),
            _ => "the code is valid for one hour and one machine".to_owned(),
        });
        Ok(exit::OK)
    }
}

impl Show {
    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        let node = block_on(async { Ok(client.node(&self.name).await?) })?;
        if context.output.is_json() {
            context.output.json(&node);
        } else {
            context.output.data(&node_views::node(&node, &text::Moment::now()));
        }
        Ok(exit::OK)
    }
}

impl SetTraits {
    fn run(self, context: &Context) -> Outcome {
        let change = TraitsChange { weight: self.weight, features: self.features.clone().map(|features| features.0) };
        let has_traits = change != TraitsChange::default();
        let has_offer =
            self.cpus.is_some() || self.memory.is_some() || self.gpus.is_some() || !self.resource.is_empty();
        if !has_traits && !has_offer {
            let hint = "pass --features, --weight, --cpus, --memory, --gpus or --resource";
            return Err(Failure::usage("no change is given").hint(hint));
        }
        let client = context.client()?;
        block_on(async {
            let mut nodes = Vec::new();
            for name in &self.names {
                let mut node = client.node(name).await?;
                if has_offer {
                    node = client.set_offer(name, &self.offer(node.offer)).await?;
                    let NodeView { cpus, memory_bytes, gpus, counted, .. } = node.node.clone();
                    let offered = Request { cpus, memory_bytes, gpus, counted };
                    context.output.say(&format!("node {name} offers {offered}"));
                }
                if has_traits {
                    node = client.set_traits(name, &change).await?;
                    let (features, weight) = (text::words(&node.node.features), node.node.weight);
                    context.output.say(&format!("node {name}: features {features}, weight {weight}"));
                }
                nodes.push(node);
            }
            if context.output.is_json() {
                context.output.json(&nodes);
            }
            Ok(exit::OK)
        })
    }
}

impl SetTraits {
    /// The node's offer after the change.
    fn offer(&self, mut offer: Offer) -> Offer {
        offer.cpus = self.cpus.map_or(offer.cpus, |most| most.0);
        offer.memory_bytes = self.memory.map_or(offer.memory_bytes, |most| most.0.map(|memory| memory.0));
        offer.gpus = self.gpus.map_or(offer.gpus, |most| most.0);
        for (name, Most(count)) in &self.resource {
            match count {
                Some(count) => _ = offer.counted.insert(name.clone(), *count),
                None => _ = offer.counted.remove(name),
            }
        }
        offer
    }
}

impl Drain {
    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        block_on(async {
            let mut nodes = Vec::new();
            for name in &self.names {
                let node = client.drain_node(name, self.reason.clone()).await?;
                context.output.say(&match node.node.state {
                    state @ (NodeState::Draining | NodeState::Drained) => format!("node {name} is {}", state.as_str()),
                    state => {
                        format!("node {name} is drained until `hostler node resume {name}`; it is {}", state.as_str())
                    }
                });
                nodes.push(node);
            }
            if context.output.is_json() {
                context.output.json(&nodes);
            }
            Ok(exit::OK)
        })
    }
}

impl Resume {
    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        block_on(async {
            let mut nodes = Vec::new();
            for name in &self.names {
                let drain = client.node(name).await?.drain;
                let node = client.resume_node(name).await?;
                let was = match drain.map(|drain| drain.reason) {
                    Some(Some(reason)) => format!("; it was drained because: {}", table::one_line(&reason)),
                    Some(None) if node.node.state != NodeState::Up => ", and no longer drained".to_owned(),
                    _ => String::new(),
                };
                context.output.say(&format!("node {name} is {}{was}", node.node.state.as_str()));
                nodes.push(node);
            }
            if context.output.is_json() {
                context.output.json(&nodes);
            }
            Ok(exit::OK)
        })
    }
}

impl Remove {
    fn run(self, context: &Context) -> Outcome {
        let Self { names, yes } = self;
        let client = context.client()?;
        if !yes {
            self::confirm(&names, context)?;
        }
        block_on(async {
            for name in &names {
                // A node that has never connected has no view.
                let node = client.node(name).await.ok().map(|detail| detail.node);
                client.remove_node(name).await?;
                let is_away = |node: &NodeView| matches!(node.state, NodeState::Suspect | NodeState::Down);
                let goes_on = match node.filter(|node| node.tasks > 0 && is_away(node)) {
                    Some(_) => "; it was not connected: its tasks run on until the machine joins a cluster again",
                    None => "",
                };
                context.output.say(&format!("node {name} is removed{goes_on}"));
            }
            if context.output.is_json() {
                context.output.json(&names);
            }
            Ok(exit::OK)
        })
    }
}

/// Asks the user at the terminal to confirm the removal.
fn confirm(names: &[NodeName], context: &Context) -> Result<(), Failure> {
    let all: Vec<&str> = names.iter().map(NodeName::as_str).collect();
    let all = all.join(", ");
    let question = format!("remove {all} from the cluster and end the tasks there?");
    match context.output.confirms(&format!("the removal of {all}"), &question)? {
        true => Ok(()),
        false => Err(Failure::declined("nothing was removed")),
    }
}

impl Forget {
    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        block_on(async {
            for name in &self.names {
                client.forget_node(name).await?;
                context.output.say(&format!("node {name} is no longer listed"));
            }
            if context.output.is_json() {
                context.output.json(&self.names);
            }
            Ok(exit::OK)
        })
    }
}

//! `hostler node`.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal};
use std::str::FromStr;

use clap::{Args, Subcommand};
use hostler_model::{Feature, NodeName};
use hostler_proto::api::Invite;
use hostler_proto::join::Address;
use hostler_proto::partitions::TraitsChange;

use super::discover::Discover;
use super::nodes::Nodes;
use super::power::{Power, PowerTest};
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::output::{node_views, views};

/// Manage nodes: invite, drain, resume, switch on and off, remove; or see what this machine would offer as one
#[derive(Debug, Args)]
pub(crate) struct Node {
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

/// Print a join code, with which one machine can become a node within the hour
///
/// The code is for `hostler agent join` on that machine. It holds a secret: treat it like a password.
#[derive(Debug, Args)]
struct InviteNode {
    /// The node's name; a code without one is for any name that is new. A node that has the name already is replaced
    #[arg(value_name = "NAME")]
    name: Option<NodeName>,

    /// Where that machine finds the head, if it is elsewhere than the head's settings say
    #[arg(long, value_name = "HOST[:PORT]")]
    address: Option<Address>,
}

/// Show all about one node: its state with the reason, what it has, what runs there, its certificate
#[derive(Debug, Args)]
struct Show {
    /// A node such as n4
    #[arg(value_name = "NAME")]
    name: NodeName,
}

/// Say what nodes have, for `--constraint`, and which are used first
#[derive(Debug, Args)]
struct SetTraits {
    /// Nodes such as n4
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,

    /// What they have beyond what their agents say, such as ssd,rack-2; `none` takes all of that away
    #[arg(long, value_name = "WORDS")]
    features: Option<Features>,

    /// Nodes with a lower weight are used first; 0 unless it was set
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
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

/// Let nodes finish what they have and give them nothing new
///
/// Their tasks run on; when the last has ended, a node is `drained`. That lasts, whatever is restarted, until `hostler node resume`.
#[derive(Debug, Args)]
struct Drain {
    /// Nodes such as n4
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,

    /// Why, for whoever wonders
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Let drained nodes take work again
#[derive(Debug, Args)]
struct Resume {
    /// Nodes such as n4
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,
}

/// Remove nodes from the cluster at once and for good
///
/// A node's certificate is worth nothing any more and its connection is closed. Its tasks are given up: they end as `node_fail`, or wait
/// again if their job was submitted with `--requeue`. Drain the node first to let them finish.
#[derive(Debug, Args)]
struct Remove {
    /// Nodes such as n4
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Take nodes that are gone for good off the list
///
/// A node that is connected, or on which a task is still placed, stays. One whose agent connects again is back on the list: its certificate
/// stays good. `hostler node remove` ends that as well.
#[derive(Debug, Args)]
struct Forget {
    /// Nodes such as n4
    #[arg(value_name = "NAME", required = true)]
    names: Vec<NodeName>,
}

impl Node {
    pub(crate) fn run(self, context: &Context) -> Outcome {
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
        let invite = Invite { node: self.name, address: self.address.map(|address| address.to_string()) };
        let client = context.client()?;
        let invitation = block_on(async { Ok(client.invite_as(&invite).await?) })?;
        let output = &context.output;
        if output.is_json() {
            output.json(&invitation);
            return Ok(exit::OK);
        }
        output.data(&invitation.code);
        output.say("on the new machine: `hostler agent join -` and paste this code, then `hostler agent run`");
        output.say("it is good for an hour and one machine");
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
            context.output.data(&node_views::node(&node, &crate::output::views::Moment::now()));
        }
        Ok(exit::OK)
    }
}

impl SetTraits {
    fn run(self, context: &Context) -> Outcome {
        let change = TraitsChange { weight: self.weight, features: self.features.map(|features| features.0) };
        if change == TraitsChange::default() {
            return Err(Failure::usage("nothing is to be set").hint("say --features or --weight"));
        }
        let client = context.client()?;
        block_on(async {
            let mut nodes = Vec::new();
            for name in &self.names {
                let node = client.set_traits(name, &change).await?;
                let (features, weight) = (views::words(&node.node.features), node.node.weight);
                context.output.say(&format!("node {name}: features {features}, weight {weight}"));
                nodes.push(node);
            }
            if context.output.is_json() {
                context.output.json(&nodes);
            }
            Ok(exit::OK)
        })
    }
}

impl Drain {
    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        block_on(async {
            let mut nodes = Vec::new();
            for name in &self.names {
                let node = client.drain_node(name, self.reason.clone()).await?;
                context.output.say(&format!("node {name} is {}", node.node.state.as_str()));
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
                let node = client.resume_node(name).await?;
                context.output.say(&format!("node {name} is {}", node.node.state.as_str()));
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
                client.remove_node(name).await?;
                context.output.say(&format!("node {name} is removed"));
            }
            if context.output.is_json() {
                context.output.json(&names);
            }
            Ok(exit::OK)
        })
    }
}

/// Asks whoever sits at the terminal.
fn confirm(names: &[NodeName], context: &Context) -> Result<(), Failure> {
    let all: Vec<&str> = names.iter().map(NodeName::as_str).collect();
    let all = all.join(", ");
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(format!("nobody is here to say whether {all} should really be removed"))
            .hint("`--yes` says so"));
    }
    context.output.say(&format!("remove {all} from the cluster, and give up what runs there? [y/N]"));
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).during(|| "cannot read the answer".to_owned())?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::new("nothing was removed")),
    }
}

impl Forget {
    fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        block_on(async {
            for name in &self.names {
                client.forget_node(name).await?;
                context.output.say(&format!("node {name} is forgotten"));
            }
            if context.output.is_json() {
                context.output.json(&self.names);
            }
            Ok(exit::OK)
        })
    }
}

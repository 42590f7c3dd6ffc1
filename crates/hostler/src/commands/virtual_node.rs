//! `hostler virtual-node`, for heads: switches a node of `hostler up --elastic`.

use clap::{Args, ValueEnum};
use hostler_cli::cluster::{Places, Record};
use hostler_cli::context::block_on;
use hostler_cli::exit;
use hostler_cli::failure::{Failure, Outcome};
use hostler_model::NodeName;

use crate::embedded::Lock;
use crate::embedded::start::start_node;
use crate::embedded::stop::stop_node;

/// Start or stop the agent of a virtual node, or print whether it runs
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct VirtualNode {
    what: What,
    name: NodeName,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum What {
    Status,
    On,
    Off,
}

impl VirtualNode {
    pub(crate) fn run(self) -> Outcome {
        let places = Places::from_environment()?;
        match self.what {
            What::Status => println(if is_on(&places, &self.name)? { "on" } else { "off" }),
            What::On => {
                let _lock = Lock::take(&places.lock(), || {})?;
                if !is_on(&places, &self.name)? {
                    block_on(start_node(&places, &self.name))?;
                }
            }
            What::Off => {
                let _lock = Lock::take(&places.lock(), || {})?;
                stop_node(&places, &self.name)?;
            }
        }
        Ok(exit::OK)
    }
}

fn is_on(places: &Places, name: &NodeName) -> Result<bool, Failure> {
    let record = Record::load(&places.record())?;
    let node = record.nodes.iter().find(|node| node.name == *name);
    let node = node.ok_or_else(|| Failure::new(format!("this cluster has no virtual node {name}")))?;
    Ok(node.is_on())
}

#[expect(clippy::print_stdout, reason = "the head reads the printed word")]
fn println(word: &str) {
    println!("{word}");
}

//! `--test-only`: says when and where a job would start, and submits nothing.

use hostler_client::Client;
use hostler_model::{NodeName, Submission};
use hostler_slurm::hostlist;
use hostler_slurm::job_options::JobOptions;

use super::clock::Clock;
use super::machines::ALL_NODES;
use super::placing::place_with;
use super::{Ended, tell};
use crate::context::Context;

/// Prints when and where the job would start, with the name of the command in front, as Slurm does.
pub(crate) async fn test_only(
    context: &Context,
    client: &Client,
    name: &str,
    options: &JobOptions,
    spec: &Submission,
) -> Result<(), Ended> {
    let tried = place_with(client, options, spec, async |spec| client.dry_run(&spec).await).await;
    let would = tried.map_err(|refused| {
        let ended = Ended::plain(format!("allocation failure: {}", refused.text));
        refused.lines().fold(ended, Ended::and)
    })?;
    let starts_at = would.starts_at.map_or_else(|| "Unknown".to_owned(), |at| Clock::of_process().write(at));
    let nodes: Vec<&str> = would.nodes.iter().map(NodeName::as_str).collect();
    let nodes = if nodes.is_empty() { "(null)".to_owned() } else { hostlist::compress(&nodes) };
    let partition = would.partition.as_ref().map_or(ALL_NODES, |partition| partition.as_str());
    let text = format!(
        "Job {} to start at {starts_at} using {} processors on nodes {nodes} in partition {partition}",
        would.id, would.cpus
    );
    let reason = would.reason.map(|reason| format!("the job would wait: {reason}"));
    tell(context, name, &[Some(text), reason].into_iter().flatten().collect::<Vec<_>>());
    Ok(())
}

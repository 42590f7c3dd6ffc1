//! Requests to the head about a job whose options leave open on how many nodes it runs.

use hostler_client::{Client, ClientError, new_key};
use hostler_model::{Constraint, Submission};
use hostler_proto::api::{NodeView, SubmitRequest, Submitted};
use hostler_slurm::job_options::JobOptions;

use super::Refused;
use super::machines::ALL_NODES;
use super::request::{self, nodes_for, spread};

/// Submits the job, on more nodes if the options leave their number open and one is too small.
pub(super) async fn place(client: &Client, options: &JobOptions, spec: &Submission) -> Result<Submitted, Refused> {
    let submit = async |spec| client.submit(&SubmitRequest { key: new_key(), spec, wait_ms: None }).await;
    place_with(client, options, spec, submit).await
}

/// Like [`place`], with another request than a submission.
pub(super) async fn place_with<T>(
    client: &Client,
    options: &JobOptions,
    spec: &Submission,
    ask: impl AsyncFn(Submission) -> Result<T, ClientError>,
) -> Result<T, Refused> {
    if let Some(list) = options.partition.as_deref().filter(|list| list.contains(',')) {
        check_partitions(client, list).await?;
    }
    if options.exclude.is_some() {
        check_excluded(client, options).await?;
    }
    let mut spec = spec.clone();
    request::name_tasks(client, &mut spec.after).await?;
    let refused = match ask(spec.clone()).await {
        Ok(answer) => return Ok(answer),
        Err(error) => Refused::from(error),
    };
    let is_all = spec.partition.as_ref().is_some_and(|partition| partition.as_str() == ALL_NODES);
    if refused.code.as_deref() == Some("no_such_partition") && is_all {
        // The name under which clusters without partitions show their nodes.
        let spec = Submission { partition: None, ..spec };
        return Ok(ask(spec).await?);
    }
    if refused.code.as_deref() != Some("never_fits") {
        return Err(refused);
    }
    let nodes = client.nodes().await?;
    if let Some(text) = impossible(options, &nodes) {
        return Err(Refused { text, ..refused });
    }
    let wider = nodes_for(options, &nodes).filter(|_| options.layout().nodes.is_none());
    match wider.and_then(|nodes| spread(options, &spec, nodes).ok()) {
        Some(spec) => Ok(ask(spec).await?),
        None => Err(refused),
    }
}

/// Refuses a list of partitions with one that does not exist.
async fn check_partitions(client: &Client, list: &str) -> Result<(), Refused> {
    // Without the list, the head still checks the first name.
    let Ok(known) = client.partitions().await else { return Ok(()) };
    let is_known = |name: &str| name == ALL_NODES || known.iter().any(|partition| partition.name.as_str() == name);
    match list.split(',').find(|name| !name.is_empty() && !is_known(name)) {
        None => Ok(()),
        Some(name) => Err(Refused {
            text: "Invalid partition name specified",
            code: Some("no_such_partition".to_owned()),
            details: format!("there is no partition {name}"),
        }),
    }
}

/// Refuses to exclude a node that does not exist.
async fn check_excluded(client: &Client, options: &JobOptions) -> Result<(), Refused> {
    // Without the nodes, the job is only excluded from one more.
    let Ok(known) = client.nodes().await else { return Ok(()) };
    let names = request::expanded(options.exclude.as_ref()).unwrap_or_default();
    match names.into_iter().find(|name| known.iter().all(|node| node.name.as_str() != name)) {
        None => Ok(()),
        Some(name) => Err(Refused {
            text: "Invalid node name specified",
            code: Some("no_such_node".to_owned()),
            details: format!("there is no node {name}"),
        }),
    }
}

/// Slurm's text for a job that fits no node because of the nodes or features that it names.
fn impossible(options: &JobOptions, nodes: &[NodeView]) -> Option<&'static str> {
    const NODE: &str = "Invalid node name specified";
    let names = |list: &Option<String>| request::expanded(list.as_ref()).unwrap_or_default();
    let (required, excluded) = (names(&options.nodelist), names(&options.exclude));
    if required.iter().any(|name| excluded.contains(name) || nodes.iter().all(|node| node.name.as_str() != name)) {
        return Some(NODE);
    }
    let wanted: Constraint = options.constraint.as_ref()?.replace(',', "&").parse().ok()?;
    // A node has its name as a feature, too.
    let has = |node: &NodeView| {
        wanted.holds(|feature| node.features.contains(feature) || node.name.as_str() == feature.as_str())
    };
    (!nodes.iter().any(has)).then_some("Invalid feature specification")
}

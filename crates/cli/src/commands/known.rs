//! Whether the user and the partition that a filter names exist. Commands ask only if nothing matches the filter.

use hostler_client::{Client, JobFilter};
use hostler_model::{PartitionName, Role, UserName};
use nix::unistd::User;

use crate::context::Context;
use crate::exit;
use crate::failure::Failure;
use crate::toml_file::closest;

/// Fails if the user or the partition does not exist.
pub(crate) async fn check(
    context: &Context,
    client: &Client,
    user: Option<&str>,
    partition: Option<&PartitionName>,
) -> Result<(), Failure> {
    if let Some(name) = partition
        && !has_jobs(client, JobFilter { partition: Some(name.clone()), ..JobFilter::default() }).await?
    {
        check_partition(client, name).await?;
    }
    match user {
        Some(name) => check_user(context, client, name).await,
        None => Ok(()),
    }
}

async fn check_partition(client: &Client, name: &PartitionName) -> Result<(), Failure> {
    let Err(error) = client.partition(name).await else { return Ok(()) };
    let there = match error.code() {
        Some("no_such_partition") => client.partitions().await?,
        _ => Vec::new(),
    };
    let names: Vec<&str> = there.iter().map(|partition| partition.name.as_str()).collect();
    Err(meant(Failure::from(error), name.as_str(), &names))
}

async fn check_user(context: &Context, client: &Client, name: &str) -> Result<(), Failure> {
    let me = client.me().await?;
    let of_user = JobFilter { user: Some(name.to_owned()), ..JobFilter::default() };
    // An account of the machine may submit jobs although no admin has added it as a user.
    if me.user == name
        || has_jobs(client, of_user).await?
        || User::from_name(name).is_ok_and(|account| account.is_some())
    {
        return Ok(());
    }
    let nobody = || Failure::new(format!("there is no user {name}")).exiting(exit::REFUSED);
    let Ok(user) = name.parse::<UserName>() else { return Err(nobody()) };
    // Only admins may know all users.
    if me.role != Role::Admin {
        context.output.say(&format!("note: a user {name} has never submitted a job here"));
        return Ok(());
    }
    match client.user(&user).await {
        Err(error) if error.code() == Some("no_such_user") => {
            let users = client.users().await?;
            let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).chain([me.user.as_str()]).collect();
            Err(meant(Failure::from(error), name, &names))
        }
        found => found.map(|_| ()).map_err(Failure::from),
    }
}

async fn has_jobs(client: &Client, filter: JobFilter) -> Result<bool, Failure> {
    Ok(client.jobs(&JobFilter { limit: Some(1), ..filter }).await?.total > 0)
}

fn meant(failure: Failure, word: &str, names: &[&str]) -> Failure {
    match closest(word, names) {
        Some(name) => failure.hint(format!("did you mean `{name}`?")),
        None => failure,
    }
}

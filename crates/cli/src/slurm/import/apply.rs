//! Reads and changes the settings of a cluster through the API.

use hostler_client::{Client, ClientError};
use hostler_model::Role;

use super::changes::{Change, Present};
use super::wanted::Wanted;
use crate::context::Context;
use crate::exit;
use crate::failure::Failure;

/// The cluster to import into.
pub(super) enum Cluster {
    Found(Client),
    /// Without a cluster, a dry run shows all changes.
    Absent,
}

impl Cluster {
    pub(super) fn find(context: &Context, dry_run: bool) -> Result<Self, Failure> {
        let client = if dry_run { context.quiet_client() } else { context.client() };
        match client {
            Err(failure) if dry_run && failure.exit == exit::UNREACHABLE => Ok(Self::Absent),
            found => found.map(Self::Found),
        }
    }
}

/// Asks for the settings of a cluster; `None` if a dry run reaches no head.
pub(super) async fn present(client: &Client, wanted: &Wanted, dry_run: bool) -> Result<Option<Present>, Failure> {
    match ask(client, wanted).await {
        Err(ClientError::Connect { .. }) if dry_run => Ok(None),
        asked => Ok(Some(asked?)),
    }
}

async fn ask(client: &Client, wanted: &Wanted) -> Result<Present, ClientError> {
    let mut present = Present {
        settings: client.settings().await?,
        partitions: client.partitions().await?,
        nodes: client.nodes().await?,
        groups: client.groups().await?,
        ..Present::default()
    };
    if wanted.people.is_some() {
        present.users = client.users().await?;
    }
    for name in wanted.lacking(&present.nodes) {
        let detail = client.node(name).await?;
        present.assigned.insert(name.clone(), detail.assigned_features);
    }
    Ok(present)
}

/// Checks that the caller may make all changes.
pub(super) async fn check_role(client: &Client, changes: &[Change]) -> Result<(), Failure> {
    let me = client.me().await?;
    let needed = changes.iter().map(Change::role).max().unwrap_or(Role::User);
    if me.role < needed {
        let failure = Failure::new(format!("{} is {} here; nothing was changed", me.user, me.role.with_article()));
        return Err(failure.exiting(exit::REFUSED).hint(format!("these changes need {}", needed.with_article())));
    }
    Ok(())
}

/// Makes all changes.
pub(super) async fn apply(client: &Client, changes: &[Change]) -> Result<(), Failure> {
    for (done, change) in changes.iter().enumerate() {
        make(client, change).await.map_err(|error| {
            let failure = Failure::from(error).hint(format!("the failed change: {}", change.commands().join("; ")));
            match done {
                0 => failure.hint("nothing was changed in the cluster"),
                _ => failure.hint(format!(
                    "{done} of {} changes were made; the same command makes the others later",
                    changes.len()
                )),
            }
        })?;
    }
    Ok(())
}

async fn make(client: &Client, change: &Change) -> Result<(), ClientError> {
    match change {
        Change::Users(users) => client.import_users(users.clone()).await,
        Change::UserQuota { user, quota, .. } => client.set_user_quota(user, quota).await.map(drop),
        Change::GroupQuota { group, quota, .. } => client.set_group_quota(group, quota).await,
        Change::Setting { name, value } => client.change_setting(name, Some(value)).await.map(drop),
        Change::AddPartition(new) => client.add_partition(new).await.map(drop),
        Change::SetPartition(new) => client.change_partition(&new.name, &new.about).await.map(drop),
        Change::Traits { node, change } => client.set_traits(node, change).await.map(drop),
        Change::Drain { node, reason } => client.drain_node(node, Some(reason.clone())).await.map(drop),
    }
}

//! Quotas on the command line, and `hostler configure group`.

use std::str::FromStr;

use clap::{Args, Subcommand};
use hostler_client::Client;
use hostler_model::{Quota, UserName, parse_bytes};

use super::note_empty_groups;
use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::Outcome;
use crate::output::{self, people};

/// Quota limits. A limit that is not given stays unchanged.
#[derive(Debug, Args)]
pub(super) struct QuotaFlags {
    /// Limit on the CPUs of all running tasks together; `none` removes the limit
    #[arg(long, value_name = "N")]
    cpus: Option<Limit<Count>>,

    /// Limit on the memory of all running tasks together; `none` removes the limit
    ///
    /// Write the size with a unit, e.g. 64G.
    #[arg(long, value_name = "SIZE")]
    memory: Option<Limit<Size>>,

    /// Limit on the number of running tasks; `none` removes the limit
    #[arg(long, value_name = "N")]
    jobs: Option<Limit<Count>>,

    /// Limit on the number of waiting tasks; `none` removes the limit
    #[arg(long, value_name = "N")]
    queued: Option<Limit<Count>>,
}

/// A limit; `None` removes it.
#[derive(Debug, Clone, Copy)]
struct Limit<T>(Option<T>);

#[derive(Debug, Clone, Copy)]
struct Count(u64);

#[derive(Debug, Clone, Copy)]
struct Size(u64);

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("`{text}` is neither a number nor `none`"))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse_bytes(text).map(Self).map_err(|error| error.to_string())
    }
}

impl<T: FromStr<Err = String>> FromStr for Limit<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" { Ok(Self(None)) } else { text.parse().map(|limit| Self(Some(limit))) }
    }
}

impl QuotaFlags {
    /// The quota `now` after the changes that the flags request.
    pub(super) fn applied_to(&self, now: Quota) -> Quota {
        let count = |limit: Option<Limit<Count>>, now| limit.map_or(now, |limit| limit.0.map(|count| count.0));
        Quota {
            cpus: count(self.cpus, now.cpus),
            memory_bytes: self.memory.map_or(now.memory_bytes, |limit| limit.0.map(|size| size.0)),
            jobs: count(self.jobs, now.jobs),
            queued: count(self.queued, now.queued),
        }
    }
}

/// Manage group quotas: shared limits, and limits of each user of a group
#[derive(Debug, Args)]
pub(crate) struct Group {
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(Debug, Subcommand)]
enum GroupCommand {
    /// List groups with a quota
    List,
    /// Set the quota of a group: limits that the users of the group share
    ///
    /// With --each, the limits apply to each user of the group alone. A limit of the user's own quota goes first. If
    /// several groups of a user set such a limit, the largest counts. Options that are not given keep their values.
    Quota(SetQuota),
}

#[derive(Debug, Args)]
struct SetQuota {
    /// Name of the group
    name: UserName,

    /// Set the limits of each user of the group, where the user's own quota sets none
    #[arg(long)]
    each: bool,

    #[command(flatten)]
    quota: QuotaFlags,
}

impl Group {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        let client = context.client()?;
        match self.command {
            GroupCommand::List => list(context, &client),
            GroupCommand::Quota(command) => command.run(context, &client),
        }
    }
}

fn list(context: &Context, client: &Client) -> Outcome {
    let groups = block_on(async { Ok(client.groups().await?) })?;
    match context.output.is_json() {
        true => context.output.json(&groups),
        false => context.output.data(&people::groups(&groups, output::width())),
    }
    Ok(exit::OK)
}

impl SetQuota {
    fn run(self, context: &Context, client: &Client) -> Outcome {
        let name = &self.name;
        let quota = block_on(async {
            let groups = client.groups().await?;
            let now = groups.iter().find(|group| group.name == *name);
            let now = now.map(|group| if self.each { group.member_quota } else { group.quota }).unwrap_or_default();
            let quota = self.quota.applied_to(now);
            match self.each {
                true => client.set_member_quota(name, &quota).await?,
                false => client.set_group_quota(name, &quota).await?,
            }
            Ok(quota)
        })?;
        if context.output.is_json() {
            context.output.json(&quota);
        }
        let whose = if self.each { "each user of group" } else { "group" };
        context.output.say(&format!("{whose} {name}: {}", people::quota(&quota)));
        note_empty_groups(context, client, [name], None);
        Ok(exit::OK)
    }
}

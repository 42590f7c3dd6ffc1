//! `hostler import slurm`: turns the configuration of a Slurm cluster into settings of Hostler.
//!
//! The files are read and translated to the [`Wanted`](wanted::Wanted) settings. The wanted and the
//! [`Present`](changes::Present) settings give the changes, which the same requests make as the commands of an admin. A second
//! import finds nothing to do.

mod accounts;
mod apply;
mod changes;
mod command;
mod files;
mod nodes;
mod partitions;
mod report;
mod settings;
#[cfg(test)]
mod tests;
mod translate;
mod wanted;

use std::path::Path;

use hostler_slurm::conf::Problem;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};

use apply::{Cluster, apply, check_role, present};
use report::Report;
use translate::translate;

/// The most mistakes that are reported at once.
const MAX_PROBLEMS: usize = 20;

/// What to import, and how.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) slurm_conf: &'a Path,
    /// Output of `sacctmgr dump`.
    pub(crate) accounts: Option<&'a Path>,
    pub(crate) dry_run: bool,
}

/// Imports a configuration, or says what an import would change.
pub(crate) fn run(context: &Context, request: &Request<'_>) -> Outcome {
    let sources = files::load(request.slurm_conf, request.accounts).map_err(|problems| refusal(&problems))?;
    let wanted = translate(&sources).map_err(|problems| refusal(&problems))?;
    let cluster = Cluster::find(context, request.dry_run)?;
    block_on(async {
        let present = match &cluster {
            Cluster::Found(client) => present(client, &wanted, request.dry_run).await?,
            Cluster::Absent => None,
        };
        let changes = wanted.changes(present.as_ref().unwrap_or(&changes::Present::default()));
        let report = Report { wanted: &wanted, changes: &changes, present: present.as_ref() };
        if request.dry_run {
            report.print(context, false);
            return Ok(exit::OK);
        }
        if let Cluster::Found(client) = &cluster {
            check_role(client, &changes).await?;
            apply(client, &changes).await?;
        }
        report.print(context, true);
        Ok(exit::OK)
    })
}

fn refusal(problems: &[Problem]) -> Failure {
    let count = problems.len();
    let what = if count == 1 { "a mistake" } else { "mistakes" };
    let failure = Failure::usage(format!("the files have {what}; nothing was changed"));
    let shown = problems.iter().take(MAX_PROBLEMS).map(ToString::to_string);
    let failure = shown.fold(failure, Failure::hint);
    if count > MAX_PROBLEMS { failure.hint(format!("and {} more", count - MAX_PROBLEMS)) } else { failure }
}

//! `hostler import slurm`: turns the configuration of a Slurm cluster into settings of Hostler.
//!
//! The files are read and translated to the [`Wanted`] settings and a report of every line. The wanted and the [`Present`]
//! settings give the changes, which the same requests make as the commands of an admin. A second import finds nothing to do.

mod accounts;
mod apply;
mod beside;
mod changes;
mod command;
mod files;
mod keys;
mod nodes;
mod partitions;
mod power;
mod report;
mod settings;
#[cfg(test)]
mod tests;
mod verdict;
mod wanted;

use std::path::Path;
use std::time::Duration;

use hostler_slurm::conf::Problem;

use crate::context::{Context, block_on};
use crate::exit;
use crate::failure::{Failure, Outcome};

use apply::{Cluster, apply, check_role, present};
use report::Report;
use wanted::translate;

/// The most mistakes that are reported at once.
const MAX_PROBLEMS: usize = 20;

/// What to import, and how.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) slurm_conf: &'a Path,
    /// Output of `sacctmgr dump`.
    pub(crate) accounts: Option<&'a Path>,
    /// Where to write a `power.toml`.
    pub(crate) power: Option<&'a Path>,
    pub(crate) dry_run: bool,
}

/// Imports a configuration, or says what an import would change.
pub(crate) fn run(context: &Context, request: &Request<'_>) -> Outcome {
    let sources = files::load(request.slurm_conf, request.accounts).map_err(|problems| refusal(&problems))?;
    let wanted = translate(&sources).map_err(|problems| refusal(&problems))?;
    let power = power::File::plan(request.power, wanted.power.as_deref())?;
    let cluster = Cluster::find(context, request.dry_run)?;
    block_on(async {
        let present = match &cluster {
            Cluster::Found(client) => present(client, &wanted, request.dry_run).await?,
            Cluster::Absent => None,
        };
        let changes = wanted.changes(present.as_ref().unwrap_or(&changes::Present::default()));
        let report = Report { wanted: &wanted, changes: &changes, present: present.as_ref(), power: power.as_ref() };
        if request.dry_run {
            report.print(context, false);
            return Ok(exit::OK);
        }
        if let Cluster::Found(client) = &cluster {
            check_role(client, &changes).await?;
            if let Some(power) = &power {
                power.write()?;
            }
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

/// Writes a time in the largest unit that is exact, such as `2d`, `90m` or `45s`.
fn span(time: Duration) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let unit = units.iter().find(|(_, size)| ms > 0 && ms.is_multiple_of(*size));
    unit.map_or_else(
        || if ms == 0 { "0s".to_owned() } else { format!("{ms}ms") },
        |(unit, size)| format!("{}{unit}", ms / size),
    )
}

//! The request to `squeue`: the command line, and the variables that give its defaults.

use std::collections::BTreeSet;

use hostler_slurm::hostlist;
use hostler_slurm::size::Conversion;
use hostler_slurm::state::{State, parse_list};

use super::super::{Ended, check_clusters, items};
use super::filter::Filter;
use super::{ids, sort};

/// The usual formats.
pub(super) const USUAL: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
pub(super) const LONG: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
pub(super) const START: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";
pub(super) const STEPS: &str = "%.15i %.8j %.9P %.8u %.9M %N";

/// What to list, and how.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) filter: Filter,
    pub(super) short_format: Option<String>,
    pub(super) long_format: Option<String>,
    pub(super) sort: String,
    pub(super) conversion: Conversion,
    pub(super) iterate_seconds: Option<u64>,
    pub(super) has_header: bool,
    /// Whether the current time stands above the header.
    pub(super) has_date: bool,
    /// Whether the name of the cluster stands above the header.
    pub(super) names_cluster: bool,
    pub(super) lists_steps: bool,
    pub(super) is_json: bool,
}

/// The options as they were given.
#[derive(Default)]
pub(super) struct Given {
    pub(super) filter: Filter,
    pub(super) states: Option<String>,
    pub(super) format: Option<String>,
    pub(super) format_long: Option<String>,
    pub(super) sort: Option<String>,
    pub(super) iterate_seconds: Option<u64>,
    /// The list of jobs; `Some(None)` if the option has no value.
    pub(super) jobs: Option<Option<String>>,
    pub(super) steps: bool,
    pub(super) long: bool,
    pub(super) start: bool,
    pub(super) verbose: bool,
    pub(super) no_header: bool,
    pub(super) no_convert: bool,
    pub(super) cluster: bool,
    pub(super) json: bool,
    /// Lines to print, also if a later option is refused.
    pub(super) warnings: Vec<String>,
}

impl Given {
    /// Takes defaults from the environment.
    pub(super) fn take_variables(&mut self, variable: &impl Fn(&str) -> Option<String>) -> Result<(), Ended> {
        let list = |name: &str| variable(name).map(|list| items(&list));
        let Self { filter, warnings, .. } = self;
        filter.accounts = filter.accounts.take().or_else(|| list("SQUEUE_ACCOUNT"));
        filter.names = filter.names.take().or_else(|| list("SQUEUE_NAMES"));
        filter.licenses = filter.licenses.take().or_else(|| list("SQUEUE_LICENSES"));
        filter.partitions = filter.partitions.take().or_else(|| list("SQUEUE_PARTITION"));
        filter.qos = filter.qos.take().or_else(|| list("SQUEUE_QOS"));
        filter.splits_arrays |= ["SQUEUE_ARRAY", "SQUEUE_ARRAY_UNIQUE"].iter().any(|name| variable(name).is_some());
        if filter.users.is_none() {
            filter.users = variable("SQUEUE_USERS").map(|list| users(&list, warnings));
        }
        self.states = self.states.take().or_else(|| variable("SQUEUE_STATES"));
        self.sort = self.sort.take().or_else(|| variable("SQUEUE_SORT"));
        if let Some(clusters) = variable("SLURM_CLUSTERS").filter(|_| !self.cluster) {
            check_clusters(&clusters)?;
            self.cluster = true;
        }
        let is_chosen = self.format.is_some() || self.format_long.is_some() || self.long || self.start || self.steps;
        if !is_chosen {
            self.format = variable("SQUEUE_FORMAT");
            self.format_long = variable("SQUEUE_FORMAT2").filter(|_| self.format.is_none());
        }
        Ok(())
    }

    pub(super) fn settings(self) -> Result<Settings, Ended> {
        let mut filter = self.filter;
        let is_start = self.start && !self.steps;
        if self.long && self.format.is_some() {
            let text = "Options -o(--format) and -l(--long) are mutually exclusive. Please remove one and retry.";
            return Err(Ended::fatal(text));
        }
        let usual = match (self.steps, is_start, self.long) {
            (true, ..) => STEPS,
            (false, true, _) => START,
            (false, false, true) => LONG,
            (false, false, false) => USUAL,
        };
        let states = self.states.or_else(|| is_start.then(|| "PD".to_owned()));
        filter.states = match &states {
            Some(list) => states_of(list)?,
            None => Some(State::OF_QUEUE.to_vec()),
        };
        filter.named = match self.jobs.flatten() {
            Some(list) => Some(ids::parse_list(&list).map_err(|id| Ended::error(format!("Invalid job id: {id}")))?),
            None => None,
        };
        Ok(Settings {
            filter,
            short_format: Some(self.format.unwrap_or_else(|| usual.to_owned())),
            long_format: self.format_long,
            sort: self.sort.unwrap_or_else(|| if is_start { "S" } else { sort::USUAL }.to_owned()),
            conversion: if self.no_convert { Conversion::Keep } else { Conversion::Exact },
            has_date: self.long || self.verbose || self.iterate_seconds.is_some(),
            iterate_seconds: self.iterate_seconds,
            has_header: !self.no_header,
            names_cluster: self.cluster,
            lists_steps: self.steps,
            is_json: self.json,
        })
    }
}

pub(super) fn seconds(text: &str) -> Result<u64, Ended> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let seconds = text[..digits].parse().ok().filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| Ended::error(format!("--iterate={text}\n")))
}

pub(super) fn nodes(list: &str) -> Result<BTreeSet<String>, Ended> {
    let nodes = hostlist::expand(list);
    let nodes = nodes.map_err(|_| Ended::error(format!("'{list}' invalid entry for --nodelist")))?;
    Ok(nodes.into_iter().collect())
}

/// The names of users that are given by name or by uid.
pub(super) fn users(list: &str, warnings: &mut Vec<String>) -> Vec<String> {
    let mut names = Vec::new();
    for user in items(list) {
        let found = match user.parse::<u32>() {
            Ok(uid) => nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)),
            Err(_) => nix::unistd::User::from_name(&user),
        };
        match found.ok().flatten() {
            Some(found) => names.push(found.name),
            None => {
                if user.parse::<u32>().is_err() {
                    warnings.push(format!("error: Invalid user: {user}\n"));
                }
                names.push(user);
            }
        }
    }
    names
}

fn states_of(list: &str) -> Result<Option<Vec<State>>, Ended> {
    const ALL: &str = "PENDING,RUNNING,SUSPENDED,COMPLETED,CANCELLED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,BOOT_FAIL,\
        DEADLINE,OUT_OF_MEMORY,COMPLETING,CONFIGURING,RESIZING,RESV_DEL_HOLD,REQUEUED,REQUEUE_FED,REQUEUE_HOLD,REVOKED,\
        SIGNALING,SPECIAL_EXIT,STAGE_OUT,STOPPED";
    parse_list(list).map_err(|state| {
        Ended::error(format!("Invalid job state specified: {state}"))
            .and(format!("error: Valid job states include: {ALL}\n"))
    })
}

//! Refusals of the head in Slurm's words.

use hostler_client::ClientError;
use hostler_slurm::job_options::JobOptions;

use super::Ended;
use crate::failure::Failure;

/// Why the head does not do what a command asks for.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Slurm's text for it.
    pub(crate) text: &'static str,
    /// Hostler's code, if the head answered.
    pub(crate) code: Option<String>,
    /// What the head says, for people.
    pub(crate) details: String,
}

/// Slurm's texts for the codes of the head.
const TEXTS: &[(&str, &str)] = &[
    ("never_fits", "Requested node configuration is not available"),
    ("no_such_partition", "Invalid partition name specified"),
    ("partition_refuses", "Access/permission denied"),
    ("no_such_dependency", "Job dependency problem"),
    ("not_yours", "Access/permission denied"),
    ("forbidden", "Access/permission denied"),
    ("blocked", "Invalid account or account/partition combination specified"),
    ("not_for_root", "Access/permission denied"),
    ("not_through_nodes", "Access/permission denied"),
    ("system_account", "Access/permission denied"),
    ("priority_too_high", "Access/permission denied"),
    ("over_quota", "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"),
    ("no_such_job", "Invalid job id specified"),
    ("no_such_task", "Invalid job id specified"),
    ("not_running", "Job/step already completing or completed"),
    ("results_not_fetched", "Requested operation is presently disabled"),
    ("wrong_state", "Requested operation is presently disabled"),
    ("disk_full", "Unable to write the state of the job"),
];

/// The text if the head refuses the values of a request.
const INVALID: &str = "Invalid job or step specification";

/// The text if the head cannot be reached.
const AWAY: &str = "Unable to contact slurm controller (connect failure)";

impl From<ClientError> for Refused {
    fn from(error: ClientError) -> Self {
        let code = error.code().map(str::to_owned);
        let text = match &code {
            None => AWAY,
            Some(code) => TEXTS.iter().find(|(known, _)| known == code).map_or(INVALID, |(_, text)| *text),
        };
        let details = Failure::from(error).render();
        Self { text, code, details: details.trim_start_matches("error: ").to_owned() }
    }
}

impl Refused {
    /// The error of a command whose job was refused. `failed` is what the command calls the failed call.
    pub(crate) fn ended(&self, failed: &str, options: &JobOptions) -> Ended {
        let text = format!("{failed}: {}", self.text);
        let ended = match &options.partition {
            Some(name) if self.code.as_deref() == Some("no_such_partition") => {
                Ended::error(format!("invalid partition specified: {name}")).and(format!("error: {text}"))
            }
            _ => Ended::error(text),
        };
        self.lines().fold(ended, Ended::and)
    }

    /// The error `text`, followed by the head's own words.
    pub(crate) fn told(&self, text: String) -> Ended {
        self.lines().fold(Ended::error(text), Ended::and)
    }

    /// The head's own words, one per line.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.details.lines().map(|line| line.trim_start().to_owned())
    }
}

//! Nodes borrowed from a Slurm cluster. Switching a node on submits a job that runs an agent; switching it off cancels
//! the job.
//!
//! The driver keeps no state. It finds a node's job by the job's name, so after a crash of the head no second job is
//! submitted. A waiting job counts as on, and the agent connects when the job starts.

use std::time::Duration;

use futures_util::future::BoxFuture;
use hostler_model::NodeName;

use crate::fault::quoted;
use crate::program::{Finished, Program};
use crate::{Driver, Fault, Off, SlurmConfig, Supply};

/// Option that limits the environment variables of the job. The head's other variables are useless on the nodes of the
/// Slurm cluster.
const EXPORTED: &str = "--export=PATH,HOME,USER,LOGNAME,LANG";

/// States in which a job holds nodes or will hold them. In all other states the job has ended.
const LIVE: [&str; 16] = [
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "SIGNALING",
    "STAGE_OUT",
    "RESIZING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
    "EXPEDITING",
    "POWER_UP_NODE",
];

const OVER: [&str; 12] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REVOKED",
    "TIMEOUT",
];

/// Driver that submits and cancels the Slurm job of a node's agent.
pub(crate) struct SlurmDriver {
    config: SlurmConfig,
    job_name: String,
    script: String,
    limit: Duration,
}

impl SlurmDriver {
    /// Creates the driver.
    ///
    /// # Errors
    /// The agent's command is empty, or an option is invalid.
    pub(crate) fn new(node: &NodeName, config: &SlurmConfig) -> Result<Self, Fault> {
        if config.agent.is_empty() {
            return Err(Fault::unprepared(format!("the command for the agent of {node} is missing"))
                .hint("write the command, e.g. agent = [\"hostler\", \"agent\", \"run\"]"));
        }
        if let Some(option) = config.options.iter().find(|option| !option.starts_with('-')) {
            return Err(Fault::unprepared(format!("`{}` is not an option of sbatch", quoted(option)))
                .hint("write each option with its value as one word, e.g. \"--time=8:00:00\""));
        }
        Ok(Self {
            config: config.clone(),
            job_name: format!("hostler-{node}"),
            script: script(config.prologue.as_deref(), &config.agent),
            limit: config.limit(),
        })
    }

    /// Runs one of Slurm's commands. Returns its output, or a fault if it fails.
    async fn run(&self, argv: &[String], input: &[u8]) -> Result<String, Fault> {
        let more = self.config.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let finished =
            Program::new(argv, self.limit).package("slurm-client").environment(more).input(input).run().await?;
        if finished.status.success() {
            return Ok(String::from_utf8_lossy(&finished.stdout).into_owned());
        }
        Err(complaint(&argv[0], &finished))
    }

    /// The node's jobs that have not ended.
    async fn jobs(&self) -> Result<Vec<String>, Fault> {
        let name = format!("--name={}", self.job_name);
        let argv = ["squeue", "--noheader", "--me", "--states=all", "--format=%i|%T", &name].map(str::to_owned);
        let listed = self.run(&argv, b"").await?;
        live_jobs(&listed)
            .map_err(|line| Fault::confused(format!("unexpected output of `squeue`: \"{}\"", quoted(line))))
    }

    async fn cancel(&self, how: Off) -> Result<(), Fault> {
        let jobs = self.jobs().await?;
        if jobs.is_empty() {
            return Ok(());
        }
        if how == Off::ByForce {
            let kill = ["scancel", "--signal=KILL", "--full"].map(str::to_owned).into_iter().chain(jobs.clone());
            self.run(&kill.collect::<Vec<_>>(), b"").await?;
        }
        let cancel: Vec<String> = std::iter::once("scancel".to_owned()).chain(jobs).collect();
        self.run(&cancel, b"").await.map(drop)
    }

    async fn submit(&self) -> Result<(), Fault> {
        let ours = ["sbatch", "--parsable", "--no-requeue", "--chdir=/tmp", "--output=/dev/null", EXPORTED];
        let mut argv: Vec<String> = ours.map(str::to_owned).into();
        argv.extend(self.config.partition.iter().map(|partition| format!("--partition={partition}")));
        // The operator's options come later and have precedence, except over the job's name, which identifies the job.
        argv.extend(self.config.options.iter().cloned());
        argv.push(format!("--job-name={}", self.job_name));
        let printed = self.run(&argv, self.script.as_bytes()).await?;
        match submitted(&printed) {
            Some(_) => Ok(()),
            None => Err(Fault::confused(format!("`sbatch` printed \"{}\" instead of a job id", quoted(&printed)))),
        }
    }
}

impl Driver for SlurmDriver {
    fn status(&self) -> BoxFuture<'_, Result<Supply, Fault>> {
        Box::pin(async { Ok(if self.jobs().await?.is_empty() { Supply::Off } else { Supply::On }) })
    }

    fn on(&self) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.submit())
    }

    fn off(&self, how: Off) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(self.cancel(how))
    }
}

/// The job's script: the operator's prologue, then the agent. The agent replaces the shell, so that it receives
/// signals.
fn script(prologue: Option<&str>, agent: &[String]) -> String {
    let agent: Vec<String> = agent.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    format!("#!/bin/bash\n{}\nexec {}\n", prologue.unwrap_or_default(), agent.join(" "))
}

/// The ids of jobs that have not ended, from a list of ids and states.
///
/// # Errors
/// The first line with an unknown format.
pub(crate) fn live_jobs(listed: &str) -> Result<Vec<String>, &str> {
    let mut live = Vec::new();
    for line in listed.lines().filter(|line| !line.trim().is_empty()) {
        let (id, state) = line.trim().split_once('|').ok_or(line)?;
        if id.is_empty() || !id.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(line);
        }
        match state {
            state if LIVE.contains(&state) => live.push(id.to_owned()),
            state if OVER.contains(&state) => {}
            _ => return Err(line),
        }
    }
    Ok(live)
}

/// Parses the id of a submitted job. In a federation, the name of a cluster follows the id.
pub(crate) fn submitted(printed: &str) -> Option<u64> {
    printed.trim().split(';').next()?.parse().ok()
}

fn complaint(command: &str, finished: &Finished) -> Fault {
    const AWAY: [&str; 5] =
        ["Unable to contact", "Socket timed out", "Connection refused", "Zero Bytes", "Transport endpoint"];
    let said = &finished.stderr;
    let why = format!("`{command}` {}", finished.failure());
    if AWAY.iter().any(|words| said.contains(words)) {
        return Fault::unreachable(why)
            .hint("Slurm's controller does not respond; check it with `scontrol ping`, or ask its administrators");
    }
    if said.contains("emporarily") {
        return Fault::busy(why);
    }
    Fault::unsupported(why)
        .hint(format!("run `{command}` manually as the user that runs the head, with the same options"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ended_jobs_are_ignored_and_unknown_states_are_errors() {
        assert_eq!(
            live_jobs("17|RUNNING\n18|PENDING\n16|CANCELLED\n\n15|COMPLETED\n"),
            Ok(vec!["17".into(), "18".into()])
        );
        assert_eq!(live_jobs(""), Ok(vec![]));
        for odd in ["17", "17|SLEEPING", "|RUNNING", "1_2|RUNNING", "17|RUNNING|x", "slurm_load_jobs error"] {
            assert_eq!(live_jobs(odd), Err(odd));
        }
    }

    #[test]
    fn job_ids_are_parsed() {
        assert_eq!(submitted("17\n"), Some(17));
        assert_eq!(submitted("17;west\n"), Some(17));
        for odd in ["", "Submitted batch job 17", "-1"] {
            assert_eq!(submitted(odd), None, "{odd}");
        }
    }

    #[test]
    fn agent_arguments_are_quoted_exactly() {
        let words = ["printf", "%s\n", "it's", "$HOME `x` \"q\" \\", "two  spaces"];
        let script = script(Some("cd /"), &words.map(str::to_owned));
        let output = std::process::Command::new("bash").args(["-c", &script]).output().expect("every system has bash");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{}\n", words[2..].join("\n")));
    }

    #[test]
    fn invalid_configuration_is_rejected() {
        let node = "s1".parse().expect("a name");
        let config = |agent: &[&str], options: &[&str]| SlurmConfig {
            agent: agent.iter().map(|word| (*word).to_owned()).collect(),
            partition: None,
            options: options.iter().map(|word| (*word).to_owned()).collect(),
            prologue: None,
            environment: std::collections::BTreeMap::new(),
            time_limit: None,
        };
        assert!(SlurmDriver::new(&node, &config(&["hostler"], &["--time=1:00"])).is_ok());
        assert!(SlurmDriver::new(&node, &config(&[], &[])).is_err());
        assert!(SlurmDriver::new(&node, &config(&["hostler"], &["--time", "1:00"])).is_err());
    }

    proptest! {
        #[test]
        fn any_output_is_handled(listed in "([0-9]{0,3}\\|(RUNNING|FAILED|\\PC{0,3})\n){0,4}|\\PC*") {
            if let Ok(live) = live_jobs(&listed) {
                prop_assert!(live.len() <= listed.lines().count());
            }
            let _ = submitted(&listed);
        }
    }
}

//! Other programs that do the same job, if they are installed.
//!
//! HyperQueue and Slurm are measured if their clients are on `PATH` and their servers respond. This module does not
//! start or configure them, so the user must set up clusters of the same size (four nodes with two CPUs each).

use std::process::{Command, Stdio};

use super::measure::Contender;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    HyperQueue,
    Slurm,
}

/// The available batch systems. Prints why the others are unavailable.
pub(crate) fn present() -> Vec<Peer> {
    let mut found = Vec::new();
    for peer in [Peer::HyperQueue, Peer::Slurm] {
        if peer.answers() {
            found.push(peer);
        } else {
            println!("({} is absent: `{}` does not answer)", peer.name(), peer.question().join(" "));
        }
    }
    found
}

impl Peer {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HyperQueue => "HyperQueue",
            Self::Slurm => "Slurm",
        }
    }

    /// A command that succeeds only if the batch system's server answers.
    fn question(self) -> &'static [&'static str] {
        match self {
            Self::HyperQueue => &["hq", "server", "info"],
            Self::Slurm => &["sinfo", "-h"],
        }
    }

    fn answers(self) -> bool {
        let status = command(self.question()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    /// Submits one job of `true` and waits for its end.
    pub(crate) fn run_one(self) -> Command {
        match self {
            Self::HyperQueue => command(&["hq", "submit", "--stdout=none", "--stderr=none", "--wait", "true"]),
            Self::Slurm => command(&["srun", "-Q", "-n1", "true"]),
        }
    }

    /// Submits one job of `true` and returns.
    pub(crate) fn submit_one(self) -> Command {
        match self {
            Self::HyperQueue => command(&["hq", "submit", "--stdout=none", "--stderr=none", "true"]),
            Self::Slurm => command(&["sbatch", "-Q", "-o", "/dev/null", "-e", "/dev/null", "--wrap", "true"]),
        }
    }

    /// Runs an array of `count` tasks of `true` to its end.
    pub(crate) fn run_array(self, count: usize) -> Command {
        match self {
            Self::HyperQueue => {
                let mut command = command(&["hq", "submit", "--stdout=none", "--stderr=none", "--wait", "--array"]);
                command.arg(format!("1-{count}")).arg("true");
                command
            }
            Self::Slurm => {
                let mut command = command(&["sbatch", "-Q", "-o", "/dev/null", "-e", "/dev/null", "--wait"]);
                command.arg(format!("--array=1-{count}")).args(["--wrap", "true"]);
                command
            }
        }
    }

    /// Removes all waiting and running jobs.
    pub(crate) fn cancel_all(self) -> Command {
        match self {
            Self::HyperQueue => command(&["hq", "job", "cancel", "all"]),
            Self::Slurm => command(&["scancel", "--me"]),
        }
    }

    /// Waits for the end of all jobs.
    pub(crate) fn wait_all(self) -> Command {
        match self {
            Self::HyperQueue => command(&["hq", "job", "wait", "all"]),
            Self::Slurm => command(&["bash", "-c", "while [ -n \"$(squeue -h --me -o %i)\" ]; do sleep 0.05; done"]),
        }
    }
}

/// Creates contenders from an action of the available batch systems.
pub(crate) fn contenders<'a>(peers: &[Peer], timed: impl Fn(Peer) -> Contender<'a>) -> Vec<Contender<'a>> {
    peers.iter().map(|peer| timed(*peer)).collect()
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

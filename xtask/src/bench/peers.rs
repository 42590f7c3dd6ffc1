//! Other programs that do the same job, used as they are found.
//!
//! HyperQueue and Slurm are measured when their clients are on `PATH` and their servers answer; nothing here starts or
//! configures a cluster of theirs, so its size is for whoever starts it to match (four nodes with two CPUs each).

use std::process::{Command, Stdio};

use super::measure::Contender;

/// A batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    HyperQueue,
    Slurm,
}

/// The batch systems that answer, each absent one with a word why.
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

    /// A command that works only where a server answers.
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

    /// Submits one job of `true` and waits until it has finished.
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

    /// Removes whatever waits or runs.
    pub(crate) fn cancel_all(self) -> Command {
        match self {
            Self::HyperQueue => command(&["hq", "job", "cancel", "all"]),
            Self::Slurm => command(&["scancel", "--me"]),
        }
    }

    /// Waits until everything submitted so far has finished.
    pub(crate) fn wait_all(self) -> Command {
        match self {
            Self::HyperQueue => command(&["hq", "job", "wait", "all"]),
            Self::Slurm => command(&["bash", "-c", "while [ -n \"$(squeue -h --me -o %i)\" ]; do sleep 0.05; done"]),
        }
    }
}

/// Turns what the present peers do into contenders.
pub(crate) fn contenders<'a>(peers: &[Peer], timed: impl Fn(Peer) -> Contender<'a>) -> Vec<Contender<'a>> {
    peers.iter().map(|peer| timed(*peer)).collect()
}

fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

//! A cluster of Hostler with commands that have the names of Slurm's.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Cluster, Outcome, Size};

/// A cluster, and a directory of links with the names of Slurm's commands.
pub struct SlurmNames {
    pub cluster: Cluster,
    pub links: PathBuf,
}

impl SlurmNames {
    /// Starts a cluster of the executable `hostler`.
    pub fn up(hostler: &str, size: Size) -> Self {
        let cluster = Cluster::up(hostler, size);
        let links = cluster.path("links");
        cluster.ok(&["shims", links.to_str().expect("text")]);
        Self { cluster, links }
    }

    /// A command as a shell finds it on `PATH`, in the home of the cluster, with an empty standard input.
    pub fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.links.display(), std::env::var("PATH").expect("PATH is set"));
        let mut command = Command::new("env");
        for (name, value) in self.cluster.command(&[]).get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("PATH", path).arg(name).args(arguments).current_dir(self.cluster.home()).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, name: &str, arguments: &[&str]) -> Outcome {
        Outcome::of(&self.command(name, arguments).output().expect("the command starts"))
    }

    /// The output of a command that must succeed and print nothing on stderr.
    #[track_caller]
    pub fn print(&self, name: &str, arguments: &[&str]) -> String {
        let outcome = self.run(name, arguments);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{name} {arguments:?}: {}", outcome.stdout);
        outcome.stdout
    }

    /// Submits a small batch job. Returns its id.
    #[track_caller]
    pub fn submit(&self, arguments: &[&str]) -> String {
        self.print("sbatch", &[&["--parsable", "--mem=16"], arguments].concat()).trim().to_owned()
    }

    /// The content of a file in the home of the cluster.
    #[track_caller]
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.cluster.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Waits until a job is in a state.
    #[track_caller]
    pub fn wait(&self, job: &str, state: &str) {
        self.cluster.wait_for_state(job, state);
    }
}

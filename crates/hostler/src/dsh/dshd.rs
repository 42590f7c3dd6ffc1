//! `dshd`: the daemon that serves the loads of the cluster's machines.
//!
//! It runs this machine's agent. If an agent runs already, `dshd` is a separate process that queries that agent. With a key, it needs
//! neither an agent nor a head ([`super::headless`]).

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::{Args, Command, FromArgMatches};
use hostler_agent::{Machines, StatusPorts};
use hostler_cli::cluster;
use hostler_cli::cm::bare;
use hostler_cli::config::AGENT_SOCKET;
use hostler_cli::context::{Context, block_on};
use hostler_cli::daemons;
use hostler_cli::daemons::places::AgentPlaces;
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::global_options::conclude;
use hostler_cli::output::{Format, Output};
use hostler_client::{Client, Endpoint};
use hostler_model::NodeName;
use nix::unistd::{dup2_stdout, geteuid};

use super::{cluster_file, headless, key_file};
use crate::commands::agent::AgentRun;
use crate::settings::{AgentSettings, PortAt};

pub(crate) const NAME: &str = "dshd";

/// Default port of the load table.
const TABLE_PORT: u16 = 8181;

/// Default port of the load of the best node.
const BEST_PORT: u16 = 8282;

/// First word that a background daemon prints on stdout once the ports are open. A message for the user follows on the
/// same line.
const UP: &str = "up";

/// Timeout for a new agent to open its socket.
const AGENT_TIME: Duration = Duration::from_secs(5);

/// Serve the loads of the cluster's nodes as plain text on two TCP ports
///
/// One port serves a table of all nodes, the other port the best node. The command also runs the agent of this machine.
/// If an agent runs already, the command only opens the ports and queries that agent.
///
/// The cluster file lists one machine per line: NAME[=ADDRESS[:PORT]] [LOAD-WEIGHT [MEMORY-WEIGHT]]. Comments start with
/// #. Without a cluster file, the command serves all nodes of the cluster.
///
/// With --key, machines form a cluster of their own, without a head and an agent: those in the cluster file, or without a
/// file those on the local network, that have the same key. `dsh` then runs commands by ssh.
#[derive(Debug, Args)]
pub(crate) struct Dshd {
    /// Cluster file: a list of the machines to serve
    ///
    /// [default: /etc/hostler/dsh.conf, if the file exists]
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<PathBuf>,

    /// Continue in the background once the ports are open
    #[arg(short = 'b')]
    background: bool,

    /// With -b: print the process id of the background daemon
    #[arg(short = 'p', requires = "background")]
    print_pid: bool,

    /// TCP port for the table of all nodes
    ///
    /// A port without an address is open on the loopback address only. [default: `table` in the table `status` of
    /// agent.toml, else 8181]
    #[arg(short = 't', value_name = "[ADDRESS:]PORT")]
    table: Option<PortAt>,

    /// TCP port for the best node
    ///
    /// A port without an address is open on the loopback address only. [default: `best` in the table `status` of
    /// agent.toml, else 8282]
    #[arg(short = 'r', value_name = "[ADDRESS:]PORT")]
    best: Option<PortAt>,

    /// Work without a head: exchange loads with all machines that have this key
    ///
    /// Every user can run the daemon that way, also `nobody`. The file must be readable for that user only.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// With --key: name of this machine in the cluster file [default: the host name]
    #[arg(long, value_name = "NAME", requires = "key")]
    name: Option<NodeName>,

    /// Create a key in a new file, to be copied to all machines, and exit
    #[arg(long, value_name = "FILE", exclusive = true)]
    new_key: Option<PathBuf>,

    /// For -b: run as the daemon and report success or failure on stdout
    #[arg(long, hide = true)]
    announce: bool,
}

/// Parses `args`. Runs the daemon, or starts it in the background.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let matches = definition().get_matches_from(args);
    let daemon = Dshd::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let context = Context { output: Output::new(Format::Text), head: None, wait_for_head: None };
    let announces = daemon.announce;
    let outcome = daemon.run(&context.output);
    if announces && let Err(failure) = &outcome {
        context.output.data(&failure.render());
    }
    conclude(&context, outcome)
}

pub(crate) fn definition() -> Command {
    Dshd::augment_args(bare(NAME))
}

impl Dshd {
    fn run(self, output: &Output) -> Outcome {
        if let Some(path) = &self.new_key {
            key_file::create(path)?;
            return Ok(exit::OK);
        }
        let machines = cluster_file::read(self.file.as_deref())?;
        if let Some(key) = &self.key {
            return self.run_headless(key_file::read(key)?, machines, output);
        }
        let places = AgentPlaces::choose(None)?;
        let settings = AgentSettings::read(&places.settings)?;
        let (table, best) = self.ports(&settings);
        let agent = running_agent(&places.directory)?;
        if agent.is_none() && !hostler_agent::has_joined(&places.directory) {
            return Err(Failure::new("this machine has not joined a cluster, so there are no loads to serve")
                .hint("run `hostler node invite` on the head's machine, then `hostler agent join` with the printed code on this machine")
                .hint("or use --key for a cluster without a head"));
        }
        if self.background && !self.announce {
            return self.go_to_background(&places.directory, output);
        }
        daemons::begin()?;
        let announces = self.announce;
        match agent {
            Some(socket) => {
                let status = StatusPorts { table: Some(table.0), best: Some(best.0) };
                let note =
                    format!("an agent runs on this machine already; {NAME} only queries it, at {}", socket.display());
                if !announces {
                    output.say(&note);
                }
                let agent = Client::new(Endpoint::Unix(socket));
                let is_up = || announce(announces, &note);
                hostler_agent::run_ports_beside(agent, status, settings.policy, machines, is_up).map_err(|error| {
                    Failure::from(error)
                        .hint("the agent itself may serve these ports: see the table `status` in its agent.toml")
                })?;
            }
            None => run_agent(AgentRun::with_ports(table, best), machines, announces)?,
        }
        Ok(exit::OK)
    }

    /// The ports of the table and of the best node.
    fn ports(&self, settings: &AgentSettings) -> (PortAt, PortAt) {
        let port =
            |named: Option<PortAt>, set: Option<_>, usual| named.or(set.map(PortAt)).unwrap_or(PortAt::loopback(usual));
        (port(self.table, settings.status.table, TABLE_PORT), port(self.best, settings.status.best, BEST_PORT))
    }

    /// Serves the machines that have the same key.
    fn run_headless(&self, key: [u8; 32], machines: Option<Machines>, output: &Output) -> Outcome {
        let own = headless::own_name(self.name.as_ref(), machines.as_ref())?;
        if self.background && !self.announce {
            return self.go_to_background(&AgentPlaces::choose(None)?.directory, output);
        }
        let directory = AgentPlaces::choose(None).map_or_else(|_| "/var/lib/hostler/agent".into(), |its| its.directory);
        if running_agent(&directory)?.is_some() || hostler_agent::has_joined(&directory) {
            return Err(Failure::new("this machine has joined a cluster with a head")
                .hint(format!("run {NAME} without --key, which serves the loads of that cluster")));
        }
        daemons::begin()?;
        let settings = AgentSettings::read(Path::new(headless::SETTINGS))?;
        let (table, best) = self.ports(&settings);
        let status = StatusPorts { table: Some(table.0), best: Some(best.0) };
        let config = headless::config(own, key, machines, status, &settings)?;
        hostler_agent::headless::run(config, || announce(self.announce, ""))?;
        Ok(exit::OK)
    }

    /// Starts the daemon in a new session and waits until it is up.
    fn go_to_background(&self, directory: &Path, output: &Output) -> Outcome {
        let log = prepare_log_path(directory)?;
        let program = std::env::current_exe().during(|| "cannot find this program".to_owned())?;
        let mut command = cluster::daemon(&program, &self.command_line()?, &log)?;
        command.arg0(NAME).stdout(Stdio::piped());
        let failed = || format!("cannot start {NAME} in the background");
        let mut child = command.spawn().during(failed)?;
        let mut pipe = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut said = String::new();
        pipe.read_line(&mut said).during(failed)?;
        if let Some(note) = said.strip_prefix(UP) {
            if !note.trim().is_empty() {
                output.say(note.trim());
            }
            if self.print_pid {
                output.data(&child.id().to_string());
            }
            return Ok(exit::OK);
        }
        pipe.read_to_string(&mut said).during(failed)?;
        let ended = child.wait().during(failed)?;
        if said.is_empty() {
            return Err(Failure::new(format!("{NAME} ended before its ports were open ({ended})"))
                .hint(format!("the log is {}", log.display())));
        }
        // The daemon has printed its own error message.
        output.say(said.trim_end());
        Ok(exit::FAILED)
    }

    /// The arguments of the background daemon.
    fn command_line(&self) -> Result<Vec<OsString>, Failure> {
        let mut line: Vec<OsString> = vec!["--announce".into()];
        for (flag, file) in [("-f", &self.file), ("--key", &self.key)] {
            let Some(file) = file else { continue };
            // The daemon has another working directory, so it needs the absolute path.
            let file = std::path::absolute(file).during(|| format!("cannot resolve the path `{}`", file.display()))?;
            line.extend([flag.into(), file.into()]);
        }
        if let Some(name) = &self.name {
            line.extend(["--name".into(), name.as_str().into()]);
        }
        for (flag, port) in [("-t", self.table), ("-r", self.best)] {
            if let Some(PortAt(at)) = port {
                line.extend([flag.into(), at.to_string().into()]);
            }
        }
        Ok(line)
    }
}

/// Runs the agent of this machine.
fn run_agent(agent: AgentRun, machines: Option<Machines>, announces: bool) -> Result<(), Failure> {
    let config = hostler_agent::Config { machines, ..agent.config()? };
    hostler_agent::run_and_say(config, || announce(announces, ""))?;
    Ok(())
}

/// With `to_somebody`, reports on stdout to the starting process that the daemon is up. Redirects later output to
/// stderr, because the starting process no longer reads stdout.
fn announce(to_somebody: bool, note: &str) {
    if to_somebody {
        Output::new(Format::Text).data(&format!("{UP} {note}"));
        let _ = dup2_stdout(std::io::stderr());
    }
}

/// The socket of the agent that runs on this machine, if any.
fn running_agent(directory: &Path) -> Result<Option<PathBuf>, Failure> {
    let own = directory.join("agent.sock");
    let sockets = match geteuid().is_root() {
        true => vec![AGENT_SOCKET.into(), own],
        false if hostler_agent::has_joined(directory) => vec![own],
        false => vec![AGENT_SOCKET.into()],
    };
    let began = Instant::now();
    loop {
        for socket in sockets.iter().filter(|socket| socket.exists()) {
            let client = Client::new(Endpoint::Unix(socket.clone()));
            match block_on(async { Ok(client.load().await) })? {
                Ok(_) => return Ok(Some(socket.clone())),
                // Skip a stale socket of an agent that was killed.
                Err(error) if error.code().is_none() => {}
                Err(error) => return Err(Failure::from(error)),
            }
        }
        if !hostler_sys::is_locked(directory) {
            return Ok(None);
        }
        if began.elapsed() > AGENT_TIME {
            return Err(Failure::new("an agent runs on this machine, but none of its known sockets answers")
                .hint("turn the ports on in its agent.toml with `[status]`, `table = 8181` and `best = 8282`, then restart the agent")
                .hint("or stop the agent and run `dshd` again, which then runs the agent itself"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Creates the directory for the log of a background daemon, and returns the log's path. The log is next to the agent's
/// directory, which may not exist yet.
fn prepare_log_path(directory: &Path) -> Result<PathBuf, Failure> {
    let place = directory.parent().unwrap_or(directory);
    let mode = if geteuid().is_root() { 0o755 } else { 0o700 };
    hostler_sys::create_directory(place, mode).during(|| format!("cannot create {}", place.display()))?;
    Ok(place.join(format!("{NAME}.log")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Dshd, clap::Error> {
        Dshd::from_arg_matches(&definition().try_get_matches_from(line.split_whitespace())?)
    }

    #[test]
    fn flags_match_the_original_dshd() {
        let daemon = parse("dshd -f etc/cluster -bp -t 9181 -r 10.0.0.5:9282").expect("valid arguments");
        assert!(daemon.background && daemon.print_pid);
        assert_eq!(daemon.table, Some(PortAt::loopback(9181)));
        let line = daemon.command_line().expect("the file has an absolute path");
        let file = std::env::current_dir().expect("a current directory").join("etc/cluster");
        let expected =
            ["--announce", "-f", file.to_str().expect("text"), "-t", "127.0.0.1:9181", "-r", "10.0.0.5:9282"];
        assert_eq!(line, expected.map(OsString::from));
        let line = parse("dshd -b --key /etc/key --name n1").expect("valid").command_line().expect("an absolute path");
        assert_eq!(line, ["--announce", "--key", "/etc/key", "--name", "n1"].map(OsString::from));
        assert!(parse("dshd --name n1").is_err() && parse("dshd --key a --new-key b").is_err());
        assert!(parse("dshd -p").is_err(), "only a background daemon writes its process id");
        assert!(parse("dshd -t many").expect_err("no port").to_string().contains("a port such as 8181"));
    }
}

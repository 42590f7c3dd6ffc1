//! `hostler head`: the daemon that keeps a cluster's queue.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use hostler_proto::join::Address;
use nix::unistd::geteuid;
use serde_json::json;

use crate::cluster::Places;
use crate::context::Context;
use crate::daemons::ignore_umask_of_root;
use crate::daemons::log::log_to_stderr;
use crate::daemons::places::HeadPlaces;
use crate::daemons::settings::{DEFAULT_LISTEN, HeadSettings};
use crate::exit;
use crate::failure::{During, Failure, Outcome};
use crate::flags::Memory;

/// How long a node's certificate is good for unless the settings say otherwise.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The head of a cluster: takes jobs, decides what runs where, keeps results
#[derive(Debug, Args)]
pub(crate) struct Head {
    #[command(subcommand)]
    command: HeadCommand,
}

#[derive(Debug, Subcommand)]
enum HeadCommand {
    Init(HeadInit),
    Run(HeadRun),
}

/// Set up the head of a cluster on this machine: its state directory, the cluster's authority and a settings file
///
/// For root the state is in /var/lib/hostler/head and the settings are /etc/hostler/head.toml; for anyone else they are in the XDG
/// directories. What is there already stays, so it does no harm to call this twice.
#[derive(Debug, Args)]
struct HeadInit {
    /// Keep everything in this directory: state, socket and settings (head.toml)
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Where nodes connect: an address of this machine and a port; by default every address, port 7760
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// By which name or address nodes reach this machine, the first one in join codes; by default its hostname. May be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<Address>,

    /// The Unix socket for users of this machine
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Run a head in the foreground; it logs to stderr as HOSTLER_LOG says (info by default)
///
/// It needs no flags once `hostler head init` has been called. Flags override what the settings file says.
#[derive(Debug, Args)]
struct HeadRun {
    /// Where it keeps its state, and its settings if there is a head.toml
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// The Unix socket for users of this machine
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Where nodes connect
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// By which name or address nodes reach this machine; may be repeated
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<Address>,

    /// What results may take before fetched ones are dropped; half of the disk by default
    #[arg(long, value_name = "SIZE")]
    results_cap: Option<Memory>,

    /// The head is part of a cluster on this machine alone
    #[arg(long)]
    embedded: bool,
}

impl Head {
    pub(crate) fn run(self, context: &Context) -> Outcome {
        match self.command {
            HeadCommand::Init(command) => command.run(context),
            HeadCommand::Run(command) => command.run(),
        }
    }
}

impl HeadInit {
    fn run(self, context: &Context) -> Outcome {
        let Self { directory, listen, advertise, socket } = self;
        ignore_umask_of_root();
        let places = HeadPlaces::choose(directory.as_deref())?;
        let wanted = HeadSettings {
            directory: Some(places.directory.clone()),
            socket: Some(socket.unwrap_or_else(|| places.socket.clone())),
            listen: Some(listen.unwrap_or(DEFAULT_LISTEN)),
            advertise,
            ..HeadSettings::default()
        };
        let found = HeadSettings::read(&places.settings)?;
        let settings = match found {
            Some(found) => {
                found.must_agree(&wanted, listen.is_some(), &places.settings)?;
                HeadSettings { directory: found.directory.clone().or(wanted.directory), ..found }
            }
            None => {
                make_parents(&places.directory)?;
                write_new(&places.settings, &wanted.to_text())?;
                wanted
            }
        };
        let directory = settings.directory.unwrap_or_else(|| places.directory.clone());
        let listen = settings.listen.unwrap_or(DEFAULT_LISTEN);
        hostler_head::prepare(&directory, listen, &settings.advertise)?;
        let output = &context.output;
        output.say(&format!("the head is set up: its state is in {}", directory.display()));
        output.say(&format!("its settings are {}: have a look", places.settings.display()));
        let (run, invite) = match self_directory(&places) {
            Some(directory) => (
                format!("hostler head run --directory {}", directory.display()),
                format!(
                    "hostler node invite --head unix:{}",
                    settings.socket.unwrap_or(places.socket.clone()).display()
                ),
            ),
            None => ("hostler head run".to_owned(), "hostler node invite".to_owned()),
        };
        output.say(&format!("next: start it with `{run}`, or as a service, and invite a node with `{invite}`"));
        if output.is_json() {
            let (directory, settings) = (directory.display().to_string(), places.settings.display().to_string());
            output.json(&json!({ "directory": directory, "settings": settings, "listen": listen.to_string() }));
        }
        Ok(exit::OK)
    }
}

/// The directory to name when the head is run, if its files are not where they usually are.
fn self_directory(places: &HeadPlaces) -> Option<&Path> {
    (places.settings.parent() == Some(&places.directory)).then_some(&places.directory)
}

impl HeadSettings {
    /// A file that is there is the operator's: it is not changed, and flags that say something else are refused.
    fn must_agree(&self, wanted: &Self, names_listen: bool, path: &Path) -> Result<(), Failure> {
        let same_listen =
            !names_listen || self.listen.unwrap_or(DEFAULT_LISTEN) == wanted.listen.unwrap_or(DEFAULT_LISTEN);
        let same_advertise = wanted.advertise.is_empty() || self.advertise == wanted.advertise;
        if same_listen && same_advertise {
            return Ok(());
        }
        Err(Failure::new(format!("{} exists and says something else than these flags", path.display()))
            .hint("edit it; the head reads it when it starts"))
    }
}

impl HeadRun {
    fn run(self) -> Outcome {
        let config = self.config()?;
        log_to_stderr()?;
        hostler_head::run(config)?;
        Ok(exit::OK)
    }

    /// Flags, then the settings file, then defaults.
    fn config(self) -> Result<hostler_head::Config, Failure> {
        let places = HeadPlaces::choose(self.directory.as_deref())?;
        let found = if self.embedded { None } else { HeadSettings::read(&places.settings)? };
        if found.is_none() && self.directory.is_none() {
            return Err(Failure::new("no head is set up on this machine")
                .because(&io::Error::other(format!("there is no {}", places.settings.display())))
                .hint("`hostler head init` sets one up")
                .hint("`hostler up` starts a cluster on this machine alone"));
        }
        if self.directory.is_none() && !geteuid().is_root() {
            // The directory of the socket, which an embedded cluster may use as well, must be this user's alone.
            Places::from_environment()?.create()?;
        }
        let file = found.unwrap_or_default();
        let advertise = if self.advertise.is_empty() { file.advertise } else { self.advertise };
        let life = file.certificate_life.map_or(CERTIFICATE_LIFE, |life| life.0);
        Ok(hostler_head::Config {
            directory: match self.directory {
                Some(_) => places.directory,
                None => file.directory.unwrap_or(places.directory),
            },
            socket: self.socket.or(file.socket).unwrap_or(places.socket),
            listen: self.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN),
            advertise,
            certificate_life_ms: u64::try_from(life.as_millis()).unwrap_or(u64::MAX),
            embedded: self.embedded,
            power: places.settings.with_file_name("power.toml"),
            results_cap_bytes: self.results_cap.or(file.results_cap).map(|size| size.0),
        })
    }
}

/// Makes the directories above `directory`, open to all: what must not be seen is closed further down.
fn make_parents(directory: &Path) -> Result<(), Failure> {
    let Some(parent) = directory.parent() else { return Ok(()) };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(parent)
        .during(|| format!("cannot create {}", parent.display()))
}

/// Writes a settings file where there is none.
fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let write = || {
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().during(|| format!("cannot write {}", path.display()))
}

/// The description of the API, JSON.
pub(crate) fn openapi() -> String {
    hostler_head::openapi()
}

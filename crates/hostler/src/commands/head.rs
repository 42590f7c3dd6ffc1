//! `hostler head`: the daemon that keeps a cluster's queue.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use hostler_cli::cluster::{Daemon, Places};
use hostler_cli::context::Context;
use hostler_cli::daemons::places::HeadPlaces;
use hostler_cli::daemons::{self, keep_files_private};
use hostler_cli::exit;
use hostler_cli::failure::{During, Failure, Outcome};
use hostler_cli::flags::Memory;
use hostler_proto::join::Address;
use nix::unistd::{User, geteuid};
use serde_json::json;

use crate::settings::{DEFAULT_LISTEN, HeadSettings, SiteOrigin, write_new};

/// Default validity of a node's certificate.
const CERTIFICATE_LIFE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Set up or run the head, which queues and places jobs
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

/// Set up the head of a cluster on this machine
///
/// The command creates the head's state directory, the cluster's certificate authority and a settings file. For root,
/// the state is in /var/lib/hostler/head and the settings are in /etc/hostler/head.toml. For other users, both are in
/// the XDG directories. Existing files stay as they are, so a second call changes nothing.
#[derive(Debug, Args)]
struct HeadInit {
    /// Directory for the state, the socket and the settings (head.toml)
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Address at which the head listens for nodes [default: any address, port 7760]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Address that nodes use to reach the head; repeatable [default: the hostname]
    ///
    /// Join codes carry the first address.
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<Address>,

    /// Path of the Unix socket for users of this machine
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Run the head in the foreground and log to stderr
///
/// After `hostler head init`, the command needs no options. Options override the settings file. HOSTLER_LOG sets the
/// log level [default: info].
#[derive(Debug, Args)]
struct HeadRun {
    /// Directory for the state, the socket and the settings (head.toml)
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Path of the Unix socket for users of this machine
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,

    /// Address at which the head listens for nodes
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Address that nodes use to reach the head; repeatable
    #[arg(long, value_name = "HOST[:PORT]")]
    advertise: Vec<Address>,

    /// Maximum size of stored results [default: half of the disk]
    ///
    /// Above this size, the head deletes results that were downloaded. The setting results-cap overrides this option.
    #[arg(long, value_name = "SIZE")]
    results_cap: Option<Memory>,

    /// File with a certificate for browsers, in PEM form, with its chain
    ///
    /// The head serves the dashboard with this certificate on its port, under the certificate's names. Nodes and
    /// `hostler login` still use the cluster's own certificate. The head loads the files again when they change.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// File with the private key of --tls-cert, in PEM form
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Loopback address for plain HTTP, e.g. 127.0.0.1:8080, for a reverse proxy
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,

    /// Address of the dashboard in browsers, e.g. https://cluster.example.org
    ///
    /// Needed behind a reverse proxy, and if the port in browsers differs from the head's. The proxy must pass on the
    /// header Host, and add the client's address to X-Forwarded-For.
    #[arg(long, value_name = "URL")]
    site: Option<SiteOrigin>,

    /// Account of the reverse proxy, as name or uid, e.g. www-data [default: root]
    ///
    /// The head ignores X-Forwarded-For on connections of other accounts.
    #[arg(long, value_name = "USER")]
    proxy_user: Option<String>,

    /// Set up a new head if none is in the directory; `cmdaemon --head` sets this option
    #[arg(long, hide = true)]
    new: bool,

    /// Run as the head of an embedded cluster; `hostler up` sets this option
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
        keep_files_private();
        let places = HeadPlaces::choose(directory.as_deref())?;
        Daemon::Head.ensure_own(&places.directory)?;
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
                found.check_flags(&wanted, listen.is_some(), &places.settings)?;
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
        let socket = settings.socket.unwrap_or_else(|| places.socket.clone());
        hostler_head::prepare(&directory, &socket, listen, &settings.advertise)?;
        let output = &context.output;
        output.say(&format!("the head is set up; its state is in {}", directory.display()));
        output.say(&format!("review the head's settings in {}", places.settings.display()));
        let (run, invite) = match directory_option(&places) {
            Some(directory) => (
                format!("hostler head run --directory {}", directory.display()),
                format!("hostler node invite --head unix:{}", socket.display()),
            ),
            None => ("hostler head run".to_owned(), "hostler node invite".to_owned()),
        };
        output.say(&format!("next: start the head with `{run}` or as a service, then invite a node with `{invite}`"));
        if output.is_json() {
            let (directory, settings) = (directory.display().to_string(), places.settings.display().to_string());
            output.json(&json!({ "directory": directory, "settings": settings, "listen": listen.to_string() }));
        }
        Ok(exit::OK)
    }
}

/// Returns the value for `--directory`, if the head's files are not in the default directories.
fn directory_option(places: &HeadPlaces) -> Option<&Path> {
    (places.settings.parent() == Some(&places.directory)).then_some(&places.directory)
}

impl HeadSettings {
    /// Fails if the flags contradict an existing settings file, which `hostler head init` never changes.
    fn check_flags(&self, wanted: &Self, names_listen: bool, path: &Path) -> Result<(), Failure> {
        let same_listen =
            !names_listen || self.listen.unwrap_or(DEFAULT_LISTEN) == wanted.listen.unwrap_or(DEFAULT_LISTEN);
        let same_advertise = wanted.advertise.is_empty() || self.advertise == wanted.advertise;
        if same_listen && same_advertise {
            return Ok(());
        }
        Err(Failure::new(format!("{} exists and contradicts the flags --listen or --advertise", path.display()))
            .hint("edit the file, or leave out the flags"))
    }
}

impl HeadRun {
    fn run(self) -> Outcome {
        daemons::begin()?;
        let config = self.config()?;
        hostler_head::run(config)?;
        Ok(exit::OK)
    }

    /// The head's configuration. Flags override the settings file, and the settings file overrides the defaults.
    fn config(self) -> Result<hostler_head::Config, Failure> {
        let places = HeadPlaces::choose(self.directory.as_deref())?;
        let found = if self.embedded { None } else { HeadSettings::read(&places.settings)? };
        if found.is_none() && self.directory.is_none() {
            return Err(Failure::new("no head is set up on this machine")
                .because(&io::Error::other(format!("{} does not exist", places.settings.display())))
                .hint("`hostler head init` sets one up")
                .hint("`hostler up` starts a cluster on this machine alone"));
        }
        if self.directory.is_none() && !geteuid().is_root() {
            // The head's socket is in the directory of the embedded cluster's socket, which only this user may access.
            Places::from_environment()?.create()?;
        }
        let option = directory_option(&places).map(Path::to_owned);
        let file = found.unwrap_or_default();
        let advertise = if self.advertise.is_empty() { file.advertise } else { self.advertise };
        let life = file.certificate_life.map_or(CERTIFICATE_LIFE, |life| life.0);
        let directory = match self.directory {
            Some(_) => places.directory,
            None => file.directory.unwrap_or(places.directory),
        };
        if !self.embedded {
            Daemon::Head.ensure_own(&directory)?;
        }
        if !self.embedded && !self.new {
            ensure_set_up(&directory, option.as_deref())?;
        }
        Ok(hostler_head::Config {
            directory,
            socket: self.socket.or(file.socket).unwrap_or(places.socket),
            listen: self.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN),
            advertise,
            certificate_life_ms: u64::try_from(life.as_millis()).unwrap_or(u64::MAX),
            embedded: self.embedded,
            power: places.settings.with_file_name("power.toml"),
            site: site(
                self.tls_cert.or(file.tls_cert).zip(self.tls_key.or(file.tls_key)),
                self.http.or(file.http),
                self.site.or(file.site),
                self.proxy_user.or(file.proxy_user).as_deref(),
            )?,
            notify: places.settings.with_file_name("notify.toml"),
            openid: places.settings.with_file_name("openid.toml"),
            results_cap_bytes: self.results_cap.or(file.results_cap).map(|size| size.0),
        })
    }
}

/// Fails unless a head was set up in this directory. A wrong directory, or a disk that is not mounted, must not become
/// a new, empty head.
fn ensure_set_up(directory: &Path, option: Option<&Path>) -> Result<(), Failure> {
    if hostler_head::is_prepared(directory) {
        return Ok(());
    }
    let init = match option {
        Some(directory) => format!("hostler head init --directory {}", directory.display()),
        None => "hostler head init".to_owned(),
    };
    Err(Failure::new(format!("no head is set up in {}", directory.display()))
        .because(&io::Error::other("the directory has no certificate authority of a cluster"))
        .hint(format!("`{init}` sets up a new head"))
        .hint("if there was a head, check the path, and that its disk is mounted"))
}

/// How browsers reach the dashboard. Certificate and key are paths relative to the working directory.
fn site(
    certificate: Option<(PathBuf, PathBuf)>,
    http: Option<SocketAddr>,
    origin: Option<SiteOrigin>,
    proxy_user: Option<&str>,
) -> Result<hostler_head::SiteConfig, Failure> {
    if let Some(http) = http.filter(|http| !http.ip().is_loopback()) {
        return Err(Failure::usage(format!(
            "--http {http} is not a loopback address, and plain HTTP is readable in the network"
        ))
        .hint("use 127.0.0.1 with a reverse proxy in front, or serve TLS with --tls-cert and --tls-key"));
    }
    if origin.is_some() && certificate.is_none() && http.is_none() {
        return Err(Failure::usage("--site is the address of a dashboard, but the head serves none to browsers")
            .hint("add --tls-cert and --tls-key, or --http behind a reverse proxy"));
    }
    if proxy_user.is_some() && (origin.is_none() || http.is_none()) {
        return Err(Failure::usage("--proxy-user is the account of a reverse proxy, but the head serves none")
            .hint("add --http and --site"));
    }
    let proxy_uid = proxy_user.map(uid_of).transpose()?;
    Ok(hostler_head::SiteConfig { certificate, http, proxy_uid, origin: origin.map(|origin| origin.0) })
}

/// The uid of the reverse proxy's account.
fn uid_of(user: &str) -> Result<u32, Failure> {
    if let Ok(uid) = user.parse() {
        return Ok(uid);
    }
    let found = User::from_name(user).during(|| format!("cannot look up the account {user}"))?;
    let missing = || {
        Failure::usage(format!("this machine has no account {user}"))
            .hint("--proxy-user, or `proxy_user` in head.toml, names the account that runs the reverse proxy")
    };
    found.map(|user| user.uid.as_raw()).ok_or_else(missing)
}

/// Creates the parent directories of `directory`, readable by all users. Directories with secrets set a stricter mode.
fn make_parents(directory: &Path) -> Result<(), Failure> {
    let Some(parent) = directory.parent() else { return Ok(()) };
    hostler_sys::create_directory(parent, 0o755).during(|| format!("cannot create {}", parent.display()))
}

/// The OpenAPI description, as JSON.
pub(crate) fn openapi() -> String {
    hostler_head::openapi()
}

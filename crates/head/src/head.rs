//! State shared by all parts of the head's process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hostler_core::head::ConnectionId;
use hostler_proto::join::Address;
use hostler_store::{Reader, Writer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::Audit;
use crate::blobs::Library;
use crate::client_limits::ClientLimits;
use crate::config::Config;
use crate::engine::Engine;
use crate::environments::Environments;
use crate::failures::Failures;
use crate::login::Logins;
use crate::metrics;
use crate::notify::Notifier;
use crate::openid::OpenId;
use crate::power::Switches;
use crate::site::Site;
use crate::streams::Streams;
use crate::trust::{Trust, hostname};
use crate::usage::UsageHistory;
use crate::usage::live::LiveUsage;

/// A running head. Request handlers get it as shared state.
pub(crate) struct Head {
    pub(crate) config: Config,
    /// The loop that makes all state changes.
    pub(crate) engine: Engine,
    pub(crate) environments: Environments,
    /// Reader for stored history.
    pub(crate) history: Reader,
    pub(crate) library: Arc<Library>,
    pub(crate) trust: Trust,
    /// Lets a program read the metrics.
    pub(crate) metrics_token: metrics::Token,
    pub(crate) site: Site,
    /// Limits on the connections, requests and memory of each client.
    pub(crate) client_limits: ClientLimits,
    pub(crate) logins: Logins,
    /// Failed logins and wrong join codes.
    pub(crate) failures: Failures,
    /// Sign-in with OpenID Connect.
    pub(crate) openid: OpenId,
    /// Held while users are added, so that no two users get the same uid.
    pub(crate) admitting: tokio::sync::Mutex<()>,
    /// Controllers of the nodes that the head switches on and off.
    pub(crate) switches: Arc<Switches>,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) audit: Audit,
    /// Readers that wait for an agent's stream.
    pub(crate) streams: Arc<Streams>,
    /// Figures over time of nodes and tasks.
    pub(crate) usage: UsageHistory,
    /// Nodes and runs that somebody watches.
    pub(crate) live_usage: Arc<LiveUsage>,
    /// The address on which the head listens for agents.
    pub(crate) bound: SocketAddr,
    /// Cancelled when the head stops. Every waiting task must then end.
    pub(crate) stop: CancellationToken,
    /// Tasks that a stop waits for.
    pub(crate) tasks: TaskTracker,
    /// Set while a shutdown is being decided. The head then accepts no new jobs.
    pub(crate) closing: AtomicBool,
    /// Limit for the size of all results, unless the settings contain one.
    usual_results_cap_bytes: u64,
    next_connection: AtomicU64,
}

impl Head {
    pub(crate) fn new(
        config: Config,
        engine: Engine,
        library: Arc<Library>,
        (trust, site, metrics_token): (Trust, Site, metrics::Token),
        audit: Audit,
        (usage, writer): (UsageHistory, Writer),
        bound: SocketAddr,
    ) -> Self {
        let usual_results_cap_bytes = library.room().cap_bytes();
        let history = engine.archive().history().clone();
        let switches = Arc::new(Switches::new(engine.clone(), config.power.clone()));
        let cluster_id = trust.fingerprint().to_string().chars().take(12).collect();
        let cluster = hostname().unwrap_or_else(|| "cluster".to_owned());
        let stop = CancellationToken::new();
        let notifier = Notifier::new(
            config.notify.clone(),
            (engine.clone(), writer),
            Arc::clone(&library),
            (cluster_id, cluster),
            stop.clone(),
        );
        let streams = Arc::<Streams>::default();
        let live_usage = LiveUsage::new(engine.clone(), Arc::clone(&streams), stop.clone());
        let openid = OpenId::new(config.openid.clone());
        Self {
            switches,
            notifier: Arc::new(notifier),
            config,
            engine,
            environments: Environments::new(history.clone()),
            history,
            library,
            trust,
            metrics_token,
            site,
            client_limits: ClientLimits::default(),
            logins: Logins::new(),
            failures: Failures::default(),
            openid,
            admitting: tokio::sync::Mutex::default(),
            audit,
            streams,
            usage,
            live_usage: Arc::new(live_usage),
            bound,
            stop,
            tasks: TaskTracker::new(),
            closing: AtomicBool::new(false),
            usual_results_cap_bytes,
            next_connection: AtomicU64::new(1),
        }
    }

    /// The id of a connection that the head accepts now.
    pub(crate) fn connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// The address that agents use: the first advertised address, or else this machine's host name if the head listens
    /// on all interfaces.
    pub(crate) fn address(&self) -> String {
        if let Some(advertised) = self.config.advertise.first() {
            return Address { port: advertised.port.or(Some(self.bound.port())), ..advertised.clone() }.to_string();
        }
        match hostname() {
            Some(name) if self.bound.ip().is_unspecified() => format!("{name}:{}", self.bound.port()),
            _ => self.bound.to_string(),
        }
    }

    /// Applies the limit for results from the settings, or else the limit given at the start.
    pub(crate) fn apply_results_cap(&self) {
        let cap_bytes = self.engine.state().settings.results_cap_bytes.unwrap_or(self.usual_results_cap_bytes);
        self.library.room().set_cap(cap_bytes);
    }

    /// Returns a message for users if the head rejects new work at the moment.
    pub(crate) fn refusing(&self) -> Option<String> {
        if let Some(trouble) = self.engine.trouble() {
            return Some(format!("the head cannot store anything: {trouble}"));
        }
        if self.closing.load(Ordering::Acquire) || self.stop.is_cancelled() {
            return Some("the head is stopping".to_owned());
        }
        self.library.too_full()
    }
}

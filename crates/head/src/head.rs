//! What everything in the head's process shares.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hostler_core::head::{ConnectionId, Job, Refusal};
use hostler_model::JobId;
use hostler_proto::join::Address;
use hostler_store::Reader;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::error::ApiError;
use crate::audit::Audit;
use crate::blobs::Library;
use crate::engine::Engine;
use crate::environments::Environments;
use crate::guests::Guests;
use crate::login::Logins;
use crate::power::Switches;
use crate::start::Config;
use crate::streams::Streams;
use crate::trust::{Trust, hostname};

/// A running head, for whoever serves a request.
pub(crate) struct Head {
    /// How it was started.
    pub(crate) config: Config,
    /// The loop that owns all changes.
    pub(crate) engine: Engine,
    /// Environments of jobs that run or may run.
    pub(crate) environments: Environments,
    /// History, for queries.
    pub(crate) history: Reader,
    /// Captured folders and results.
    pub(crate) library: Arc<Library>,
    /// Certificates and invitations.
    pub(crate) trust: Trust,
    /// What each party takes of the head.
    pub(crate) guests: Guests,
    /// Logins under way.
    pub(crate) logins: Logins,
    /// Held while users are added, so that no two of them are given the same uid.
    pub(crate) admitting: tokio::sync::Mutex<()>,
    /// Controllers of nodes that can be switched.
    pub(crate) switches: Arc<Switches>,
    /// Who did what.
    pub(crate) audit: Audit,
    /// Readers that wait for an agent's stream.
    pub(crate) streams: Streams,
    /// Where it listens for agents.
    pub(crate) bound: SocketAddr,
    /// Cancelled when the head is to stop: whoever waits for something must end then.
    pub(crate) stop: CancellationToken,
    /// Tasks that the stop waits for.
    pub(crate) tasks: TaskTracker,
    /// Set while a shutdown is being decided: no new jobs then.
    pub(crate) closing: AtomicBool,
    /// What results may take unless the settings say otherwise.
    usual_results_cap_bytes: u64,
    next_connection: AtomicU64,
}

impl Head {
    /// Puts the parts together.
    pub(crate) fn new(
        config: Config,
        engine: Engine,
        history: Reader,
        library: Arc<Library>,
        trust: Trust,
        audit: Audit,
        bound: SocketAddr,
    ) -> Self {
        let usual_results_cap_bytes = library.room().cap_bytes();
        let switches = Arc::new(Switches::new(engine.clone(), config.power.clone()));
        Self {
            switches,
            config,
            engine,
            environments: Environments::new(history.clone()),
            history,
            library,
            trust,
            guests: Guests::default(),
            logins: Logins::default(),
            admitting: tokio::sync::Mutex::default(),
            audit,
            streams: Streams::default(),
            bound,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            closing: AtomicBool::new(false),
            usual_results_cap_bytes,
            next_connection: AtomicU64::new(1),
        }
    }

    /// A job, whether or not it has ended.
    ///
    /// # Errors
    /// When there is none, or the store cannot be read.
    pub(crate) async fn job(&self, id: JobId) -> Result<Arc<Job>, ApiError> {
        Ok(self.engine.job(id).await?.ok_or(Refusal::NoSuchJob(id))?)
    }

    /// A name for a new connection of an agent.
    pub(crate) fn connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// Where agents reach it: what was advertised first, else the name of this machine when it listens everywhere.
    pub(crate) fn address(&self) -> String {
        if let Some(advertised) = self.config.advertise.first() {
            return Address { port: advertised.port.or(Some(self.bound.port())), ..advertised.clone() }.to_string();
        }
        match hostname() {
            Some(name) if self.bound.ip().is_unspecified() => format!("{name}:{}", self.bound.port()),
            _ => self.bound.to_string(),
        }
    }

    /// Has results take no more than the settings say, or else what they might when the head was started.
    pub(crate) fn follow_results_cap(&self) {
        let cap_bytes = self.engine.state().settings.results_cap_bytes.unwrap_or(self.usual_results_cap_bytes);
        self.library.room().set_cap(cap_bytes);
    }

    /// Why nothing new can be accepted at the moment, if so: words for users.
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

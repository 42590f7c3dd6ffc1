//! State that all parts of remote commands share, and this node's identity.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use hostler_gossip::Costs;
use hostler_model::{BootId, Digest, NodeName, Resources};
use hostler_remote::{Counts, Credentials};
use hostler_shepherd::Launcher;

use super::caller_streams::Closers;
use super::connections::Connections;
use super::directory::Directories;
use super::mirror::Mirrors;
use super::waits::Waits;
use super::written::Written;
use crate::account::Accounts;
use crate::activity::Activity;
use crate::containers::sandbox::Sandboxes;
use crate::gossip::Gossiping;
use crate::handle::Handle;
use crate::job_network::Networks;
use crate::provision::gpus::Gpus;
use crate::runs::leaves::Leaves;
use crate::runs::process_limits::ProcessLimits;
use crate::runs::shepherds::IdleShepherds;

/// What remote commands need of the node.
pub(crate) struct Host {
    pub(crate) name: NodeName,
    pub(crate) boot: BootId,
    pub(crate) resources: Resources,
    /// Path of this executable.
    pub(crate) program: String,
    pub(crate) launcher: Arc<Launcher>,
    pub(crate) leaves: Arc<Leaves>,
    pub(crate) processes: Arc<ProcessLimits>,
    pub(crate) gpus: Arc<Gpus>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) activity: Arc<Activity>,
    /// Load gossip, if the node takes part.
    pub(crate) gossiping: Option<Arc<Gossiping>>,
    /// Receives packets of jobs; absent if the node connects no sandboxes.
    pub(crate) networks: Option<Arc<Networks>>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    /// Whether commands of other nodes run in a sandbox, also if they do not ask for one.
    pub(crate) demands_sandbox: bool,
}

/// State that all parts of this module share.
pub(super) struct Exec {
    pub(super) host: Host,
    pub(super) engine: Handle,
    pub(super) own: Own,
    pub(super) connections: Connections,
    pub(super) idle: IdleShepherds,
    pub(super) directories: Directories,
    pub(super) written: Written,
    pub(super) waits: Arc<Waits>,
    pub(super) mirrors: Mirrors,
    pub(super) closers: Arc<Closers>,
    /// Average costs of commands.
    pub(super) costs: Mutex<Costs>,
    pub(super) counts: Mutex<Counts>,
    /// Start time of this module.
    pub(super) began: Instant,
    /// Counts started commands, for the names of cgroups.
    pub(super) started: AtomicU64,
}

impl Exec {
    pub(super) fn new(host: Host, engine: Handle, own: Own) -> Self {
        let mirrors = Mirrors::open(&own.directory, host.resources.memory_bytes);
        Self {
            host,
            engine,
            own,
            connections: Connections::default(),
            idle: IdleShepherds::default(),
            directories: Directories::default(),
            written: Written::default(),
            waits: Arc::default(),
            mirrors,
            closers: Arc::default(),
            costs: Mutex::default(),
            counts: Mutex::default(),
            began: Instant::now(),
            started: AtomicU64::new(0),
        }
    }
}

/// This node's identity for other nodes.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) credentials: Credentials,
    pub(crate) key: Digest,
    directory: PathBuf,
}

impl Own {
    /// Reads this node's key, or creates it. Other nodes know the key from before a restart.
    pub(crate) fn obtain(directory: &Path) -> io::Result<Self> {
        let path = directory.join("call-key.json");
        let kept = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Credentials>(&text).ok());
        if let Some(credentials) = kept
            && let Ok(key) = credentials.fingerprint()
        {
            return Ok(Self { credentials, key, directory: directory.to_owned() });
        }
        let credentials = Credentials::generate()?;
        let key = credentials.fingerprint()?;
        hostler_sys::replace_file(&path, &serde_json::to_vec(&credentials)?, 0o600)?;
        Ok(Self { credentials, key, directory: directory.to_owned() })
    }
}

//! The node: its properties and its services, for the engine. Services do not know it: each takes what it needs.

use std::sync::Arc;

use hostler_client::Client;
use hostler_model::{NodeFacts, NodeName};

use crate::account::Accounts;
use crate::activity::Activity;
use crate::forward::Forwarding;
use crate::gossip::Gossiping;
use crate::measure::metrics::Metrics;
use crate::measure::usage::UsageMeter;
use crate::provision::stage::Stager;
use crate::runs::directory::Runs;
use crate::runs::last_job::LastJob;
use crate::runs::supervise::Supervisor;
use crate::users::roster::NewAccounts;

pub(crate) struct Node {
    pub(crate) name: NodeName,
    /// Facts about the node for the hello, which adds the addresses.
    pub(crate) facts: NodeFacts,
    pub(crate) head: Arc<Client>,
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) new_accounts: NewAccounts,
    pub(crate) runs: Arc<Runs>,
    pub(crate) last_job: Arc<LastJob>,
    pub(crate) stager: Arc<Stager>,
    pub(crate) supervisor: Arc<Supervisor>,
    /// Load gossip, if the node takes part.
    pub(crate) gossiping: Option<Arc<Gossiping>>,
    /// What the agent counts.
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) forwarding: Arc<Forwarding>,
    /// Measures the node and its runs.
    pub(crate) usage: Arc<UsageMeter>,
    /// Activity on the node other than jobs.
    pub(crate) activity: Arc<Activity>,
    /// Whether other activity on the machine keeps it from being switched off.
    pub(crate) has_whole_machine: bool,
}

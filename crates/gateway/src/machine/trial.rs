//! Changes on trial: the gateway applies a change, waits for a confirmation, and rolls the change back without one.
//!
//! All data for a rollback is on disk before the machine is changed, and a guard process is running (see
//! [`super::guard`]). A trial ends when its record is deleted. The process that deletes the record while holding the
//! lock decides the outcome.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::carry_out::Endpoints;
use super::error::GatewayError;
use super::gateway::Gateway;
use super::process::{boot_id, since_boot_ms, wall_secs};
use super::records::{Before, Confirmed, Loaded, Record, RolledBack, Trial};
use super::service::Service;
use crate::found::OriginalState;
use crate::keys::PrivateKey;
use crate::names::{TABLE, VPN_INTERFACE};
use crate::observed::Observed;
use crate::setup::Setup;
use crate::steps::{Step, Wanted, WantedTable, WantedVpn, steps};

/// Timeout for the start of the guard.
const GUARD_READY: Duration = Duration::from_secs(10);

/// Number of attempts for a rollback.
const ATTEMPTS: usize = 3;

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Applied {
    /// Nothing had to be changed.
    Unchanged,
    /// The change was applied permanently.
    Confirmed { steps: Vec<Step> },
    /// The change was applied and waits for confirmation.
    Trial { steps: Vec<Step>, token: String, confirm_within_secs: u64 },
}

/// State of a change on trial.
#[derive(Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// The change waits for confirmation, for this number of seconds.
    Waits(u64),
    Confirmed,
    /// The change was rolled back.
    RolledBack(Option<RolledBack>),
}

impl Gateway {
    /// Applies a setup. With `confirm_within`, the change is rolled back unless it is confirmed within that time.
    ///
    /// # Errors
    /// The setup cannot be applied. The machine is unchanged, or the error lists the parts of the rollback that failed.
    pub fn apply(&self, setup: Setup, confirm_within: Option<Duration>) -> Result<Applied, GatewayError> {
        self.require_root()?;
        if let Some(lack) = self.missing_tools(&setup)?.into_iter().next() {
            return Err(lack);
        }
        let made = self.records.prepare()?;
        let _lock = self.records.lock()?;
        self.fail_if_pending()?;
        let observed = self.observe()?;
        let mut found = self.found(made, &observed)?;
        self.check_clients(&setup)?;
        self.check(&setup.table, &setup.dnsmasq)?;
        if setup.vpn.is_some() {
            self.records.make_server_key()?;
        }
        found.note(&setup.interfaces, &observed);
        let wanted = self.wanted(&setup)?;
        let todo = steps(&wanted, &observed, &found);
        let confirmed: Option<Confirmed> = self.records.read()?;
        if todo.is_empty() && confirmed.as_ref().is_some_and(|confirmed| confirmed.setup == setup) {
            // The path of this executable may have changed.
            self.install_unit()?;
            // Forget an earlier rollback, because the machine now has the wanted setup.
            self.records.remove(RolledBack::FILE)?;
            return Ok(Applied::Unchanged);
        }
        self.records.write(&found)?;
        let mut trial = self.trial(setup, confirmed, &observed)?;
        let token = trial.token.clone();
        // The guard starts first, so that a crash at any moment leads to a rollback.
        self.start_guard(&token)?;
        self.records.write(&trial)?;
        self.execute(&trial, &todo)?;
        let Some(within) = confirm_within else {
            self.keep(&trial)?;
            return Ok(Applied::Confirmed { steps: todo });
        };
        trial.deadline_ms = Some(since_boot_ms() + u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        self.records.write(&trial)?;
        Ok(Applied::Trial { steps: todo, token, confirm_within_secs: within.as_secs() })
    }

    /// Collects the data for a rollback.
    fn trial(&self, setup: Setup, confirmed: Option<Confirmed>, observed: &Observed) -> Result<Trial, GatewayError> {
        let peers = observed.vpn.iter().flat_map(|vpn| &vpn.peers);
        let endpoint = |peer: &crate::Peer| Some((peer.public_key, peer.endpoint.clone()?));
        let before = Before {
            confirmed,
            table: observed.table.clone(),
            loaded: self.records.read()?,
            endpoints: peers.filter_map(endpoint).collect(),
        };
        let token = PrivateKey::generate();
        // A prefix of a random key is a sufficiently unique token.
        let token = token.to_text().chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        Ok(Trial { token, boot: boot_id(), setup, before, deadline_ms: None })
    }

    /// Executes the steps. Rolls back after a failure.
    fn execute(&self, trial: &Trial, todo: &[Step]) -> Result<(), GatewayError> {
        let done = todo.iter().try_for_each(|step| self.carry_out(step, &Endpoints::new()));
        let Err(error) = done else { return Ok(()) };
        let problems = self.roll_back(trial, &error.to_string())?;
        match problems.is_empty() {
            true => Err(GatewayError::TakenBack(Box::new(error))),
            false => Err(GatewayError::RollbackFailed(Box::new(error), problems.join("; "))),
        }
    }

    /// Starts the guard and waits until it watches.
    fn start_guard(&self, token: &str) -> Result<(), GatewayError> {
        let mut arguments = self.own_command("guard");
        arguments.push(token.into());
        self.services.start(Service::Guard, &self.program, &arguments, "")?;
        let deadline = Instant::now() + GUARD_READY;
        loop {
            if self.guard_of(token)?.is_some() {
                return Ok(());
            }
            if Instant::now() > deadline || self.services.running(Service::Guard)?.is_none() {
                return Err(GatewayError::NoGuard);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Confirms the change on trial. Returns whether the gateway starts after a boot.
    ///
    /// # Errors
    /// No change waits for confirmation.
    pub fn confirm(&self) -> Result<bool, GatewayError> {
        self.require_root()?;
        let why = || Ok::<_, GatewayError>(self.rolled_back()?.map(|back| back.why));
        let nothing = || why().map(GatewayError::NothingToConfirm);
        if !self.records.directory().exists() {
            return Err(nothing()?);
        }
        let _lock = self.records.lock()?;
        let Some(trial) = self.records.read::<Trial>()? else { return Err(nothing()?) };
        if trial.is_over() || trial.deadline_ms.is_none() {
            self.roll_back(&trial, "the change was not confirmed in time")?;
            return Err(nothing()?);
        }
        self.keep(&trial)
    }

    /// Makes a change permanent. A rollback is possible until the record of the trial is deleted.
    fn keep(&self, trial: &Trial) -> Result<bool, GatewayError> {
        let confirmed = Confirmed { setup: trial.setup.clone(), token: trial.token.clone() };
        self.records.write(&confirmed)?;
        self.records.remove(RolledBack::FILE)?;
        self.records.remove(Trial::FILE)?;
        self.install_unit()
    }

    /// Rolls back a change, complete or not. Returns the problems. The caller holds the lock.
    pub(super) fn roll_back(&self, trial: &Trial, why: &str) -> Result<Vec<String>, GatewayError> {
        let mut problems = Vec::new();
        for _ in 0..ATTEMPTS {
            problems = match self.try_to_roll_back(trial) {
                Ok(problems) => problems,
                Err(error) => vec![error.to_string()],
            };
            if problems.is_empty() {
                break;
            }
        }
        self.records.put(trial.before.loaded.as_ref())?;
        self.records.put(trial.before.confirmed.as_ref())?;
        let (token, why) = (trial.token.clone(), why.to_owned());
        self.records.write(&RolledBack { token, why, at_secs: wall_secs(), problems: problems.clone() })?;
        if problems.is_empty() && trial.before.confirmed.is_none() {
            // The machine is in its original state again, so the next change records that state anew.
            let directories = self.records.read::<OriginalState>()?.map(|found| found.directories).unwrap_or_default();
            self.records.write(&OriginalState { directories, ..OriginalState::default() })?;
        }
        self.records.remove(Trial::FILE)?;
        Ok(problems)
    }

    fn try_to_roll_back(&self, trial: &Trial) -> Result<Vec<String>, GatewayError> {
        let before = &trial.before;
        let mut wanted = match &before.confirmed {
            Some(confirmed) => self.wanted(&confirmed.setup)?,
            None => Wanted::default(),
        };
        self.finish_services()?;
        let table = |listing: &String| WantedTable { text: listing.clone(), listing: Some(listing.clone()) };
        wanted.table = before.table.as_ref().map(table);
        let found = self.records.read::<OriginalState>()?.unwrap_or_default();
        let todo = steps(&wanted, &self.observe()?, &found);
        // Continue after a failed step, to restore as much as possible.
        let done = todo.iter().map(|step| self.carry_out(step, &before.endpoints));
        Ok(done.filter_map(Result::err).map(|error| error.to_string()).collect())
    }

    /// Ends services whose start or stop was interrupted.
    pub(super) fn finish_services(&self) -> Result<(), GatewayError> {
        if self.services.is_interrupted(Service::Dnsmasq)? {
            self.services.stop(Service::Dnsmasq)?;
        }
        if self.services.is_interrupted(Service::WireGuard)? {
            self.remove_vpn()?;
        }
        Ok(())
    }

    /// Computes the wanted state for `setup` from the stored keys, clients and table listing.
    pub(super) fn wanted(&self, setup: &Setup) -> Result<Wanted, GatewayError> {
        let loaded = self.records.read::<Loaded>()?.filter(|loaded| loaded.text == setup.table);
        let vpn = match &setup.vpn {
            Some(vpn) => Some(WantedVpn {
                port: vpn.port,
                public_key: self.records.server_key()?.map(|key| key.public()),
                peers: self.records.clients()?.iter().map(|client| (client.public_key, client.address)).collect(),
            }),
            None => None,
        };
        Ok(Wanted {
            interfaces: setup.interfaces.clone(),
            table: Some(WantedTable { text: setup.table.clone(), listing: loaded.map(|loaded| loaded.listing) }),
            dnsmasq: Some(setup.dnsmasq.clone()),
            vpn,
        })
    }

    /// The recorded original state. Records it now if there is none.
    pub(super) fn found(
        &self,
        made: Vec<std::path::PathBuf>,
        observed: &Observed,
    ) -> Result<OriginalState, GatewayError> {
        let found = match self.records.read::<OriginalState>()? {
            // The gateway has changed the machine before, so a table or interface with the gateway's name is its own.
            Some(found) if !found.interfaces.is_empty() => return Ok(found),
            Some(found) => found,
            None => OriginalState { directories: made, ..OriginalState::default() },
        };
        self.records.write(&found)?;
        if observed.table.is_some() {
            return Err(GatewayError::Foreign(format!("the table inet {TABLE}")));
        }
        if observed.vpn.is_some() {
            return Err(GatewayError::Foreign(format!("the interface {VPN_INTERFACE}")));
        }
        Ok(found)
    }

    /// Returns an error while a change waits for confirmation. Rolls back an expired or interrupted change.
    pub(super) fn fail_if_pending(&self) -> Result<(), GatewayError> {
        let Some(trial) = self.records.read::<Trial>()? else { return Ok(()) };
        if trial.boot != boot_id() {
            // A reboot has undone everything except the records.
            self.records.put(trial.before.confirmed.as_ref())?;
            self.records.put::<Loaded>(None)?;
            return self.records.remove(Trial::FILE);
        }
        // This process holds the lock, so no other process works on the change.
        if trial.is_over() || trial.deadline_ms.is_none() {
            return self.roll_back(&trial, "the change was interrupted, or not confirmed in time").map(drop);
        }
        Err(GatewayError::Pending(trial.seconds_left().unwrap_or(0)))
    }

    fn check_clients(&self, setup: &Setup) -> Result<(), GatewayError> {
        let Some(vpn) = &setup.vpn else { return Ok(()) };
        let clients = self.records.clients()?;
        let misplaced = clients.outside_subnet(vpn.address);
        if misplaced.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = misplaced.iter().map(|client| format!("{} {}", client.name, client.address)).collect();
        Err(GatewayError::Misplaced(names.join(", ")))
    }

    /// State of the change with this token.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn confirmation(&self, token: &str) -> Result<Confirmation, GatewayError> {
        if let Some(trial) = self.records.read::<Trial>()?.filter(|trial| trial.token == token) {
            return Ok(Confirmation::Waits(trial.seconds_left().unwrap_or(0)));
        }
        let confirmed = self.records.read::<Confirmed>()?;
        match confirmed.is_some_and(|confirmed| confirmed.token == token) {
            true => Ok(Confirmation::Confirmed),
            false => Ok(Confirmation::RolledBack(self.rolled_back()?.filter(|back| back.token == token))),
        }
    }

    /// The last rollback, unless a change was confirmed since.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn rolled_back(&self) -> Result<Option<RolledBack>, GatewayError> {
        self.records.read()
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        self.records.directory()
    }
}

//! An attempt: it is made so, it waits for someone to confirm it, and otherwise it is taken back.
//!
//! All that is needed to go back is on disk before anything is touched, and so is a process that goes back (see [`super::guard`]). An
//! attempt is over when its record is gone; whoever removes that, holding the lock, decides how.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::Gateway;
use super::carry_out::Endpoints;
use super::error::GatewayError;
use super::process::{boot_id, since_boot_ms, wall_secs};
use super::records::{Before, Confirmed, Loaded, Record, RolledBack, Trial};
use super::service::Service;
use crate::found::Found;
use crate::keys::PrivateKey;
use crate::setup::{Setup, TABLE, VPN_INTERFACE};
use crate::steps::{Observed, Step, Wanted, WantedTable, WantedVpn, steps};

/// How long the guard may take until it watches.
const GUARD_READY: Duration = Duration::from_secs(10);

/// How often going back is tried.
const ATTEMPTS: usize = 3;

/// What came of an attempt so far.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Applied {
    /// All was so already.
    Unchanged,
    /// It is so, and stays.
    Confirmed {
        /// What was done.
        steps: Vec<Step>,
    },
    /// It is so until it is confirmed, or until its time is up.
    Trial {
        /// What was done.
        steps: Vec<Step>,
        /// By which the attempt is known.
        token: String,
        /// For how long it waits.
        confirm_within_secs: u64,
    },
}

/// How an attempt that waited stands.
#[derive(Debug, PartialEq, Eq)]
pub enum Confirmation {
    /// It waits, for that many seconds.
    Waits(u64),
    /// Someone has confirmed it.
    Confirmed,
    /// It was taken back.
    RolledBack(Option<RolledBack>),
}

impl Gateway {
    /// Makes a setup so. With a time it is taken back when nobody has confirmed it by then; without, it stays.
    ///
    /// # Errors
    /// When it cannot be done. Everything is as it was before, then, or the error says that it is not.
    pub fn apply(&self, setup: Setup, confirm_within: Option<Duration>) -> Result<Applied, GatewayError> {
        self.require_root()?;
        if let Some(lack) = self.lacks(&setup)?.into_iter().next() {
            return Err(lack);
        }
        let made = self.records.prepare()?;
        let _lock = self.records.lock()?;
        self.refuse_while_waiting()?;
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
            // This program may have moved since.
            self.install_unit()?;
            // What was tried before is not what is wanted any more.
            self.records.remove(RolledBack::FILE)?;
            return Ok(Applied::Unchanged);
        }
        self.records.write(&found)?;
        let mut trial = self.trial(setup, confirmed, &observed)?;
        let token = trial.token.clone();
        // It watches before there is anything to watch: no moment is left at which we could die unguarded.
        self.start_guard(&token)?;
        self.records.write(&trial)?;
        self.make_so(&trial, &todo)?;
        let Some(within) = confirm_within else {
            self.keep(&trial)?;
            return Ok(Applied::Confirmed { steps: todo });
        };
        trial.deadline_ms = Some(since_boot_ms() + u64::try_from(within.as_millis()).unwrap_or(u64::MAX));
        self.records.write(&trial)?;
        Ok(Applied::Trial { steps: todo, token, confirm_within_secs: within.as_secs() })
    }

    /// What is needed to go back from a setup.
    fn trial(&self, setup: Setup, confirmed: Option<Confirmed>, observed: &Observed) -> Result<Trial, GatewayError> {
        let peers = observed.vpn.iter().flat_map(|vpn| &vpn.peers);
        let endpoint = |peer: &crate::Peer| Some((peer.public_key, peer.endpoint.clone()?));
        let before = Before {
            confirmed,
            table: observed.table.clone(),
            loaded: self.records.read()?,
            endpoints: peers.filter_map(endpoint).collect(),
        };
        let token = PrivateKey::generate().map_err(|error| self.records.failed("make", "a token for", error))?;
        // Half of a key is random enough to tell attempts apart, and no key.
        let token = token.to_text().chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        Ok(Trial { token, boot: boot_id(), setup, before, deadline_ms: None })
    }

    /// Carries the steps out, or goes back.
    fn make_so(&self, trial: &Trial, todo: &[Step]) -> Result<(), GatewayError> {
        let done = todo.iter().try_for_each(|step| self.carry_out(step, &Endpoints::new()));
        let Err(error) = done else { return Ok(()) };
        let problems = self.go_back(trial, &error.to_string())?;
        match problems.is_empty() {
            true => Err(GatewayError::TakenBack(Box::new(error))),
            false => Err(GatewayError::HalfDone(Box::new(error), problems.join("; "))),
        }
    }

    /// Lets the guard start, and waits until it watches.
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

    /// Confirms the attempt that waits; says whether the gateway will be there after a boot.
    ///
    /// # Errors
    /// When nothing waits any more.
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
            self.go_back(&trial, "it was not confirmed in time")?;
            return Err(nothing()?);
        }
        self.keep(&trial)
    }

    /// Makes an attempt the setup that counts. Until the record of the attempt is gone it can still be taken back as a whole.
    fn keep(&self, trial: &Trial) -> Result<bool, GatewayError> {
        let confirmed = Confirmed { setup: trial.setup.clone(), token: trial.token.clone() };
        self.records.write(&confirmed)?;
        self.records.remove(RolledBack::FILE)?;
        self.records.remove(Trial::FILE)?;
        self.install_unit()
    }

    /// Goes back to what was before an attempt, whatever became of it; what could not be put back. The caller has the lock.
    pub(super) fn go_back(&self, trial: &Trial, why: &str) -> Result<Vec<String>, GatewayError> {
        let mut problems = Vec::new();
        for _ in 0..ATTEMPTS {
            problems = match self.try_to_go_back(trial) {
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
            // Nothing of ours is left: the next attempt looks anew.
            let directories = self.records.read::<Found>()?.map(|found| found.directories).unwrap_or_default();
            self.records.write(&Found { directories, ..Found::default() })?;
        }
        self.records.remove(Trial::FILE)?;
        Ok(problems)
    }

    fn try_to_go_back(&self, trial: &Trial) -> Result<Vec<String>, GatewayError> {
        let before = &trial.before;
        let mut wanted = match &before.confirmed {
            Some(confirmed) => self.wanted(&confirmed.setup)?,
            None => Wanted::default(),
        };
        self.finish_services()?;
        let table = |listing: &String| WantedTable { text: listing.clone(), listing: Some(listing.clone()) };
        wanted.table = before.table.as_ref().map(table);
        let found = self.records.read::<Found>()?.unwrap_or_default();
        let todo = steps(&wanted, &self.observe()?, &found);
        // What can be put back is, whatever else cannot.
        let done = todo.iter().map(|step| self.carry_out(step, &before.endpoints));
        Ok(done.filter_map(Result::err).map(|error| error.to_string()).collect())
    }

    /// Ends services that somebody was killed over: they are neither there nor gone.
    pub(super) fn finish_services(&self) -> Result<(), GatewayError> {
        if self.services.is_between(Service::Dnsmasq)? {
            self.services.stop(Service::Dnsmasq)?;
        }
        if self.services.is_between(Service::WireGuard)? {
            self.remove_vpn()?;
        }
        Ok(())
    }

    /// What a setup wants of the machine, with what we know of it.
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

    /// What was found here, noted now if nothing was before.
    pub(super) fn found(&self, made: Vec<std::path::PathBuf>, observed: &Observed) -> Result<Found, GatewayError> {
        let found = match self.records.read::<Found>()? {
            // Something has been touched before: what has our name is ours.
            Some(found) if !found.interfaces.is_empty() => return Ok(found),
            Some(found) => found,
            None => Found { directories: made, ..Found::default() },
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

    /// Refuses while an attempt waits; one whose time is up is taken back, if nobody else has done it.
    pub(super) fn refuse_while_waiting(&self) -> Result<(), GatewayError> {
        let Some(trial) = self.records.read::<Trial>()? else { return Ok(()) };
        if trial.boot != boot_id() {
            // A boot has taken everything back but the records.
            self.records.put(trial.before.confirmed.as_ref())?;
            self.records.put::<Loaded>(None)?;
            return self.records.remove(Trial::FILE);
        }
        // With the lock in our hands nobody is at work on it.
        if trial.is_over() || trial.deadline_ms.is_none() {
            return self.go_back(&trial, "it was interrupted, or not confirmed in time").map(drop);
        }
        Err(GatewayError::Pending(trial.seconds_left().unwrap_or(0)))
    }

    fn check_clients(&self, setup: &Setup) -> Result<(), GatewayError> {
        let Some(vpn) = &setup.vpn else { return Ok(()) };
        let clients = self.records.clients()?;
        let misplaced = clients.misplaced(vpn.address);
        if misplaced.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = misplaced.iter().map(|client| format!("{} {}", client.name, client.address)).collect();
        Err(GatewayError::Misplaced(names.join(", ")))
    }

    /// How the attempt of this token stands.
    ///
    /// # Errors
    /// When records cannot be read.
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

    /// The last attempt that was taken back, if nothing was confirmed since.
    ///
    /// # Errors
    /// When the record cannot be read.
    pub fn rolled_back(&self) -> Result<Option<RolledBack>, GatewayError> {
        self.records.read()
    }

    /// Where this gateway's state is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.records.directory()
    }
}

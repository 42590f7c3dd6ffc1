//! The gateway of this machine: loads files, and restores the previous ones unless a user confirms the change.
//!
//! The same function loads new files, restores previous ones and removes the gateway. It undoes the changes that the
//! files no longer contain, and makes those that are missing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use serde::Serialize;

use crate::changes::{Change, UNIT, VOLATILE, WIREGUARD_FILE, When, configure_vpn, quoted};
use crate::clients::{Client, Clients};
use crate::command::{require, run};
use crate::description::{Description, Vpn};
use crate::error::GatewayError;
use crate::keys::PrivateKey;
use crate::names::VPN_INTERFACE;
use crate::render;
use crate::setup::Setup;
use crate::store::{Store, Trial, read, write};

/// Default directory of the gateway's files.
pub const DEFAULT_DIRECTORY: &str = "/var/lib/hostler/gateway";

/// Directory that exists when systemd runs the machine.
const BOOTED_BY_SYSTEMD: &str = "/run/systemd/system";

/// Timeout for the start of the guard.
const GUARD_READY: Duration = Duration::from_secs(10);

/// Interval between checks of the guard.
const PAUSE: Duration = Duration::from_millis(100);

/// Time for the last command of a killed `apply` to end.
const LAST_COMMAND: Duration = Duration::from_secs(1);

/// The gateway of this machine. A machine has at most one.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) store: Store,
    /// The path of this executable, which guards changes on trial and loads the gateway after a boot.
    program: PathBuf,
    pub(crate) by_systemd: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Applied {
    /// The files are as before, and were loaded again.
    Unchanged { commands: Vec<String> },
    /// The change was applied permanently.
    Confirmed { commands: Vec<String> },
    /// The change was applied and waits for confirmation.
    Trial { commands: Vec<String>, confirm_within_secs: u64 },
}

impl Gateway {
    /// Creates a handle for the gateway with its files in `directory`.
    #[must_use]
    pub fn new(directory: &Path, program: PathBuf) -> Self {
        let by_systemd = Path::new(BOOTED_BY_SYSTEMD).is_dir();
        Self { store: Store::new(directory.to_owned()), program, by_systemd }
    }

    /// Whether the system loads the confirmed files after a boot.
    #[must_use]
    pub fn starts_at_boot(&self) -> bool {
        self.by_systemd
    }

    /// Applies a setup. With `confirm_within`, the change is rolled back unless it is confirmed within that time.
    ///
    /// # Errors
    /// The setup cannot be applied. The change was rolled back, or the error says why not.
    pub fn apply(&self, setup: &Setup, confirm_within: Option<Duration>) -> Result<Applied, GatewayError> {
        self.require_root()?;
        if let Some(lack) = self.missing(setup).into_iter().next() {
            return Err(lack);
        }
        self.store.prepare()?;
        let _lock = self.store.lock(true)?;
        self.settle()?;
        self.check_clients(&setup.description)?;
        if !self.differs(setup)? {
            let commands = self.load(Some(setup))?;
            self.keep()?;
            return Ok(Applied::Unchanged { commands });
        }
        // The guard starts first, so that a crash at any moment leads to a rollback.
        self.start_guard()?;
        self.store.replace(&setup.files(&self.store.leases()))?;
        let commands = match self.load(Some(setup)) {
            Ok(commands) => commands,
            Err(error) => return Err(self.failed(error)),
        };
        let Some(within) = confirm_within else {
            self.keep()?;
            return Ok(Applied::Confirmed { commands });
        };
        self.store.set_deadline(within)?;
        Ok(Applied::Trial { commands, confirm_within_secs: within.as_secs() })
    }

    fn failed(&self, error: GatewayError) -> GatewayError {
        match self.roll_back(&error.to_string()) {
            Ok(()) => GatewayError::RolledBack(Box::new(error)),
            Err(second) => GatewayError::RollbackFailed(Box::new(error), second.to_string()),
        }
    }

    /// Whether the files of a setup differ from those in use.
    pub(crate) fn differs(&self, setup: &Setup) -> Result<bool, GatewayError> {
        let is_so = |(name, text): &(&str, String)| Ok(read(&self.store.current().join(name))?.as_ref() == Some(text));
        let same: Result<Vec<bool>, GatewayError> = setup.files(&self.store.leases()).iter().map(is_so).collect();
        Ok(same?.contains(&false))
    }

    /// Changes that the setup's files need, and the commands that undo what they no longer contain.
    pub(crate) fn changes(&self, setup: Option<&Setup>) -> Result<(Vec<String>, Vec<Change>), GatewayError> {
        let wanted = setup.map(|setup| setup.changes(&self.store.current(), self.by_systemd)).unwrap_or_default();
        let mut gone = self.store.undo()?;
        gone.reverse();
        gone.retain(|undo| !wanted.iter().any(|change| change.undo == *undo));
        Ok((gone, wanted))
    }

    /// Loads the files in use, which are those of `setup`, or removes everything. Returns the commands that ran. The
    /// first failure ends it, so that nothing is forwarded without packet rules.
    fn load(&self, setup: Option<&Setup>) -> Result<Vec<String>, GatewayError> {
        if let Some(vpn) = setup.and_then(|setup| setup.description.vpn.as_ref()) {
            self.write_wireguard(vpn)?;
        }
        let (gone, wanted) = self.changes(setup)?;
        let mut undo = self.store.undo()?;
        let mut commands = Vec::new();
        let mut failed = None;
        for line in gone {
            match run(&line) {
                Ok(_) => {
                    undo.retain(|other| *other != line);
                    commands.push(line);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.store.set_undo(&undo)?;
        if let Some(error) = failed {
            return Err(error);
        }
        for change in wanted {
            // What was so before the gateway stays so after its removal.
            if change.when == When::Missing && run(&change.check).is_ok() {
                continue;
            }
            if change.when == When::Restart {
                run(&change.undo)?;
            }
            if !change.undo.is_empty() && !undo.contains(&change.undo) {
                undo.push(change.undo);
                self.store.set_undo(&undo)?;
            }
            run(&change.run)?;
            commands.push(change.run);
        }
        Ok(commands)
    }

    /// Writes the VPN's key and clients to a file, because other users can see command lines.
    fn write_wireguard(&self, vpn: &Vpn) -> Result<(), GatewayError> {
        let (key, clients) = (self.store.server_key()?, self.store.clients()?);
        write(&Path::new(VOLATILE).join(WIREGUARD_FILE), &render::server(&key, vpn.port, clients.iter()))
    }

    /// Loads the confirmed files, e.g. after a boot. Returns the commands that ran.
    ///
    /// # Errors
    /// No setup was confirmed, a change waits for confirmation, or a command fails. A retry is possible.
    pub fn start(&self) -> Result<Vec<String>, GatewayError> {
        let (_lock, setup) = self.lock_confirmed()?;
        self.load(Some(&setup))
    }

    /// Takes the lock for changes, and reads the confirmed setup.
    fn lock_confirmed(&self) -> Result<(Option<Flock<File>>, Setup), GatewayError> {
        self.require_root()?;
        if !self.store.directory().exists() {
            return Err(GatewayError::NotSetUp);
        }
        self.store.prepare()?;
        let lock = self.store.lock(true)?;
        self.settle()?;
        Ok((lock, self.store.setup()?.ok_or(GatewayError::NotSetUp)?))
    }

    /// Keeps the change on trial.
    ///
    /// # Errors
    /// No change waits for confirmation.
    pub fn confirm(&self) -> Result<(), GatewayError> {
        self.require_root()?;
        if self.store.trial()?.is_some() {
            self.store.prepare()?;
            let _lock = self.store.lock(true)?;
            if self.store.trial()?.is_some() && self.store.is_guarded()? {
                return self.keep();
            }
            self.settle()?;
        }
        Err(GatewayError::NothingToConfirm(self.rolled_back()?.map(|(why, _)| why)))
    }

    /// Waits until a trial that has ended is over, and returns why and with which problems it was rolled back. `None` if
    /// the change was confirmed.
    ///
    /// # Errors
    /// The reason cannot be read.
    pub fn outcome(&self) -> Result<Option<(String, String)>, GatewayError> {
        let _lock = self.store.lock(true)?;
        self.rolled_back()
    }

    /// Makes a change permanent, also after a boot.
    fn keep(&self) -> Result<(), GatewayError> {
        if self.by_systemd {
            let (path, text) = (unit_path(), self.unit());
            if read(&path)?.as_ref() != Some(&text) {
                fs::write(&path, text).map_err(|source| GatewayError::File { what: "write", path, source })?;
                run(&format!("systemctl daemon-reload && systemctl --quiet enable {UNIT}"))?;
            }
        }
        self.store.keep()
    }

    /// Returns an error while a change waits for confirmation. Rolls back a change that no process guards, because its
    /// processes were killed or the machine was booted.
    fn settle(&self) -> Result<(), GatewayError> {
        match self.store.trial()? {
            None => Ok(()),
            Some(Trial::Waits { secs }) if self.store.is_guarded()? => Err(GatewayError::Pending(secs)),
            Some(_) => self.roll_back("its guard process ended before the confirmation, e.g. in a reboot"),
        }
    }

    /// Restores the previous files and loads them. The caller holds the lock.
    fn roll_back(&self, why: &str) -> Result<(), GatewayError> {
        let why = why.replace('\n', "; ");
        self.store.set_rolled_back(&why)?;
        self.store.restore()?;
        let loaded = self.store.setup().and_then(|setup| self.load(setup.as_ref()));
        loaded.map(drop).inspect_err(|error| {
            let _ = self.store.set_rolled_back(&format!("{why}\n{error}"));
        })
    }

    /// Starts a process that does not depend on the terminal, connection or process that started the change.
    fn start_guard(&self) -> Result<(), GatewayError> {
        // The guard of an earlier change may be about to end: it can end only without a change on trial.
        if self.store.is_guarded()? {
            return Ok(());
        }
        let guard = self.own_command("guard");
        run(&match self.by_systemd {
            true => format!("systemd-run --quiet --collect --unit=hostler-gateway-guard-$$ -- {guard}"),
            false => format!("setsid --fork {guard} </dev/null >/dev/null 2>&1"),
        })?;
        let deadline = Instant::now() + GUARD_READY;
        while !self.store.is_guarded()? {
            if Instant::now() > deadline {
                return Err(GatewayError::NoGuard);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Guards the change that is about to begin: rolls it back if `apply` is killed, or if nobody confirms it in time.
    ///
    /// # Errors
    /// The change cannot be rolled back.
    pub fn guard(&self) -> Result<(), GatewayError> {
        let guards = self.store.guard(true)?;
        loop {
            std::thread::sleep(PAUSE);
            // The process that applies a change holds the lock.
            let Some(lock) = self.store.lock(false)? else { continue };
            let rolled_back = match self.store.trial()? {
                Some(Trial::Waits { secs: 1.. }) => continue,
                Some(Trial::Waits { secs: 0 }) => self.roll_back("the change was not confirmed in time"),
                Some(Trial::Loading) => {
                    std::thread::sleep(LAST_COMMAND);
                    self.roll_back("the process that applied the change was killed before it finished")
                }
                None => Ok(()),
            };
            // In this order, so that the next change finds no guard and starts one.
            drop(guards);
            drop(lock);
            return rolled_back;
        }
    }

    /// Removes the gateway and undoes its changes. With `keep_clients`, the VPN's key and clients are kept. Returns the
    /// commands that ran.
    ///
    /// # Errors
    /// Some parts could not be removed; the other parts were removed. A retry is possible.
    pub fn remove(&self, keep_clients: bool) -> Result<Vec<String>, GatewayError> {
        self.require_root()?;
        if !self.store.directory().exists() {
            return Ok(Vec::new());
        }
        self.store.prepare()?;
        let _lock = self.store.lock(true)?;
        // Without the previous files, a change on trial ends, and its guard exits.
        self.store.keep()?;
        if unit_path().exists() && self.by_systemd {
            // The unit may be about to retry a start.
            let unit = unit_path();
            run(&format!(
                "systemctl stop {UNIT}; systemctl reset-failed {UNIT}; systemctl --quiet disable {UNIT}; rm -f {} && systemctl daemon-reload",
                quoted(&unit)
            ))?;
        }
        let commands = self.load(None)?;
        self.store.remove(keep_clients)?;
        Ok(commands)
    }

    /// Adds a VPN client and returns its profile. The profile contains the private key, which is not stored anywhere
    /// else.
    ///
    /// # Errors
    /// No VPN was confirmed, or the name is in use.
    pub fn add_client(&self, name: &str) -> Result<(Client, String), GatewayError> {
        self.with_clients(|clients, description, vpn| {
            let key = PrivateKey::generate();
            let client = clients.add(name, key.public(), vpn.address, wall_secs())?.clone();
            let server = self.store.server_key()?.public();
            let profile = render::profile(&client, &key, &server, description, vpn);
            Ok((client, profile))
        })
    }

    /// Revokes a VPN client's access.
    ///
    /// # Errors
    /// No client has this name.
    pub fn revoke_client(&self, name: &str) -> Result<Client, GatewayError> {
        self.with_clients(|clients, _, _| Ok(clients.revoke(name)?))
    }

    /// Changes the clients. This needs no confirmation, because it cannot cut off other access.
    fn with_clients<T>(
        &self,
        change: impl FnOnce(&mut Clients, &Description, &Vpn) -> Result<T, GatewayError>,
    ) -> Result<T, GatewayError> {
        let (_lock, Setup { description, .. }) = self.lock_confirmed()?;
        let vpn = description.vpn.as_ref().ok_or(GatewayError::NoVpn)?;
        let mut clients = self.store.clients()?;
        let outcome = change(&mut clients, &description, vpn)?;
        self.store.set_clients(&clients)?;
        self.write_wireguard(vpn)?;
        // A stopped VPN reads the clients when it starts.
        if run(&format!("ip link show dev {VPN_INTERFACE}")).is_ok() {
            run(&configure_vpn(vpn.port).run)?;
        }
        Ok(outcome)
    }

    fn check_clients(&self, description: &Description) -> Result<(), GatewayError> {
        let Some(vpn) = &description.vpn else { return Ok(()) };
        let clients = self.store.clients()?;
        let misplaced = clients.outside_subnet(vpn.address);
        if misplaced.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = misplaced.iter().map(|client| format!("{} {}", client.name, client.address)).collect();
        Err(GatewayError::Misplaced(names.join(", ")))
    }

    /// Checks for root and for the programs that every command needs.
    pub(crate) fn require_root(&self) -> Result<(), GatewayError> {
        if !nix::unistd::geteuid().is_root() {
            return Err(GatewayError::NotRoot);
        }
        [("ip", "iproute2"), ("nft", "nftables")]
            .into_iter()
            .try_for_each(|(program, package)| require(program, package))
    }

    /// A shell command that runs a `hostler gateway` subcommand.
    fn own_command(&self, part: &str) -> String {
        format!("{} gateway {part} --directory {}", quoted(&self.program), quoted(self.store.directory()))
    }

    /// Content of the unit. The unit retries the start, because interfaces may appear late.
    fn unit(&self) -> String {
        let words =
            [&self.program, Path::new("gateway"), Path::new("start"), Path::new("--directory"), self.store.directory()];
        let words = words.map(|word| unit_quoted(&word.to_string_lossy()));
        format!(
            "# Written by `hostler gateway`; `hostler gateway remove` removes it.\n[Unit]\n\
             Description=Hostler gateway: routes, leases and VPN of the cluster's network\n\
             Documentation=man:hostler-gateway(1)\nWants=network-online.target\nAfter=network-online.target nftables.service\n\n\
             [Service]\nType=oneshot\nExecStart={}\nRestart=on-failure\nRestartSec=5s\n\n\
             [Install]\nWantedBy=multi-user.target\n",
            words.join(" ")
        )
    }
}

fn unit_path() -> PathBuf {
    Path::new("/etc/systemd/system").join(UNIT)
}

/// Quotes a word for systemd.
fn unit_quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$"))
}

/// Wall clock in seconds since 1970, for display only.
fn wall_secs() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_calls_this_program() {
        let gateway = Gateway::new(Path::new("/srv/50% off"), "/usr/bin/hostler".into());
        let line = "ExecStart=\"/usr/bin/hostler\" \"gateway\" \"start\" \"--directory\" \"/srv/50%% off\"";
        assert!(gateway.unit().lines().any(|found| found == line), "{}", gateway.unit());
    }
}

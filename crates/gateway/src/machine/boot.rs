//! Start after a boot, and removal of the gateway.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;

use super::carry_out::Endpoints;
use super::command::run;
use super::error::GatewayError;
use super::gateway::Gateway;
use super::records::{Confirmed, Record, Trial};
use super::service::{Service, UNIT, is_systemd, stop_unit};
use crate::clients::Clients;
use crate::found::OriginalState;
use crate::steps::{Step, Wanted, steps};

impl Gateway {
    /// Applies the confirmed setup, e.g. after a boot. Returns the steps that were necessary.
    ///
    /// # Errors
    /// No setup was confirmed, a change waits for confirmation, or a step fails. Later steps are then skipped, so that
    /// no packet is forwarded without rules. A retry is possible.
    pub fn start(&self) -> Result<Vec<Step>, GatewayError> {
        let (_lock, confirmed) = self.lock_confirmed()?;
        let mut found = self.records.read::<OriginalState>()?.unwrap_or_default();
        let observed = self.observe()?;
        if found.note(&confirmed.setup.interfaces, &observed) {
            self.records.write(&found)?;
        }
        let todo = steps(&self.wanted(&confirmed.setup)?, &observed, &found);
        todo.iter().try_for_each(|step| self.carry_out(step, &Endpoints::new()))?;
        Ok(todo)
    }

    /// Takes the lock for changes and reads the confirmed setup.
    pub(super) fn lock_confirmed(&self) -> Result<(Flock<File>, Confirmed), GatewayError> {
        self.require_root()?;
        if !self.records.directory().exists() {
            return Err(GatewayError::NotSetUp);
        }
        let lock = self.records.lock()?;
        self.fail_if_pending()?;
        let confirmed = self.records.read::<Confirmed>()?.ok_or(GatewayError::NotSetUp)?;
        Ok((lock, confirmed))
    }

    /// Removes the gateway and restores the machine's original state. With `keep_clients`, the VPN's key and clients
    /// are kept.
    ///
    /// # Errors
    /// Some parts could not be removed; the other parts were removed. A retry is possible.
    pub fn remove(&self, keep_clients: bool) -> Result<Vec<Step>, GatewayError> {
        self.require_root()?;
        if !self.records.directory().exists() {
            return Ok(Vec::new());
        }
        let _lock = self.records.lock()?;
        // Without this record, a change on trial ends, and its guard exits.
        self.records.remove(Trial::FILE)?;
        let found = self.records.read::<OriginalState>()?.unwrap_or_default();
        let mut problems: Vec<String> = self.remove_unit().err().iter().map(ToString::to_string).collect();
        problems.extend(self.finish_services().err().map(|error| error.to_string()));
        let todo = steps(&Wanted::default(), &self.observe()?, &found);
        let done = todo.iter().map(|step| self.carry_out(step, &Endpoints::new()));
        problems.extend(done.filter_map(Result::err).map(|error| error.to_string()));
        problems.extend(self.services.stop(Service::WireGuard).err().map(|error| error.to_string()));
        problems.extend(self.services.stop(Service::Guard).err().map(|error| error.to_string()));
        if !problems.is_empty() {
            return Err(GatewayError::NotRemoved(problems.join("; ")));
        }
        self.forget(keep_clients, &found.directories)?;
        Ok(todo)
    }

    /// Deletes all records. Deletes the record of the original state last, because a retry of the removal needs it.
    fn forget(&self, keep_clients: bool, made: &[PathBuf]) -> Result<(), GatewayError> {
        let directory = self.records.directory();
        let failed = |path: &Path, source| GatewayError::File { what: "remove", path: path.to_owned(), source };
        let entries = fs::read_dir(directory).map_err(|error| failed(directory, error))?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort_by_key(|path| path.ends_with(OriginalState::FILE));
        let is_kept =
            |path: &PathBuf| keep_clients && ["server.key", Clients::FILE].iter().any(|name| path.ends_with(name));
        for path in paths.iter().filter(|path| !is_kept(path)) {
            fs::remove_file(path).map_err(|error| failed(path, error))?;
        }
        // The parent directories stay if they contain other files.
        let _ = fs::remove_dir(directory);
        for directory in made {
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }

    /// Installs the unit for the start after a boot. Returns `false` without systemd.
    pub(super) fn install_unit(&self) -> Result<bool, GatewayError> {
        if !is_systemd() {
            return Ok(false);
        }
        let path = unit_path();
        let text = self.unit();
        if fs::read_to_string(&path).is_ok_and(|there| there == text) {
            return Ok(true);
        }
        fs::write(&path, text).map_err(|source| GatewayError::File { what: "write", path, source })?;
        run("systemctl", &["daemon-reload"])?;
        run("systemctl", &["--quiet", "enable", UNIT])?;
        Ok(true)
    }

    fn remove_unit(&self) -> Result<(), GatewayError> {
        let path = unit_path();
        if !self.services.by_systemd() || !path.exists() {
            return Ok(());
        }
        // The unit may be about to retry a start.
        stop_unit(UNIT)?;
        let _ = run("systemctl", &["reset-failed", UNIT]);
        run("systemctl", &["--quiet", "disable", UNIT])?;
        fs::remove_file(&path).map_err(|source| GatewayError::File { what: "remove", path, source })?;
        run("systemctl", &["daemon-reload"]).map(drop)
    }

    /// Content of the unit. The unit retries the start, because interfaces may appear late.
    fn unit(&self) -> String {
        let command: Vec<String> =
            self.own_command("start").iter().map(|word| quoted(&word.to_string_lossy())).collect();
        format!(
            "# Written by `hostler gateway`; `hostler gateway remove` removes it.\n[Unit]\n\
             Description=Hostler gateway: routes, leases and VPN of the cluster's network\n\
             Documentation=man:hostler-gateway(1)\nWants=network-online.target\nAfter=network-online.target nftables.service\n\n\
             [Service]\nType=oneshot\nExecStart={} {}\nRestart=on-failure\nRestartSec=5s\n\n\
             [Install]\nWantedBy=multi-user.target\n",
            quoted(&self.program.to_string_lossy()),
            command.join(" ")
        )
    }
}

fn unit_path() -> PathBuf {
    Path::new("/etc/systemd/system").join(UNIT)
}

/// Quotes a word for systemd.
fn quoted(word: &str) -> String {
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$"))
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

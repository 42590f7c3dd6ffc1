//! The interface of simulated controllers.

use hostler_testkit::Host;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Accepts connections and never answers.
    Silent,
    /// Reports that it is busy.
    Busy,
    /// Has another password than the head.
    WrongPassword,
    /// Accepts all orders and executes none.
    Idle,
}

/// The controllers of a room, on a host of their own.
pub(crate) trait Bmcs: Send + Sync {
    /// The `controller` value of the machine in `power.toml`, an inline table.
    fn table(&self, machine: &str) -> String;

    fn is_on(&self, machine: &str) -> bool;

    /// Presses the machine's power button.
    fn press(&self, machine: &str, on: bool);

    /// Adds a fault to the machine's controller; `false` if these controllers do not support it.
    fn spoil(&self, machine: &str, fault: Fault) -> bool;

    fn mend(&self, machine: &str);
}

/// Path of a controller's credentials for the head.
pub(crate) fn secret_path(machine: &str) -> String {
    format!("/etc/hostler/{machine}.secret")
}

/// Writes the credentials on the head's host.
pub(crate) fn write_secret(head: &Host, machine: &str, line: &str) {
    use std::os::unix::fs::PermissionsExt;
    let (path, new) = (secret_path(machine), format!("{}.new", secret_path(machine)));
    head.write(&new, format!("{line}\n"));
    std::fs::set_permissions(head.path(&new), std::fs::Permissions::from_mode(0o600)).expect("the test owns the file");
    // Atomically, because the head may read the file at any time.
    std::fs::rename(head.path(&new), head.path(&path)).expect("the file is writable");
}

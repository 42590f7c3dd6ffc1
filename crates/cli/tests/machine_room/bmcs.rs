//! What the room asks of controllers, whoever has made them.

use hostler_testkit::Host;

/// What can be wrong with a controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It takes what is said and answers nothing.
    Silent,
    /// It says that it is busy.
    Busy,
    /// Its password is another than the head knows.
    WrongPassword,
    /// It accepts every order and carries none out.
    Idle,
}

/// The controllers of a room's machines, on a host of their own.
pub(crate) trait Bmcs: Send + Sync {
    /// What `power.toml` says of the machine's controller, an inline table.
    fn table(&self, machine: &str) -> String;

    /// Whether the machine has power now.
    fn is_on(&self, machine: &str) -> bool;

    /// Somebody presses the button on the machine itself.
    fn press(&self, machine: &str, on: bool);

    /// Spoils the machine's controller; `false` when controllers of this kind cannot be wrong in this way.
    fn spoil(&self, machine: &str, fault: Fault) -> bool;

    /// Sets it right again.
    fn mend(&self, machine: &str);
}

/// Where the head finds the credentials of a machine's controller.
pub(crate) fn secret_path(machine: &str) -> String {
    format!("/etc/hostler/{machine}.secret")
}

/// Writes them on the head's host.
pub(crate) fn write_secret(head: &Host, machine: &str, line: &str) {
    use std::os::unix::fs::PermissionsExt;
    let (path, new) = (secret_path(machine), format!("{}.new", secret_path(machine)));
    head.write(&new, format!("{line}\n"));
    std::fs::set_permissions(head.path(&new), std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    // The head reads it at any time.
    std::fs::rename(head.path(&new), head.path(&path)).expect("it is ours");
}

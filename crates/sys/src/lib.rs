//! Operating system functions that the standard library lacks.

mod child;
mod daemon_lock;
mod daemon_socket;
mod descriptors;
mod file;
mod interpreter;
mod libraries;
mod mount_trees;
mod mounts;
mod passage;
mod silence;
mod tcp_peer;
mod tcp_sockets;
mod terminal;

use std::fs;
use std::io;

pub use child::{ChildUsage, wait_with_usage};
pub use daemon_lock::{is_locked, lock_directory};
pub use daemon_socket::{Descriptors, SOCKET_CHECK_INTERVAL, SocketAccess, SocketFile};
pub use descriptors::refuse_descriptors;
pub use file::{
    create_directory, create_new_directory, known_owner_of_directory, make_directory, replace_file,
    replace_file_unflushed,
};
pub use interpreter::{MARKED, explain_start, explain_start_here, is_marked, missing_interpreter};
pub use libraries::Libraries;
pub use mount_trees::{MountAttributes, MountTree};
pub use mounts::{bind, change_propagation, detach_mounts, mount_tmpfs, unshare_mounts};
pub use passage::admit_only;
pub use silence::{limit_silence, limit_unread};
pub use tcp_peer::tcp_peer_owner;
pub use tcp_sockets::TcpSocket;
pub use terminal::{RawTerminal, is_in_background, window_size};

/// Search path for programs when the environment has no `PATH`, as before a login.
pub const LOGIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Returns the boot id, which the kernel changes at every boot of the machine.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Returns cryptographically secure random bytes. Needs no file descriptor.
///
/// # Panics
/// On Linux before 3.17, which lacks the system call.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("Linux 3.17 and newer have getrandom");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_boot_id_is_stable() {
        assert_ne!(random::<16>(), random::<16>());
        let boot = boot_id().expect("/proc is mounted");
        assert_eq!((boot.len(), boot_id().expect("/proc is mounted")), (36, boot));
    }
}

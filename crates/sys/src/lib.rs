//! Operating system functions that the standard library lacks.

mod file;

use std::fs::{self, File};
use std::io::{self, Read};

pub use file::{replace_file, replace_file_unflushed};

/// The boot id, which changes at every boot of the machine.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Cryptographically secure random bytes.
///
/// # Errors
/// When `/dev/urandom` cannot be read.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ_and_boot_id_is_stable() {
        assert_ne!(
            random::<16>().expect("/dev/urandom is readable"),
            random::<16>().expect("/dev/urandom is readable")
        );
        let boot = boot_id().expect("/proc is mounted");
        assert_eq!((boot.len(), boot_id().expect("/proc is mounted")), (36, boot));
    }
}

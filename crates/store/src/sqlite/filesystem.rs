//! Checks the type and the free space of the store's file system.

use std::path::Path;

use nix::sys::statvfs::statvfs;

use crate::StoreError;

/// Whether a file system is safe for a write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    Local,
    /// Possibly unsafe: a shared or user-space file system.
    Doubtful(&'static str),
    /// Unsafe: the locks, the shared memory or the fsync of this network file system are known to be unreliable.
    Network(&'static str),
}

/// Classifies the `f_type` of file systems that are not a local disk, from `linux/magic.h` and their own sources.
const fn trust(magic: u32) -> Trust {
    match magic {
        0x6969 => Trust::Network("NFS"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Trust::Network("SMB"),
        0x5346_414F | 0x6B41_4653 => Trust::Network("AFS"),
        0x0102_1997 => Trust::Network("9P"),
        0x6573_5546 => Trust::Doubtful("FUSE"),
        0x00C3_6400 => Trust::Doubtful("Ceph"),
        0x0BD0_0BD0 => Trust::Doubtful("Lustre"),
        0x4750_4653 => Trust::Doubtful("GPFS"),
        0x1983_0326 => Trust::Doubtful("BeeGFS"),
        _ => Trust::Local,
    }
}

/// Refuses a store on a network file system, unless `allow_network` is true. Logs a warning about possible network file
/// systems.
pub(super) fn check(database: &Path, allow_network: bool) -> Result<(), StoreError> {
    let directory = directory_of(database);
    let found = nix::sys::statfs::statfs(directory)
        .map_err(|error| StoreError::io("read the file system type of", directory, error.into()))?;
    // The type of this field differs between platforms; the magic numbers all have 32 bits.
    judge(trust(found.filesystem_type().0 as u32), database, allow_network)
}

fn judge(trust: Trust, database: &Path, allow_network: bool) -> Result<(), StoreError> {
    match trust {
        Trust::Local => {}
        Trust::Network(kind) if !allow_network => {
            return Err(StoreError::NetworkFilesystem { path: database.to_owned(), kind });
        }
        Trust::Doubtful(kind) | Trust::Network(kind) => {
            tracing::warn!(path = %database.display(), kind, "the store is not on a local disk: a crash may damage the store");
        }
    }
    Ok(())
}

/// Free space for this user on the file system of `database`, in bytes.
pub(super) fn free_bytes(database: &Path) -> Result<u64, StoreError> {
    let directory = directory_of(database);
    let found =
        statvfs(directory).map_err(|error| StoreError::io("read the free space at", directory, error.into()))?;
    Ok(found.blocks_available().saturating_mul(found.fragment_size()))
}

pub(super) fn directory_of(database: &Path) -> &Path {
    database.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_filesystems_are_refused_unless_allowed() {
        let path = Path::new("/somewhere/store.db");
        for (magic, kind) in [(0x6969, "NFS"), (0xFF53_4D42, "SMB"), (0x0102_1997, "9P")] {
            let error = judge(trust(magic), path, false).expect_err(kind);
            assert!(matches!(error, StoreError::NetworkFilesystem { kind: found, .. } if found == kind));
            judge(trust(magic), path, true).expect("network file systems are allowed");
        }
        for magic in [0xEF53, 0x0102_1994, 0x5846_5342, 0x9123_683E, 0x6573_5546] {
            judge(trust(magic), path, false).expect("ext4, tmpfs, XFS and btrfs are local, FUSE is only warned of");
        }
    }

    #[test]
    fn a_bare_file_name_is_in_the_current_directory() {
        assert_eq!(directory_of(Path::new("store.db")), Path::new("."));
        assert_eq!(directory_of(Path::new("/x/store.db")), Path::new("/x"));
    }
}

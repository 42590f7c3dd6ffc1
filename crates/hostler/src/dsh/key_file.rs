//! The key file that all machines of a cluster without a head share: 64 hexadecimal digits.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use hostler_cli::failure::{During, Failure};
use hostler_model::Digest;
use nix::unistd::geteuid;

/// Creates a file with a random key that only its owner can read.
pub(super) fn create(path: &Path) -> Result<(), Failure> {
    let created = File::options().write(true).create_new(true).mode(0o600).open(path);
    let mut file = created.map_err(|error| {
        let failure = Failure::new(format!("cannot create the key file {}", path.display())).because(&error);
        match error.kind() {
            ErrorKind::AlreadyExists => {
                failure.hint("copy the existing file to the other machines, or name another file")
            }
            _ => failure,
        }
    })?;
    let key = Digest(hostler_sys::random());
    let written = writeln!(file, "{key}").and_then(|()| file.sync_all());
    written.during(|| format!("cannot write the key file {}", path.display()))
}

/// Reads a key that only this user and root can know.
pub(super) fn read(path: &Path) -> Result<[u8; 32], Failure> {
    let shown = path.display();
    let cannot = || format!("cannot read the key file {shown}");
    let file = File::open(path).map_err(|error| {
        Failure::new(cannot())
            .because(&error)
            .hint("`dshd --new-key FILE` creates a key; copy the file to all machines, e.g. with scp")
            .hint("the file must belong to the user that runs dshd")
    })?;
    // Check the open file, because the path may change meanwhile.
    let facts = file.metadata().during(cannot)?;
    let own = geteuid().as_raw();
    if facts.mode() & 0o077 != 0 {
        return Err(Failure::new(format!("other users may read or change the key file {shown}"))
            .hint(format!("`chmod 600 {shown}`, and create a new key if others may have read this one")));
    }
    if facts.uid() != own && facts.uid() != 0 {
        return Err(Failure::new(format!("the key file {shown} belongs to another user (uid {})", facts.uid()))
            .hint(format!("`chown {own} {shown}`")));
    }
    let mut text = String::new();
    file.take(1024).read_to_string(&mut text).during(cannot)?;
    text.trim().parse().map(|Digest(key)| key).map_err(|_| {
        Failure::new(format!("the key file {shown} is not 64 hexadecimal digits"))
            .hint("`dshd --new-key FILE` creates a key; copy its file without changes")
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn key_files_are_private_and_complete() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("key");
        assert!(read(&path).expect_err("missing").render().contains("dshd --new-key"));
        create(&path).expect("writable");
        let key = read(&path).expect("a new key");
        assert_ne!(key, [0; 32]);
        assert_eq!(fs::metadata(&path).expect("the file exists").mode() & 0o777, 0o600);
        assert!(create(&path).expect_err("exists").render().contains("copy the existing file"));
        assert_eq!(read(&path).ok(), Some(key), "an existing key stays");
        for mode in [0o640, 0o604, 0o620, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own file");
            assert!(read(&path).expect_err("not private").render().contains("chmod 600"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("own file");
        for text in ["", "0f", "rubbish", &"0g".repeat(32), &"0f".repeat(33)] {
            fs::write(&path, text).expect("writable");
            assert!(read(&path).expect_err(text).render().contains("is not 64 hexadecimal digits"));
        }
    }
}

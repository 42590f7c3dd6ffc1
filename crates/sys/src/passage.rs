//! Directories through which a single user may pass.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::libc;

/// Lets root and the user with this uid pass through a directory of root, and nobody else: neither list it nor reach
/// anything below it, whatever the modes of its contents. Mode and owner cannot say that without giving the directory to
/// the user, so this sets an access control list.
///
/// # Errors
/// If the file system has no access control lists, or the caller is not the owner.
pub fn admit_only(directory: &Path, uid: u32) -> io::Result<()> {
    let path = CString::new(directory.as_os_str().as_bytes())?;
    let list = list(uid);
    // SAFETY: the kernel reads both strings and as many bytes of the list as it has.
    let set = unsafe {
        libc::setxattr(path.as_ptr(), c"system.posix_acl_access".as_ptr(), list.as_ptr().cast(), list.len(), 0)
    };
    if set == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The list in the format of `linux/posix_acl_xattr.h`: a version, then tag, permissions and id of each entry, ordered by
/// tag.
fn list(uid: u32) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NO_ID: u32 = u32::MAX;
    const ALL: u16 = 7;
    const PASS: u16 = 1;
    const OWNER: u16 = 0x01;
    const USER: u16 = 0x02;
    const GROUP: u16 = 0x04;
    const MASK: u16 = 0x10;
    const OTHERS: u16 = 0x20;
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, may, id) in
        [(OWNER, ALL, NO_ID), (USER, PASS, uid), (GROUP, 0, NO_ID), (MASK, PASS, NO_ID), (OTHERS, 0, NO_ID)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_the_user_passes() {
        let above = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(above.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        let directory = above.path().join("passage");
        fs::create_dir(&directory).expect("writable");
        fs::write(directory.join("open"), "").expect("writable");
        admit_only(&directory, 64_001).expect("the file system has access control lists");
        assert_eq!(fs::metadata(&directory).expect("there").permissions().mode() & 0o777, 0o710);
        if !nix::unistd::geteuid().is_root() {
            // Nobody else can become another user.
            return;
        }
        let works = |uid, program: &str, path: &Path| {
            Command::new(program).arg(path).uid(uid).gid(0).output().expect("it starts").status.success()
        };
        assert!(works(64_001, "stat", &directory.join("open")) && !works(64_001, "ls", &directory));
        assert!(!works(64_002, "stat", &directory.join("open")), "not even with the group of the directory");
    }
}

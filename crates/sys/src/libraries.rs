//! The files that the dynamic loader has mapped for this program.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::libc;

/// The dynamic loader and the shared libraries of this process. All fields are empty if the program is linked statically.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Libraries {
    /// The loader that the program names.
    pub loader: Option<PathBuf>,
    /// The libraries, under the names by which the loader has found them. The loader may be among them.
    pub all: Vec<PathBuf>,
}

impl Libraries {
    /// Returns the loader and the libraries that are loaded now.
    #[must_use]
    pub fn of_this_process() -> Self {
        let mut visit = Visit::default();
        // SAFETY: the function gets a pointer to `visit`, which outlives the call and which nothing else uses meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut visit).cast()) };
        visit.found
    }
}

/// The objects that were visited.
#[derive(Default)]
struct Visit {
    found: Libraries,
    /// Whether the program, which the loader lists first, was visited.
    after_program: bool,
}

/// Adds a loaded object to the [`Visit`] that `visit` points to.
unsafe extern "C" fn add(object: *mut libc::dl_phdr_info, _: libc::size_t, visit: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the loader passes a valid object, and the pointer of `of_this_process`.
    let (object, visit) = unsafe { (&*object, &mut *visit.cast::<Visit>()) };
    let is_program = !std::mem::replace(&mut visit.after_program, true);
    // glibc gives the program an empty name, and musl the one by which it was called.
    if !is_program && !object.dlpi_name.is_null() {
        // SAFETY: names of objects end with a zero byte.
        let name = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
        // The kernel's object has no path.
        if name.contains(&b'/') && name != b"/proc/self/exe" {
            visit.found.all.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    for number in 0..usize::from(object.dlpi_phnum) {
        // SAFETY: the object has this many headers.
        let header = unsafe { &*object.dlpi_phdr.add(number) };
        // Some libraries are programs too, and name a loader.
        if is_program && header.p_type == libc::PT_INTERP {
            let address = object.dlpi_addr.wrapping_add(header.p_vaddr) as *const libc::c_char;
            // SAFETY: the program's segment with this text is mapped, and the text ends with a zero byte.
            let path = unsafe { CStr::from_ptr(address) }.to_bytes();
            visit.found.loader = Some(PathBuf::from(OsStr::from_bytes(path)));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_and_libraries_of_this_process_are_files() {
        let Libraries { loader, all } = Libraries::of_this_process();
        if cfg!(target_feature = "crt-static") {
            return assert_eq!((loader, all), (None, Vec::new()));
        }
        let loader = loader.expect("a dynamic program names a loader");
        assert!(loader.is_absolute() && loader.is_file(), "{}", loader.display());
        assert!(!all.is_empty());
        let program = std::env::current_exe().and_then(std::fs::canonicalize).expect("this test is a program");
        for library in all {
            assert!(library.is_file(), "{}", library.display());
            assert_ne!(std::fs::canonicalize(&library).expect("a file"), program);
        }
    }
}

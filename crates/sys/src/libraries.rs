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
        let mut found = Self::default();
        // SAFETY: the function gets a pointer to `found`, which outlives the call and which nothing else uses meanwhile.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
        found
    }
}

/// Adds a loaded object to the [`Libraries`] that `found` points to.
unsafe extern "C" fn visit(object: *mut libc::dl_phdr_info, _: libc::size_t, found: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the loader passes a valid object, and the pointer of `of_this_process`.
    let (object, found) = unsafe { (&*object, &mut *found.cast::<Libraries>()) };
    if !object.dlpi_name.is_null() {
        // SAFETY: names of objects end with a zero byte.
        let name = unsafe { CStr::from_ptr(object.dlpi_name) }.to_bytes();
        // The program itself has an empty name, and the kernel's object no path.
        if name.contains(&b'/') {
            found.all.push(PathBuf::from(OsStr::from_bytes(name)));
        }
    }
    for number in 0..usize::from(object.dlpi_phnum) {
        // SAFETY: the object has this many headers.
        let header = unsafe { &*object.dlpi_phdr.add(number) };
        // Only programs name a loader, and the loader lists the program first; some libraries are programs too.
        if header.p_type == libc::PT_INTERP && found.all.is_empty() {
            let address = object.dlpi_addr.wrapping_add(header.p_vaddr) as *const libc::c_char;
            // SAFETY: the program's segment with this text is mapped, and the text ends with a zero byte.
            let path = unsafe { CStr::from_ptr(address) }.to_bytes();
            found.loader = Some(PathBuf::from(OsStr::from_bytes(path)));
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
        for library in all {
            assert!(library.is_file(), "{}", library.display());
        }
    }
}

//! Explains why a script cannot be executed: its interpreter is missing, or the kernel does not find the name of one.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest beginning of a script that is read, in bytes.
const MOST_BYTES: u64 = 256;

/// Explains why a program did not start, with the name of its interpreter if that is missing. `path` is the search path
/// for a name without a slash.
#[must_use]
pub fn explain_start(program: &OsStr, directory: &Path, path: &OsStr, error: &io::Error) -> String {
    if !directory.is_dir() {
        // The error is that of the directory.
        return error.to_string();
    }
    let named = Path::new(program);
    let candidates: Vec<PathBuf> = if named.components().count() > 1 || named.has_root() {
        vec![directory.join(named)]
    } else {
        std::env::split_paths(path).map(|place| directory.join(place).join(named)).collect()
    };
    let Some(script) = candidates.iter().find(|candidate| candidate.is_file()) else { return error.to_string() };
    let mut beginning = Vec::new();
    let _ = File::open(script).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut beginning));
    match error.raw_os_error() {
        Some(nix::libc::ENOENT) => missing_interpreter(&beginning),
        Some(nix::libc::ENOEXEC) if is_marked(&beginning) => missing_interpreter(&beginning),
        _ => error.to_string(),
    }
}

/// Whether a script with this beginning has a byte order mark before its `#!`. The kernel then does not see the `#!`, and
/// shells take the line as a command.
#[must_use]
pub fn is_marked(beginning: &[u8]) -> bool {
    beginning.starts_with(b"\xef\xbb\xbf#!")
}

/// What to do about a script that [is marked](is_marked).
pub const MARKED: &str = "it begins with a byte order mark before `#!`; save it without the mark, or use `sed -i '1s/^\\xef\\xbb\\xbf//' FILE`";

/// Like [`explain_start`], for a program that starts in this process's directory with its `PATH`.
#[must_use]
pub fn explain_start_here(program: &OsStr, error: &io::Error) -> io::Error {
    let path = std::env::var_os("PATH").unwrap_or_default();
    io::Error::new(error.kind(), explain_start(program, Path::new("."), &path, error))
}

/// Names the missing interpreter of a script with this beginning.
#[must_use]
pub fn missing_interpreter(beginning: &[u8]) -> String {
    if is_marked(beginning) {
        return MARKED.to_owned();
    }
    let Some(line) = beginning.strip_prefix(b"#!").and_then(|rest| rest.split(|byte| *byte == b'\n').next()) else {
        return "its interpreter is missing".to_owned();
    };
    let interpreter = line.trim_ascii().split(|byte| b" \t\0".contains(byte)).next().unwrap_or_default();
    let interpreter = String::from_utf8_lossy(interpreter);
    if line.ends_with(b"\r") {
        return format!(
            "its first line ends in a carriage return, so its interpreter `{interpreter}\\r` does not exist; remove the \
             Windows line ends, e.g. with `dos2unix`"
        );
    }
    format!("its interpreter `{interpreter}` does not exist")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_interpreter_is_named() {
        for (beginning, part) in [
            (&b"#!/no/such -x\necho\n"[..], "its interpreter `/no/such` does not exist"),
            (b"#! /no/such\n", "its interpreter `/no/such` does not exist"),
            (b"#!/no/such\0\0", "its interpreter `/no/such` does not exist"),
            (b"#!/bin/sh\r\necho\r\n", "carriage return, so its interpreter `/bin/sh\\r` does not exist"),
            (b"#!/usr/bin/env python3\r\n", "carriage return"),
            (b"\xef\xbb\xbf#!/bin/sh\n", "it begins with a byte order mark"),
            (b"\x7fELF", "its interpreter is missing"),
        ] {
            assert!(missing_interpreter(beginning).contains(part), "{}", missing_interpreter(beginning));
        }
    }

    #[test]
    fn script_is_found_as_a_shell_finds_it() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("win.sh"), "#!/bin/sh\r\n").expect("writable");
        let missing = io::Error::from_raw_os_error(nix::libc::ENOENT);
        let explained =
            |program: &str, path: &OsStr| explain_start(OsStr::new(program), directory.path(), path, &missing);
        for program in ["./win.sh", directory.path().join("win.sh").to_str().expect("text")] {
            assert!(explained(program, OsStr::new("/bin")).contains("carriage return"));
        }
        assert!(explained("win.sh", directory.path().as_os_str()).contains("carriage return"));
        assert_eq!(explained("win.sh", OsStr::new("/bin")), missing.to_string());
        let no_program = io::Error::from_raw_os_error(nix::libc::ENOEXEC);
        for (text, is_explained) in [("\u{feff}#!/bin/sh\n", true), ("#!/bin/sh\n", false)] {
            std::fs::write(directory.path().join("marked.sh"), text).expect("writable");
            let said = explain_start(OsStr::new("./marked.sh"), directory.path(), OsStr::new(""), &no_program);
            assert_eq!(said.contains("byte order mark"), is_explained, "{said}");
        }
    }

    #[test]
    fn missing_directory_is_not_blamed_on_the_script() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("win.sh");
        std::fs::write(&script, "#!/bin/sh\r\n").expect("writable");
        let missing = io::Error::from_raw_os_error(nix::libc::ENOENT);
        let explained = explain_start(script.as_os_str(), &directory.path().join("gone"), OsStr::new(""), &missing);
        assert_eq!(explained, missing.to_string());
    }
}

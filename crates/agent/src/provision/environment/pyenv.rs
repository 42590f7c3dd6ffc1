//! The programs behind the shims of pyenv.
//!
//! A shim is a script that finds out which program to start. That takes about a third of a second, and an agent would ask the
//! shims of all installed versions at its start. Reading the same files here takes no time.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hostler_project::files::read_start;

/// How much of a shim or of pyenv's `version` file is read, in bytes.
const MOST_BYTES: u64 = 4096;

/// The line of a shim with pyenv's directory, before and after the path.
const ROOT: (&str, &str) = ("export PYENV_ROOT=\"", "\"");

/// Returns the program that a shim of pyenv starts outside of projects; `None` if that is a program in another directory of
/// the search path, or none. Returns other programs as they are, and shims in cases that only pyenv can decide.
pub(super) fn behind(program: PathBuf) -> Option<PathBuf> {
    behind_with(program, std::env::var("PYENV_VERSION").ok().filter(|versions| !versions.is_empty()))
}

/// Like [`behind`], with the versions that pyenv's variable names instead of its file.
fn behind_with(program: PathBuf, versions: Option<String>) -> Option<PathBuf> {
    let (Some(root), Some(name)) = (root_of(&program), program.file_name()) else { return Some(program) };
    match versions.map_or_else(|| versions_in_file(&root), Ok).and_then(|versions| chosen(&root, &versions, name)) {
        Ok(found) => found,
        Err(Undecided) => Some(program),
    }
}

/// Pyenv's directory, if `program` is a shim.
fn root_of(program: &Path) -> Option<PathBuf> {
    let directory = program.parent().filter(|directory| directory.ends_with("shims"))?;
    let script = String::from_utf8(read_start(program, MOST_BYTES).ok()?).ok()?;
    let root = script.lines().find_map(|line| line.trim().strip_prefix(ROOT.0)?.strip_suffix(ROOT.1))?;
    let root = PathBuf::from(root);
    (script.starts_with("#!") && directory == root.join("shims")).then_some(root)
}

/// Pyenv itself must decide.
struct Undecided;

/// The content of the file with the chosen versions; empty if there is none.
fn versions_in_file(root: &Path) -> Result<String, Undecided> {
    let file = root.join("version");
    if !file.exists() {
        return Ok(String::new());
    }
    read_start(&file, MOST_BYTES).ok().and_then(|text| String::from_utf8(text).ok()).ok_or(Undecided)
}

/// The program in the first of these versions that has it.
fn chosen(root: &Path, versions: &str, name: &OsStr) -> Result<Option<PathBuf>, Undecided> {
    let mut found = None;
    for version in versions.split([':', '\n', ' ']).filter(|version| !matches!(*version, "" | "system")) {
        let program = directory_of(&root.join("versions"), version).ok_or(Undecided)?.join("bin").join(name);
        if found.is_none() && is_executable(&program) {
            found = Some(program);
        }
    }
    Ok(found)
}

/// The directory of a version, or of the newest release that begins with it: of `3.11.7` for `3.11`.
fn directory_of(versions: &Path, version: &str) -> Option<PathBuf> {
    let exact = versions.join(version);
    if exact.is_dir() {
        return Some(exact);
    }
    let releases = fs::read_dir(versions).ok()?.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let rest: Option<Vec<u32>> =
            name.strip_prefix(version)?.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect();
        Some((rest?, entry.path()))
    });
    releases.max().map(|(_, directory)| directory)
}

/// Whether `file` is a regular file with an execute permission.
pub(super) fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A directory of pyenv with these programs in its versions, and their shims.
    fn pyenv(programs: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory can be made");
        let write = |path: PathBuf, content: &str| {
            fs::create_dir_all(path.parent().expect("it has one")).expect("this test owns the directory");
            fs::write(&path, content).expect("this test owns the directory");
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("this test owns the file");
        };
        for program in programs {
            let (version, name) = program.split_once('/').expect("VERSION/NAME");
            write(root.path().join("versions").join(version).join("bin").join(name), "");
            let shim = format!("#!/usr/bin/env bash\nexport PYENV_ROOT=\"{}\"\nexec pyenv\n", root.path().display());
            write(root.path().join("shims").join(name), &shim);
        }
        root
    }

    /// The program behind a shim, relative to pyenv's directory.
    fn found(root: &Path, name: &str, versions: Option<&str>) -> Option<String> {
        let program = behind_with(root.join("shims").join(name), versions.map(str::to_owned))?;
        Some(program.strip_prefix(root).expect("inside").to_str().expect("text").to_owned())
    }

    #[test]
    fn shims_lead_to_the_programs_of_the_chosen_versions() {
        let installed = ["3.9.18/python3.9", "3.10.2/python3.10", "3.10.13/python3.10", "3.12.0rc1/python3.12"];
        let pyenv = pyenv(&installed);
        let root = pyenv.path();
        assert_eq!(found(root, "python3.9", None), None, "without a file, the system's programs are chosen");
        for (chosen, name, program) in [
            ("3.9.18\n", "python3.9", Some("versions/3.9.18/bin/python3.9")),
            ("3.9.18\n", "python3.10", None),
            ("3.10\n", "python3.10", Some("versions/3.10.13/bin/python3.10")),
            ("3.10.2\n3.9.18\n", "python3.10", Some("versions/3.10.2/bin/python3.10")),
            ("3.9.18:3.10.2", "python3.10", Some("versions/3.10.2/bin/python3.10")),
            ("system\n", "python3.9", None),
            ("system:3.9.18\n", "python3.9", Some("versions/3.9.18/bin/python3.9")),
            // Pyenv knows more names than this module.
            ("3.12\n", "python3.12", Some("shims/python3.12")),
            ("missing\n", "python3.9", Some("shims/python3.9")),
        ] {
            fs::write(root.join("version"), chosen).expect("this test owns the directory");
            assert_eq!(found(root, name, None).as_deref(), program, "{name} with {chosen:?}");
            assert_eq!(found(root, name, Some(chosen)).as_deref(), program, "{name} with the variable {chosen:?}");
        }
    }

    #[test]
    fn other_programs_stay_as_they_are() {
        let pyenv = pyenv(&["3.9.18/python3.9"]);
        let copy = pyenv.path().join("copy");
        fs::copy(pyenv.path().join("shims/python3.9"), &copy).expect("this test owns the directory");
        for program in [copy, "/bin/sh".into(), "/missing".into(), pyenv.path().join("shims")] {
            assert_eq!(behind_with(program.clone(), None), Some(program));
        }
    }
}

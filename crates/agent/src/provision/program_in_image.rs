//! This program in jobs with an image: it starts their ranks and steps, but no image contains it.
//!
//! ```text
//! /run/hostler/lib/…            the machine's dynamic loader, the libraries that this program needs, and this program,
//!                               under each name by which jobs call it
//! /run/hostler/bin/hostler …    scripts by which jobs call it
//! ```
//!
//! The image may have another C library or none, so the program is started through the machine's own loader, which searches
//! only the directory with the machine's libraries. The agent names the loader itself for ranks and steps, so these need nothing
//! of the image. Programs of the job that call `hostler step` or `srun` need the image's `/bin/sh`.
//!
//! The program runs in the sandbox, as the job's user and with the job's rights. An image that takes it over, for example with
//! `/etc/ld.so.preload`, gains nothing that the job does not have.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use hostler_remote::step::{COMMANDS_IN_IMAGE, REMOTE_SHELL};
use hostler_shepherd::Shown;
use hostler_sys::{Libraries, replace_file_unflushed};

/// Directory of the loader, the libraries and the program.
pub const LIBRARIES: &str = "/run/hostler/lib";

/// The names by which jobs call the program. It acts by its name. Of `scontrol`, only what needs no head works, such as
/// `scontrol show hostnames`.
const NAMES: [&str; 4] = ["hostler", "scontrol", "srun", REMOTE_SHELL];

/// Variables that a loader obeys for every program that it starts. Those of a job are for the image's own loader: this program
/// would not start with the image's libraries, or would only be listed.
pub const OF_THE_LOADER: [&str; 4] = ["LD_AUDIT", "LD_DEBUG", "LD_PRELOAD", "LD_TRACE_LOADED_OBJECTS"];

/// Returns the variable that carries the value of one of [`OF_THE_LOADER`] past this program to the programs that it starts.
#[must_use]
pub fn set_aside(name: &str) -> String {
    format!("HOSTLER_{name}")
}

/// What a sandbox shows of this program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramInImage {
    program: PathBuf,
    /// As this process has found them when it started; an upgrade of the system may replace what is behind links.
    libraries: Libraries,
    /// The script that has the names in [`COMMANDS_IN_IMAGE`].
    script: PathBuf,
}

impl ProgramInImage {
    /// Notes the program's libraries, and writes the script into the agent's directory, where only sandboxes show it to users.
    pub(crate) fn prepare(program: &str, directory: &Path) -> io::Result<Self> {
        let libraries = Libraries::of_this_process();
        let closed = directory.join("in-images");
        hostler_sys::create_directory(&closed, 0o700)?;
        let script = closed.join("program");
        // Jobs of all users read and execute it.
        replace_file_unflushed(&script, text(&libraries).as_bytes(), 0o755)?;
        Ok(Self { program: program.into(), libraries, script })
    }

    /// Returns the files to show in the sandbox of a job.
    ///
    /// # Errors
    /// If a file has gone.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<Shown>> {
        let Libraries { loader, all } = &self.libraries;
        let mut files = Vec::new();
        for path in loader.iter().chain(all) {
            let at = in_libraries(path);
            // The loader is usually listed twice.
            if !files.iter().any(|file: &Shown| file.at == at) {
                files.push(Shown { from: real(path)?, at });
            }
        }
        let (program, script) = (real(&self.program)?, real(&self.script)?);
        for name in NAMES {
            files.push(Shown { from: program.clone(), at: format!("{LIBRARIES}/{name}") });
            files.push(Shown { from: script.clone(), at: format!("{COMMANDS_IN_IMAGE}/{name}") });
        }
        Ok(files)
    }

    /// Returns the first words of a command line that starts this program inside.
    pub(crate) fn command(&self) -> Vec<String> {
        let program = format!("{LIBRARIES}/{}", NAMES[0]);
        loading(&self.libraries).into_iter().chain([program]).collect()
    }
}

/// Returns the loader with its options; nothing for a program that needs none.
fn loading(libraries: &Libraries) -> Vec<String> {
    let Some(loader) = &libraries.loader else { return Vec::new() };
    vec![in_libraries(loader), "--library-path".to_owned(), LIBRARIES.to_owned()]
}

/// Where a library is inside. The loader finds it by this name.
fn in_libraries(path: &Path) -> String {
    format!("{LIBRARIES}/{}", path.file_name().unwrap_or_default().to_string_lossy())
}

/// The script that calls the program by the script's own name.
fn text(libraries: &Libraries) -> String {
    let loading: String = loading(libraries).iter().map(|word| format!("{word} ")).collect();
    let setting_aside: String = OF_THE_LOADER
        .iter()
        .map(|name| {
            let later = set_aside(name);
            format!("if [ \"${{{name}+set}}\" ]; then\n    {later}=${name}\n    export {later}\n    unset {name}\nfi\n")
        })
        .collect();
    format!("#!/bin/sh\n{setting_aside}exec {loading}\"{LIBRARIES}/${{0##*/}}\" \"$@\"\n")
}

/// Follows the links of a path: a sandbox shows files by paths without links.
fn real(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot show {} in the job's image; restart the node's agent", path.display());
    let real = path.canonicalize().with_context(cannot)?;
    real.into_os_string().into_string().map_err(|path| anyhow!("the path {} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn program_is_shown_under_its_names_with_loader_and_libraries() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let program = std::env::current_exe().expect("this test is a program");
        let shown = ProgramInImage::prepare(program.to_str().expect("text"), directory.path()).expect("writable");
        let files = shown.files().expect("all are there");
        let mut places: Vec<&str> = files.iter().map(|file| file.at.as_str()).collect();
        places.sort_unstable();
        let count = places.len();
        places.dedup();
        assert_eq!(places.len(), count, "each place once");
        for name in NAMES {
            assert!(places.contains(&format!("{LIBRARIES}/{name}").as_str()));
            assert!(places.contains(&format!("{COMMANDS_IN_IMAGE}/{name}").as_str()));
        }
        let command = shown.command();
        assert_eq!(command.last().expect("the program"), "/run/hostler/lib/hostler");
        if let Some(loader) = &shown.libraries.loader {
            assert!(places.contains(&command[0].as_str()) && command[0].starts_with(LIBRARIES));
            assert!(loader.ends_with(Path::new(&command[0]).file_name().expect("a file")));
        }
    }

    #[test]
    fn script_passes_its_name_its_words_and_variables_of_the_loader_on() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let at = |name: &str| directory.path().join(name);
        let libraries = Libraries { loader: Some("/lib64/ld.so".into()), all: Vec::new() };
        // Instead of the loader, a program that prints what it gets.
        let told = "#!/bin/sh\nprintf '%s|' \"$@\" \"${LD_PRELOAD-none}\" \"${HOSTLER_LD_PRELOAD-none}\" \\
                    \"${LD_AUDIT-none}\" \"${HOSTLER_LD_AUDIT-none}\" \"${HOSTLER_LD_DEBUG-none}\"\n";
        fs::write(at("ld.so"), told).expect("writable");
        let script = text(&libraries).replace(&format!("{LIBRARIES}/ld.so"), &at("ld.so").to_string_lossy());
        fs::write(at("srun"), script).expect("writable");
        for name in ["ld.so", "srun"] {
            fs::set_permissions(at(name), Permissions::from_mode(0o755)).expect("ours");
        }
        let called = Command::new(at("srun")).args(["-n", "a b"]).env("LD_PRELOAD", "").env("LD_AUDIT", "").output();
        let called = called.expect("starts");
        let expected = "--library-path|/run/hostler/lib|/run/hostler/lib/srun|-n|a b|none||none||none|";
        assert_eq!(String::from_utf8_lossy(&called.stdout), expected, "{called:?}");
    }
}

//! The interpreter and the installer of this node, asked once who they are.
//!
//! Answers are kept by path, size, inode and modification time of the program, in memory and in `tools.json`, so a warm
//! environment needs no process even right after an agent restart. Programs that are scripts (pyenv and asdf shims,
//! wrappers) may answer differently without changing themselves, so their answers are kept in memory only.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hostler_model::{Feature, PYTHON_INSTALL, PythonVersions};
use serde::{Deserialize, Serialize};

use super::cache::Settings;
use super::runner::{Ended, Runner, Step, Stopped};
use super::{BuildError, EnvError, files};
use crate::account::act_as;

/// Prints, one a line: the program to start, its version, then everything that makes two interpreters incompatible.
const WHO_ARE_YOU: &str = "\
import os, platform, sys, sysconfig
print(sys.executable)
print('%d.%d' % sys.version_info[:2])
print(os.path.realpath(sys.executable), sys.version.replace('\\n', ' '), sys.implementation.cache_tag,
      sysconfig.get_config_var('SOABI'), sysconfig.get_platform(), *platform.libc_ver(), sep='|')
";

/// How long an interpreter that is a script may take to say its version when the agent starts.
const PATIENCE: Duration = Duration::from_secs(10);

/// What builds an environment on this node.
pub(super) struct Tools {
    pub(super) python: Python,
    /// `None` when there is none, or the settings forbid it: pip does it then.
    pub(super) uv: Option<Uv>,
}

/// Which Python an environment gets.
#[derive(Clone)]
pub(super) enum Python {
    /// One of this node.
    Found(Interpreter),
    /// One of these versions, which uv installs into the environment: no interpreter of this node is of any of them.
    Installed(PythonVersions),
}

impl Python {
    /// What decides whether two environments have the same Python.
    pub(super) fn identity(&self) -> Cow<'_, str> {
        match self {
            Self::Found(found) => Cow::Borrowed(&found.identity),
            Self::Installed(wanted) => Cow::Owned(format!("installed|{wanted}")),
        }
    }
}

impl fmt::Display for Python {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(found) => write!(f, "Python {}", found.version),
            Self::Installed(wanted) => write!(f, "Python {wanted}, which uv installs"),
        }
    }
}

/// A Python interpreter.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Interpreter {
    /// The program itself, behind any shim.
    pub(super) executable: PathBuf,
    /// Such as `3.11`.
    pub(super) version: String,
    /// Real path, full version, ABI and platform tags.
    pub(super) identity: String,
}

impl Interpreter {
    /// Such as `3.11.7`.
    fn full_version(&self) -> &str {
        let version = self.identity.split('|').nth(1).and_then(|text| text.split_whitespace().next());
        version.unwrap_or(&self.version)
    }
}

/// A working uv.
#[derive(Clone)]
pub(super) struct Uv {
    pub(super) program: PathBuf,
    /// As it reports it, such as `uv 0.13.8 (x86_64-unknown-linux-gnu)`.
    pub(super) version: String,
}

/// Finds the tools and remembers their answers.
pub(super) struct ToolBox {
    file: PathBuf,
    answers: Mutex<Answers>,
}

#[derive(Default)]
struct Answers {
    pythons: BTreeMap<PathBuf, Answer<Interpreter>>,
    uvs: BTreeMap<PathBuf, Answer<String>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Answer<T> {
    stamp: Stamp,
    answer: T,
}

/// What changes when a program is replaced.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    len: u64,
    modified_secs: i64,
    modified_nanos: i64,
    script: bool,
}

/// The part of [`Answers`] that survives a restart.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    #[serde(default)]
    pythons: BTreeMap<PathBuf, Answer<Interpreter>>,
    #[serde(default)]
    uvs: BTreeMap<PathBuf, Answer<String>>,
}

impl ToolBox {
    /// A tool box that remembers in `file`. A file that cannot be read is an empty memory.
    pub(super) fn open(file: PathBuf) -> Self {
        let stored: Stored =
            fs::read(&file).ok().and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default();
        Self { file, answers: Mutex::new(Answers { pythons: stored.pythons, uvs: stored.uvs }) }
    }

    /// The tools that `settings` lead to. Starts a process only for programs that have not answered yet.
    ///
    /// # Errors
    /// When the node has no interpreter with a `wanted` version, and uv is missing or not allowed to install one.
    pub(super) fn find(
        &self,
        settings: &Settings,
        wanted: Option<&PythonVersions>,
        runner: &dyn Runner,
    ) -> Result<Tools, EnvError> {
        // Asking under the lock, so that fifty jobs at once start one probe.
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = answers.fitting(settings, wanted, runner);
        let (uv, asked_uv) = answers.uv(settings, runner)?;
        let (python, asked_python) = match (fitting, wanted) {
            (Err(EnvError::PythonVersion { .. }), Some(wanted)) if settings.installs_python() && uv.is_some() => {
                (Python::Installed(wanted.clone()), false)
            }
            (fitting, _) => fitting.map(|(found, asked)| (Python::Found(found), asked))?,
        };
        if asked_python || asked_uv {
            self.store(&answers);
        }
        Ok(Tools { python, uv })
    }

    /// Whether a program is an interpreter of a version that is wanted.
    pub(super) fn fits(
        &self,
        program: &Path,
        settings: &Settings,
        wanted: &PythonVersions,
        runner: &dyn Runner,
    ) -> Result<bool, EnvError> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (python, _) = answers.python(program.to_owned(), settings, runner)?;
        Ok(wanted.fit(python.full_version()))
    }

    fn store(&self, answers: &Answers) {
        let stored = Stored { pythons: lasting(&answers.pythons), uvs: lasting(&answers.uvs) };
        let content = serde_json::to_vec_pretty(&stored).expect("paths of working programs and text are valid JSON");
        if let Err(error) = files::write_atomically(&self.file, &content) {
            // Only costs a probe after the next restart.
            tracing::warn!(file = %self.file.display(), %error, "cannot remember what the interpreters said");
        }
    }
}

impl Answers {
    /// The usual interpreter, or if its version is none of those wanted the newest other one whose is; and whether any had to be asked.
    fn fitting(
        &mut self,
        settings: &Settings,
        wanted: Option<&PythonVersions>,
        runner: &dyn Runner,
    ) -> Result<(Interpreter, bool), EnvError> {
        let usual = find_python(settings).and_then(|program| self.python(program, settings, runner));
        let Some(wanted) = wanted else { return usual };
        let mut has_asked = false;
        let mut found = Vec::new();
        if let Ok((python, asked)) = usual {
            if wanted.fit(python.full_version()) {
                return Ok((python, asked));
            }
            has_asked |= asked;
            found.push(python.full_version().to_owned());
        }
        for program in other_pythons(settings) {
            runner.goes_on().map_err(|stopped| stopped.explain(Path::new("/")))?;
            // One that does not work, such as a shim for a version that is not there, is none.
            let Ok((python, asked)) = self.python(program, settings, runner) else { continue };
            if wanted.fit(python.full_version()) {
                return Ok((python, asked || has_asked));
            }
            has_asked |= asked;
            found.push(python.full_version().to_owned());
        }
        found.dedup();
        Err(EnvError::PythonVersion { wanted: wanted.to_string(), found, lacks_uv: settings.installs_python() })
    }

    /// What an interpreter says of itself, and whether it had to be asked.
    fn python(
        &mut self,
        program: PathBuf,
        settings: &Settings,
        runner: &dyn Runner,
    ) -> Result<(Interpreter, bool), EnvError> {
        let known = self.pythons.get(&program);
        // The job chose the search path, and the program named its executable.
        let look = || (stamp(&program), known.is_some_and(|known| known.answer.executable.exists()));
        let (stamp, is_there) = act_as(settings.builder(), look).unwrap_or_default();
        if let (Some(known), Some(stamp)) = (known, &stamp)
            && known.stamp == *stamp
            && is_there
        {
            return Ok((known.answer.clone(), false));
        }
        let answer = ask_python(&program, settings, runner)?;
        if let Some(stamp) = stamp {
            self.pythons.insert(program, Answer { stamp, answer: answer.clone() });
        }
        Ok((answer, true))
    }

    /// A uv that does not answer is no uv: pip will do, and the log says why.
    fn uv(&mut self, settings: &Settings, runner: &dyn Runner) -> Result<(Option<Uv>, bool), EnvError> {
        if !settings.use_uv {
            return Ok((None, false));
        }
        let look = || which("uv", &settings.search_path).map(|program| (stamp(&program), program));
        let found = act_as(settings.builder(), look);
        let Ok(Some((stamp, program))) = found else { return Ok((None, false)) };
        if let (Some(known), Some(stamp)) = (self.uvs.get(&program), &stamp)
            && known.stamp == *stamp
        {
            return Ok((Some(Uv { program, version: known.answer.clone() }), false));
        }
        match ask(Step::new(&program, ["--version"]), settings, runner)? {
            Ok(answer) => {
                // A shim may say something before.
                let version = answer.lines().last().unwrap_or_default().trim().to_owned();
                if let Some(stamp) = stamp {
                    self.uvs.insert(program.clone(), Answer { stamp, answer: version.clone() });
                }
                Ok((Some(Uv { program, version }), true))
            }
            Err(problem) => {
                tracing::warn!(program = %program.display(), problem, "uv does not work, environments are built with pip");
                Ok((None, false))
            }
        }
    }
}

/// The first executable file called `name` on `search_path`.
pub(super) fn which(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| is_executable(file))
}

/// Whether `file` is a regular file that someone may execute.
pub(super) fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The interpreter, among those that the builder can reach.
fn find_python(settings: &Settings) -> Result<PathBuf, EnvError> {
    let problem = |source| EnvError::Io { action: "act as the user for", path: "python3".into(), source };
    act_as(settings.builder(), || choose_python(settings)).map_err(problem)?
}

/// All interpreters that are named for a version, among those that the builder can reach, the newest first. Where one is configured there
/// is no other.
fn other_pythons(settings: &Settings) -> Vec<PathBuf> {
    if settings.python.is_some() {
        return Vec::new();
    }
    act_as(settings.builder(), || versioned_pythons(&settings.search_path)).unwrap_or_default()
}

/// The programs `python3.N` of a search path, the newest first. One name may be there several times: a shim of pyenv's for a version that is
/// switched off must not hide the system's.
fn versioned_pythons(search_path: &OsStr) -> Vec<PathBuf> {
    let mut found: Vec<(Reverse<u32>, PathBuf)> = Vec::new();
    for directory in std::env::split_paths(search_path).filter(|directory| directory.is_absolute()) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let minor = name.to_str().and_then(|name| name.strip_prefix("python3.")?.parse().ok());
            if let Some(minor) = minor
                && is_executable(&entry.path())
            {
                found.push((Reverse(minor), entry.path()));
            }
        }
    }
    // Stable: within a version, the order of the search path.
    found.sort_by_key(|(minor, _)| *minor);
    found.into_iter().map(|(_, path)| path).collect()
}

/// The features that say which versions of Python this node has: `python3.11`. A name is taken for the truth where it is that of a program;
/// a script, such as a shim of pyenv's, is asked. One more feature says that uv may install others.
pub(super) fn python_features(settings: &Settings) -> BTreeSet<Feature> {
    let mut programs = match &settings.python {
        Some(python) => vec![python.clone()],
        None => versioned_pythons(&settings.search_path),
    };
    programs.extend(choose_python(settings).ok());
    let questions: Vec<_> =
        programs.into_iter().map(|program| thread::spawn(move || minor_version(&program))).collect();
    let versions = questions.into_iter().filter_map(|question| question.join().ok().flatten());
    let mut features: BTreeSet<Feature> =
        versions.filter_map(|version| format!("python{version}").parse().ok()).collect();
    if settings.installs_python() {
        match which("uv", &settings.search_path) {
            Some(_) => drop(features.insert(PYTHON_INSTALL.parse().expect("it is a feature"))),
            None => tracing::warn!("cannot install Python for projects: uv is not on the agent's PATH"),
        }
    }
    features
}

/// `3.11`, of the interpreter behind a program.
fn minor_version(program: &Path) -> Option<String> {
    let real = fs::canonicalize(program).ok()?;
    if let Some(version) =
        real.file_name()?.to_str()?.strip_prefix("python").filter(|version| version.starts_with("3."))
        && !stamp(&real)?.script
    {
        return Some(version.to_owned());
    }
    let mut child = Command::new(program)
        .args(["-I", "-c", WHO_ARE_YOU])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().ok()?.is_none() {
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let mut answer = String::new();
    child.stdout.take()?.read_to_string(&mut answer).ok()?;
    answer.lines().rev().nth(1).map(|line| line.trim().to_owned())
}

fn choose_python(settings: &Settings) -> Result<PathBuf, EnvError> {
    match &settings.python {
        Some(python) if is_executable(python) => Ok(python.clone()),
        Some(python) => Err(EnvError::NoPython { searched: python.display().to_string() }),
        None => which("python3", &settings.search_path)
            .or_else(|| which("python", &settings.search_path))
            .ok_or_else(|| EnvError::NoPython { searched: settings.search_path.to_string_lossy().into_owned() }),
    }
}

fn ask_python(program: &Path, settings: &Settings, runner: &dyn Runner) -> Result<Interpreter, EnvError> {
    let broken = |problem| EnvError::BrokenTool { program: program.to_owned(), problem };
    let answer = ask(Step::new(program, ["-I", "-c", WHO_ARE_YOU]), settings, runner)?.map_err(broken)?;
    // A shim may say something before.
    let lines: Vec<&str> = answer.lines().collect();
    match lines[lines.len().saturating_sub(3)..] {
        [executable, version, identity] if !executable.is_empty() => Ok(Interpreter {
            executable: executable.into(),
            version: version.to_owned(),
            identity: identity.to_owned(),
        }),
        _ => Err(broken(format!("asked for its version, it answered {answer:?}"))),
    }
}

/// Runs a short question in a neutral folder, where no project's version file bends a shim's answer. The inner error is what the program
/// has to say for itself.
fn ask(step: Step, settings: &Settings, runner: &dyn Runner) -> Result<Result<String, String>, EnvError> {
    const MOST_BYTES: usize = 64 << 10;
    let mut answer = Vec::new();
    let mut take = |bytes: &[u8]| answer.extend(bytes.iter().take(MOST_BYTES.saturating_sub(answer.len())));
    let ended = runner.run(&settings.as_builder(step), &mut take);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match ended {
        Ok(Ended::Exited(0)) => Ok(Ok(answer)),
        Ok(Ended::OutOfMemory { limit_bytes }) => {
            Err(BuildError::OutOfMemory { command: "python".into(), limit_bytes, output: answer }.into())
        }
        Ok(ended) => Ok(Err(format!("{ended}: {}", answer.trim()))),
        Err(Stopped::System(error)) => Ok(Err(error.to_string())),
        Err(stopped) => Err(stopped.explain(Path::new("/"))),
    }
}

/// `None` of what is no regular file; never waits for one. A program that may only be executed is taken for no script.
fn stamp(program: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(program).ok().filter(fs::Metadata::is_file)?;
    let script = files::read_start(program, 2).is_ok_and(|start| start == b"#!");
    Some(Stamp {
        inode: metadata.ino(),
        len: metadata.len(),
        modified_secs: metadata.mtime(),
        modified_nanos: metadata.mtime_nsec(),
        script,
    })
}

fn lasting<T: Clone>(answers: &BTreeMap<PathBuf, Answer<T>>) -> BTreeMap<PathBuf, Answer<T>> {
    answers.iter().filter(|(_, known)| !known.stamp.script).map(|(path, known)| (path.clone(), known.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_program_is_looked_at_without_waiting() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let file = |name: &str| folder.path().join(name);
        fs::write(file("script"), "#!/bin/sh\n").expect("ours");
        fs::write(file("program"), "#").expect("ours");
        mkfifo(&file("pipe"), Mode::S_IRWXU).expect("ours");
        symlink(file("pipe"), file("link")).expect("ours");
        assert!(stamp(&file("script")).expect("a file").script);
        assert!(!stamp(&file("program")).expect("a file").script);
        assert!(stamp(&file("pipe")).is_none() && stamp(&file("link")).is_none());
        assert!(stamp(folder.path()).is_none() && stamp(&file("missing")).is_none());
    }
}

//! Interpreters and installers of this node, with cached answers about their versions.
//!
//! Answers are cached by path, size, inode and modification time of the program, in memory and in `tools.json`. A ready
//! environment therefore needs no process, even after a restart of the agent. Scripts (pyenv and asdf shims, wrappers)
//! may change their answer without changing themselves, so their answers are cached in memory only. The programs behind shims of
//! pyenv are found without asking, which takes a third of a second for each.

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
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use hostler_model::{Feature, PYTHON_INSTALL, PythonVersions};
use hostler_project::{Stopped, files};
use serde::{Deserialize, Serialize};

use super::cause;
use super::error::{BuildError, EnvError, explain};
use super::runner::{Ended, Runner, Step};
use super::settings::Settings;
use super::uv;
use crate::mutex::lock;
use crate::rights::act_as;

/// Prints, one per line: the program to start, its version, and everything that makes interpreters incompatible.
const VERSION_QUERY: &str = "\
import os, platform, sys, sysconfig
print(sys.executable)
print('%d.%d' % sys.version_info[:2])
print(os.path.realpath(sys.executable), sys.version.replace('\\n', ' '), sys.implementation.cache_tag,
      sysconfig.get_config_var('SOABI'), sysconfig.get_platform(), *platform.libc_ver(), sep='|')
";

/// Permissions of `tools.json`.
const MODE: u32 = 0o600;

/// Timeout for the version query of an interpreter script at the start of the agent.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Tools {
    pub(super) python: Python,
    pub(super) uv: Uv,
}

/// The interpreter for an environment: installed on this node, or installed by uv.
#[derive(Clone)]
pub(super) enum Python {
    /// An interpreter of this node.
    Found(Interpreter),
    /// An interpreter that uv installs in one of these versions, because this node has none of them.
    Installed(PythonVersions),
}

impl Python {
    /// Text that differs between interpreters that cannot replace each other.
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
            Self::Installed(wanted) => write!(f, "Python {wanted} (installed by uv)"),
        }
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Interpreter {
    /// Path of the interpreter itself, also if a shim was queried.
    pub(super) executable: PathBuf,
    /// Minor version, e.g. `3.11`.
    pub(super) version: String,
    /// Real path, full version, ABI and platform tags.
    pub(super) identity: String,
}

impl Interpreter {
    /// Full version, e.g. `3.11.7`.
    fn full_version(&self) -> &str {
        let version = self.identity.split('|').nth(1).and_then(|text| text.split_whitespace().next());
        version.unwrap_or(&self.version)
    }
}

/// A uv that works.
#[derive(Clone)]
pub(super) struct Uv {
    pub(super) program: PathBuf,
    /// Version as reported, e.g. `uv 0.13.8 (x86_64-unknown-linux-gnu)`.
    pub(super) version: String,
}

/// Finds the interpreters and uv, and caches their answers about their versions.
pub(super) struct ToolBox {
    file: PathBuf,
    answers: Mutex<Answers>,
}

#[derive(Default, Serialize, Deserialize)]
struct Answers {
    #[serde(default)]
    pythons: BTreeMap<PathBuf, Answer<Interpreter>>,
    #[serde(default)]
    uvs: BTreeMap<PathBuf, Answer<String>>,
    /// Whether some of them are not in the file.
    #[serde(skip)]
    has_new: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct Answer<T> {
    stamp: Stamp,
    answer: T,
}

/// File properties that change when a program is replaced.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    len: u64,
    modified_secs: i64,
    modified_nanos: i64,
    script: bool,
}

impl ToolBox {
    /// Opens the cache in `file`. An unreadable file counts as empty.
    pub(super) fn open(file: PathBuf) -> Self {
        // Earlier releases let all users read the file. A missing file is not an error.
        let _ = fs::set_permissions(&file, fs::Permissions::from_mode(MODE));
        let stored = fs::read(&file).ok().and_then(|content| serde_json::from_slice(&content).ok());
        Self { file, answers: Mutex::new(stored.unwrap_or_default()) }
    }

    /// The tools selected by `settings`. Starts processes only for programs without a cached answer, and gets uv if the node
    /// has none.
    ///
    /// # Errors
    /// If no interpreter has a `wanted` version and uv may not install one, or if uv is missing and cannot be installed.
    pub(super) fn find(
        &self,
        settings: &Settings,
        wanted: Option<&PythonVersions>,
        runner: &dyn Runner,
        log: &mut dyn FnMut(&[u8]),
    ) -> Result<Tools, EnvError> {
        let python = self.answer(|answers| match (answers.fitting(settings, wanted, runner), wanted) {
            (Err(EnvError::PythonVersion { .. }), Some(wanted)) if settings.installs_python() => {
                Ok(Python::Installed(wanted.clone()))
            }
            (fitting, _) => fitting.map(Python::Found),
        })?;
        if let Some(uv) = self.uv(settings, runner)? {
            return Ok(Tools { python, uv });
        }
        uv::get(&settings.kept_uv, settings, find_python, runner, log)?;
        let why = || format!("{} does not work and should be removed", settings.kept_uv.display());
        let uv = self.uv(settings, runner)?.ok_or_else(|| EnvError::NoUv { why: why() })?;
        Ok(Tools { python, uv })
    }

    /// The uv to use; `None` if the node has none that works.
    ///
    /// # Errors
    /// If the configured uv does not work, or the job ends.
    pub(super) fn uv(&self, settings: &Settings, runner: &dyn Runner) -> Result<Option<Uv>, EnvError> {
        self.answer(|answers| answers.uv(settings, runner))
    }

    /// Whether the interpreter `program` has a `wanted` version.
    pub(super) fn fits(
        &self,
        program: &Path,
        settings: &Settings,
        wanted: &PythonVersions,
        runner: &dyn Runner,
    ) -> Result<bool, EnvError> {
        let python = self.answer(|answers| answers.python(program.to_owned(), settings, runner))?;
        Ok(wanted.fit(python.full_version()))
    }

    /// Answers a question from the cache, and stores new answers of programs.
    fn answer<T>(&self, ask: impl FnOnce(&mut Answers) -> Result<T, EnvError>) -> Result<T, EnvError> {
        // Query under the lock, so that concurrent jobs start only one process.
        let mut answers = lock(&self.answers);
        let answer = ask(&mut answers);
        if std::mem::take(&mut answers.has_new) {
            self.store(&answers);
        }
        answer
    }

    fn store(&self, answers: &Answers) {
        let stored = Answers { pythons: lasting(&answers.pythons), uvs: lasting(&answers.uvs), has_new: false };
        let content = serde_json::to_vec_pretty(&stored).expect("paths of working programs and text are valid JSON");
        if let Err(error) = hostler_sys::replace_file(&self.file, &content, MODE) {
            // Costs only a query after the next restart.
            tracing::warn!(file = %self.file.display(), %error, "cannot store the properties of the interpreters");
        }
    }
}

impl Answers {
    /// The default interpreter if it has a wanted version, or else the newest other interpreter that has one.
    fn fitting(
        &mut self,
        settings: &Settings,
        wanted: Option<&PythonVersions>,
        runner: &dyn Runner,
    ) -> Result<Interpreter, EnvError> {
        let usual = find_python(settings).and_then(|program| self.python(program, settings, runner));
        let Some(wanted) = wanted else { return usual };
        let mut found = Vec::new();
        if let Ok(python) = usual {
            if wanted.fit(python.full_version()) {
                return Ok(python);
            }
            found.push(python.full_version().to_owned());
        }
        for program in other_pythons(settings) {
            runner.goes_on().map_err(|stopped| explain(stopped, Path::new("/")))?;
            // Skip interpreters that do not work, such as shims of missing versions.
            let Ok(python) = self.python(program, settings, runner) else { continue };
            if wanted.fit(python.full_version()) {
                return Ok(python);
            }
            found.push(python.full_version().to_owned());
        }
        found.dedup();
        Err(EnvError::PythonVersion { wanted: wanted.to_string(), found })
    }

    /// Returns the properties of an interpreter.
    fn python(&mut self, program: PathBuf, settings: &Settings, runner: &dyn Runner) -> Result<Interpreter, EnvError> {
        let known = self.pythons.get(&program);
        // With the user's rights: the job determines the search path, and the program its executable.
        let look = || (stamp(&program), known.is_some_and(|known| known.answer.executable.exists()));
        let (stamp, is_there) = act_as(settings.builder(), look).unwrap_or_default();
        if let (Some(known), Some(stamp)) = (known, &stamp)
            && known.stamp == *stamp
            && is_there
        {
            return Ok(known.answer.clone());
        }
        let answer = ask_python(&program, settings, runner)?;
        if let Some(stamp) = stamp {
            self.pythons.insert(program, Answer { stamp, answer: answer.clone() });
            self.has_new = true;
        }
        Ok(answer)
    }

    /// The configured uv, or else the first that works: on the search path, or the one that the agent keeps.
    fn uv(&mut self, settings: &Settings, runner: &dyn Runner) -> Result<Option<Uv>, EnvError> {
        let search_path = settings.uv_search_path.as_ref().unwrap_or(&settings.search_path);
        let kept = Some(settings.kept_uv.clone()).filter(|kept| kept.exists());
        let look = || -> Vec<_> {
            let programs = match &settings.uv {
                Some(uv) => vec![uv.clone()],
                None => executables("uv", search_path).filter_map(behind_shim).chain(kept).collect(),
            };
            programs.into_iter().map(|program| (stamp(&program), program)).collect()
        };
        for (stamp, program) in act_as(settings.builder(), look).unwrap_or_default() {
            if let (Some(known), Some(stamp)) = (self.uvs.get(&program), &stamp)
                && known.stamp == *stamp
            {
                return Ok(Some(Uv { program, version: known.answer.clone() }));
            }
            match ask(Step::new(&program, ["--version"]), settings, runner)? {
                Ok(answer) => {
                    // A shim may print other lines first.
                    let version = answer.lines().last().unwrap_or_default().trim().to_owned();
                    if let Some(stamp) = stamp {
                        self.uvs.insert(program.clone(), Answer { stamp, answer: version.clone() });
                        self.has_new = true;
                    }
                    return Ok(Some(Uv { program, version }));
                }
                Err(problem) if settings.uv.is_some() => return Err(EnvError::BrokenTool { program, problem }),
                Err(problem) => tracing::warn!(program = %program.display(), problem, "uv does not work"),
            }
        }
        Ok(None)
    }
}

/// The first executable file called `name` on `search_path`.
pub(super) fn which(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    executables(name, search_path).next()
}

/// Like [`which`], but returns the program behind a shim of pyenv.
fn installed(name: &str, search_path: &OsStr) -> Option<PathBuf> {
    executables(name, search_path).find_map(behind_shim)
}

/// The program that a shim of pyenv starts outside of projects; `None` if that is a program in another directory of the
/// search path, or none. Other programs, and shims in cases that only pyenv can decide, are returned as they are.
fn behind_shim(program: PathBuf) -> Option<PathBuf> {
    let versions = std::env::var("PYENV_VERSION").ok().filter(|versions| !versions.is_empty());
    shim_target(&program, versions).unwrap_or(Some(program))
}

/// Finds the program that a shim of pyenv starts. `versions` is the content of `PYENV_VERSION`. Returns `None` if `program` is
/// not a shim or only pyenv can tell, and `Some(None)` if no chosen version has such a program.
fn shim_target(program: &Path, versions: Option<String>) -> Option<Option<PathBuf>> {
    let root = program.parent().filter(|directory| directory.ends_with("shims"))?.parent()?;
    let versions = match versions {
        Some(versions) => versions,
        None if root.join("versions").is_dir() && !root.join("version").exists() => String::new(),
        None => String::from_utf8(files::read_start(&root.join("version"), 4096).ok()?).ok()?,
    };
    let versions = versions.split([':', '\n', ' ']).filter(|version| !matches!(*version, "" | "system"));
    let directories: Vec<PathBuf> = versions.map(|version| root.join("versions").join(version)).collect();
    let program = |directory: &PathBuf| directory.join("bin").join(program.file_name().unwrap_or_default());
    let is_clear = directories.iter().all(|directory| directory.is_dir());
    is_clear.then(|| directories.iter().map(program).find(|program| is_executable(program)))
}

/// The executable files called `name` on `search_path`, in order.
fn executables(name: &str, search_path: &OsStr) -> impl Iterator<Item = PathBuf> {
    std::env::split_paths(search_path)
        .filter(|dir| dir.is_absolute())
        .map(move |dir| dir.join(name))
        .filter(|file| is_executable(file))
}

/// The first of these programs found on a search path; behind a shim of pyenv, the program itself.
pub(crate) fn first_on_path(names: &[&str], search_path: &OsStr) -> Option<PathBuf> {
    names.iter().find_map(|name| installed(name, search_path))
}

/// Whether `file` is a regular file with an execute permission.
pub(super) fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The default interpreter, if the building user can reach it.
fn find_python(settings: &Settings) -> Result<PathBuf, EnvError> {
    let problem = |source| EnvError::Io { action: "switch to the build user to find", path: "python3".into(), source };
    act_as(settings.builder(), || choose_python(settings)).map_err(problem)?
}

/// All interpreters with a version in their name that the building user can reach, newest first. Empty if an
/// interpreter is configured.
fn other_pythons(settings: &Settings) -> Vec<PathBuf> {
    if settings.python.is_some() {
        return Vec::new();
    }
    act_as(settings.builder(), || versioned_pythons(&settings.search_path)).unwrap_or_default()
}

/// The programs `python3.N` on a search path, newest first. A name may occur several times: a shim of a disabled version must
/// not hide the system's interpreter.
fn versioned_pythons(search_path: &OsStr) -> Vec<PathBuf> {
    let mut found: Vec<(Reverse<u32>, PathBuf)> = Vec::new();
    for directory in std::env::split_paths(search_path).filter(|directory| directory.is_absolute()) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let minor = name.to_str().and_then(|name| name.strip_prefix("python3.")?.parse().ok());
            if let Some(minor) = minor
                && is_executable(&entry.path())
                && let Some(program) = behind_shim(entry.path())
            {
                found.push((Reverse(minor), program));
            }
        }
    }
    // A stable sort keeps the order of the search path within a version.
    found.sort_by_key(|(minor, _)| *minor);
    found.into_iter().map(|(_, path)| path).collect()
}

/// Features for the Python versions of this node, e.g. `python3.11`. The name of a binary determines its version; a
/// script, such as a shim of asdf, is queried. One more feature states that uv may install other versions.
pub fn python_features(settings: &Settings) -> BTreeSet<Feature> {
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
        features.insert(PYTHON_INSTALL.parse().expect("the constant is a valid feature"));
    }
    features
}

/// Minor version of the interpreter behind a program, e.g. `3.11`.
fn minor_version(program: &Path) -> Option<String> {
    let real = fs::canonicalize(program).ok()?;
    if let Some(version) =
        real.file_name()?.to_str()?.strip_prefix("python").filter(|version| version.starts_with("3."))
        && !stamp(&real)?.script
    {
        return Some(version.to_owned());
    }
    let mut child = Command::new(program)
        .args(["-I", "-c", VERSION_QUERY])
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
        None => first_on_path(&["python3", "python"], &settings.search_path)
            .ok_or_else(|| EnvError::NoPython { searched: settings.search_path.to_string_lossy().into_owned() }),
    }
}

fn ask_python(program: &Path, settings: &Settings, runner: &dyn Runner) -> Result<Interpreter, EnvError> {
    let broken = |problem| EnvError::BrokenTool { program: program.to_owned(), problem };
    let answer = ask(Step::new(program, ["-I", "-c", VERSION_QUERY]), settings, runner)?.map_err(broken)?;
    // A shim may print other lines first.
    let lines: Vec<&str> = answer.lines().collect();
    match lines[lines.len().saturating_sub(3)..] {
        [executable, version, identity] if !executable.is_empty() => Ok(Interpreter {
            executable: executable.into(),
            version: version.to_owned(),
            identity: identity.to_owned(),
        }),
        _ => Err(broken(format!("unexpected answer to a version query: {answer:?}"))),
    }
}

/// Runs a short query in `/`, where no version file of a project affects a shim. The inner `Err` is the queried
/// program's own error.
fn ask(step: Step, settings: &Settings, runner: &dyn Runner) -> Result<Result<String, String>, EnvError> {
    const MOST_BYTES: usize = 64 << 10;
    let mut answer = Vec::new();
    let mut take = |bytes: &[u8]| answer.extend(bytes.iter().take(MOST_BYTES.saturating_sub(answer.len())));
    let ended = runner.run(&settings.as_builder(step), &mut take);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    match ended {
        Ok(Ended::Exited(0)) => Ok(Ok(answer)),
        Ok(Ended::OutOfMemory { limit_bytes }) => {
            Err(BuildError::OutOfMemory { command: "python".into(), limit_bytes }.into())
        }
        Ok(ended) => Ok(Err(format!("{ended}: {}", cause::of(&answer)))),
        Err(Stopped::System(error)) => Ok(Err(error.to_string())),
        Err(stopped) => Err(explain(stopped, Path::new("/"))),
    }
}

/// Returns the properties of a program; `None` for anything but a regular file. Never blocks. An executable that cannot
/// be read does not count as a script.
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
    fn shims_of_pyenv_lead_to_the_programs_of_the_chosen_versions() {
        let pyenv = tempfile::tempdir().expect("a temporary directory can be made");
        let path = |name: &str| pyenv.path().join(name);
        for program in ["versions/3.9.18/bin/python3.9", "versions/3.10.2/bin/python3.10"].map(path) {
            fs::create_dir_all(program.parent().expect("it has one")).expect("this test owns the directory");
            symlink("/bin/sh", program).expect("this test owns the directory");
        }
        let target = |name: &str, versions: Option<&str>| shim_target(&path(name), versions.map(str::to_owned));
        assert_eq!(target("shims/python3.9", None), Some(None), "without a file, pyenv starts the system's programs");
        assert_eq!(target("bin/python3.9", Some("3.9.18")), None, "no shim");
        let found = Some(path("versions/3.9.18/bin/python3.9"));
        for (versions, expected) in [
            ("3.9.18\n", Some(found.clone())),
            ("3.10.2\n", Some(None)),
            ("3.10.2:3.9.18", Some(found.clone())),
            ("system\n3.9.18\n", Some(found)),
            // pyenv knows more names of versions.
            ("3.9\n", None),
        ] {
            fs::write(path("version"), versions).expect("this test owns the directory");
            assert_eq!(target("shims/python3.9", None), expected, "{versions:?}");
            assert_eq!(target("shims/python3.9", Some(versions)), expected, "the variable {versions:?}");
        }
    }

    #[test]
    fn stamp_reads_programs_without_blocking() {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let file = |name: &str| folder.path().join(name);
        fs::write(file("script"), "#!/bin/sh\n").expect("this test owns the path");
        fs::write(file("program"), "#").expect("this test owns the path");
        mkfifo(&file("pipe"), Mode::S_IRWXU).expect("this test owns the path");
        symlink(file("pipe"), file("link")).expect("this test owns the path");
        assert!(stamp(&file("script")).expect("a file").script);
        assert!(!stamp(&file("program")).expect("a file").script);
        assert!(stamp(&file("pipe")).is_none() && stamp(&file("link")).is_none());
        assert!(stamp(folder.path()).is_none() && stamp(&file("missing")).is_none());
    }
}

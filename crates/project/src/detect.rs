//! Detection of a project's requirements from its files.
//!
//! The first source with requirements is used:
//!
//! 1. inline metadata of the entry point (`# /// script`, PEP 723), which apply to this script only, and which are used
//!    even if they require nothing;
//! 2. `uv.lock` with its `pyproject.toml`, the most exact source;
//! 3. `pylock.toml`, the lock file of the standard;
//! 4. `requirements.txt`, with every file it includes; written for deployment, so it precedes
//! 5. the loose requirements of a package: `[project]` or `[tool.poetry]` in `pyproject.toml`, `setup.cfg`, `setup.py`.
//!
//! [`survey`] names the files that are not among these sources.
//!
//! Requirements inside the folder (`-e .`, `./pkg`, `./wheels/x.whl`) add the content of these files to the
//! fingerprint. They are installed as copies and never as editable: the environment outlives the job's folder, and the
//! next job with the same content has another folder.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hostler_model::{Environment, PythonVersions, VersionFile};

use crate::error::{Bound, GoesOn, IoContext, ProjectError, Stopped};
use crate::files;
use crate::package::{hash_own_package, own_package, setup_cfg_python};
use crate::requirements::{Line, List, RequirementsReader};
use crate::unread::{self, Unread};
use crate::variables::{is_of_access, is_of_builds};
use crate::{poetry, pylock};

/// Size limit for `pyproject.toml`, for a version file, and for a script up to the end of its metadata, in bytes.
pub const PROJECT_BYTES: u64 = 4 << 20;

/// Size limit for a `uv.lock`, in bytes.
pub const LOCK_BYTES: u64 = 16 << 20;

/// Maximum total size of the files whose content is part of a fingerprint, in bytes.
const HASHED_BYTES: u64 = 4 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Inline metadata of the entry point.
    Script,
    /// `uv.lock` and `pyproject.toml`.
    UvLock,
    /// `pylock.toml`.
    Pylock,
    /// `requirements.txt` and the files it includes.
    RequirementsTxt,
    /// The dependencies of a package, from `pyproject.toml`, `setup.cfg` or `setup.py`.
    Pyproject,
    /// Only a version of Python, no packages.
    Python,
}

/// The requirements of one project. Valid as long as the project folder does not change.
#[derive(Clone, Debug)]
pub struct Requirements {
    kind: Kind,
    project_dir: PathBuf,
    plan: Plan,
    fingerprint: blake3::Hash,
    python: Option<PythonVersions>,
    /// Variables that the requirements name as `${NAME}`.
    pub(crate) named: BTreeSet<String>,
    /// Variables of the job for its build.
    variables: Environment,
}

impl Requirements {
    pub(crate) fn new(kind: Kind, project: &Project<'_>, plan: Plan, fingerprint: &blake3::Hasher) -> Self {
        Self {
            kind,
            project_dir: project.root.clone(),
            plan,
            fingerprint: fingerprint.finalize(),
            python: None,
            named: BTreeSet::new(),
            variables: Environment::new(),
        }
    }

    /// Adds the variables of a job that a build needs: those that configure it, and those that requirements name.
    #[must_use]
    pub fn with_variables(mut self, of_job: &Environment) -> Self {
        let counts = |name: &str| is_of_builds(name) || is_of_access(name) || self.names_variable(name);
        let kept = of_job.iter().filter(|(name, _)| counts(name));
        self.variables = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
        self
    }

    pub fn variables(&self) -> &Environment {
        &self.variables
    }

    /// Whether the requirements name this variable as `${NAME}`.
    pub fn names_variable(&self, name: &str) -> bool {
        self.named.contains(name)
    }

    /// Accepted Python versions; `None` for all.
    pub fn python(&self) -> Option<&PythonVersions> {
        self.python.as_ref()
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Hash of the requirements, independent of comments, whitespace, file names and the folder's path.
    pub fn fingerprint(&self) -> blake3::Hash {
        self.fingerprint
    }

    pub fn project_dir(&self) -> &Path {
        &self.project_dir
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// What to install.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Lines of a requirements file.
    List(List),
    /// `pyproject.toml`, which uv reads itself, and its dependencies as lines for pip.
    Pyproject { list: List, whole_tree: bool, own: OwnPackage },
    /// `uv.lock` and `pyproject.toml`. `whole_tree` means that they refer to other files of the folder.
    Lock { whole_tree: bool, own: OwnPackage },
}

/// How the project itself is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnPackage {
    /// The project is not installed: it is not a package.
    None,
    /// Editable: the environment has its metadata and scripts, and each job imports its own copy of the source. The source
    /// is not part of the fingerprint. With setuptools, the names of the top-level modules are.
    Linked,
    /// As a copy, because the build may compile or compute something. The whole folder is part of the fingerprint.
    Copied,
}

/// Reads the requirements of the project in `project_dir`; `Ok(None)` if it has none.
///
/// `entrypoint` is a path in the folder. If it is a Python file, its inline metadata counts. Reading large files takes
/// long, so `goes_on` is called often meanwhile.
pub fn detect(project_dir: &Path, entrypoint: &str, goes_on: GoesOn<'_>) -> Result<Option<Requirements>, ProjectError> {
    let project = Project::open(project_dir, Purpose::Build(goes_on))?;
    let python = project.python_wanted(entrypoint)?;
    Ok(match (packages(&project, entrypoint)?, python) {
        (Some(found), python) => Some(Requirements { python, ..found }),
        (None, Some(python)) => {
            let plan = Plan::List(List::default());
            let found = Requirements::new(Kind::Python, &project, plan, &fingerprint_of(Kind::Python));
            Some(Requirements { python: Some(python), ..found })
        }
        (None, None) => None,
    })
}

/// What a project folder requires, as far as a submission must know it.
#[derive(Debug)]
pub struct Survey {
    /// Files and folders of the project that the requirements refer to, as paths relative to the project.
    pub referred: Vec<PathBuf>,
    /// Accepted Python versions; `None` for all.
    pub python: Option<PythonVersions>,
    /// What names packages or Python versions that the job does not get.
    pub unread: Vec<Unread>,
}

/// Checks the files that [`detect`] reads, before a submission, and finds those that it does not read.
///
/// For a script with inline metadata, the Python versions are its `requires-python`. Otherwise, both those of the package
/// and the first line of `.python-version` apply.
///
/// # Errors
/// As [`detect`], but the content of local packages is not read.
pub fn survey(project_dir: &Path, entrypoint: &str) -> Result<Survey, ProjectError> {
    let project = Project::open(project_dir, Purpose::Check)?;
    let found = packages(&project, entrypoint)?;
    let python = project.python_wanted(entrypoint)?;
    let referred = project.referred.take();
    let relative = referred.iter().filter_map(|path| path.strip_prefix(&project.root).ok());
    let referred: Vec<PathBuf> = relative.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect();
    let unread = unread::find(
        &project,
        entrypoint,
        &unread::Read { requirements: found, referred: &referred, python: python.as_ref() },
    )?;
    Ok(Survey { referred, python, unread })
}

fn requires_python(file: &str, table: &toml::Table) -> Result<Option<PythonVersions>, ProjectError> {
    let Some(asked) = table.get("requires-python") else { return Ok(None) };
    let text = asked.as_str().ok_or_else(|| problem(file, "requires-python is not a string"))?;
    text.parse().map(Some).map_err(|error| problem(file, format!("requires-python: {error}")))
}

/// The packages that a project requires.
fn packages(project: &Project<'_>, entrypoint: &str) -> Result<Option<Requirements>, ProjectError> {
    if let Some(table) = script_metadata(project, entrypoint)? {
        return script(project, entrypoint, &table);
    }
    let pyproject = project.pyproject()?;
    if let Some(table) = &pyproject
        && let Some(path) = project.find("uv.lock")?
    {
        return uv_lock(project, table, &path).map(Some);
    }
    if let Some(path) = project.find(pylock::FILE)?
        && let Some(found) = pylock::parsed(&path, |lock| pylock::requirements(project, lock))?
    {
        return Ok(Some(found));
    }
    if let Some(path) = project.find("requirements.txt")? {
        let mut reader = RequirementsReader::new(project);
        reader.read_file(&path, "requirements.txt", false)?;
        if let Some(found) = reader.finish(Kind::RequirementsTxt)? {
            return with_settings(project, pyproject.as_ref(), found).map(Some);
        }
    }
    package_dependencies(project, &pyproject.unwrap_or_default())
}

/// A project folder. Reads nothing outside of it.
pub(crate) struct Project<'a> {
    pub(crate) root: PathBuf,
    purpose: Purpose<'a>,
    /// Number of bytes hashed so far from all files, as [`files::hash_tree`] counts them.
    hashed_bytes: Cell<u64>,
    /// The files of the project that its requirements refer to, as real paths.
    referred: RefCell<Vec<PathBuf>>,
}

/// Why a project is read.
enum Purpose<'a> {
    /// To build or find an environment for a job, with a fingerprint of all that the environment depends on.
    Build(GoesOn<'a>),
    /// To check the files before a submission. Local packages are not read, so that the fingerprint is incomplete.
    Check,
}

impl<'a> Project<'a> {
    fn open(project_dir: &Path, purpose: Purpose<'a>) -> Result<Self, ProjectError> {
        let root = project_dir.canonicalize().context("open", project_dir)?;
        Ok(Self { root, purpose, hashed_bytes: Cell::default(), referred: RefCell::default() })
    }

    /// Adds the content of everything below `path` to a fingerprint.
    ///
    /// The agent does this outside the limits of the job, so it ends with the job and its amount is limited.
    pub(crate) fn hash_path(&self, hasher: &mut blake3::Hasher, path: &Path) -> Result<(), ProjectError> {
        let Purpose::Build(goes_on) = &self.purpose else { return Ok(()) };
        let mut tree = blake3::Hasher::new();
        let room = HASHED_BYTES - self.hashed_bytes.get();
        let hashed = files::hash_tree(path, &mut tree, room, *goes_on).map_err(|stopped| match stopped {
            Stopped::System(source) => ProjectError::Io { action: "read", path: path.to_owned(), source },
            stopped => stopped.into(),
        })?;
        let Some(bytes) = hashed else {
            let below = path.strip_prefix(&self.root).unwrap_or(path);
            let file = if below.as_os_str().is_empty() { "the project".into() } else { below.to_string_lossy() };
            return Err(ProjectError::TooLong { file: file.into_owned(), bound: Bound::LocalBytes(HASHED_BYTES) });
        };
        self.hashed_bytes.set(self.hashed_bytes.get() + bytes);
        hash_field(hasher, tree.finalize().as_bytes());
        Ok(())
    }

    /// Real path of an optional file.
    pub(crate) fn find(&self, name: &str) -> Result<Option<PathBuf>, ProjectError> {
        let path = self.root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) => self.inside(&path, name, name).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("read", &path),
        }
    }

    /// As [`python_wanted`].
    fn python_wanted(&self, entrypoint: &str) -> Result<Option<PythonVersions>, ProjectError> {
        if let Some(table) = script_metadata(self, entrypoint)? {
            return requires_python(entrypoint, &table);
        }
        let mut required = self.lock_python()?;
        if let Some(table) = self.pyproject()? {
            let of_project = match table.get("project").and_then(toml::Value::as_table) {
                Some(section) => requires_python("pyproject.toml", section)?,
                None => poetry::dependencies(&table).and_then(|found| found.python),
            };
            required = PythonVersions::both(required, of_project);
        }
        Ok(PythonVersions::both(required.or(setup_cfg_python(self)?), self.version_file()?.versions))
    }

    /// The Python versions of the `pylock.toml` that is installed.
    fn lock_python(&self) -> Result<Option<PythonVersions>, ProjectError> {
        if self.find("uv.lock")?.is_some() && self.find("pyproject.toml")?.is_some() {
            return Ok(None);
        }
        let Some(path) = self.find(pylock::FILE)? else { return Ok(None) };
        pylock::parsed(&path, |lock| requires_python(pylock::FILE, lock))
    }

    /// The content of `.python-version`.
    pub(crate) fn version_file(&self) -> Result<VersionFile, ProjectError> {
        let text = self.read_optional(".python-version", PROJECT_BYTES)?;
        Ok(VersionFile::parse(&text.unwrap_or_default()))
    }

    pub(crate) fn pyproject(&self) -> Result<Option<toml::Table>, ProjectError> {
        let text = self.read_optional("pyproject.toml", PROJECT_BYTES)?;
        text.map(|text| parse_toml("pyproject.toml", &text)).transpose()
    }

    /// As [`Project::inside`], and remembers the path.
    pub(crate) fn refer(&self, path: &Path, file: &str, target: &str) -> Result<PathBuf, ProjectError> {
        let real = self.inside(path, file, target)?;
        self.referred.borrow_mut().push(real.clone());
        Ok(real)
    }

    /// Text of an optional file.
    pub(crate) fn read_optional(&self, name: &str, most: u64) -> Result<Option<String>, ProjectError> {
        self.find(name)?.map(|path| read(&path, name, most, Bound::Bytes(most))).transpose()
    }

    /// Real path of `path`, which `file` refers to as `target`. Fails if it is outside the folder.
    fn inside(&self, path: &Path, file: &str, target: &str) -> Result<PathBuf, ProjectError> {
        let real = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => problem(file, format!("refers to {target}, which does not exist")),
            _ => ProjectError::Io { action: "read", path: path.to_owned(), source: error },
        })?;
        if real.starts_with(&self.root) {
            Ok(real)
        } else {
            Err(ProjectError::OutsideProject { file: file.to_owned(), target: target.to_owned() })
        }
    }
}

/// Content of a file with at most `most` bytes. A larger file is an error that reports `bound`.
pub(crate) fn read_bytes(path: &Path, shown: &str, most: u64, bound: Bound) -> Result<Vec<u8>, ProjectError> {
    files::read_regular(path, most).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => ProjectError::TooLong { file: shown.to_owned(), bound },
        _ => ProjectError::Io { action: "read", path: path.to_owned(), source },
    })
}

pub(crate) fn read(path: &Path, shown: &str, most: u64, bound: Bound) -> Result<String, ProjectError> {
    String::from_utf8(read_bytes(path, shown, most, bound)?).map_err(|_| problem(shown, "is not UTF-8 text"))
}

/// Adds uv's settings of the project, such as package indexes, to a requirements file.
fn with_settings(
    project: &Project<'_>,
    pyproject: Option<&toml::Table>,
    mut found: Requirements,
) -> Result<Requirements, ProjectError> {
    const WITH_PATHS: [&str; 5] = ["find-links", "index", "index-url", "extra-index-url", "default-index"];
    let file = uv_toml(project)?;
    let table = pyproject.and_then(uv_settings).and_then(toml::Value::as_table);
    let Plan::List(list) = &mut found.plan else { return Ok(found) };
    if file.is_empty() && table.is_none() {
        return Ok(found);
    }
    let whole_tree = [Some(&file), table]
        .into_iter()
        .flatten()
        .any(|settings| WITH_PATHS.iter().filter_map(|key| settings.get(*key)).any(has_local_path));
    list.settings = Some(whole_tree);
    let mut hasher = blake3::Hasher::new();
    hash_field(&mut hasher, found.fingerprint.as_bytes());
    hash_field(&mut hasher, table.map(toml::Table::to_string).unwrap_or_default().as_bytes());
    hash_field(&mut hasher, file.to_string().as_bytes());
    if whole_tree {
        project.hash_path(&mut hasher, &project.root)?;
    }
    found.fingerprint = hasher.finalize();
    Ok(found)
}

/// The content of `uv.toml`; empty if there is none.
fn uv_toml(project: &Project<'_>) -> Result<toml::Table, ProjectError> {
    let text = project.read_optional("uv.toml", PROJECT_BYTES)?;
    text.map_or_else(|| Ok(toml::Table::new()), |text| parse_toml("uv.toml", &text))
}

fn script(project: &Project<'_>, entrypoint: &str, table: &toml::Table) -> Result<Option<Requirements>, ProjectError> {
    let mut reader = RequirementsReader::new(project);
    for dependency in string_list(entrypoint, "dependencies", table.get("dependencies"))? {
        reader.dependency(&dependency, "", entrypoint)?;
    }
    reader.finish(Kind::Script)
}

/// Inline metadata of a Python entry point, if it has any.
pub(crate) fn script_metadata(project: &Project<'_>, entrypoint: &str) -> Result<Option<toml::Table>, ProjectError> {
    let path = project.root.join(entrypoint);
    let is_python = path.extension().is_some_and(|extension| extension == "py") && path.is_file();
    // An entry point outside the folder is a command, not a file of the project.
    let Some(real) = path.canonicalize().ok().filter(|real| is_python && real.starts_with(&project.root)) else {
        return Ok(None);
    };
    let mut start = files::read_start(&real, PROJECT_BYTES + 1).context("read", &real)?;
    let is_whole = start.len() as u64 <= PROJECT_BYTES;
    if !is_whole {
        // Of a long script, only whole lines are parsed.
        start.truncate(start.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    }
    // Metadata in other encodings is not supported; Python itself may still run the script.
    let Ok(text) = String::from_utf8(start) else { return Ok(None) };
    match inline_metadata(&text) {
        Some(metadata) => parse_toml(entrypoint, &metadata).map(Some),
        None if !is_whole && ends_in_metadata(&text) => {
            Err(ProjectError::TooLong { file: entrypoint.to_owned(), bound: Bound::ScriptBytes(PROJECT_BYTES) })
        }
        None => Ok(None),
    }
}

/// Whether the first `# /// script` block is still open at the end of the text.
fn ends_in_metadata(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "# /// script");
    lines.next().is_some() && lines.all(|line| line.starts_with('#'))
}

/// The TOML between `# /// script` and `# ///`.
fn inline_metadata(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| line.trim_end() != "# /// script").skip(1);
    let mut metadata = String::new();
    loop {
        // An unclosed block counts as a comment.
        let line = lines.next()?.trim_end();
        if line == "# ///" {
            return Some(metadata);
        }
        metadata.push_str(line.strip_prefix("# ").or_else(|| line.strip_prefix('#'))?);
        metadata.push('\n');
    }
}

/// Lock that serializes the parsing of lock files. Parsing needs many times the file's size in memory, and many
/// jobs may start at once.
pub(crate) static LOCK_TURN: Mutex<()> = Mutex::new(());

fn uv_lock(project: &Project<'_>, pyproject: &toml::Table, path: &Path) -> Result<Requirements, ProjectError> {
    let mut hasher = fingerprint_of(Kind::UvLock);
    let text = read(path, "uv.lock", LOCK_BYTES, Bound::Bytes(LOCK_BYTES))?;
    let whole_tree = {
        // Locked after reading, because a user can make reading slow.
        let _turn = LOCK_TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let locked = parse_toml("uv.lock", &text)?;
        // Parsed and formatted again, to ignore layout and comments.
        hash_field(&mut hasher, locked.to_string().as_bytes());
        names_local_paths(pyproject) || lock_has_local_sources(&locked)
    };
    let own = own_package(project, pyproject, whole_tree)?;
    let whole_tree = whole_tree || own == OwnPackage::Copied;
    hash_own_package(project, &mut hasher, pyproject, own)?;
    hash_field(&mut hasher, dependency_part(pyproject).as_bytes());
    hash_field(&mut hasher, uv_toml(project)?.to_string().as_bytes());
    if whole_tree {
        project.hash_path(&mut hasher, &project.root)?;
    }
    Ok(Requirements::new(Kind::UvLock, project, Plan::Lock { whole_tree, own }, &hasher))
}

/// Whether a lock file refers to local files. The project itself does not count.
fn lock_has_local_sources(lock: &toml::Table) -> bool {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    packages.into_iter().flatten().filter_map(|package| package.get("source")?.as_table()).any(|source| {
        source.iter().any(|(kind, at)| match kind.as_str() {
            "editable" | "virtual" | "directory" | "path" => at.as_str() != Some("."),
            "registry" => at.as_str().is_some_and(|registry| !registry.contains("://")),
            _ => false,
        })
    })
}

/// The dependencies of a package, which the build backend computes if they are not in `pyproject.toml`.
fn package_dependencies(project: &Project<'_>, pyproject: &toml::Table) -> Result<Option<Requirements>, ProjectError> {
    const FILE: &str = "pyproject.toml";
    let is_package = own_package(project, pyproject, false)? != OwnPackage::None;
    let section = pyproject.get("project").and_then(toml::Value::as_table);
    let dynamic = section.and_then(|section| section.get("dynamic"));
    let is_computed = string_list(FILE, "dynamic", dynamic)?.iter().any(|field| field == "dependencies");
    if is_computed && !is_package {
        return Err(problem(
            FILE,
            "computes its dependencies (dynamic): list them in requirements.txt, or lock them with `uv lock`",
        ));
    }
    let mut reader = RequirementsReader::new(project);
    let listed = section.and_then(|section| section.get("dependencies"));
    let poetry = poetry::dependencies(pyproject).map(|found| found.lines).unwrap_or_default();
    for dependency in string_list(FILE, "project.dependencies", listed)?.into_iter().chain(poetry) {
        reader.dependency(&dependency, "", FILE)?;
    }
    let found = reader.finish(Kind::Pyproject)?;
    if !is_package && (found.is_none() || section.is_none()) {
        // uv reads only the `[project]` of a project that is no package.
        return Ok(found);
    }
    let nothing = || Requirements::new(Kind::Pyproject, project, Plan::List(List::default()), &blake3::Hasher::new());
    let mut found = found.unwrap_or_else(nothing);
    let Plan::List(list) = found.plan else { unreachable!("a requirements reader produces a list plan") };
    let has_local = list.requirements.iter().any(|line| matches!(line, Line::Local(_)));
    let whole_tree = has_local || names_local_paths(pyproject);
    let own = own_package(project, pyproject, whole_tree)?;
    let whole_tree = whole_tree || own == OwnPackage::Copied;
    let mut hasher = fingerprint_of(Kind::Pyproject);
    hash_field(&mut hasher, found.fingerprint.as_bytes());
    hash_field(&mut hasher, dependency_part(pyproject).as_bytes());
    hash_field(&mut hasher, uv_toml(project)?.to_string().as_bytes());
    hash_own_package(project, &mut hasher, pyproject, own)?;
    if whole_tree {
        project.hash_path(&mut hasher, &project.root)?;
    }
    found.fingerprint = hasher.finalize();
    found.plan = Plan::Pyproject { list, whole_tree, own };
    Ok(Some(found))
}

/// The parts of `pyproject.toml` that determine what is installed; other changes cause no new build.
fn dependency_part(pyproject: &toml::Table) -> String {
    const PROJECT: [&str; 4] = ["name", "requires-python", "dependencies", "optional-dependencies"];
    let mut part = toml::Table::new();
    if let Some(project) = pyproject.get("project").and_then(toml::Value::as_table) {
        part.extend(PROJECT.iter().filter_map(|key| Some(((*key).to_owned(), project.get(*key)?.clone()))));
    }
    part.extend(pyproject.get("dependency-groups").map(|groups| ("dependency-groups".to_owned(), groups.clone())));
    part.extend(uv_settings(pyproject).map(|uv| ("tool.uv".to_owned(), uv.clone())));
    part.to_string()
}

pub(crate) fn uv_settings(pyproject: &toml::Table) -> Option<&toml::Value> {
    pyproject.get("tool")?.get("uv")
}

/// Whether uv's settings refer to other files of the folder: path and workspace sources, local wheel folders.
fn names_local_paths(pyproject: &toml::Table) -> bool {
    uv_settings(pyproject).is_some_and(has_local_path)
}

fn has_local_path(value: &toml::Value) -> bool {
    match value {
        toml::Value::String(text) => text.starts_with("./") || text.starts_with("../"),
        toml::Value::Array(values) => values.iter().any(has_local_path),
        toml::Value::Table(table) => {
            table.iter().any(|(key, value)| key == "path" || key == "workspace" || has_local_path(value))
        }
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) | toml::Value::Datetime(_) => false,
    }
}

pub(crate) fn hash_field(hasher: &mut blake3::Hasher, field: &[u8]) {
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field);
}

/// Returns the hasher for a kind of requirements. Kinds that are installed in the same way have the same hasher.
pub(crate) fn fingerprint_of(kind: Kind) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hash_field(
        &mut hasher,
        match kind {
            Kind::Script | Kind::RequirementsTxt | Kind::Pylock => b"list",
            Kind::UvLock => b"uv.lock",
            Kind::Pyproject => b"pyproject",
            Kind::Python => b"python",
        },
    );
    hasher
}

pub(crate) fn parse_toml(file: &str, text: &str) -> Result<toml::Table, ProjectError> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        // The error's own text has several lines.
        problem(file, format!("line {}: {}", before.matches('\n').count() + 1, error.message().replace('\n', "; ")))
    })
}

pub(crate) fn string_list(file: &str, field: &str, value: Option<&toml::Value>) -> Result<Vec<String>, ProjectError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let strings = value.as_array().and_then(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect());
    strings.ok_or_else(|| problem(file, format!("{field} is not a list of strings")))
}

pub(crate) fn problem(file: &str, problem: impl Into<String>) -> ProjectError {
    ProjectError::Invalid { file: file.to_owned(), problem: problem.into() }
}

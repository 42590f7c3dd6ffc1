//! Detection of a project's requirements from its files.
//!
//! The first source with requirements is used:
//!
//! 1. inline metadata of the entry point (`# /// script`, PEP 723), which apply to this script only, and which are used
//!    even if they require nothing;
//! 2. `uv.lock` with its `pyproject.toml`, the most exact source;
//! 3. `requirements.txt`, with every file it includes; written for deployment, so it precedes
//! 4. `[project] dependencies` of `pyproject.toml`, the loose requirements of a package.
//!
//! Requirements inside the folder (`-e .`, `./pkg`, `./wheels/x.whl`) add the content of these files to the
//! fingerprint. They are installed as copies and never as editable: the environment outlives the job's folder, and the
//! next job with the same content has another folder.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hostler_model::PythonVersions;

use super::error::{Bound, EnvError, IoContext};
use super::files;
use crate::mutex::lock;

/// Size limit for `pyproject.toml`, for a version file, and for a script up to the end of its metadata, in bytes.
pub(super) const PROJECT_BYTES: u64 = 4 << 20;

/// Size limit for a `uv.lock`, in bytes.
pub(super) const LOCK_BYTES: u64 = 16 << 20;

/// Maximum total size of requirements files and their includes, in bytes.
const REQUIREMENTS_BYTES: u64 = 4 << 20;

/// Maximum total number of lines in requirements files and their includes.
const REQUIREMENTS_LINES: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Inline metadata of the entry point.
    Script,
    /// `uv.lock` and `pyproject.toml`.
    UvLock,
    /// `requirements.txt` and the files it includes.
    RequirementsTxt,
    /// `[project] dependencies` of `pyproject.toml`.
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
}

impl Requirements {
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

    pub(super) fn project_dir(&self) -> &Path {
        &self.project_dir
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// What to install.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Lines of a requirements file.
    List(List),
    /// `pyproject.toml`, which uv reads itself, and its dependencies as lines for pip.
    Pyproject { list: List, whole_tree: bool },
    /// `uv.lock` and `pyproject.toml`. `whole_tree` means that they refer to other files of the folder.
    Lock { whole_tree: bool },
}

/// A requirements file with its includes resolved.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    pub(super) requirements: Vec<Line>,
    pub(super) constraints: Vec<Line>,
}

#[derive(Clone, Debug)]
pub(super) enum Line {
    /// A line without local paths.
    Text(String),
    /// A line with a path in the project: text before it, absolute path, text after it.
    Local { before: String, path: PathBuf, after: String },
}

/// Reads the requirements of the project in `project_dir`; `Ok(None)` if it has none.
///
/// `entrypoint` is a path in the folder. If it is a Python file, its inline metadata counts.
pub fn detect(project_dir: &Path, entrypoint: &str) -> Result<Option<Requirements>, EnvError> {
    let python = python_wanted(project_dir, entrypoint)?;
    match (packages(project_dir, entrypoint)?, python) {
        (Some(found), python) => Ok(Some(Requirements { python, ..found })),
        (None, Some(python)) => Ok(Some(Requirements {
            kind: Kind::Python,
            project_dir: project_dir.canonicalize().context("open", project_dir)?,
            plan: Plan::List(List::default()),
            fingerprint: fingerprint_of(Kind::Python).finalize(),
            python: Some(python),
        })),
        (None, None) => Ok(None),
    }
}

/// Python versions that the project in `project_dir` accepts; `None` for all.
///
/// For a script with inline metadata, this is its `requires-python`. Otherwise, both `requires-python` of
/// `pyproject.toml` and the first line of `.python-version` apply.
///
/// # Errors
/// If one of these files cannot be read or parsed.
pub fn python_wanted(project_dir: &Path, entrypoint: &str) -> Result<Option<PythonVersions>, EnvError> {
    let project = Project { root: project_dir.canonicalize().context("open", project_dir)? };
    if let Some(table) = script_metadata(&project, entrypoint)? {
        return requires_python(entrypoint, &table);
    }
    let required = match project.read_optional("pyproject.toml", PROJECT_BYTES)? {
        Some(text) => match parse_toml("pyproject.toml", &text)?.get("project").and_then(toml::Value::as_table) {
            Some(section) => requires_python("pyproject.toml", section)?,
            None => None,
        },
        None => None,
    };
    let file = project.read_optional(".python-version", PROJECT_BYTES)?;
    let pinned = file.and_then(|text| PythonVersions::of_version_file(&text));
    Ok(match (required, pinned) {
        (Some(required), Some(pinned)) => Some(required.and(&pinned)),
        (required, pinned) => required.or(pinned),
    })
}

fn requires_python(file: &str, table: &toml::Table) -> Result<Option<PythonVersions>, EnvError> {
    let Some(asked) = table.get("requires-python") else { return Ok(None) };
    let text = asked.as_str().ok_or_else(|| problem(file, "requires-python is not a string"))?;
    text.parse().map(Some).map_err(|error| problem(file, format!("requires-python: {error}")))
}

/// The packages that a project requires.
fn packages(project_dir: &Path, entrypoint: &str) -> Result<Option<Requirements>, EnvError> {
    let root = project_dir.canonicalize().context("open", project_dir)?;
    let project = Project { root };
    if let Some(table) = script_metadata(&project, entrypoint)? {
        return script(&project, entrypoint, &table);
    }
    let pyproject = project
        .read_optional("pyproject.toml", PROJECT_BYTES)?
        .map(|text| parse_toml("pyproject.toml", &text))
        .transpose()?;
    if let Some(table) = &pyproject
        && let Some(path) = project.find("uv.lock")?
    {
        return uv_lock(&project, table, &path).map(Some);
    }
    if let Some(path) = project.find("requirements.txt")? {
        let mut reader = RequirementsReader::new(&project);
        reader.read_file(&path, "requirements.txt", false)?;
        if let Some(found) = reader.finish(Kind::RequirementsTxt)? {
            return Ok(Some(found));
        }
    }
    pyproject.map_or(Ok(None), |table| pyproject_dependencies(&project, &table))
}

/// A project folder. Reads nothing outside of it.
struct Project {
    root: PathBuf,
}

impl Project {
    /// Real path of an optional file.
    fn find(&self, name: &str) -> Result<Option<PathBuf>, EnvError> {
        let path = self.root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) => self.inside(&path, name, name).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("read", &path),
        }
    }

    /// Text of an optional file.
    fn read_optional(&self, name: &str, most: u64) -> Result<Option<String>, EnvError> {
        self.find(name)?.map(|path| read(&path, name, most, Bound::Bytes(most))).transpose()
    }

    /// Real path of `path`, which `file` refers to as `target`. Fails if it is outside the folder.
    fn inside(&self, path: &Path, file: &str, target: &str) -> Result<PathBuf, EnvError> {
        let real = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => problem(file, format!("refers to {target}, which does not exist")),
            _ => EnvError::Io { action: "read", path: path.to_owned(), source: error },
        })?;
        if real.starts_with(&self.root) {
            Ok(real)
        } else {
            Err(EnvError::OutsideProject { file: file.to_owned(), target: target.to_owned() })
        }
    }
}

/// Text of a file with at most `most` bytes. A larger file is an error that reports `bound`.
fn read(path: &Path, shown: &str, most: u64, bound: Bound) -> Result<String, EnvError> {
    let bytes = files::read_regular(path, most).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => EnvError::TooLong { file: shown.to_owned(), bound },
        _ => EnvError::Io { action: "read", path: path.to_owned(), source },
    })?;
    String::from_utf8(bytes).map_err(|_| problem(shown, "is not UTF-8 text"))
}

fn script(project: &Project, entrypoint: &str, table: &toml::Table) -> Result<Option<Requirements>, EnvError> {
    let mut reader = RequirementsReader::new(project);
    for dependency in string_list(entrypoint, "dependencies", table.get("dependencies"))? {
        reader.line(&dependency, entrypoint, &project.root, false)?;
    }
    reader.finish(Kind::Script)
}

/// Inline metadata of a Python entry point, if it has any.
fn script_metadata(project: &Project, entrypoint: &str) -> Result<Option<toml::Table>, EnvError> {
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
            Err(EnvError::TooLong { file: entrypoint.to_owned(), bound: Bound::ScriptBytes(PROJECT_BYTES) })
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

/// Lock that serializes the parsing of `uv.lock` files. Parsing needs many times the file's size in memory, and many
/// jobs may start at once.
static LOCK_TURN: Mutex<()> = Mutex::new(());

fn uv_lock(project: &Project, pyproject: &toml::Table, path: &Path) -> Result<Requirements, EnvError> {
    let mut hasher = fingerprint_of(Kind::UvLock);
    let text = read(path, "uv.lock", LOCK_BYTES, Bound::Bytes(LOCK_BYTES))?;
    let whole_tree = {
        // Locked after reading, because a user can make reading slow.
        let _turn = lock(&LOCK_TURN);
        let locked = parse_toml("uv.lock", &text)?;
        // Parsed and formatted again, to ignore layout and comments.
        hash_field(&mut hasher, locked.to_string().as_bytes());
        names_local_paths(pyproject) || lock_has_local_sources(&locked)
    };
    hash_field(&mut hasher, dependency_part(pyproject).as_bytes());
    if whole_tree {
        hash_path(&mut hasher, &project.root)?;
    }
    Ok(Requirements {
        kind: Kind::UvLock,
        project_dir: project.root.clone(),
        plan: Plan::Lock { whole_tree },
        fingerprint: hasher.finalize(),
        python: None,
    })
}

/// Whether a lock file refers to local files. The project itself does not count, because it is not installed.
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

fn pyproject_dependencies(project: &Project, pyproject: &toml::Table) -> Result<Option<Requirements>, EnvError> {
    const FILE: &str = "pyproject.toml";
    let Some(section) = pyproject.get("project").and_then(toml::Value::as_table) else { return Ok(None) };
    if string_list(FILE, "dynamic", section.get("dynamic"))?.iter().any(|field| field == "dependencies") {
        return Err(problem(
            FILE,
            "computes its dependencies (dynamic): list them in requirements.txt, or lock them with `uv lock`",
        ));
    }
    let mut reader = RequirementsReader::new(project);
    for dependency in string_list(FILE, "project.dependencies", section.get("dependencies"))? {
        reader.line(&dependency, FILE, &project.root, false)?;
    }
    let Some(mut found) = reader.finish(Kind::Pyproject)? else { return Ok(None) };
    let Plan::List(list) = found.plan else { unreachable!("a requirements reader produces a list plan") };
    let has_local = list.requirements.iter().any(|line| matches!(line, Line::Local { .. }));
    let whole_tree = has_local || names_local_paths(pyproject);
    let mut hasher = fingerprint_of(Kind::Pyproject);
    hash_field(&mut hasher, found.fingerprint.as_bytes());
    hash_field(&mut hasher, dependency_part(pyproject).as_bytes());
    if whole_tree {
        hash_path(&mut hasher, &project.root)?;
    }
    found.fingerprint = hasher.finalize();
    found.plan = Plan::Pyproject { list, whole_tree };
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

fn uv_settings(pyproject: &toml::Table) -> Option<&toml::Value> {
    pyproject.get("tool")?.get("uv")
}

/// Whether uv's settings refer to other files of the folder: path and workspace sources, local wheel folders.
fn names_local_paths(pyproject: &toml::Table) -> bool {
    fn local(value: &toml::Value) -> bool {
        match value {
            toml::Value::String(text) => text.starts_with("./") || text.starts_with("../"),
            toml::Value::Array(values) => values.iter().any(local),
            toml::Value::Table(table) => {
                table.iter().any(|(key, value)| key == "path" || key == "workspace" || local(value))
            }
            toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) | toml::Value::Datetime(_) => {
                false
            }
        }
    }
    uv_settings(pyproject).is_some_and(local)
}

/// Collects requirement lines from files and their includes.
struct RequirementsReader<'a> {
    project: &'a Project,
    list: List,
    hasher: blake3::Hasher,
    /// Files that were already read, each with whether it was read as constraints. They are not read again, so cycles
    /// end.
    seen: HashSet<(PathBuf, bool)>,
    /// Nesting depth of the current include.
    depth: usize,
    /// Number of bytes read so far from all files.
    bytes: u64,
    /// Number of lines read so far from all files.
    lines: usize,
}

/// Maximum nesting depth of includes, which limits stack use.
const MOST_INCLUDES: usize = 64;

impl<'a> RequirementsReader<'a> {
    fn new(project: &'a Project) -> Self {
        let (list, hasher, seen) = (List::default(), blake3::Hasher::new(), HashSet::new());
        Self { project, list, hasher, seen, depth: 0, bytes: 0, lines: 0 }
    }

    /// Returns the collected requirements; `None` if there are only constraints, or no lines at all.
    fn finish(self, kind: Kind) -> Result<Option<Requirements>, EnvError> {
        if self.list.requirements.is_empty() {
            return Ok(None);
        }
        let mut hasher = fingerprint_of(Kind::RequirementsTxt);
        hash_field(&mut hasher, self.hasher.finalize().as_bytes());
        for (tag, lines) in [("requirement", &self.list.requirements), ("constraint", &self.list.constraints)] {
            for line in lines {
                hash_field(&mut hasher, tag.as_bytes());
                hash_line(&mut hasher, line)?;
            }
        }
        Ok(Some(Requirements {
            kind,
            project_dir: self.project.root.clone(),
            plan: Plan::List(self.list),
            fingerprint: hasher.finalize(),
            python: None,
        }))
    }

    fn read_file(&mut self, path: &Path, shown: &str, constraint: bool) -> Result<(), EnvError> {
        let bound = Bound::RequirementsBytes(REQUIREMENTS_BYTES);
        let text = read(path, shown, REQUIREMENTS_BYTES - self.bytes, bound)?;
        self.bytes += text.len() as u64;
        self.lines += text.lines().count();
        if self.lines > REQUIREMENTS_LINES {
            let bound = Bound::RequirementsLines(REQUIREMENTS_LINES);
            return Err(EnvError::TooLong { file: shown.to_owned(), bound });
        }
        let dir = self.project.root.join(shown).parent().map_or_else(|| self.project.root.clone(), Path::to_owned);
        for line in logical_lines(&text) {
            self.line(&line, shown, &dir, constraint)?;
        }
        Ok(())
    }

    /// Processes one line of the file `shown` in the directory `dir`.
    fn line(&mut self, line: &str, shown: &str, dir: &Path, constraint: bool) -> Result<(), EnvError> {
        self.note_variables(line);
        if let Some(target) = option(line, "-r", "--requirement") {
            return self.include(target, shown, dir, constraint);
        }
        if let Some(target) = option(line, "-c", "--constraint") {
            return self.include(target, shown, dir, true);
        }
        let line = self.requirement(line, shown, dir)?;
        if constraint { &mut self.list.constraints } else { &mut self.list.requirements }.push(line);
        Ok(())
    }

    fn include(&mut self, target: &str, shown: &str, dir: &Path, constraint: bool) -> Result<(), EnvError> {
        if target.contains("://") {
            let option = if constraint { "-c" } else { "-r" };
            self.list.requirements.push(Line::Text(format!("{option} {target}")));
            return Ok(());
        }
        let path = self.project.inside(&dir.join(target), shown, target)?;
        if !self.seen.insert((path.clone(), constraint)) {
            return Ok(());
        }
        let name = path.strip_prefix(&self.project.root).unwrap_or(&path).to_string_lossy().into_owned();
        if self.depth >= MOST_INCLUDES {
            return Err(problem(shown, format!("files include each other more than {MOST_INCLUDES} deep")));
        }
        self.depth += 1;
        self.read_file(&path, &name, constraint)?;
        self.depth -= 1;
        Ok(())
    }

    fn requirement(&mut self, line: &str, shown: &str, dir: &Path) -> Result<Line, EnvError> {
        if let Some(target) = option(line, "-f", "--find-links") {
            return if target.contains("://") || target.starts_with('/') {
                Ok(Line::Text(line.to_owned()))
            } else {
                self.local("--find-links ", target, "", shown, dir)
            };
        }
        let editable = option(line, "-e", "--editable");
        let (before, rest) = match line.split_once(" @ ") {
            Some((name, target)) if target.starts_with('.') => (format!("{name} @ file://"), target),
            _ => (String::new(), editable.unwrap_or(line)),
        };
        if !names_a_path(rest, editable.is_some() || !before.is_empty()) {
            self.note_outside_file(rest);
            return Ok(Line::Text(line.to_owned()));
        }
        let (path, after) = split_path(rest);
        if path.starts_with('/') {
            self.note_outside_file(path);
            return Ok(Line::Text(line.to_owned()));
        }
        self.local(&before, path, after, shown, dir)
    }

    /// Resolves a local path. pip resolves it from the project folder; as a fallback, the file's own folder is used.
    fn local(&self, before: &str, target: &str, after: &str, shown: &str, dir: &Path) -> Result<Line, EnvError> {
        let from_root = self.project.root.join(target);
        let path = if from_root.exists() { from_root } else { dir.join(target) };
        let path = self.project.inside(&path, shown, target)?;
        Ok(Line::Local { before: before.to_owned(), path, after: after.to_owned() })
    }

    /// Adds environment variables to the fingerprint, because pip replaces `${NAME}` with their values.
    fn note_variables(&mut self, line: &str) {
        for part in line.split("${").skip(1) {
            if let Some((name, _)) = part.split_once('}') {
                let value = std::env::var_os(name).unwrap_or_default();
                hash_field(&mut self.hasher, name.as_bytes());
                hash_field(&mut self.hasher, value.as_encoded_bytes());
            }
        }
    }

    /// Adds size and time of a file outside the project (e.g. a wheel on a shared disk), which may be replaced in
    /// place.
    fn note_outside_file(&mut self, line: &str) {
        let path = line.split_once("file://").map_or(line, |(_, path)| path);
        if path.starts_with('/')
            && let Ok(metadata) = fs::metadata(split_path(path).0)
        {
            let stamp = format!("{}:{}:{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
            hash_field(&mut self.hasher, stamp.as_bytes());
        }
    }
}

/// Lines with joined continuations and normalised whitespace, without comments and empty lines.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = without_comment(line);
        match line.strip_suffix('\\') {
            Some(continued) => current.push_str(continued),
            None => {
                current.push_str(line);
                lines.push(std::mem::take(&mut current));
            }
        }
    }
    lines.push(current);
    let normalised = lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    normalised.filter(|line| !line.is_empty()).collect()
}

/// Removes a comment. It starts with a `#` at the start of the line or after whitespace; other `#` belong to URLs.
fn without_comment(line: &str) -> &str {
    let is_comment = |at: &usize| *at == 0 || line[..*at].ends_with(char::is_whitespace);
    let end = line.match_indices('#').map(|(at, _)| at).find(is_comment);
    line[..end.unwrap_or(line.len())].trim_end()
}

/// The value of an option line: `-r x`, `-rx`, `--requirement x`, `--requirement=x`.
fn option<'a>(line: &'a str, short: &str, long: &str) -> Option<&'a str> {
    let value = match line.strip_prefix(long) {
        Some(rest) => rest.strip_prefix(['=', ' '])?,
        None => line.strip_prefix(short)?,
    };
    Some(value.trim())
}

/// Whether a requirement is a path by pip's rules: it has a separator, starts with a dot, or is an archive. With
/// `is_target`, everything but an option or a URL is a path.
fn names_a_path(requirement: &str, is_target: bool) -> bool {
    if requirement.starts_with('-') || requirement.contains("://") || (!is_target && requirement.contains(" @ ")) {
        return false;
    }
    let (path, _) = split_path(requirement);
    let archive = [".whl", ".tar.gz", ".zip", ".tar.bz2"].iter().any(|suffix| path.ends_with(suffix));
    is_target || path.starts_with('.') || path.contains('/') || archive
}

/// Splits `./pkg[extra] ; marker` after the path.
fn split_path(requirement: &str) -> (&str, &str) {
    let end = requirement.find(['[', ';', ' ']).unwrap_or(requirement.len());
    requirement.split_at(end)
}

fn hash_line(hasher: &mut blake3::Hasher, line: &Line) -> Result<(), EnvError> {
    match line {
        Line::Text(text) => hash_field(hasher, text.as_bytes()),
        Line::Local { before, path, after } => {
            hash_field(hasher, before.as_bytes());
            // The name of a wheel matters; the name of a folder does not.
            hash_field(hasher, path.file_name().filter(|_| path.is_file()).unwrap_or_default().as_encoded_bytes());
            hash_field(hasher, after.as_bytes());
            hash_path(hasher, path)?;
        }
    }
    Ok(())
}

fn hash_path(hasher: &mut blake3::Hasher, path: &Path) -> Result<(), EnvError> {
    let mut tree = blake3::Hasher::new();
    files::hash_tree(path, &mut tree).context("read", path)?;
    hash_field(hasher, tree.finalize().as_bytes());
    Ok(())
}

fn hash_field(hasher: &mut blake3::Hasher, field: &[u8]) {
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field);
}

/// Returns the hasher for a kind of requirements. Kinds that are installed in the same way have the same hasher.
fn fingerprint_of(kind: Kind) -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hash_field(
        &mut hasher,
        match kind {
            Kind::Script | Kind::RequirementsTxt => b"list",
            Kind::UvLock => b"uv.lock",
            Kind::Pyproject => b"pyproject",
            Kind::Python => b"python",
        },
    );
    hasher
}

fn parse_toml(file: &str, text: &str) -> Result<toml::Table, EnvError> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        // The error's own text has several lines.
        problem(file, format!("line {}: {}", before.matches('\n').count() + 1, error.message().replace('\n', "; ")))
    })
}

fn string_list(file: &str, field: &str, value: Option<&toml::Value>) -> Result<Vec<String>, EnvError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let strings = value.as_array().and_then(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect());
    strings.ok_or_else(|| problem(file, format!("{field} is not a list of strings")))
}

fn problem(file: &str, problem: impl Into<String>) -> EnvError {
    EnvError::Project { file: file.to_owned(), problem: problem.into() }
}

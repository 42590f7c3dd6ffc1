//! What a project folder names, and the job does not get: packages and Python versions in files that are not read.
//!
//! [`table`] lists the files, so that no case is silent: a file of another tool is named with what to do instead. It is
//! not named if the job has all of its packages anyway, e.g. from a `requirements.txt` that was exported from it.

mod commands;
mod names;
mod pyproject;
mod table;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use hostler_model::PythonVersions;

use crate::error::ProjectError;
use crate::plan::{Kind, OwnPackage, Plan, Requirements, normalised, package_name};
use crate::project::{LOCK_BYTES, PROJECT_BYTES, Project, parse_toml};
use crate::script::script_metadata;
use crate::{files, poetry, pylock};
use table::{Form, Row};

/// Packages or Python versions that a job does not get, although the project names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// The file, relative to the project folder.
    pub file: PathBuf,
    /// The part of the file; empty for all of it.
    pub part: String,
    /// What to do about it.
    pub advice: String,
}

impl Unread {
    fn new(file: impl Into<PathBuf>, part: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { file: file.into(), part: part.into(), advice: advice.into() }
    }

    /// The file, or the part of the file.
    pub fn what(&self) -> String {
        let file = self.file.display();
        if self.part.is_empty() { file.to_string() } else { format!("{} in {file}", self.part) }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what(), self.advice)
    }
}

/// What a job gets.
pub(crate) struct Read<'a> {
    pub(crate) requirements: Option<Requirements>,
    /// Files that the requirements refer to.
    pub(crate) referred: &'a [PathBuf],
    pub(crate) python: Option<&'a PythonVersions>,
}

/// Finds what a job does not get.
pub(crate) fn find(project: &Project<'_>, entrypoint: &str, read: &Read<'_>) -> Result<Vec<Unread>, ProjectError> {
    if let Some(metadata) = script_metadata(project, entrypoint)? {
        // The script names everything itself.
        let settings = metadata.get("tool").and_then(|tool| tool.get("uv"));
        let advice = "name the source of a package as `NAME @ URL`, and an index with `--env UV_INDEX=URL`";
        return Ok(settings.map(|_| Unread::new(entrypoint, "[tool.uv]", advice)).into_iter().collect());
    }
    let search = Search::new(project, read)?;
    let mut found = search.outdated_lock()?;
    if let Some(ignored) = project.version_file()?.ignored {
        found.push(Unread::new(".python-version", ignored, "write a version such as 3.12 or >=3.12"));
    }
    if search.kind == Some(Kind::Pylock)
        && let Some(path) = project.find(pylock::FILE)?
        && pylock::parsed(&path, |lock| Ok(pylock::packages(lock).any(pylock::is_of_group)))?
    {
        found.push(Unread::new(pylock::FILE, "packages of extras and groups", "lock them as plain dependencies"));
    }
    found.extend(pyproject::unread(&search)?);
    found.extend(search.files(entrypoint));
    Ok(found)
}

/// What a file names.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named {
    /// Normalised names of packages; `None` if they are unknown.
    packages: Option<BTreeSet<String>>,
    /// Whether it names a Python version.
    python: bool,
}

impl Named {
    /// What a file without known names may name: anything.
    fn unknown() -> Self {
        Self { packages: None, python: false }
    }

    fn packages(names: impl IntoIterator<Item = String>) -> Self {
        Self { packages: Some(names.into_iter().collect()), python: false }
    }
}

/// A search for files that are not read.
struct Search<'a> {
    project: &'a Project<'a>,
    read: &'a Read<'a>,
    kind: Option<Kind>,
    /// The content of `pyproject.toml`.
    pyproject: toml::Table,
    /// Packages of `uv.lock`, if it is used.
    locked: Vec<Locked>,
    /// Normalised names of the packages that the job gets.
    installed: BTreeSet<String>,
    /// Whether the project itself is installed, with its own dependencies.
    has_project: bool,
    /// Whether the project's build backend says what these are.
    is_built: bool,
}

impl<'a> Search<'a> {
    fn new(project: &'a Project<'a>, read: &'a Read<'a>) -> Result<Self, ProjectError> {
        let pyproject = project.pyproject()?.unwrap_or_default();
        let plan = read.requirements.as_ref().map(Requirements::plan);
        let kind = read.requirements.as_ref().map(Requirements::kind);
        let mut installed = BTreeSet::new();
        let mut has_project = kind == Some(Kind::Pyproject);
        if let Some(Plan::List(list) | Plan::Pyproject { list, .. }) = plan {
            installed.extend(list.names());
            has_project |= list.names_project(&project.root);
            installed.extend(pyproject::extras(&pyproject, &list.project_extras(&project.root)));
        }
        if has_project {
            installed.extend(names::of_package(project, &pyproject));
        }
        let is_built = matches!(plan, Some(Plan::Pyproject { own, .. }) if *own != OwnPackage::None);
        let locked = if kind == Some(Kind::UvLock) { locked(project)? } else { Vec::new() };
        installed.extend(locked.iter().map(|it| it.name.clone()));
        Ok(Self { project, read, kind, pyproject, locked, installed, has_project, is_built })
    }

    /// Whether a job lacks something of what a file names.
    fn lacks(&self, named: &Named) -> bool {
        named.packages.as_ref().is_none_or(|packages| !packages.is_subset(&self.installed))
            || named.python && self.read.python.is_none()
    }

    /// Dependencies of `pyproject.toml`, and of local packages such as members of a workspace, that `uv.lock` lacks.
    fn outdated_lock(&self) -> Result<Vec<Unread>, ProjectError> {
        if self.kind != Some(Kind::UvLock) {
            return Ok(Vec::new());
        }
        let mut named = vec![("pyproject.toml".to_owned(), pyproject::locked_dependencies(&self.pyproject)?)];
        for folder in self.locked.iter().filter_map(|it| it.folder.as_deref()) {
            let file = format!("{folder}/pyproject.toml");
            // The build says what is wrong with a file that cannot be read.
            if let Ok(Some(text)) = self.project.read_optional(&file, PROJECT_BYTES)
                && let Ok(table) = text.parse::<toml::Table>()
            {
                named.push((file, pyproject::dependency_lines(&table).collect()));
            }
        }
        let found = named.into_iter().filter_map(|(file, lines)| {
            let missing: Vec<&str> =
                lines.iter().map(|line| line.trim()).filter(|line| self.lock_lacks(line)).collect();
            let advice = "uv.lock does not have it: run `uv lock`";
            (!missing.is_empty()).then(|| Unread::new(file, missing.join(", "), advice))
        });
        Ok(found.collect())
    }

    /// Whether `uv.lock` has no fitting package for a dependency.
    fn lock_lacks(&self, line: &str) -> bool {
        let Some(name) = package_name(line) else { return false };
        let mut versions = self.locked.iter().filter(|it| it.name == name).map(|it| &it.version);
        let specifier = line.split([';', '@']).next().unwrap_or_default();
        let specifier =
            specifier.find(['<', '>', '=', '~', '!']).map(|at| specifier[at..].trim_end_matches([')', ' ']));
        let specifier = specifier.and_then(|it| it.parse::<PythonVersions>().ok());
        // The form of a specifier is the same for packages and for Python.
        !versions.any(|version| specifier.as_ref().is_none_or(|it| version.is_empty() || it.fit(version)))
    }

    /// Files of the table that the job lacks.
    fn files(&self, entrypoint: &str) -> Vec<Unread> {
        let beside = Path::new(entrypoint).parent().filter(|_| !Path::new(entrypoint).is_absolute());
        let beside = beside.into_iter().flat_map(Path::ancestors).filter(|it| !it.as_os_str().is_empty());
        let folders = [""].iter().chain(&table::FOLDERS).map(PathBuf::from).chain(beside.map(Path::to_owned));
        let folders = folders.chain(table::NESTED.iter().flat_map(|folder| self.folders_in(Path::new(folder))));
        let folders: BTreeSet<PathBuf> = folders.filter(|folder| self.is_inside(folder)).collect();
        folders.iter().flat_map(|folder| self.files_in(folder, Path::new(entrypoint).starts_with(folder))).collect()
    }

    /// The folders in a folder.
    fn folders_in(&self, folder: &Path) -> Vec<PathBuf> {
        const MOST: usize = 100;
        let entries = fs::read_dir(self.project.root.join(folder)).into_iter().flatten().flatten().take(MOST);
        entries.filter(|it| it.file_type().is_ok_and(|it| it.is_dir())).map(|it| folder.join(it.file_name())).collect()
    }

    fn is_inside(&self, folder: &Path) -> bool {
        let real = self.project.root.join(folder).canonicalize();
        real.is_ok_and(|real| real.starts_with(&self.project.root) && real.is_dir())
    }

    /// Files of the table in a folder that is on the way to the entry point, or holds files of the table only.
    fn files_in(&self, folder: &Path, is_of_entry: bool) -> Vec<Unread> {
        let entries = fs::read_dir(self.project.root.join(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        let is_nested = !folder.as_os_str().is_empty();
        names.into_iter().filter_map(|name| self.file(&folder.join(name), is_nested, is_of_entry)).collect()
    }

    fn file(&self, file: &Path, is_nested: bool, is_of_entry: bool) -> Option<Unread> {
        let path = self.project.root.join(file).canonicalize().ok()?;
        let folder = file.parent().filter(|_| is_nested && !is_of_entry);
        let row = table::row(&file.file_name()?.to_str()?.to_ascii_lowercase(), folder)?;
        let is_read =
            !is_nested && self.reads(row) || self.read.referred.iter().any(|it| self.project.root.join(it) == path);
        if is_read || !path.starts_with(&self.project.root) {
            return None;
        }
        let text = String::from_utf8_lossy(&files::read_start(&path, LOCK_BYTES).ok()?).into_owned();
        let named = names::of_file(row.form, &text)?;
        self.lacks(&named).then(|| Unread::new(file, "", self.advice(row, file)))
    }

    /// Whether a file of the root folder is read, or stands for one that is.
    fn reads(&self, row: &Row) -> bool {
        let is_pinned = matches!(self.kind, Some(Kind::UvLock | Kind::Pylock | Kind::RequirementsTxt));
        match row.form {
            Form::Lock => is_pinned,
            Form::UvLock => self.kind == Some(Kind::UvLock),
            Form::Pylock => self.kind == Some(Kind::Pylock),
            Form::Requirements => self.kind == Some(Kind::RequirementsTxt),
            Form::SetupCfg | Form::SetupPy => self.has_project,
            // Its tables are looked at one by one.
            Form::Pyproject | Form::PythonVersion => true,
            _ => false,
        }
    }

    fn advice(&self, row: &Row, file: &Path) -> String {
        let file = file.display();
        if matches!(self.kind, Some(Kind::UvLock)) && row.can_be_added {
            return match row.form {
                Form::Lines | Form::Requirements => format!("add its packages with `uv add -r {file}`"),
                _ => "add its packages with `uv add`".to_owned(),
            };
        }
        row.advice.replace("{file}", &file.to_string())
    }
}

/// A package in `uv.lock`.
struct Locked {
    /// Its normalised name.
    name: String,
    version: String,
    /// Where a local package is, relative to the project folder; `None` for the project itself.
    folder: Option<String>,
}

/// The packages in `uv.lock`.
fn locked(project: &Project<'_>) -> Result<Vec<Locked>, ProjectError> {
    let Some(text) = project.read_optional("uv.lock", LOCK_BYTES)? else { return Ok(Vec::new()) };
    let lock = parse_toml("uv.lock", &text)?;
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let text =
        |package: &toml::Value, key| package.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let folder = |package: &toml::Value| {
        let source = package.get("source")?;
        let found = ["editable", "virtual", "directory"].iter().find_map(|kind| source.get(*kind))?.as_str()?;
        (found != ".").then(|| found.to_owned())
    };
    let locked = |package| Locked {
        name: normalised(&text(package, "name")),
        version: text(package, "version"),
        folder: folder(package),
    };
    Ok(packages.map(locked).collect())
}

/// Names of the Poetry dependencies that have no standard form.
fn poetry_others(pyproject: &toml::Table) -> Vec<String> {
    poetry::dependencies(pyproject).map(|found| found.others).unwrap_or_default()
}

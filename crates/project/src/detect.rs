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

use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use hostler_model::PythonVersions;

use crate::error::{Bound, GoesOn, ProjectError};
use crate::package::{hash_own_package, own_package, setup_cfg_python};
use crate::plan::{Kind, Line, List, Local, OwnPackage, Plan, Requirements, fingerprint_of};
use crate::project::{
    LOCK_BYTES, LOCK_TURN, PROJECT_BYTES, Project, Purpose, hash_field, parse_toml, problem, read, string_list,
    uv_settings,
};
use crate::requirements::RequirementsReader;
use crate::script::script_metadata;
use crate::unread::{self, Unread};
use crate::{poetry, pylock};

/// Reads the requirements of the project in `project_dir`; `Ok(None)` if it has none.
///
/// `entrypoint` is a path in the folder. If it is a Python file, its inline metadata counts. Reading large files takes
/// long, so `goes_on` is called often meanwhile.
pub fn detect(project_dir: &Path, entrypoint: &str, goes_on: GoesOn<'_>) -> Result<Option<Requirements>, ProjectError> {
    let project = Project::open(project_dir, Purpose::Build(goes_on))?;
    let python = python_wanted(&project, entrypoint)?;
    let nothing =
        || Requirements::new(Kind::Python, &project, Plan::List(List::default()), &fingerprint_of(Kind::Python));
    let Some(mut found) = packages(&project, entrypoint)?.or_else(|| python.is_some().then(nothing)) else {
        return Ok(None);
    };
    found.python = python;
    found.chooses_index = chooses_index(&project, &found.plan)?;
    Ok(Some(found))
}

/// Whether uv's settings of the project or a line of its requirements name the index that replaces the usual one.
fn chooses_index(project: &Project<'_>, plan: &Plan) -> Result<bool, ProjectError> {
    const OPTIONS: [&str; 3] = ["-i", "--index-url", "--pypi-url"];
    if let Plan::List(list) = plan {
        let chooses = |line: &Line| {
            let (Line::Text(start) | Line::Local(Local { before: start, .. })) = line;
            OPTIONS.iter().any(|option| start.starts_with(option))
        };
        if list.requirements.iter().any(chooses) || list.settings.is_none() {
            return Ok(list.requirements.iter().any(chooses));
        }
    }
    let chooses = |settings: &toml::Table| {
        let named = settings.get("index").and_then(toml::Value::as_array).into_iter().flatten();
        let is_usual = |index: &toml::Value| index.get("default").and_then(toml::Value::as_bool) == Some(true);
        settings.contains_key("index-url") || named.into_iter().any(is_usual)
    };
    let pyproject = project.pyproject()?;
    let table = pyproject.as_ref().and_then(uv_settings).and_then(toml::Value::as_table);
    Ok(table.is_some_and(chooses) || chooses(&uv_toml(project)?))
}

/// What a project folder requires, as far as a submission must know it.
#[derive(Debug)]
pub struct Survey {
    /// Files and folders of the project that the requirements refer to, as paths relative to the project.
    pub referred: Vec<PathBuf>,
    /// Whether the job gets an environment with packages.
    pub has_packages: bool,
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
    let has_packages = found.is_some();
    let python = python_wanted(&project, entrypoint)?;
    let referred = project.referred.take();
    let relative = referred.iter().filter_map(|path| path.strip_prefix(&project.root).ok());
    let referred: Vec<PathBuf> = relative.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect();
    let unread = unread::find(
        &project,
        entrypoint,
        &unread::Read { requirements: found, referred: &referred, python: python.as_ref() },
    )?;
    Ok(Survey { referred, has_packages, python, unread })
}

fn requires_python(file: &str, table: &toml::Table) -> Result<Option<PythonVersions>, ProjectError> {
    let Some(asked) = table.get("requires-python") else { return Ok(None) };
    let text = asked.as_str().ok_or_else(|| problem(file, "requires-python is not a string"))?;
    text.parse().map(Some).map_err(|error| problem(file, format!("requires-python: {error}")))
}

/// The Python versions that the project accepts; `None` for all.
fn python_wanted(project: &Project<'_>, entrypoint: &str) -> Result<Option<PythonVersions>, ProjectError> {
    if let Some(table) = script_metadata(project, entrypoint)? {
        return requires_python(entrypoint, &table);
    }
    let mut required = lock_python(project)?;
    if let Some(table) = project.pyproject()? {
        let of_project = match table.get("project").and_then(toml::Value::as_table) {
            Some(section) => requires_python("pyproject.toml", section)?,
            None => poetry::dependencies(&table).and_then(|found| found.python),
        };
        required = PythonVersions::both(required, of_project);
    }
    Ok(PythonVersions::both(required.or(setup_cfg_python(project)?), project.version_file()?.versions))
}

/// The Python versions of the `pylock.toml` that is installed.
fn lock_python(project: &Project<'_>) -> Result<Option<PythonVersions>, ProjectError> {
    if project.find("uv.lock")?.is_some() && project.find("pyproject.toml")?.is_some() {
        return Ok(None);
    }
    let Some(path) = project.find(pylock::FILE)? else { return Ok(None) };
    pylock::parsed(&path, |lock| requires_python(pylock::FILE, lock))
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
        // For a project without a package, uv reads the `[project]` table only.
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

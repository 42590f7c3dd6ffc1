//! The requirements that were found in a project, and how they are installed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hostler_model::{Environment, PythonVersions};

use crate::project::{Project, hash_field};
use crate::requirements::text::encoded;
use crate::variables::{is_of_access, is_of_builds};

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
    pub(crate) plan: Plan,
    pub(crate) fingerprint: blake3::Hash,
    pub(crate) python: Option<PythonVersions>,
    pub(crate) chooses_index: bool,
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
            chooses_index: false,
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

    /// Whether the project chooses the package index that replaces the usual one.
    pub fn chooses_index(&self) -> bool {
        self.chooses_index
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
    /// `pyproject.toml`, which uv reads itself, and its dependencies as lines.
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

/// A requirements file with its includes resolved.
#[derive(Clone, Debug, Default)]
pub struct List {
    pub requirements: Vec<Line>,
    pub constraints: Vec<Line>,
    /// Whether uv's settings of the project apply; `Some(true)` if they refer to other files of the folder.
    pub settings: Option<bool>,
}

impl List {
    /// Normalised names of the required packages.
    pub(crate) fn names(&self) -> BTreeSet<String> {
        let text = |line: &Line| match line {
            Line::Text(text) => text.clone(),
            Line::Local(local) => local.before.clone(),
        };
        self.requirements.iter().filter_map(|line| package_name(&text(line))).collect()
    }

    /// Whether the project itself is required.
    pub(crate) fn names_project(&self, root: &Path) -> bool {
        self.requirements.iter().any(|line| matches!(line, Line::Local(local) if local.path == root))
    }

    /// The extras with which the project itself is required, e.g. `dev` of `-e .[dev]`.
    pub(crate) fn project_extras(&self, root: &Path) -> BTreeSet<String> {
        let of_project = self.requirements.iter().filter_map(|line| match line {
            Line::Local(local) if local.path == root => Some(format!("{} {}", local.before, local.after)),
            Line::Local(_) | Line::Text(_) => None,
        });
        let lists = of_project.filter_map(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()));
        lists.flat_map(|list| list.split(',').map(normalised).collect::<Vec<_>>()).collect()
    }
}

/// The normalised name at the start of a requirement; `None` for options and paths.
pub(crate) fn package_name(requirement: &str) -> Option<String> {
    let requirement = requirement.trim().trim_matches(['"', '\'']);
    let end =
        requirement.find(|it: char| !it.is_ascii_alphanumeric() && !"-_.".contains(it)).unwrap_or(requirement.len());
    let (name, rest) = requirement.split_at(end);
    let is_name = name.starts_with(|it: char| it.is_ascii_alphanumeric()) && !rest.starts_with(['/', ':', '\\']);
    is_name.then(|| normalised(name))
}

/// A package's name as indexes compare it.
pub(crate) fn normalised(name: &str) -> String {
    name.to_ascii_lowercase().split(['-', '_', '.']).filter(|it| !it.is_empty()).collect::<Vec<_>>().join("-")
}

#[derive(Clone, Debug)]
pub enum Line {
    /// A line without paths in the project.
    Text(String),
    /// A line with a path in the project.
    Local(Local),
}

/// A line with a path in the project. `before` ends in `file://` if the path is part of a URL.
#[derive(Clone, Debug)]
pub struct Local {
    pub(crate) before: String,
    /// Real path in the project.
    pub path: PathBuf,
    pub(crate) after: String,
}

impl Local {
    /// The line with another path.
    pub fn with_path(&self, path: &Path) -> String {
        let path = path.to_string_lossy();
        let path = if self.before.ends_with("file://") { encoded(&path) } else { path.into_owned() };
        format!("{}{path}{}", self.before, self.after)
    }
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

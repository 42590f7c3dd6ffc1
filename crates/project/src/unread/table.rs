//! The files that name packages or Python versions, and what to do about those that are not read.

use std::path::Path;

/// A kind of files.
pub(super) struct Row {
    /// Names in lower case; `*` stands for any text.
    names: &'static [&'static str],
    pub(super) form: Form,
    /// What to do; `{file}` is the file.
    pub(super) advice: &'static str,
    /// Whether `uv add` is the way out if the project has a `uv.lock`.
    pub(super) can_be_added: bool,
}

/// How a file names packages and Python versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `requirements.txt`.
    Requirements,
    /// Lines of requirements.
    Lines,
    /// conda's `dependencies:`.
    Conda,
    Pipfile,
    SetupCfg,
    SetupPy,
    Pyproject,
    /// The table of a tool, as `[tool.NAME]` in `pyproject.toml`.
    Tool(&'static str),
    PythonVersion,
    UvLock,
    Pylock,
    Dockerfile,
    Tox,
    Nox,
    /// A lock file of another tool for packages of an index, whose other file names the packages too.
    Lock,
    /// A file that names only versions of programs, such as Python.
    Python,
    /// Packages that are not from a Python index.
    Other,
}

/// Folders that hold such files.
pub(super) const FOLDERS: [&str; 14] = [
    "requirements",
    "requirements.d",
    "reqs",
    "deps",
    "dependencies",
    "environment",
    "environments",
    "env",
    "envs",
    "conda",
    "binder",
    ".binder",
    ".config",
    "docker",
];

/// Folders of which the folders inside hold such files, too.
pub(super) const NESTED: [&str; 3] = ["requirements", "requirements.d", "reqs"];

const INCLUDE: &str = "add the line `-r {file}` to requirements.txt";
const COMPILE: &str = "run `uv pip compile {file} -o requirements.txt`";
const CONDA: &str = "list its packages in requirements.txt, or use --image with an image that has them";
const LIST: &str = "list its packages in requirements.txt";
const PACKAGE: &str = "add the line `-e .` to requirements.txt";
const PIPENV: &str = "run `pipenv requirements > requirements.txt`";
const PYTHON: &str = "write the version to .python-version";
const IMAGE: &str = "use --image with an image that has them";
const BUILT: &str = "list its packages in requirements.txt, or use --image with the image that it builds";
const UV_LOCK: &str = "a lock file needs its pyproject.toml in the project folder";

const fn files(names: &'static [&'static str], form: Form, advice: &'static str) -> Row {
    let can_be_added = !matches!(form, Form::Python | Form::Other | Form::UvLock | Form::PythonVersion);
    Row { names, form, advice, can_be_added }
}

/// The first row that fits counts.
static ROWS: [Row; 25] = [
    files(&["requirements.txt"], Form::Requirements, INCLUDE),
    files(&["pyproject.toml"], Form::Pyproject, "submit that folder, or list its packages in requirements.txt"),
    files(&["uv.lock"], Form::UvLock, UV_LOCK),
    files(&["pylock.toml", "pylock.*.toml"], Form::Pylock, "name it pylock.toml in the project folder"),
    files(&[".python-version"], Form::PythonVersion, "write the version to .python-version of the project folder"),
    files(&["setup.cfg"], Form::SetupCfg, LIST),
    files(&["setup.py"], Form::SetupPy, PACKAGE),
    files(&["pipfile"], Form::Pipfile, PIPENV),
    files(&["pipfile.lock"], Form::Lock, PIPENV),
    files(&["poetry.lock"], Form::Lock, "its versions do not count: run `poetry export -o requirements.txt`"),
    files(&["pdm.lock"], Form::Lock, "its versions do not count: run `pdm export -o requirements.txt`"),
    files(&["requirements*.lock", "*requirements.lock"], Form::Lines, INCLUDE),
    files(
        &["conda-lock.y*ml", "*.conda-lock.y*ml", "conda-*.lock", "spec-file.txt", "explicit.txt"],
        Form::Other,
        CONDA,
    ),
    files(&["pixi.toml", "pixi.lock", "anaconda-project.y*ml", "meta.yaml", "recipe.yaml"], Form::Other, CONDA),
    files(&["*environment*.y*ml", "env*.y*ml", "*env.y*ml", "*conda*.y*ml"], Form::Conda, CONDA),
    files(&["*req*.in", "dev.in", "test.in"], Form::Lines, COMPILE),
    files(
        &[
            "*require*.txt",
            "*requirment*.txt",
            "req*.txt",
            "deps*.txt",
            "dependencies*.txt",
            "pip*.txt",
            "*require*.pip",
        ],
        Form::Lines,
        INCLUDE,
    ),
    files(
        &["runtime.txt", ".tool-versions", "mise.toml", ".mise.toml", ".prototools", ".python-versions", "devbox.json"],
        Form::Python,
        PYTHON,
    ),
    files(&["apt.txt", "aptfile", "packages.txt", "postbuild", "install.r"], Form::Other, IMAGE),
    files(&["flake.nix", "shell.nix", "devenv.nix", "guix.scm", "manifest.scm"], Form::Other, IMAGE),
    files(&["hatch.toml"], Form::Tool("hatch"), LIST),
    files(&["dockerfile", "dockerfile.*", "*.dockerfile", "containerfile*"], Form::Dockerfile, BUILT),
    files(&["tox.ini"], Form::Tox, LIST),
    files(&["tox.toml"], Form::Tool("tox"), LIST),
    files(&["noxfile.py"], Form::Nox, LIST),
];

/// Files that may have any name in folders of requirements.
static IN_FOLDER: [Row; 3] = [
    files(&["*.txt", "*.pip"], Form::Lines, INCLUDE),
    files(&["*.in"], Form::Lines, COMPILE),
    files(&["*.yml", "*.yaml"], Form::Conda, CONDA),
];

/// The row of a file; with the folder, unless the entry point is below it.
pub(super) fn row(name: &str, folder: Option<&Path>) -> Option<&'static Row> {
    ROWS.iter()
        .chain(IN_FOLDER.iter().filter(|_| folder.is_some()))
        .find(|row| row.names.iter().any(|pattern| fits(pattern, name)))
}

/// Whether a name fits a pattern.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| fits(after, &rest[at..]))
}

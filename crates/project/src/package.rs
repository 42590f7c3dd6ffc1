//! The project itself as a package: whether and how it is installed, and what its installation depends on.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use hostler_model::PythonVersions;

use crate::error::{IoContext, ProjectError};
use crate::plan::OwnPackage;
use crate::poetry;
use crate::project::{PROJECT_BYTES, Project, hash_field, problem, string_list, uv_settings, value_at};

/// The build backend of setuptools, which is also the default.
const SETUPTOOLS: &str = "setuptools.build_meta";

/// How to install the project itself. As in uv, a project with a build system is a package, unless `tool.uv.package`
/// says something else.
pub(crate) fn own_package(
    project: &Project<'_>,
    pyproject: &toml::Table,
    whole_tree: bool,
) -> Result<OwnPackage, ProjectError> {
    let setting = uv_settings(pyproject).and_then(|uv| uv.get("package")?.as_bool());
    let is_described = pyproject.contains_key("project");
    let is_package = match setting {
        Some(is_package) => is_package && (is_described || is_described_elsewhere(project, pyproject)?),
        None if is_described => pyproject.contains_key("build-system"),
        None => is_described_elsewhere(project, pyproject)?,
    };
    Ok(if !is_package {
        OwnPackage::None
    } else if whole_tree || !is_pure(project, pyproject)? {
        OwnPackage::Copied
    } else {
        OwnPackage::Linked
    })
}

/// Whether the project is a package that `pip install .` installs, although `pyproject.toml` has no `[project]`: Poetry 1,
/// flit, `setup.cfg`, or a `setup.py` with dependencies.
fn is_described_elsewhere(project: &Project<'_>, pyproject: &toml::Table) -> Result<bool, ProjectError> {
    let (has_backend, backend) = (pyproject.contains_key("build-system"), build_backend(pyproject));
    let has = |path: &[&str]| value_at(pyproject, path).is_some();
    if has_backend && backend.starts_with("poetry") && has(&["tool", "poetry"]) {
        return Ok(poetry::is_package(project, pyproject));
    }
    if has_backend && backend.starts_with("flit") && has(&["tool", "flit", "metadata"]) {
        return Ok(true);
    }
    if !backend.starts_with(SETUPTOOLS) {
        return Ok(false);
    }
    let options = setup_cfg(project)?.filter(|text| text.lines().any(|line| line.trim_end() == "[options]"));
    if has_backend && options.is_some() {
        return Ok(true);
    }
    // Many folders have a `setup.py` for something else, such as an extension that is built in place.
    let script = project.read_optional("setup.py", PROJECT_BYTES)?;
    Ok(script
        .is_some_and(|text| [&text, &options.unwrap_or_default()].iter().any(|it| it.contains("install_requires"))))
}

/// Text of `setup.cfg`.
pub(crate) fn setup_cfg(project: &Project<'_>) -> Result<Option<String>, ProjectError> {
    project.read_optional("setup.cfg", PROJECT_BYTES)
}

/// Whether the build of a package only finds its modules: a backend of pure Python, and nothing that the backend computes
/// or runs.
fn is_pure(project: &Project<'_>, pyproject: &toml::Table) -> Result<bool, ProjectError> {
    const BACKENDS: [&str; 5] =
        ["uv_build", "hatchling.build", "flit_core.buildapi", "poetry.core.masonry.api", SETUPTOOLS];
    const REQUIRED: [&str; 6] = ["uv-build", "hatchling", "flit-core", "poetry-core", "setuptools", "wheel"];
    let at = |path: &[&str]| value_at(pyproject, path);
    let backend = build_backend(pyproject);
    let requires = string_list("pyproject.toml", "build-system.requires", at(&["build-system", "requires"]))?;
    let is_usual = |requirement: &String| {
        let end = requirement.find(|it: char| !it.is_ascii_alphanumeric() && !"-_.".contains(it));
        REQUIRED.contains(&&*requirement[..end.unwrap_or(requirement.len())].to_ascii_lowercase().replace('_', "-"))
    };
    let computes = at(&["project", "dynamic"]).and_then(toml::Value::as_array).is_some_and(|fields| !fields.is_empty())
        || at(&["tool", "setuptools", "ext-modules"]).is_some()
        || at(&["tool", "poetry", "build"]).is_some()
        || at(&["tool", "hatch", "build"]).is_some_and(|build| build.to_string().contains("hooks"))
        || ["setup.py", "hatch_build.py"].iter().any(|name| project.root.join(name).exists())
        || backend == SETUPTOOLS
            && setup_cfg(project)?.is_some_and(|text| text.contains("file:") || text.contains("attr:"));
    Ok(BACKENDS.contains(&backend) && requires.iter().all(is_usual) && !computes)
}

fn build_backend(pyproject: &toml::Table) -> &str {
    value_at(pyproject, &["build-system", "build-backend"]).and_then(toml::Value::as_str).unwrap_or(SETUPTOOLS)
}

/// Names of the modules and packages that are not inside of others, sorted.
fn top_level_modules(project: &Project<'_>, pyproject: &toml::Table) -> Result<BTreeSet<String>, ProjectError> {
    let configured = value_at(pyproject, &["tool", "setuptools", "packages", "find", "where"]);
    let configured = configured.and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str);
    let directories: BTreeSet<PathBuf> = ["", "src"]
        .into_iter()
        .chain(configured)
        .filter_map(|name| project.root.join(name).canonicalize().ok())
        .filter(|directory| directory.starts_with(&project.root) && directory.is_dir())
        .collect();
    let mut names = BTreeSet::new();
    for directory in directories {
        for entry in fs::read_dir(&directory).context("read", &directory)? {
            let path = entry.context("read", &directory)?.path();
            let name = path.strip_prefix(&project.root).unwrap_or(&path).to_string_lossy();
            let is_directory = path.is_dir();
            let stem =
                if is_directory { path.file_name() } else { path.file_stem() }.unwrap_or_default().to_string_lossy();
            let is_importable = stem.chars().all(|it| it.is_alphanumeric() || it == '_') && !stem.starts_with("__");
            if is_importable && (is_directory || path.extension().is_some_and(|extension| extension == "py")) {
                names.insert(name.into_owned());
            }
        }
    }
    Ok(names)
}

/// Adds what the editable installation of the project depends on.
pub(crate) fn hash_own_package(
    project: &Project<'_>,
    hasher: &mut blake3::Hasher,
    pyproject: &toml::Table,
    own: OwnPackage,
) -> Result<(), ProjectError> {
    hash_field(hasher, format!("{own:?}").as_bytes());
    if own == OwnPackage::Linked {
        hash_field(hasher, pyproject.to_string().as_bytes());
        let setup = setup_cfg(project)?;
        hash_field(hasher, setup.unwrap_or_default().as_bytes());
        if build_backend(pyproject) == SETUPTOOLS {
            // Without `src`, its editable installation finds only the modules that existed when it was built.
            for name in top_level_modules(project, pyproject)? {
                hash_field(hasher, name.as_bytes());
            }
        }
    }
    Ok(())
}

/// `python_requires` of a `setup.cfg` that describes the package.
pub(crate) fn setup_cfg_python(project: &Project<'_>) -> Result<Option<PythonVersions>, ProjectError> {
    let pyproject = project.pyproject()?.unwrap_or_default();
    if pyproject.contains_key("project") || !is_described_elsewhere(project, &pyproject)? {
        return Ok(None);
    }
    let text = setup_cfg(project)?.unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("python_requires"));
    let versions = line.and_then(|rest| rest.trim_start().strip_prefix('=')).map(|rest| rest.trim().parse());
    versions.transpose().map_err(|error| problem("setup.cfg", format!("python_requires: {error}")))
}

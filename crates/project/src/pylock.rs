//! `pylock.toml`: the lock file of the standard (PEP 751), as requirements.

use std::path::Path;
use std::sync::PoisonError;

use crate::error::{Bound, ProjectError};
use crate::plan::{Kind, Requirements};
use crate::project::{LOCK_BYTES, LOCK_TURN, Project, parse_toml, problem, read};
use crate::requirements::RequirementsReader;

pub(crate) const FILE: &str = "pylock.toml";

/// Indexes from which every installer takes packages by default.
const DEFAULT_INDEX: &str = "https://pypi.org/simple";

/// Parses the lock file for `use_it`.
pub(crate) fn parsed<T>(
    path: &Path,
    use_it: impl FnOnce(&toml::Table) -> Result<T, ProjectError>,
) -> Result<T, ProjectError> {
    let text = read(path, FILE, LOCK_BYTES, Bound::Bytes(LOCK_BYTES))?;
    let _turn = LOCK_TURN.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(&parse_toml(FILE, &text)?)
}

/// The packages of a lock file, with their hashes if all have one.
pub(crate) fn requirements(project: &Project<'_>, lock: &toml::Table) -> Result<Option<Requirements>, ProjectError> {
    let packages = packages(lock).filter(|package| !is_of_group(package)).collect::<Vec<_>>();
    let hashes: Vec<Vec<&str>> = packages.iter().map(|package| hashes(package)).collect();
    let all_have_hashes = hashes.iter().all(|hashes| !hashes.is_empty());
    let mut reader = RequirementsReader::new(project);
    let mut indexes: Vec<&str> = packages.iter().filter_map(|it| it.get("index")?.as_str()).collect();
    indexes.sort_unstable();
    indexes.dedup();
    for index in indexes.into_iter().filter(|it| it.trim_end_matches('/') != DEFAULT_INDEX) {
        reader.option(format!("--extra-index-url {index}"));
    }
    for (package, hashes) in packages.iter().zip(hashes) {
        let line = line(package)?;
        let options: Vec<String> = hashes.iter().map(|hash| format!("--hash=sha256:{hash}")).collect();
        reader.dependency(&line, if all_have_hashes { options.join(" ") } else { String::new() }.trim(), FILE)?;
    }
    reader.finish(Kind::Pylock)
}

/// The packages of a lock file.
pub(crate) fn packages(lock: &toml::Table) -> impl Iterator<Item = &toml::Table> {
    lock.get("packages").and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_table)
}

/// Whether a package belongs to an extra or a dependency group, which are not installed.
pub(crate) fn is_of_group(package: &toml::Table) -> bool {
    let marker = package.get("marker").and_then(toml::Value::as_str).unwrap_or_default();
    marker.contains("dependency_groups") || marker.contains("extras")
}

fn line(package: &toml::Table) -> Result<String, ProjectError> {
    let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
    let name = text("name").ok_or_else(|| problem(FILE, "a package has no name"))?;
    let source = |kind: &str, key: &str| package.get(kind)?.get(key)?.as_str();
    let below = |kind: &str| source(kind, "subdirectory").map(|it| format!("#subdirectory={it}")).unwrap_or_default();
    let local = |path: &str| format!(" @ ./{}", path.trim_start_matches("./"));
    let what = if let Some(url) = source("vcs", "url").or_else(|| source("vcs", "path")) {
        let kind = source("vcs", "type").unwrap_or("git");
        let commit = source("vcs", "commit-id").map(|it| format!("@{it}")).unwrap_or_default();
        format!(" @ {kind}+{url}{commit}{}", below("vcs"))
    } else if let Some(path) = source("directory", "path").or_else(|| source("archive", "path")) {
        local(path)
    } else if let Some(url) = source("archive", "url") {
        format!(" @ {url}{}", below("archive"))
    } else {
        text("version").map(|version| format!("=={version}")).unwrap_or_default()
    };
    Ok(format!("{name}{what}{}", text("marker").map(|it| format!(" ; {it}")).unwrap_or_default()))
}

/// The SHA-256 hashes of all files of a package.
fn hashes(package: &toml::Table) -> Vec<&str> {
    let wheels = package.get("wheels").and_then(toml::Value::as_array).into_iter().flatten();
    let files = wheels.chain(package.get("sdist")).chain(package.get("archive"));
    files.filter_map(|file| file.get("hashes")?.get("sha256")?.as_str()).collect()
}

//! Dependencies in the form of Poetry 1: `[tool.poetry.dependencies]`, with constraints such as `^1.2`.
//!
//! They are translated into standard requirements, because Poetry's own backend installs only projects that are packages.
//! A dependency that has no standard form is left out, and [`crate::survey`] names it.

use hostler_model::PythonVersions;

use crate::project::{Project, value_at};

/// The dependencies of a Poetry project.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// Standard requirements.
    pub(crate) lines: Vec<String>,
    /// Names of dependencies without a standard form.
    pub(crate) others: Vec<String>,
    /// Accepted Python versions. `None` for all, and if the constraint has no standard form.
    pub(crate) python: Option<PythonVersions>,
}

/// Translates `[tool.poetry.dependencies]`; `None` if the project has a `[project]` table or no such dependencies.
pub(crate) fn dependencies(pyproject: &toml::Table) -> Option<Dependencies> {
    let table = value_at(pyproject, &["tool", "poetry", "dependencies"])?.as_table()?;
    if pyproject.contains_key("project") {
        return None;
    }
    let mut found = Dependencies::default();
    for (name, value) in table {
        let alternatives = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if name == "python" {
            found.python = value.as_str().and_then(python_versions);
            if found.python.is_none() && value.as_str() != Some("*") {
                found.others.push(name.clone());
            }
            continue;
        }
        match alternatives.iter().map(|it| requirement(name, it)).collect::<Option<Vec<_>>>() {
            Some(lines) => found.lines.extend(lines.into_iter().flatten()),
            None => found.others.push(name.clone()),
        }
    }
    Some(found)
}

/// Whether Poetry's backend finds the project's own package. Otherwise, it refuses to build it.
pub(crate) fn is_package(project: &Project<'_>, pyproject: &toml::Table) -> bool {
    let at = |key| value_at(pyproject, &["tool", "poetry", key]);
    if at("package-mode").and_then(toml::Value::as_bool) == Some(false) {
        return false;
    }
    let Some(name) = at("name").and_then(toml::Value::as_str) else { return false };
    let module = name.replace(['-', '.'], "_");
    let exists = |path: String| project.root.join(&path).is_dir() || project.root.join(path + ".py").is_file();
    at("packages").is_some() || exists(module.clone()) || exists(format!("src/{module}"))
}

/// The standard form of one dependency; `Some(None)` for an optional one, `None` if there is no standard form.
fn requirement(name: &str, value: &toml::Value) -> Option<Option<String>> {
    if let Some(constraint) = value.as_str() {
        return Some(Some(format!("{name}{}", specifier(constraint)?)));
    }
    let table = value.as_table()?;
    let text = |key: &str| table.get(key).and_then(toml::Value::as_str);
    if table.get("optional").and_then(toml::Value::as_bool) == Some(true) {
        return Some(None);
    }
    let extras: Vec<&str> = table
        .get("extras")
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_str)
        .collect();
    let extras = if extras.is_empty() { String::new() } else { format!("[{}]", extras.join(",")) };
    let mut markers: Vec<String> = text("markers").map(|it| format!("({it})")).into_iter().collect();
    markers.extend(text("platform").map(|it| format!("sys_platform == '{it}'")));
    if let Some(python) = text("python") {
        markers.extend(specifier(python)?.split(',').filter(|it| !it.is_empty()).map(python_marker));
    }
    let marker = if markers.is_empty() { String::new() } else { format!(" ; {}", markers.join(" and ")) };
    let source = if let Some(git) = text("git") {
        let revision = ["rev", "tag", "branch"].iter().find_map(|key| text(key)).map(|it| format!("@{it}"));
        let below = text("subdirectory").map(|it| format!("#subdirectory={it}"));
        format!(" @ git+{git}{}{}", revision.unwrap_or_default(), below.unwrap_or_default())
    } else if let Some(url) = text("url") {
        format!(" @ {url}")
    } else if let Some(path) = text("path").or_else(|| text("file")) {
        format!(" @ ./{}", path.trim_start_matches("./"))
    } else {
        specifier(text("version").unwrap_or("*"))?
    };
    Some(Some(format!("{name}{extras}{source}{marker}")))
}

/// The marker for one specifier of Python versions, such as `>=3.8`.
fn python_marker(specifier: &str) -> String {
    let at = specifier.find(|it: char| it.is_ascii_digit()).unwrap_or(specifier.len());
    let (operator, version) = specifier.split_at(at);
    let variable = if version.matches('.').count() < 2 { "python_version" } else { "python_full_version" };
    format!("{variable} {operator} '{version}'")
}

/// Python versions of a constraint. Of alternatives such as `~2.7 || ^3.6`, those of Python 2 do not count.
fn python_versions(constraint: &str) -> Option<PythonVersions> {
    let alternatives = constraint.split('|').filter(|it| !it.is_empty());
    let mut of_python_3 = alternatives.map(specifier).filter(|it| {
        let versions = it.as_ref().and_then(|it| it.parse::<PythonVersions>().ok());
        versions.is_none_or(|it| it.constraint().is_none_or(|it| it.to_string() != "python-none"))
    });
    let only = of_python_3.next()??;
    if of_python_3.next().is_some() || only.is_empty() { None } else { only.parse().ok() }
}

/// The standard form of a constraint; empty for `*`, `None` if there is none.
fn specifier(constraint: &str) -> Option<String> {
    let mut parts = Vec::new();
    let mut operator = String::new();
    for word in constraint.split([',', ' ']).map(str::trim).filter(|it| !it.is_empty()) {
        // `>= 1.0` is one constraint.
        if word.bytes().all(|byte| b"<>=!~^".contains(&byte)) {
            operator = word.to_owned();
            continue;
        }
        let one = one_specifier(&format!("{operator}{word}"))?;
        operator.clear();
        parts.extend(Some(one).filter(|it| !it.is_empty()));
    }
    Some(parts.join(","))
}

fn one_specifier(constraint: &str) -> Option<String> {
    if constraint.contains('|') {
        return None;
    }
    if constraint == "*" {
        return Some(String::new());
    }
    if let Some(version) = constraint.strip_prefix('^') {
        let first = numbers(version)?;
        let at = first.iter().position(|it| *it != 0).unwrap_or(first.len() - 1);
        return Some(format!(">={version},<{}", next(&first[..=at])));
    }
    if let Some(version) = constraint.strip_prefix('~').filter(|it| !it.starts_with('=')) {
        let first = numbers(version)?;
        return Some(format!(">={version},<{}", next(&first[..first.len().min(2)])));
    }
    if constraint.starts_with(['<', '>', '!', '~']) || constraint.starts_with("==") {
        return Some(constraint.to_owned());
    }
    let version = constraint.trim_start_matches('=');
    version.starts_with(|it: char| it.is_ascii_digit()).then(|| format!("=={version}"))
}

/// The release numbers of a version.
fn numbers(version: &str) -> Option<Vec<u64>> {
    let end = version.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(version.len());
    version[..end].trim_end_matches('.').split('.').map(|it| it.parse().ok()).collect()
}

/// The version after all that begin with these numbers.
fn next(numbers: &[u64]) -> String {
    let (last, before) = numbers.split_last().expect("a version has a number");
    before.iter().chain([&(last + 1)]).map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poetry_constraints_have_a_standard_form() {
        for (constraint, standard) in [
            ("*", ""),
            ("^1.2.3", ">=1.2.3,<2"),
            ("^0.2.3", ">=0.2.3,<0.3"),
            ("^0.0.3", ">=0.0.3,<0.0.4"),
            ("^0", ">=0,<1"),
            ("~1.2.3", ">=1.2.3,<1.3"),
            ("~1", ">=1,<2"),
            ("~=1.4.2", "~=1.4.2"),
            ("1.2.*", "==1.2.*"),
            ("1.2.3", "==1.2.3"),
            (">= 1.2, <2", ">=1.2,<2"),
            (">=1.2 <2", ">=1.2,<2"),
        ] {
            assert_eq!(specifier(constraint).as_deref(), Some(standard), "{constraint}");
        }
        assert_eq!((specifier("^1 || ^2"), specifier("latest")), (None, None));
    }

    #[test]
    fn poetry_dependencies_become_requirements() {
        let project = "[tool.poetry.dependencies]\npython = '~2.7 || ^3.9'\na = '^1.2'\nb = { version = '*', extras = ['x'], python = '<3.11' }\n\
                       c = { git = 'https://example.org/c', tag = 'v1' }\nd = { path = '../d' }\ne = { version = '1', optional = true }\n\
                       f = [{ version = '1', platform = 'linux' }, { version = '2', markers = \"sys_platform == 'darwin'\" }]\ng = '^1 || ^2'\n";
        let found = dependencies(&project.parse().expect("TOML")).expect("a Poetry project");
        let expected = [
            "a>=1.2,<2",
            "b[x] ; python_version < '3.11'",
            "c @ git+https://example.org/c@v1",
            "d @ ./../d",
            "f==1 ; sys_platform == 'linux'",
            "f==2 ; (sys_platform == 'darwin')",
        ];
        assert_eq!(found.lines, expected);
        assert_eq!(found.others, ["g"]);
        assert_eq!(found.python.map(|it| it.to_string()).as_deref(), Some(">=3.9, <4"));
    }
}

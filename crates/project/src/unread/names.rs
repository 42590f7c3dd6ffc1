//! The packages that files of other tools name.

use std::collections::BTreeSet;

use super::table::Form;
use super::{Named, commands, poetry_others, pyproject};
use crate::package::setup_cfg;
use crate::plan::{normalised, package_name};
use crate::project::Project;

/// What a file names; `None` if it names nothing.
pub(super) fn of_file(form: Form, text: &str) -> Option<Named> {
    let named = match form {
        Form::Requirements | Form::Lines => Named::packages(lines(text)),
        Form::Conda => conda(text)?,
        Form::Pipfile => pipfile(text),
        Form::SetupCfg => Named { python: has_key(text, "python_requires"), ..Named::packages(setup_cfg_names(text)) },
        Form::SetupPy if text.contains("install_requires") => Named::unknown(),
        Form::SetupPy => Named { python: text.contains("python_requires"), ..Named::packages([]) },
        Form::Dockerfile => Named::packages(commands::dockerfile(text)),
        Form::Tox => Named::packages(commands::tox(text)),
        Form::Nox => Named::packages(commands::nox(text)),
        Form::Pyproject => pyproject::named(text)?,
        Form::Tool(tool) => Named::packages(pyproject::tool_packages(tool, &toml::Value::Table(text.parse().ok()?))),
        Form::PythonVersion | Form::Python => {
            let names_python = |line: &str| line.starts_with('3') || line.contains("python");
            Named { python: text.lines().any(names_python), ..Named::packages([]) }
        }
        Form::UvLock | Form::Pylock | Form::Lock | Form::Other => Named::unknown(),
    };
    let is_empty = named.packages.as_ref().is_some_and(BTreeSet::is_empty) && !named.python;
    (!is_empty).then_some(named)
}

/// Names of the dependencies that the backend of the project installs.
pub(super) fn of_package(project: &Project<'_>, pyproject: &toml::Table) -> BTreeSet<String> {
    let others = poetry_others(pyproject);
    let poetry = pyproject::poetry_names(pyproject).filter(|name| !others.contains(name));
    let cfg = setup_cfg(project).ok().flatten().unwrap_or_default();
    let project = pyproject::dependency_names(pyproject);
    poetry.map(|name| normalised(&name)).chain(setup_cfg_names(&cfg)).chain(project).collect()
}

/// Names in lines of requirements. Text that does not look like requirements gives none.
fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split(" #").next().unwrap_or(line).trim());
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '-', '@']));
    lines.filter(|line| !line.split([' ', ';']).nth(1).is_some_and(is_word)).filter_map(package_name).collect()
}

/// Whether a word after a name shows that the line is a sentence.
fn is_word(word: &str) -> bool {
    word.starts_with(|it: char| it.is_alphabetic())
}

/// Names under `dependencies:`, including those for pip; `None` without that key.
fn conda(text: &str) -> Option<Named> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with("dependencies:"));
    let first = lines.next()?;
    let inline = first.trim_start_matches("dependencies:").trim().trim_matches(['[', ']']);
    let listed = lines
        .take_while(|line| line.is_empty() || line.starts_with([' ', '-', '#', '\t']))
        .filter_map(|line| line.trim().strip_prefix('-'))
        .chain(inline.split(','));
    let mut named = Named::packages([]);
    for item in listed {
        // The channel precedes a name: `conda-forge::numpy`.
        let item = item.trim().trim_matches(['"', '\'']);
        let item = item.rsplit("::").next().unwrap_or(item);
        let Some(name) = package_name(item).filter(|_| !item.ends_with(':')) else { continue };
        let has_version = item.len() > name.len();
        match name.as_str() {
            "python" => named.python |= has_version,
            "pip" | "setuptools" | "wheel" => {}
            _ => _ = named.packages.as_mut()?.insert(name),
        }
    }
    Some(named)
}

fn pipfile(text: &str) -> Named {
    let Ok(table) = text.parse::<toml::Table>() else { return Named::unknown() };
    let keys =
        |section: &str| table.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
    let names = keys("packages").chain(keys("dev-packages")).map(|name| normalised(name));
    Named { python: keys("requires").any(|key| key.starts_with("python")), ..Named::packages(names) }
}

fn has_key(text: &str, key: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with(key))
}

/// Names in `install_requires` of a `setup.cfg`.
fn setup_cfg_names(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        if line.starts_with([' ', '\t']) {
            found.extend(Some(line).filter(|_| is_inside).and_then(package_name));
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        is_inside = key.trim() == "install_requires";
        found
            .extend(Some(value).filter(|it| is_inside && !it.trim_start().starts_with("file:")).and_then(package_name));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_the_files_of_other_tools() {
        let names = |form, text| {
            let named = of_file(form, text)?;
            Some((named.packages.map(|names| names.into_iter().collect::<Vec<_>>().join(" ")), named.python))
        };
        let some = |names: &str, python| Some((Some(names.to_owned()), python));
        assert_eq!(
            names(Form::Lines, "# a\n-r b\nNum_Py[x]==1 ; a\ntorch # why\ngit+https://x\n\n"),
            some("git num-py torch", false)
        );
        assert_eq!(names(Form::Lines, "This file lists nothing.\n"), None);
        let conda = "name: x\nchannels: [a]\ndependencies:\n  - python=3.12\n  - conda-forge::numpy>=1\n- pip:\n    - Six==1\nvariables: {}\n";
        assert_eq!(names(Form::Conda, conda), some("numpy six", true));
        assert_eq!(names(Form::Conda, "dependencies: [numpy, 'scipy=1']\n"), some("numpy scipy", false));
        assert_eq!(names(Form::Conda, "services:\n  web: {}\n"), None);
        let pipfile = "[packages]\nsix = '*'\n[dev-packages]\npytest = '*'\n[requires]\npython_version = '3.12'\n";
        assert_eq!(names(Form::Pipfile, pipfile), some("pytest six", true));
        let setup = "[options]\npython_requires = >=3.9\ninstall_requires =\n    six>=1\n    tomlkit\nzip_safe = no\n";
        assert_eq!(names(Form::SetupCfg, setup), some("six tomlkit", true));
        assert_eq!(names(Form::SetupCfg, "[flake8]\nmax-line-length = 9\n"), None);
        assert_eq!(names(Form::Python, "python-3.12.1\n"), some("", true));
        assert_eq!(names(Form::Python, "nodejs 20\npython 3.12\n"), some("", true));
        assert_eq!(names(Form::Python, "nodejs 20\n"), None);
        assert_eq!(names(Form::Other, ""), Some((None, false)));
    }
}

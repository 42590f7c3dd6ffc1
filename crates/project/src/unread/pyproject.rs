//! The tables of `pyproject.toml` that name packages.

use std::collections::{BTreeMap, BTreeSet};

use super::{Named, Search, Unread, poetry_others};
use crate::error::ProjectError;
use crate::plan::{Kind, normalised, package_name};
use crate::project::{string_list, value_at};

const FILE: &str = "pyproject.toml";

/// What to do about the table of a tool.
const TOOLS: [(&str, &str); 4] = [
    ("poetry", "run `poetry export -o requirements.txt`"),
    ("pdm", "run `pdm export -o requirements.txt`"),
    ("pixi", "list its packages in requirements.txt, or use --image with an image that has them"),
    ("conda", "list its packages in requirements.txt, or use --image with an image that has them"),
];
const LIST: &str = "list what the job needs in requirements.txt";

/// Tables that name packages that the job does not get.
pub(super) fn unread(search: &Search<'_>) -> Result<Vec<Unread>, ProjectError> {
    let (pyproject, installed) = (&search.pyproject, &search.installed);
    let mut found = Vec::new();
    let is_lock = search.kind == Some(Kind::UvLock);
    if !is_lock && !dependency_names(pyproject).is_subset(installed) {
        let file = if search.kind == Some(Kind::Pylock) { "pylock.toml" } else { "requirements.txt" };
        let advice = format!("{file} is used instead and lacks some of them: add these, or remove {file}");
        found.push(Unread::new(FILE, "[project] dependencies", advice));
    }
    let direct = if is_lock { names(&locked_dependencies(pyproject)?) } else { installed.clone() };
    let groups = dependency_groups(pyproject);
    let lacking = |(_, packages): &(&String, &BTreeSet<String>)| !packages.is_subset(&direct);
    let lacking: Vec<&str> = groups.iter().filter(lacking).map(|(name, _)| name.as_str()).collect();
    if !lacking.is_empty() {
        let advice = if is_lock {
            "add the group to `default-groups` in [tool.uv], or `uv add` what the job needs"
        } else {
            LIST
        };
        found.push(Unread::new(FILE, format!("[dependency-groups] {}", lacking.join(", ")), advice));
    }
    let optional = optional_dependencies(pyproject);
    let lacking = |(_, packages): &(&String, &BTreeSet<String>)| !packages.is_subset(&direct);
    let lacking: Vec<&str> = optional.iter().filter(lacking).map(|(name, _)| name.as_str()).collect();
    if !lacking.is_empty() {
        let advice = if is_lock { "add what the job needs with `uv add`" } else { LIST };
        found.push(Unread::new(FILE, format!("[project.optional-dependencies] {}", lacking.join(", ")), advice));
    }
    let others = poetry_others(pyproject);
    let has_others = !others.is_empty() && !search.is_built && matches!(search.kind, None | Some(Kind::Pyproject));
    if has_others {
        let advice = "its constraint has no standard form: list it in requirements.txt";
        found.push(Unread::new(FILE, format!("{} of [tool.poetry.dependencies]", others.join(", ")), advice));
    }
    for (tool, packages) in tool_tables(pyproject) {
        if packages.is_subset(installed) || is_lock && tool == "uv" || has_others && tool == "poetry" {
            continue;
        }
        let advice = TOOLS.iter().find(|(name, _)| tool.starts_with(name)).map_or(LIST, |(_, advice)| advice);
        let advice = if is_lock { "add what the job needs with `uv add`" } else { advice };
        found.push(Unread::new(FILE, format!("[tool.{tool}]"), advice));
    }
    let python = value_at(pyproject, &["tool", "poetry", "dependencies", "python"]);
    if python.is_some()
        && search.read.python.is_none()
        && !others.iter().any(|it| it == "python")
        && python.and_then(toml::Value::as_str) != Some("*")
    {
        found.push(Unread::new(FILE, "python of [tool.poetry.dependencies]", "write the version to .python-version"));
    }
    Ok(found)
}

/// What a `pyproject.toml` in a nested folder names; `None` if it names nothing.
pub(super) fn named(text: &str) -> Option<Named> {
    let table: toml::Table = text.parse().ok()?;
    let packages = dependency_names(&table).into_iter().chain(tool_tables(&table).into_values().flatten());
    let packages = packages.chain(dependency_groups(&table).into_values().flatten());
    let packages = packages.chain(optional_dependencies(&table).into_values().flatten());
    let python = value_at(&table, &["project", "requires-python"]).is_some();
    Some(Named { packages: Some(packages.collect()), python })
}

/// Dependencies that `uv sync` installs: those of the project and of its default groups.
pub(super) fn locked_dependencies(pyproject: &toml::Table) -> Result<Vec<String>, ProjectError> {
    let mut found = string_list(FILE, "project.dependencies", value_at(pyproject, &["project", "dependencies"]))?;
    found.extend(strings(value_at(pyproject, &["tool", "uv", "dev-dependencies"])));
    let chosen = value_at(pyproject, &["tool", "uv", "default-groups"]);
    let is_default = |name: &str| match chosen {
        None => name == "dev",
        Some(toml::Value::String(all)) => all == "all",
        Some(listed) => strings(Some(listed)).any(|it| normalised(&it) == normalised(name)),
    };
    let groups = pyproject.get("dependency-groups").and_then(toml::Value::as_table);
    for (name, _) in groups.into_iter().flatten().filter(|(name, _)| is_default(name)) {
        found.extend(group_lines(pyproject, name, 0));
    }
    Ok(found)
}

/// Normalised names in `[project] dependencies`.
pub(super) fn dependency_names(pyproject: &toml::Table) -> BTreeSet<String> {
    dependency_lines(pyproject).filter_map(|line| package_name(&line)).collect()
}

/// The lines of `[project] dependencies`.
pub(super) fn dependency_lines(pyproject: &toml::Table) -> impl Iterator<Item = String> {
    strings(value_at(pyproject, &["project", "dependencies"]))
}

/// Names of the dependencies of a Poetry project, as written.
pub(super) fn poetry_names(pyproject: &toml::Table) -> impl Iterator<Item = String> {
    let table = value_at(pyproject, &["tool", "poetry", "dependencies"]).and_then(toml::Value::as_table);
    table.into_iter().flat_map(toml::Table::keys).filter(|name| *name != "python").cloned()
}

fn names(lines: &[String]) -> BTreeSet<String> {
    lines.iter().filter_map(|line| package_name(line)).collect()
}

fn strings(value: Option<&toml::Value>) -> impl Iterator<Item = String> {
    value.and_then(toml::Value::as_array).into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned)
}

/// The packages of each extra, without those of extras that it includes.
fn optional_dependencies(pyproject: &toml::Table) -> BTreeMap<String, BTreeSet<String>> {
    let own = value_at(pyproject, &["project", "name"]).and_then(toml::Value::as_str).map(normalised);
    let table = value_at(pyproject, &["project", "optional-dependencies"]).and_then(toml::Value::as_table);
    let names = |list| strings(Some(list)).filter_map(|line| package_name(&line)).filter(|it| Some(it) != own.as_ref());
    table.into_iter().flatten().map(|(name, list)| (name.clone(), names(list).collect())).collect()
}

/// The packages of these extras.
pub(super) fn extras(pyproject: &toml::Table, chosen: &BTreeSet<String>) -> BTreeSet<String> {
    let chosen = with_included(pyproject, chosen);
    let all = optional_dependencies(pyproject);
    all.into_iter().filter(|(name, _)| chosen.contains(&normalised(name))).flat_map(|(_, packages)| packages).collect()
}

/// The chosen extras, and those that they include: `all = ["p[dev]"]` of the project `p` includes `dev`.
fn with_included(pyproject: &toml::Table, chosen: &BTreeSet<String>) -> BTreeSet<String> {
    let own = value_at(pyproject, &["project", "name"]).and_then(toml::Value::as_str).map(normalised);
    let table = value_at(pyproject, &["project", "optional-dependencies"]).and_then(toml::Value::as_table);
    let mut found = chosen.clone();
    loop {
        let known = table.into_iter().flatten().filter(|(name, _)| found.contains(&normalised(name)));
        let lines = known.flat_map(|(_, list)| strings(Some(list)));
        let included: BTreeSet<String> = lines
            .filter(|line| package_name(line) == own)
            .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned()))
            .flat_map(|names| names.split(',').map(|name| normalised(name.trim())).collect::<Vec<_>>())
            .collect();
        let before = found.len();
        found.extend(included);
        if found.len() == before {
            return found;
        }
    }
}

/// The packages of each dependency group.
fn dependency_groups(pyproject: &toml::Table) -> BTreeMap<String, BTreeSet<String>> {
    let groups = pyproject.get("dependency-groups").and_then(toml::Value::as_table);
    let names = groups.into_iter().flat_map(toml::Table::keys);
    names.map(|name| (name.clone(), self::names(&group_lines(pyproject, name, 0)))).collect()
}

/// The lines of a dependency group, with those of the groups that it includes.
fn group_lines(pyproject: &toml::Table, name: &str, depth: usize) -> Vec<String> {
    // More is a cycle.
    const DEEPEST: usize = 8;
    let groups = pyproject.get("dependency-groups").and_then(toml::Value::as_table);
    let group = groups.into_iter().flatten().find(|(it, _)| normalised(it) == normalised(name)).map(|(_, group)| group);
    let items = group.and_then(toml::Value::as_array).into_iter().flatten();
    items
        .flat_map(|item| match (item.as_str(), item.get("include-group").and_then(toml::Value::as_str)) {
            (Some(line), _) => vec![line.to_owned()],
            (None, Some(other)) if depth < DEEPEST => group_lines(pyproject, other, depth + 1),
            (None, _) => Vec::new(),
        })
        .collect()
}

/// The packages that each tool's table names. Any key such as `dependencies` counts, so that new tools do too.
fn tool_tables(pyproject: &toml::Table) -> BTreeMap<String, BTreeSet<String>> {
    let tools = pyproject.get("tool").and_then(toml::Value::as_table).into_iter().flatten();
    let mut found = BTreeMap::new();
    for (tool, value) in tools {
        let packages = tool_packages(tool, value);
        if !packages.is_empty() {
            found.insert(tool.clone(), packages);
        }
    }
    found
}

/// The packages that the table of a tool names.
pub(super) fn tool_packages(tool: &str, table: &toml::Value) -> BTreeSet<String> {
    let mut packages = BTreeSet::new();
    collect(tool, table, &mut packages);
    packages
}

fn collect(tool: &str, value: &toml::Value, packages: &mut BTreeSet<String>) {
    for (key, value) in value.as_table().into_iter().flatten() {
        let names_packages = match tool {
            // Its other lists restrict what is installed.
            "uv" => key == "dev-dependencies",
            // They are files, or of types.
            "setuptools" | "mypy" => false,
            "tox" => key == "deps" || key == "requires",
            _ => key == "dependencies" || key.ends_with("-dependencies") || key == "requires",
        };
        if !names_packages {
            collect(tool, value, packages);
            continue;
        }
        let listed = value.as_table().into_iter().flatten().filter(|(_, it)| !it.is_array() || tool == "poetry");
        packages.extend(listed.map(|(name, _)| normalised(name)).filter(|name| name != "python"));
        let lists =
            value.as_table().into_iter().flatten().map(|(_, it)| it).filter(|_| tool != "poetry").chain([value]);
        packages.extend(lists.flat_map(|list| strings(Some(list))).filter_map(|line| package_name(&line)));
    }
}

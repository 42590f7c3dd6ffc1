//! The packages that commands in `Dockerfile`, `tox.ini` and `noxfile.py` install.

use crate::plan::package_name;

/// Options of `pip install` and `uv add` with a value.
const WITH_VALUE: [&str; 19] = [
    "-r",
    "--requirement",
    "-c",
    "--constraint",
    "-e",
    "--editable",
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "-t",
    "--target",
    "--python",
    "--prefix",
    "--root",
    "--platform",
    "--group",
    "--extra",
];

/// Packages that are there anyway.
const TOOLS: [&str; 4] = ["pip", "setuptools", "wheel", "uv"];

/// Packages of `pip install`, `uv pip install` and `uv add` in a `Dockerfile`.
pub(super) fn dockerfile(text: &str) -> Vec<String> {
    let text = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let lines = text
        .lines()
        .map(str::trim_start)
        .filter(|line| line.get(..4).is_some_and(|it| it.eq_ignore_ascii_case("run ")));
    let commands = lines.flat_map(|line| line.split(['&', ';', '|']));
    commands.flat_map(installed).collect()
}

/// E.g. `pip`, `pip3`, `pip3.12`; not `pipx`.
fn is_pip(name: &str) -> bool {
    name.strip_prefix("pip").is_some_and(|version| version.bytes().all(|it| it.is_ascii_digit() || it == b'.'))
}

fn installed(command: &str) -> Vec<String> {
    let mut words = command.split_whitespace().map(|word| word.trim_matches(['"', '\'', ',', '[', ']']));
    let mut last = "";
    let is_install = |tool: &str, word: &str| match word {
        "install" => tool.rsplit('/').next().is_some_and(is_pip),
        "add" => tool == "uv",
        _ => false,
    };
    if !words.any(|word| is_install(std::mem::replace(&mut last, word), word)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with(['-', '<', '>']) && !word.ends_with('>') {
            found.extend(package(word));
        }
    }
    found
}

/// Packages in the `deps` of a `tox.ini`.
pub(super) fn tox(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        let value = if line.starts_with([' ', '\t']) {
            line.trim()
        } else {
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            is_inside = key.trim() == "deps";
            value.trim()
        };
        // A package may be for some environments only: `py312: six`.
        let value = value.split_once(": ").map_or(value, |(_, package)| package.trim());
        if is_inside && !value.starts_with(['-', '#', '{']) {
            found.extend(package(value));
        }
    }
    found
}

/// Packages in the calls of `session.install` in a `noxfile.py`.
pub(super) fn nox(text: &str) -> Vec<String> {
    let calls = text.split("session.install(").skip(1).filter_map(|rest| rest.split(')').next());
    let words = calls.flat_map(|call| call.split(',').map(str::trim));
    words
        .filter_map(|word| word.strip_prefix(['"', '\'']).filter(|word| !word.starts_with('-')).and_then(package))
        .collect()
}

/// The package that a word names; `None` for files, folders and variables.
fn package(word: &str) -> Option<String> {
    let is_file =
        word.starts_with('.') || word.contains(['/', '$']) || word.trim_matches(['"', '\'']).ends_with(".txt");
    package_name(word).filter(|name| !is_file && !TOOLS.contains(&name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_commands_are_found() {
        let docker = "FROM python:3.12\nRUN apt-get install -y git && \\\n  pip3 install --no-cache-dir -r requirements.txt \\\n  \
                      'Torch>=2' \"num_py[x]\" . ./own $MORE\nCOPY pip install six\nrun uv pip install -c c.txt six; echo pip\n\
                      RUN [\"/venv/bin/pip\", \"install\", \"toolz\"]\nRUN pip install -U pip wheel\nRUN uv add attrs\n";
        assert_eq!(dockerfile(docker), ["torch", "num-py", "six", "toolz", "attrs"]);
        let tox = "[tox]\nenvlist = py312\n[testenv]\ndeps =\n    pytest>=8\n    py312: six\n    -r requirements.txt\n    {[base]deps}\n\
                   commands = pytest\n[testenv:lint]\ndeps = ruff\n";
        assert_eq!(super::tox(tox), ["pytest", "six", "ruff"]);
        let nox = "session.install('pytest', \"six\",\n  '-r', 'requirements.txt', \".\")\nsession.run('x')\n";
        assert_eq!(super::nox(nox), ["pytest", "six"]);
    }
}

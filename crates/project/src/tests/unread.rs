//! Tests that no file that names packages or Python versions is silent.

use super::Place;
use crate::{Kind, survey};

/// What a submission says about a folder.
fn said(files: &[(&str, &str)], entrypoint: &str) -> Vec<String> {
    let found = survey(&Place::with(files).project(), entrypoint).expect("a sound project");
    found.unread.iter().map(ToString::to_string).collect()
}

const POETRY: &str = "[tool.poetry]\nname = 'p'\n[tool.poetry.dependencies]\npython = '>=3.9,<4'\ntomlkit = '^0.13'\n";
const PROJECT: &str = "[project]\nname = 'p'\nversion = '1'\ndependencies = ['tomlkit>=0.13']\n";
const CONDA: &str = "dependencies:\n  - python=3.12\n  - tomlkit\n";

#[test]
fn files_that_are_not_read_are_named_with_what_to_do() {
    for (file, content, advice) in [
        ("Pipfile", "[packages]\ntomlkit = '*'\n", "pipenv requirements"),
        ("Pipfile.lock", "{}", "pipenv requirements"),
        ("environment.yml", CONDA, "--image"),
        ("environment-gpu.yaml", CONDA, "--image"),
        ("conda.yml", CONDA, "--image"),
        ("conda-lock.yml", "package: []\n", "--image"),
        ("pixi.toml", "[dependencies]\ntomlkit = '*'\n", "--image"),
        ("poetry.lock", "", "poetry export"),
        ("pdm.lock", "", "pdm export"),
        ("setup.cfg", "[options]\ninstall_requires =\n    tomlkit\n", "list its packages"),
        ("requirements/base.txt", "tomlkit\n", "-r requirements/base.txt"),
        ("requirements/dev.in", "tomlkit\n", "uv pip compile requirements/dev.in"),
        ("requirements-dev.txt", "tomlkit\n", "-r requirements-dev.txt"),
        ("dev-requirements.txt", "tomlkit\n", "-r dev-requirements.txt"),
        ("requirments.txt", "tomlkit\n", "-r requirments.txt"),
        ("Requirements.TXT", "tomlkit\n", "-r Requirements.TXT"),
        ("requirements.in", "tomlkit\n", "uv pip compile requirements.in"),
        ("requirements.lock", "tomlkit==1\n", "-r requirements.lock"),
        ("binder/environment.yml", CONDA, "--image"),
        ("train/requirements.txt", "tomlkit\n", "-r train/requirements.txt"),
        ("train/pyproject.toml", PROJECT, "submit that folder"),
        ("train/uv.lock", "version = 1\n", "pyproject.toml"),
        ("train/.python-version", "3.12\n", ".python-version"),
        ("train/environment.yml", CONDA, "--image"),
        ("uv.lock", "version = 1\n", "pyproject.toml"),
        ("pylock.dev.toml", "lock-version = '1.0'\n", "pylock.toml"),
        ("runtime.txt", "python-3.12.1\n", ".python-version"),
        (".tool-versions", "nodejs 20\npython 3.12.1\n", ".python-version"),
        ("mise.toml", "[tools]\npython = '3.12'\n", ".python-version"),
        (".python-versions", "3.12\n3.13\n", ".python-version"),
        ("apt.txt", "libgl1\n", "--image"),
        ("requirements/dev/base.txt", "tomlkit\n", "-r requirements/dev/base.txt"),
        ("Dockerfile", "FROM python\nRUN pip install tomlkit\n", "--image"),
        ("docker/gpu.Dockerfile", "FROM python\nRUN pip install tomlkit\n", "--image"),
        ("tox.ini", "[testenv]\ndeps = tomlkit\n", "list its packages"),
        ("tox.toml", "[env_run_base]\ndeps = ['tomlkit']\n", "list its packages"),
        ("hatch.toml", "[envs.default]\ndependencies = ['tomlkit']\n", "list its packages"),
        ("noxfile.py", "session.install('tomlkit')\n", "list its packages"),
        (".python-version", "pypy3.10-7.3.12\n", "such as 3.12"),
        (".python-version", "3.13t\n", "such as 3.12"),
    ] {
        let said = said(&[("train/run.py", ""), (file, content)], "train/run.py");
        assert!(matches!(&said[..], [line] if line.contains(file) && line.contains(advice)), "{file}: {said:?}");
    }
}

#[test]
fn tables_that_are_not_read_are_named() {
    for (table, what) in [
        ("[dependency-groups]\ntest = ['pytest']\n", "[dependency-groups] test in pyproject.toml"),
        ("[tool.pdm.dev-dependencies]\ntest = ['pytest']\n", "[tool.pdm]"),
        ("[tool.poetry.group.dev.dependencies]\npytest = '*'\n", "[tool.poetry]"),
        ("[tool.uv]\ndev-dependencies = ['pytest']\n", "[tool.uv]"),
        ("[tool.hatch.envs.default]\ndependencies = ['pytest']\n", "[tool.hatch]"),
        ("[tool.pixi.pypi-dependencies]\npytest = '*'\n", "[tool.pixi]"),
        ("[tool.flit.metadata]\nrequires = ['pytest']\n", "[tool.flit]"),
        (
            "[project.optional-dependencies]\ntest = ['pytest']\n",
            "[project.optional-dependencies] test in pyproject.toml",
        ),
        ("[tool.tox.env_run_base]\ndeps = ['pytest']\n", "[tool.tox]"),
        ("[tool.newcomer]\ndependencies = ['pytest']\n", "[tool.newcomer]"),
    ] {
        let said = said(&[("pyproject.toml", &format!("{PROJECT}{table}"))], "main.py");
        assert!(matches!(&said[..], [line] if line.contains(what)), "{table}: {said:?}");
    }
    let other = format!("{POETRY}six = '^1 || ^2'\n");
    let said = said(&[("pyproject.toml", &other)], "main.py");
    assert!(said.iter().any(|line| line.starts_with("six of [tool.poetry.dependencies]")), "{said:?}");
}

#[test]
fn packages_that_a_job_gets_anyway_are_not_named() {
    let requirements = ("requirements.txt", "tomlkit==1\n-r requirements/base.txt\n");
    for (file, content) in [
        ("requirements.in", "tomlkit\n"),
        ("Pipfile", "[packages]\nTomlKit = '*'\n"),
        ("poetry.lock", ""),
        ("environment.yml", "dependencies:\n  - tomlkit\n"),
        ("pyproject.toml", POETRY),
        ("pyproject.toml", PROJECT),
        ("setup.cfg", "[flake8]\nmax-line-length = 100\n"),
        ("notes.txt", "nothing\n"),
        ("requirements.md", "nothing\n"),
        ("data/environment.yml", CONDA),
        ("compose.yml", "services: {}\n"),
        ("Dockerfile", "FROM python:3.12\nRUN pip install -r requirements.txt && pip install tomlkit\n"),
        ("Dockerfile", "RUN pipx install black && uv add --group dev tomlkit && pip3 install tomlkit >log 2>&1\n"),
        ("tox.ini", "[testenv]\ndeps = -r requirements.txt\n"),
    ] {
        let said = said(&[requirements, ("requirements/base.txt", "six\n"), (file, content)], "main.py");
        assert_eq!(said, [""; 0], "{file}");
    }
    let extras = "[project.optional-dependencies]\ndev = ['pytest']\nall = ['p[dev]', 'tomlkit']\n";
    let project = format!("{PROJECT}{extras}");
    let chosen = [("requirements.txt", "-e .[all]\n"), ("pyproject.toml", &*project)];
    assert_eq!(said(&chosen, "main.py"), [""; 0]);
    let pinned = [(".python-version", "3.12\n"), ("runtime.txt", "python-3.12\n")];
    assert_eq!(said(&pinned, "main.py"), [""; 0]);
    let script = [("main.py", "# /// script\n# dependencies = []\n# ///\n"), ("environment.yml", CONDA)];
    assert_eq!(said(&script, "main.py"), [""; 0]);
}

#[test]
fn packages_of_other_build_backends_are_installed() {
    let build = "[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n";
    let poetry =
        format!("{POETRY}[build-system]\nrequires = ['poetry-core']\nbuild-backend = 'poetry.core.masonry.api'\n");
    let setup = "[options]\npython_requires = >=3.9,<4\ninstall_requires =\n    tomlkit\n";
    let lock = "lock-version = '1.0'\nrequires-python = '>=3.9, <4'\n[[packages]]\nname = 'tomlkit'\nversion = '0.13.2'\n\
                wheels = [{ url = 'https://example.org/t.whl', hashes = { sha256 = 'ab' } }]\n";
    for (files, kind, has_python) in [
        (vec![("pyproject.toml", POETRY)], Kind::Pyproject, true),
        (vec![("pyproject.toml", poetry.as_str())], Kind::Pyproject, true),
        (vec![("pyproject.toml", poetry.as_str()), ("p/__init__.py", "")], Kind::Pyproject, true),
        (vec![("pyproject.toml", build), ("setup.cfg", setup)], Kind::Pyproject, true),
        (vec![("setup.py", "setup(install_requires=['tomlkit'])")], Kind::Pyproject, false),
        (vec![("pylock.toml", lock)], Kind::Pylock, true),
    ] {
        let place = Place::with(&files);
        assert_eq!(place.detect().kind(), kind, "{files:?}");
        let found = survey(&place.project(), "main.py").expect("a sound project");
        assert_eq!(found.unread, [], "{files:?}");
        assert_eq!(found.python.map(|it| it.to_string()).as_deref(), has_python.then_some(">=3.9, <4"), "{files:?}");
    }
}

#[test]
fn dependency_missing_from_the_lock_is_named() {
    let lock =
        "version = 1\n[[package]]\nname = 'six'\nversion = '1.16.0'\n[[package]]\nname = 'pytest'\nversion = '8'\n";
    let of = |dependencies: &str, rest: &str| {
        let project = format!("[project]\nname = 'p'\nversion = '1'\ndependencies = [{dependencies}]\n{rest}");
        said(&[("pyproject.toml", &project), ("uv.lock", lock)], "main.py")
    };
    assert_eq!(of("'Six>=1,<2', 'six ; python_version < \"4\"'", "[dependency-groups]\ndev = ['pytest']\n"), [""; 0]);
    let missing = "tomlkit in pyproject.toml (uv.lock does not have it: run `uv lock`)";
    assert_eq!(of("'six', 'tomlkit'", ""), [missing]);
    assert_eq!(of("'six'", "[dependency-groups]\ndev = ['tomlkit']\n"), [missing]);
    assert_eq!(of("'six[x]>=1.17 ; python_version > \"3\"'", "").len(), 1, "the locked version does not fit");
    let group = of("'six'", "[dependency-groups]\ntest = ['pytest']\n");
    assert!(matches!(&group[..], [line] if line.contains("default-groups")), "{group:?}");
}

#[test]
fn dependency_of_a_workspace_member_missing_from_the_lock_is_named() {
    let lock = "version = 1\n[[package]]\nname = 'p'\nversion = '1'\nsource = { virtual = '.' }\n\
                [[package]]\nname = 'core'\nversion = '1'\nsource = { editable = 'packages/core' }\n";
    let of = |dependencies: &str| {
        let project = "[project]\nname = 'p'\nversion = '1'\ndependencies = ['core']\n";
        let member = format!("[project]\nname = 'core'\nversion = '1'\ndependencies = [{dependencies}]\n");
        let files = [("pyproject.toml", project), ("uv.lock", lock), ("packages/core/pyproject.toml", member.as_str())];
        said(&files, "main.py")
    };
    assert_eq!(of("'p'"), [""; 0]);
    let missing = "tomlkit>=1 in packages/core/pyproject.toml (uv.lock does not have it: run `uv lock`)";
    assert_eq!(of("'p', 'tomlkit>=1'"), [missing]);
}

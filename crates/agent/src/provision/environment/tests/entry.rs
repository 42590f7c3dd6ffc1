//! Tests of entry points.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use super::super::{EntryCommand, EnvError, entry_command};
use super::{Place, obtain, write_program};

const SYSTEM: &str = "/usr/bin:/bin";

fn command(place: &Place, entry: &str) -> Result<EntryCommand, EnvError> {
    entry_command(&place.project(), entry, &["one two".to_owned()], None, OsStr::new(SYSTEM))
}

/// Starts a command as the agent does, and returns the command's output.
fn output(place: &Place, command: &EntryCommand) -> String {
    let mut process = Command::new(&command.argv[0]);
    process.args(&command.argv[1..]).env_clear().envs(command.env.iter().cloned()).current_dir(place.project());
    let output = process.output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn entry_points_of_all_kinds_start() {
    let place = Place::with(&[
        ("main.py", "import sys; print('python', sys.argv[1:])"),
        ("-odd.py", "print('odd')"),
        ("package/__main__.py", "print('package')"),
        ("plain.sh", "echo plain \"$1\""),
        ("posix.sh", "#!/bin/sh\necho posix \"$0\" \"$1\""),
    ]);
    write_program(&place.project().join("tool"), "#!/bin/sh\necho tool \"$1\"\n");
    let run = |entry: &str| output(&place, &command(&place, entry).expect(entry));
    assert_eq!(run("main.py"), "python ['one two']");
    assert_eq!(run("./main.py"), "python ['one two']");
    assert_eq!(run("-odd.py"), "odd");
    assert_eq!(run("package"), "package");
    assert_eq!(run("plain.sh"), "plain one two");
    assert_eq!(run("posix.sh"), format!("posix {} one two", place.project().join("posix.sh").display()));
    assert_eq!(run("tool"), "tool one two");
    assert_eq!(run("echo"), "one two");
    assert_eq!(run("/bin/echo"), "one two");
}

#[test]
fn invalid_entry_points_are_refused_with_a_hint() {
    let place = Place::with(&[("train.py", ""), ("tool", "#!/bin/sh\n")]);
    fs::write(place.path("outside.py"), "").expect("this test owns the path");
    let error = command(&place, "tool").expect_err("no executable bit");
    assert!(matches!(error, EnvError::NotExecutable { .. }), "{error}");
    assert_eq!(error.hint().as_deref(), Some("chmod +x tool"));
    fs::write(place.project().join("marked.sh"), "\u{feff}#!/bin/sh\n").expect("this test owns the path");
    let error = command(&place, "marked.sh").expect_err("the kernel does not see the `#!`");
    assert!(error.to_string().contains("byte order mark"), "{error}");
    for entry in ["main.py", "no-such-command-xyz", "../outside.py", ""] {
        let error = command(&place, entry).expect_err(entry);
        assert!(matches!(error, EnvError::NoEntry { .. }), "{error}");
        assert_eq!(error.hint().as_deref(), Some("the folder contains train.py"));
    }
    let error = entry_command(&place.project(), "train.py", &[], None, OsStr::new("/nowhere")).expect_err("no Python");
    assert_eq!(error.to_string(), "no python3 on this node (looked in /nowhere)");
}

#[test]
fn projects_that_are_packages_are_installed_and_each_job_imports_its_own_source() {
    let build = |requires: &str, backend: &str| {
        format!(
            "[project]\nname = 'mypkg'\nversion = '1'\ndependencies = ['six']\n[project.scripts]\nmypkg = 'mypkg:main'\n\
             [build-system]\nrequires = ['{requires}']\nbuild-backend = '{backend}'\n"
        )
    };
    let main = "import mypkg\nmypkg.main()\n";
    // setuptools takes a folder `scripts` for no package. It refuses a flat layout with two packages.
    for (folder, requires, backend) in [
        ("src/mypkg", "uv_build", "uv_build"),
        ("src/mypkg", "hatchling", "hatchling.build"),
        ("src/mypkg", "setuptools", "setuptools.build_meta"),
        ("mypkg", "setuptools", "setuptools.build_meta"),
    ] {
        let module = format!("{folder}/__init__.py");
        let source = |word: &str| format!("import six\ndef main(): print('{word}')\n");
        let place = Place::with(&[("scripts/main.py", main), ("pyproject.toml", &build(requires, backend))]);
        let cache = place.uv_cache();
        place.write(&[(&module, &source("first"))]);
        let lease = obtain(&cache, &place.detect()).expect("the project can be installed");
        let run = |entry: &str| {
            let command = entry_command(&place.project(), entry, &[], Some(&lease), OsStr::new(SYSTEM)).expect(entry);
            output(&place, &command)
        };
        assert_eq!((run("scripts/main.py"), run("mypkg")), ("first".into(), "first".into()), "{folder} {backend}");
        place.write(&[(&module, &source("second"))]);
        assert!(!obtain(&cache, &place.detect()).expect("the environment is ready").built, "{folder} {backend}");
        assert_eq!((run("scripts/main.py"), run("mypkg")), ("second".into(), "second".into()), "{folder} {backend}");
    }
}

#[test]
fn job_imports_a_package_that_is_newer_than_the_environment() {
    let project = "[project]\nname = 'mypkg'\nversion = '1'\n[tool.setuptools.packages.find]\n\
                   [build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n";
    let files =
        [("pyproject.toml", project), ("mypkg/__init__.py", ""), ("scripts/main.py", "import mypkg; print('one')")];
    let place = Place::with(&files);
    let cache = place.uv_cache();
    let run = || {
        let lease = obtain(&cache, &place.detect()).expect("the project can be installed");
        let command = entry_command(&place.project(), "scripts/main.py", &[], Some(&lease), OsStr::new(SYSTEM));
        output(&place, &command.expect("the entry point exists"))
    };
    assert_eq!(run(), "one");
    place.write(&[("newer/__init__.py", ""), ("scripts/main.py", "import newer; print('two')")]);
    assert_eq!(run(), "two");
}

#[test]
fn programs_of_the_project_precede_those_of_the_environment_and_these_the_search_path() {
    let place = Place::with(&[
        ("requirements.txt", "six"),
        ("main.py", "import os, six, sys; print(sys.prefix == os.environ['VIRTUAL_ENV'])"),
        ("which.sh", "command -v python"),
    ]);
    let cache = place.uv_cache();
    let lease = obtain(&cache, &place.detect()).expect("six can be installed");
    let run = |entry: &str| {
        let command = entry_command(&place.project(), entry, &[], Some(&lease), OsStr::new(SYSTEM)).expect(entry);
        output(&place, &command)
    };
    assert_eq!(run("main.py"), "True");
    place.write(&[("folder/data", "")]);
    for (entry, file, source) in [
        ("folder", "folder/__main__.py", "print('project')"),
        ("tool.py", "tool.py", "print('project')"),
        ("tool.sh", "tool.sh", "echo project"),
    ] {
        write_program(&lease.bin_dir.join(entry), "#!/bin/sh\necho environment\n");
        assert_eq!(run(entry), "environment", "the project has no program {entry}");
        place.write(&[(file, source)]);
        assert_eq!(run(entry), "project", "{file}");
    }
    assert_eq!(run("which.sh"), lease.python.display().to_string());
    let python = entry_command(&place.project(), "python", &[], Some(&lease), OsStr::new(""))
        .expect("the environment contains the command");
    assert_eq!(python.argv, [lease.python.display().to_string()]);
}

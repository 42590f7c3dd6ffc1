//! `cargo xtask test`: runs all checks that a change must pass, the fastest first.
//!
//! Continuous integration runs the same checks. A check that cannot run fails: none is skipped because a program is
//! missing. Only `cargo nextest` is replaced by the slower `cargo test` if it is missing; nothing is retried then.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::fuzz;
use crate::generate;
use crate::junit;
use crate::workspace::{cargo, find_program, path_without_shims, root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only formatting, lints, unit tests, house rules, and tests of core and scheduler
    #[arg(long)]
    quick: bool,
}

struct Step {
    name: &'static str,
    /// Adds a line about each flaky test.
    check: fn(&mut Vec<String>) -> Result<()>,
    /// Whether `--quick` includes the step.
    quick: bool,
}

const STEPS: &[Step] = &[
    Step { name: "formatting", check: |_| formatting(), quick: true },
    Step { name: "lints", check: |_| lints(), quick: true },
    Step { name: "unit tests, house rules, core and scheduler", check: quick_tests, quick: true },
    Step { name: "fuzz targets", check: |_| fuzz_targets(), quick: false },
    Step { name: "property, simulation and end-to-end tests", check: other_tests, quick: false },
    Step { name: "examples in the documentation of the code", check: |_| doc_tests(), quick: false },
    Step { name: "generated files", check: |_| generated_files(), quick: false },
    Step { name: "Python package", check: python_package, quick: false },
    Step { name: "example projects", check: |_| example_projects(), quick: false },
];

/// Runs the steps in order, up to the first failure. Lists flaky tests at the end, even after a failure.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut flaky = Vec::new();
    let outcome = run_steps(options, &mut flaky);
    if !flaky.is_empty() {
        println!(
            "\nThese tests passed only on retry. Each line is a fault report: find the race, in the product first."
        );
        flaky.iter().for_each(|line| println!("  {line}"));
    }
    outcome
}

fn run_steps(options: &Options, flaky: &mut Vec<String>) -> Result<()> {
    let steps: Vec<&Step> = STEPS.iter().filter(|step| step.quick || !options.quick).collect();
    let begun = Instant::now();
    let mut times = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n[{}/{}] {}", index + 1, steps.len(), step.name);
        let started = Instant::now();
        (step.check)(flaky).with_context(|| format!("{} failed after {}", step.name, seconds(started.elapsed())))?;
        times.push((step.name, started.elapsed()));
    }
    println!();
    for (name, time) in times {
        println!("{:>9}  {name}", seconds(time));
    }
    println!("{:>9}  in total; all checks passed", seconds(begun.elapsed()));
    Ok(())
}

fn formatting() -> Result<()> {
    run_command(cargo().args(["fmt", "--all", "--check"])).context("run `cargo fmt --all`")
}

fn lints() -> Result<()> {
    run_command(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Compiles the fuzz targets. They are a separate workspace that uses private parts of other crates.
fn fuzz_targets() -> Result<()> {
    let manifest = fuzz::manifest()?;
    run_command(cargo().args(["fmt", "--check", "--manifest-path"]).arg(&manifest))?;
    run_command(
        cargo()
            .args(["clippy", "--manifest-path"])
            .arg(&manifest)
            // Most dependencies are the same, and are not compiled again.
            .arg("--target-dir")
            .arg(target_directory()?)
            .args(["--tests", "--bin", "seeds", "--", "-D", "warnings"]),
    )
}

/// Tests that need neither root nor installed programs: unit tests, house rules, scripts, and properties of the core
/// and the scheduler.
///
/// This builds the other tests as well, in the same run of cargo, since another selection of packages would compile dependencies again.
fn quick_tests(flaky: &mut Vec<String>) -> Result<()> {
    match find_program("cargo-nextest") {
        Some(_) => nextest(QUICK, flaky),
        None => {
            cargo_test(&["--workspace", "--lib", "--bins"])?;
            cargo_test(&[
                "--package",
                "xtask",
                "--package",
                "hostler-core",
                "--package",
                "hostler-sched",
                "--test",
                "*",
            ])
        }
    }
}

/// The other tests in `tests` directories. Tests with real daemons find the program in `HOSTLER_BIN`.
fn other_tests(flaky: &mut Vec<String>) -> Result<()> {
    check_free_space()?;
    match find_program("cargo-nextest") {
        Some(_) => nextest(&format!("not ({QUICK})"), flaky),
        None => {
            let quick = ["--exclude", "xtask", "--exclude", "hostler-core", "--exclude", "hostler-sched"];
            cargo_test(&[&["--workspace", "--test", "*"], &quick[..]].concat())
        }
    }
}

/// Free disk space, in bytes, that tests with daemons need: they write up to 1 GiB at a time, and a head whose disk has
/// less than 512 MiB free refuses submissions.
const FREE_SPACE: u64 = 2 << 30;

/// Fails if a disk is so full that tests would fail for no other reason.
fn check_free_space() -> Result<()> {
    for directory in [std::env::temp_dir(), target_directory()?] {
        let stat = nix::sys::statvfs::statvfs(&directory)
            .with_context(|| format!("cannot read the free space of {}", directory.display()))?;
        let free = stat.blocks_available() * stat.fragment_size();
        ensure!(
            free >= FREE_SPACE,
            "{} has {} MiB free; the tests with daemons need {} MiB",
            directory.display(),
            free >> 20,
            FREE_SPACE >> 20
        );
    }
    Ok(())
}

fn doc_tests() -> Result<()> {
    run_command(cargo().args(["test", "--quiet", "--workspace", "--doc"]))
}

fn generated_files() -> Result<()> {
    generate::run(&generate::Options { check: true })
}

/// The variable with the virtual environment that contains the tools for the Python package.
const PYTHON_TOOLS: &str = "HOSTLER_PYTHON_TOOLS";

/// Checks the Python package: formatting, lints, types, and tests with a cluster of their own. Failed tests are repeated
/// once.
fn python_package(flaky: &mut Vec<String>) -> Result<()> {
    let tools = std::env::var_os(PYTHON_TOOLS).map(PathBuf::from).with_context(|| {
        format!(
            "{PYTHON_TOOLS} is not set: `python3 -m venv DIR`, `DIR/bin/pip install cloudpickle dask ipykernel joblib \
             lightgbm matplotlib maturin mypy nbclient pytest ruff`, and set it to DIR; .ci/run does this"
        )
    })?;
    let (target, path) = (target_directory()?, path_without_shims()?);
    let run_tool = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(tools.join("bin").join(program));
        command
            .args(arguments)
            .current_dir(root().join("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PATH", &path);
        run_command(command.env("HOSTLER_BIN", target.join("debug/hostler")))
    };
    // The examples are outside of the directory, and would have the default settings.
    let examples = ["../examples/functions", "../examples/numerai-like"];
    let files = [&["--no-cache", "--config", "pyproject.toml", "."], &examples[..]].concat();
    run_tool("ruff", &[&["format", "--check"], &files[..]].concat())?;
    run_tool("ruff", &[&["check"], &files[..]].concat())?;
    run_tool("mypy", &["--cache-dir", "/dev/null"])?;
    // pytest keeps there which tests failed.
    let cache = format!("cache_dir={}", target.join("pytest").display());
    let pytest = ["--quiet", "--override-ini", &cache];
    run_tool("pytest", &pytest).or_else(|_| {
        run_tool("pytest", &[&pytest[..], &["--last-failed"]].concat())?;
        flaky.push("tests of the Python package; the output of the first run is above".to_owned());
        Ok(())
    })
}

/// Compiles the examples, and runs the one that needs no environment. End-to-end tests run the others.
fn example_projects() -> Result<()> {
    let examples = root().join("examples");
    let scratch = tempfile::tempdir()?;
    for project in projects(&examples)? {
        run_command(python(scratch.path()).arg("-m").arg("py_compile").arg(project.join("main.py")))?;
    }
    run_command(python(scratch.path()).arg(examples.join("hello/main.py")))?;
    ensure!(scratch.path().join("result.txt").is_file(), "examples/hello left no result.txt");
    Ok(())
}

/// The directories below `examples` with a `main.py`.
fn projects(examples: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(examples).with_context(|| format!("cannot list {}", examples.display()))? {
        let directory = entry?.path();
        if directory.join("main.py").is_file() {
            found.push(directory);
        }
    }
    found.sort();
    Ok(found)
}

/// Runs Python in `directory`, with its bytecode outside the checkout.
fn python(directory: &Path) -> Command {
    let mut command = Command::new("python3");
    command.current_dir(directory).env("PYTHONPYCACHEPREFIX", directory.join("bytecode"));
    command
}

/// The tests of [`quick_tests`], as a filter expression of nextest.
const QUICK: &str = "kind(lib) or kind(bin) or package(xtask) or package(hostler-core) or package(hostler-sched)";

/// Test slots per CPU. A test takes one to four, depending on how much it computes; see `.config/nextest.toml`.
const SLOTS_PER_CPU: usize = 4;

/// Runs tests with nextest, each in its own process and with a timeout.
///
/// Reads the report at once, because the next run overwrites it.
fn nextest(filter: &str, flaky: &mut Vec<String>) -> Result<()> {
    junit::remove_report()?;
    let outcome = run_command(&mut nextest_command(filter)?);
    let found = junit::flaky_tests().map(|lines| flaky.extend(lines));
    outcome.and(found)
}

/// The command that runs the tests of `filter`.
pub(crate) fn nextest_command(filter: &str) -> Result<Command> {
    let slots = SLOTS_PER_CPU * available_parallelism()?.get();
    let mut command = cargo();
    command.args(["nextest", "run", "--workspace", "--lib", "--bins", "--tests", "--no-tests=pass", "--test-threads"]);
    command.arg(slots.to_string()).args(["--filterset", filter]);
    command.env("HOSTLER_BIN", target_directory()?.join("debug/hostler")).env("PATH", path_without_shims()?);
    Ok(command)
}

/// Runs tests with cargo alone.
fn cargo_test(selection: &[&str]) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "--quiet"]).args(selection);
    command.env("HOSTLER_BIN", target_directory()?.join("debug/hostler")).env("PATH", path_without_shims()?);
    run_command(&mut command)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

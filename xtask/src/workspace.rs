//! Paths in this checkout, and helpers for running cargo.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

/// Root of the checkout to work on. It may differ from the checkout that compiled this program, because target
/// directories are shared.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let xtask = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
        Path::new(&xtask).parent().expect("xtask is a direct child of the root").to_owned()
    })
}

/// The cargo that runs this program, in the root of the checkout.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

pub(crate) fn target_directory() -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .output()
        .context("cannot run `cargo metadata`")?;
    ensure!(output.status.success(), "`cargo metadata` failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let directory = metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?;
    Ok(directory.into())
}

/// Runs `command` to its end without redirecting its output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status})");
    }
    Ok(())
}

/// `command` as a shell command line.
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

/// `PATH` for tests, which start `python3` hundreds of times: a shim of a version manager takes longer than the interpreter,
/// whose directory therefore comes first.
pub(crate) fn path_without_shims() -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let question = ["-c", "import os, sys; print(os.path.dirname(sys.executable))"];
    let answer = Command::new("python3").args(question).output().context("tests need python3")?;
    ensure!(answer.status.success(), "python3 does not work: {}", String::from_utf8_lossy(&answer.stderr));
    let interpreter = PathBuf::from(String::from_utf8(answer.stdout)?.trim_end());
    let known: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if known.contains(&interpreter) {
        return Ok(path);
    }
    Ok(std::env::join_paths([interpreter].iter().chain(&known))?)
}

/// The first file named `program` in the directories of `PATH`, or else in the `sbin` directories, where servers are.
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

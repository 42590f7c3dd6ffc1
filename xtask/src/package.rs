//! `cargo xtask package`: creates a directory with all files of an installation, in their places below `/`, and an
//! archive of it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::generate;
use crate::workspace::{cargo, root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for the package and its archive [default: package/ in the target directory]
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

const PROGRAMS: [&str; 2] = ["hostler", "hostler-tools"];

/// Builds the programs with optimisation and creates the package's files.
pub(crate) fn run(options: &Options) -> Result<()> {
    let target = target_directory()?;
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "hostler", "--bins"]);
    run_command(build.envs(build_of_commit().map(|build| ("HOSTLER_BUILD", build))))?;
    let to = options.to.clone().unwrap_or_else(|| target.join("package"));
    let name = format!("hostler-{}-{}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let package = to.join(&name);
    if package.exists() {
        #[expect(clippy::disallowed_methods, reason = "this task created the directory, and it is shallow")]
        fs::remove_dir_all(&package).with_context(|| format!("cannot remove {}", package.display()))?;
    }
    lay_out(&target.join("release"), &package)?;
    let archive = to.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--owner=0", "--group=0", "--file"]).arg(&archive);
    run_command(tar.arg("--directory").arg(&package).arg("usr"))?;
    println!("wrote {} and {}", package.display(), archive.display());
    Ok(())
}

/// The version with the date and the id of the commit, which `hostler --version` prints. `None` outside of a git repository.
fn build_of_commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--abbrev=8", "--date=format:%Y%m%d", "--format=%cd.%h"]).current_dir(root());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(format!("{}+{}", env!("CARGO_PKG_VERSION"), String::from_utf8(output.stdout).ok()?.trim()))
}

/// Copies programs, units and documents, and writes the generated files.
fn lay_out(programs: &Path, package: &Path) -> Result<()> {
    for program in PROGRAMS {
        install(&fs::read(programs.join(program))?, &package.join("usr/bin").join(program), 0o755)?;
    }
    let units = root().join("packaging/systemd");
    for unit in list(&units)?.iter().filter(|path| path.extension() == Some(OsStr::new("service"))) {
        install(&fs::read(unit)?, &package.join("usr/lib/systemd/system").join(named(unit)), 0o644)?;
    }
    for document in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        install(&fs::read(root().join(document))?, &package.join("usr/share/doc/hostler").join(document), 0o644)?;
    }
    let said = tempfile::tempdir()?;
    generate::write_all(&programs.join("hostler"), said.path())?;
    for page in list(&said.path().join("man"))? {
        install(&fs::read(&page)?, &package.join("usr/share/man/man1").join(named(&page)), 0o644)?;
    }
    for script in list(&said.path().join("completions"))? {
        install(&fs::read(&script)?, &package.join(place_of_completions(&script)?), 0o644)?;
    }
    Ok(())
}

/// The path at which a shell looks for a completion script.
fn place_of_completions(script: &Path) -> Result<PathBuf> {
    let name = named(script).to_str().context("names of commands are UTF-8")?;
    Ok(match name.rsplit_once('.') {
        Some((command, "bash")) => Path::new("usr/share/bash-completion/completions").join(command),
        Some((_, "fish")) => Path::new("usr/share/fish/vendor_completions.d").join(name),
        _ => {
            ensure!(name.starts_with('_'), "{name} belongs to no known shell");
            Path::new("usr/share/zsh/vendor-completions").join(name)
        }
    })
}

fn install(content: &[u8], path: &Path, mode: u32) -> Result<()> {
    let directory = path.parent().expect("the path is in the package");
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn named(path: &Path) -> &OsStr {
    path.file_name().expect("a listed file has a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_finds_its_script() {
        let place = |name: &str| place_of_completions(Path::new(name)).map(|path| path.display().to_string()).ok();
        assert_eq!(place("cmrun.bash").as_deref(), Some("usr/share/bash-completion/completions/cmrun"));
        assert_eq!(place("cmrun.fish").as_deref(), Some("usr/share/fish/vendor_completions.d/cmrun.fish"));
        assert_eq!(place("_cmrun").as_deref(), Some("usr/share/zsh/vendor-completions/_cmrun"));
        assert_eq!(place("cmrun.tcsh"), None);
    }
}

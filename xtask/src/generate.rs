//! `cargo xtask gen`: writes or checks the committed files that are generated from code. They are committed so that
//! changes to them are reviewed.
//!
//! Completions and man pages are not committed: `cargo xtask package` generates them. The program writes all generated
//! files itself (`hostler gen DIRECTORY`, a hidden command). This module copies the committed ones to their places, or
//! compares them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::workspace::{cargo, root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Change nothing; fail if committed files differ from the generated ones
    #[arg(long)]
    pub(crate) check: bool,
}

/// Generated files in the repository: name in the output, and place in the checkout. A place is a file, or a directory
/// without other files.
const PLACES: &[(&str, &str)] = &[("openapi.json", "docs/reference/openapi.json"), ("cli.md", "docs/reference/cli.md")];

/// Generated directories for packages, with their minimum number of files: a page for each command, three scripts for
/// each tool.
const PACKAGED: &[(&str, usize)] = &[("man", 50), ("completions", 15)];

/// Files by their path in the checkout.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Generates the files, then writes or compares them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let generated = generated()?;
    let committed = committed()?;
    if options.check {
        return check(&generated, &committed);
    }
    for stale in committed.keys().filter(|path| !generated.contains_key(*path)) {
        fs::remove_file(root().join(stale)).with_context(|| format!("cannot remove {}", stale.display()))?;
    }
    for (path, content) in generated.iter().filter(|(path, content)| committed.get(*path) != Some(content)) {
        write(&root().join(path), content)?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Contents of the generated files.
fn generated() -> Result<Files> {
    // The selection of the tests: with another one, cargo compiles dependencies again for other features.
    run_command(cargo().args(["build", "--quiet", "--workspace", "--bins", "--tests"]))?;
    let scratch = tempfile::tempdir()?;
    write_all(&target_directory()?.join("debug/hostler"), scratch.path())?;
    for (name, least) in PACKAGED {
        let mut files = Files::new();
        collect(&scratch.path().join(name), Path::new(""), &mut files)?;
        let has_empty = files.values().any(Vec::is_empty);
        ensure!(
            files.len() >= *least && !has_empty,
            "`hostler gen` wrote {} files of {name}, or an empty one",
            files.len()
        );
    }
    let mut files = Files::new();
    for (name, place) in PLACES {
        let source = scratch.path().join(name);
        ensure!(source.exists(), "`hostler gen` wrote no {name}");
        collect(&source, Path::new(place), &mut files)?;
    }
    Ok(files)
}

/// Makes a program write all generated files into a directory.
pub(crate) fn write_all(program: &Path, directory: &Path) -> Result<()> {
    run_command(Command::new(program).arg("gen").arg(directory))
}

/// Contents of the committed files.
fn committed() -> Result<Files> {
    let mut files = Files::new();
    for (_, place) in PLACES.iter().filter(|(_, place)| root().join(place).exists()) {
        collect(&root().join(place), Path::new(place), &mut files)?;
    }
    Ok(files)
}

/// Adds `source`, a file or a directory, under the name `place`.
fn collect(source: &Path, place: &Path, files: &mut Files) -> Result<()> {
    if source.is_dir() {
        for entry in fs::read_dir(source).with_context(|| format!("cannot list {}", source.display()))? {
            let entry = entry?;
            collect(&entry.path(), &place.join(entry.file_name()), files)?;
        }
    } else {
        let content = fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        files.insert(place.to_owned(), content);
    }
    Ok(())
}

/// Writes a file, and creates its parent directories.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    let directory = path.parent().expect("generated files lie in directories");
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Fails if there are differences, and lists all.
fn check(generated: &Files, committed: &Files) -> Result<()> {
    let differences = differences(generated, committed);
    if !differences.is_empty() {
        bail!(
            "generated files are out of date: `cargo xtask gen` writes them, review and commit the result\n  {}",
            differences.join("\n  ")
        );
    }
    println!("{} generated files are up to date", generated.len());
    Ok(())
}

/// One line per path that differs.
fn differences(generated: &Files, committed: &Files) -> Vec<String> {
    let paths = generated.keys().chain(committed.keys()).collect::<std::collections::BTreeSet<_>>();
    paths
        .into_iter()
        .filter_map(|path| {
            let what = match (generated.get(path), committed.get(path)) {
                (Some(new), Some(old)) if new == old => return None,
                (Some(new), Some(old)) => format!("differs from line {}", first_difference(new, old)),
                (Some(_), None) => "is missing".to_owned(),
                (None, _) => "is no longer generated".to_owned(),
            };
            Some(format!("{} {what}", path.display()))
        })
        .collect()
}

/// Number of the first line that differs, from 1.
fn first_difference(new: &[u8], old: &[u8]) -> usize {
    let same = new.iter().zip(old).take_while(|(a, b)| a == b);
    same.filter(|(byte, _)| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(path, content)| (PathBuf::from(path), content.as_bytes().to_vec())).collect()
    }

    #[test]
    fn every_kind_of_difference_is_listed() {
        let generated = files(&[("same", "a"), ("changed", "one\ntwo\n"), ("new", "")]);
        let committed = files(&[("same", "a"), ("changed", "one\nTWO\n"), ("old", "")]);
        let expected = ["changed differs from line 2", "new is missing", "old is no longer generated"];
        assert_eq!(differences(&generated, &committed), expected);
        assert!(differences(&generated, &generated).is_empty());
    }

    #[test]
    fn longer_file_differs_from_its_first_additional_line() {
        assert_eq!(first_difference(b"one\ntwo\n", b"one\n"), 2);
    }
}

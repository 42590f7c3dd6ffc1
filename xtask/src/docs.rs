//! `cargo xtask docs`: renders `docs/` as a book, with mdBook.
//!
//! Some pages link to source files, which are not part of the book. The rendered copy contains only the text of such
//! links.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{find_program, root, run as run_command, target_directory};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Directory for the rendered book [default: docs/ in the target directory]
    #[arg(long, value_name = "DIRECTORY")]
    to: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Some(mdbook) = find_program("mdbook") else {
        bail!("mdbook is not installed; `cargo install --locked mdbook` installs it");
    };
    let to = match &options.to {
        Some(to) => std::path::absolute(to)?,
        None => target_directory()?.join("docs"),
    };
    let copy = tempfile::tempdir()?;
    copy_pages(&root().join("docs"), Path::new(""), copy.path())?;
    run_command(Command::new(mdbook).arg("build").arg("--dest-dir").arg(&to).arg(copy.path()))?;
    println!("wrote {}", to.join("index.html").display());
    Ok(())
}

/// Copies the directory `within` of `docs` to `copy`.
fn copy_pages(docs: &Path, within: &Path, copy: &Path) -> Result<()> {
    fs::create_dir_all(copy.join(within))?;
    let directory = docs.join(within);
    for entry in fs::read_dir(&directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let entry = entry?;
        let path = within.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_pages(docs, &path, copy)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            fs::write(copy.join(&path), without_outer_links(&fs::read_to_string(entry.path())?, within))?;
        } else {
            fs::copy(entry.path(), copy.join(&path))?;
        }
    }
    Ok(())
}

/// A page of the directory `within`. Links out of `docs` are replaced by their text.
fn without_outer_links(page: &str, within: &Path) -> String {
    let mut made = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(middle) = rest.find("](") {
        let (before, after) = (&rest[..middle], &rest[middle + 2..]);
        let inner = after.find(')').filter(|end| leaves(within, &after[..*end])).zip(before.rfind('['));
        match inner {
            Some((end, opening)) => {
                made.push_str(&before[..opening]);
                made.push_str(&before[opening + 1..]);
                rest = &after[end + 1..];
            }
            None => {
                made.push_str(&rest[..middle + 2]);
                rest = after;
            }
        }
    }
    made + rest
}

/// Whether a link on a page in `within` points outside `docs`.
fn leaves(within: &Path, link: &str) -> bool {
    let mut depth = within.components().count();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir if depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_book_become_text() {
        let page = "See [the code](../../crates/x/a.rs), [a guide](../guides/b.md#c) and [`d`](../../d).\n";
        let expected = "See the code, [a guide](../guides/b.md#c) and `d`.\n";
        assert_eq!(without_outer_links(page, Path::new("internals")), expected);
        let top = "[x](guides/a.md) [y](../README.md)";
        assert_eq!(without_outer_links(top, Path::new("")), "[x](guides/a.md) y");
    }
}

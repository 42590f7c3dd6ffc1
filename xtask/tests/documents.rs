//! The pages of `docs/` form a book: the summary lists them all, and links to headings find their heading.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn summary_lists_every_page_once() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).expect("docs/SUMMARY.md is readable");
    let listed: Vec<PathBuf> = links(&summary).into_iter().map(PathBuf::from).collect();
    let unique: BTreeSet<PathBuf> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "SUMMARY.md lists a page twice");
    let pages: BTreeSet<PathBuf> = pages(&docs)
        .into_iter()
        .map(|page| page.strip_prefix(&docs).expect("pages are below docs/").to_owned())
        .filter(|page| page != Path::new("SUMMARY.md"))
        .collect();
    assert_eq!(unique, pages, "SUMMARY.md (left) and the files below docs/ (right) differ");
}

#[test]
fn links_to_headings_find_their_heading() {
    let mut checked = 0;
    let others = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| root().join(page));
    for page in pages(&root().join("docs")).into_iter().chain(others) {
        let text = fs::read_to_string(&page).expect("the page is readable");
        for link in links(&text) {
            let Some((path, anchor)) = link.split_once('#').filter(|_| !link.contains("://")) else { continue };
            let target = match path {
                "" => page.clone(),
                path => page.parent().expect("a page is in a directory").join(path),
            };
            let target = fs::read_to_string(&target).unwrap_or_else(|error| panic!("{link}: {error}"));
            let found = anchors(&target).contains(anchor);
            assert!(found, "{} links to {link}, and that page has no such heading", page.display());
            checked += 1;
        }
    }
    assert!(checked > 10, "only {checked} links to headings were found");
}

#[test]
fn tests_named_in_the_security_page_exist() {
    let page = security_page();
    let words = page.split('`').skip(1).step_by(2);
    let names: Vec<&str> =
        words.filter(|word| word.matches('_').count() >= 3 && !word.contains([' ', '=', '-'])).collect();
    assert!(names.len() > 40, "only {} names of tests were found", names.len());
    let tests = names_of_tests();
    let missing: Vec<&&str> = names.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(missing.is_empty(), "security.md names tests that do not exist: {missing:?}");
}

#[test]
fn tests_named_in_the_page_of_seeds_exist() {
    let page = fs::read_to_string(root().join("docs/internals/seeds.md")).expect("the page is readable");
    let names = page.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() >= 3);
    let tests = names_of_tests();
    let missing: Vec<&str> = names.filter(|name| !tests.contains(*name)).collect();
    assert!(missing.is_empty(), "seeds.md names tests that do not exist: {missing:?}");
}

#[test]
fn security_page_lists_each_command() {
    let reference = fs::read_to_string(root().join("docs/reference/cli.md")).expect("the page is readable");
    let page = security_page();
    let section = page.split("\n## ").find(|section| section.starts_with("Rights of each route and command"));
    let listed: BTreeSet<&str> = section.expect("the page has the table").split('`').skip(1).step_by(2).collect();
    let commands: BTreeSet<&str> = reference.lines().filter_map(|line| line.strip_prefix("## hostler ")).collect();
    let is_group = |name: &str| commands.iter().any(|other| other.starts_with(&format!("{name} ")));
    let single = commands.iter().filter(|name| !is_group(name) && !name.starts_with("configure node "));
    let missing: Vec<&&str> = single.filter(|name| !listed.contains(**name)).collect();
    assert!(missing.is_empty(), "add these commands to the table of rights in security.md: {missing:?}");
}

#[test]
fn anchors_are_made_as_mdbook_and_code_hosts_make_them() {
    let page = "# A `code` word\n```sh\n# no heading\n```\n## What's new: 2.0\n### Twice\n### Twice\n";
    let expected = ["a-code-word", "whats-new-20", "twice", "twice-1"];
    assert_eq!(anchors(page), expected.map(str::to_owned).into());
}

fn security_page() -> String {
    fs::read_to_string(root().join("docs/internals/security.md")).expect("the page is readable")
}

/// The names of all tests of the workspace: functions after an attribute `#[test]` or `#[tokio::test]`.
fn names_of_tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for directory in ["crates", "xtask"] {
        for file in files_with(&root().join(directory), "rs") {
            let code = fs::read_to_string(file).expect("source files are readable");
            let mut lines = code.lines().map(str::trim_start);
            while lines.by_ref().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
                let name = lines.find_map(|line| line.split_once("fn ")?.1.split_once('('));
                names.extend(name.map(|(name, _)| name.to_owned()));
            }
        }
    }
    names
}

/// The targets of all links outside code blocks.
fn links(page: &str) -> Vec<String> {
    let prose = page.split("\n```").step_by(2);
    let targets = prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split([')', ' ']).next());
    targets.map(str::to_owned).collect()
}

/// The anchors of a page's headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut made = BTreeSet::new();
    let mut in_code = false;
    for line in page.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let Some(heading) = line.strip_prefix('#').filter(|_| !in_code) else { continue };
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let number = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(number).find(|name| !made.contains(name));
        made.insert(free.expect("numbers do not end"));
    }
    made
}

fn pages(directory: &Path) -> Vec<PathBuf> {
    files_with(directory, "md")
}

fn files_with(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display())) {
        let path = entry.expect("the directory can be listed").path();
        if path.is_dir() {
            found.extend(files_with(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the crate of the test")).join("..")
}

//! The rule for secrets: what is absent stays absent. An empty secret is one that everybody knows.
//!
//! The rule reads the names in each statement of the code, and so finds the usual ways only.

use std::fs;
use std::path::{Path, PathBuf};

/// Parts of the names of secrets, and of what carries them.
const SECRETS: [&str; 6] = ["secret", "cookie", "token", "password", "nonce", "authorization"];

/// Code that turns an absent value into an empty one.
const EMPTY: [&str; 7] = [
    ".unwrap_or_default()",
    ".unwrap_or(\"\")",
    ".unwrap_or(b\"\")",
    ".unwrap_or(&[]",
    "_else(String::new",
    ".map_or(\"\",",
    ".map_or(&[]",
];

#[test]
fn absent_secret_does_not_become_an_empty_one() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let mut files = Vec::new();
    collect(&crates, &mut files);
    assert!(files.len() > 500, "the code is in {}: {files:?}", crates.display());
    for path in files {
        let content = fs::read_to_string(&path).expect("a file of the project is text");
        let code = content.split("#[cfg(test)]\nmod tests").next().expect("split has a first part");
        if let Some(found) = empty_secret(code) {
            let path = path.display();
            panic!("{path}: keep an absent secret absent, or use a type that has no empty value: {found}");
        }
    }
}

#[test]
fn empty_secrets_are_recognised() {
    for code in [
        "let kept = cookie(&headers, &name).unwrap_or_default();",
        "let shown = headers.get(AUTHORIZATION)\n    .map_or(&[][..], |shown| shown.as_bytes());",
        "#[serde(default)]\n/// A comment.\npub secret: String,",
    ] {
        assert!(empty_secret(code).is_some(), "{code}");
    }
    for code in [
        "let token = cookie(&headers, &name)?;\nlet next = next.unwrap_or_default();",
        "// The secret is not `x.unwrap_or_default()`.\nlet a = 1;",
        "#[serde(default)]\npub secret: Option<String>,",
    ] {
        assert_eq!(empty_secret(code), None);
    }
}

/// Source files of the product below a directory, without tests in files of their own.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the project") {
        let path = entry.expect("a readable directory").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if name.contains("tests") || ["testkit", "examples"].contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
}

/// The first statement that makes a secret from nothing.
fn empty_secret(code: &str) -> Option<String> {
    let is_secret = |text: &str| SECRETS.iter().any(|name| text.to_ascii_lowercase().contains(name));
    let mut statement = String::new();
    for line in code.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        statement.push_str(line);
        if !line.ends_with([';', '{', '}', ',']) {
            continue;
        }
        let is_defaulted = statement.contains("#[serde(default") && !statement.contains(": Option<");
        if is_secret(&statement) && (is_defaulted || EMPTY.iter().any(|call| statement.contains(call))) {
            return Some(statement);
        }
        statement.clear();
    }
    None
}

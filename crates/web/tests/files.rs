//! Rules for templates and assets: nothing in them bypasses the escaping or the Content-Security-Policy, and they are
//! small.

use std::fs;
use std::path::Path;

/// Maximum size of the style sheet and the script of all pages. With a page of 100 kB, a first visit loads 150 kB.
const MAX_ASSET_BYTES: u64 = 50 << 10;

/// The templates with their names, without the expressions and blocks of the template language.
fn templates() -> Vec<(String, String)> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("templates");
    for directory in [root.clone(), root.join("parts")] {
        for entry in fs::read_dir(directory).expect("the directory exists").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "html") {
                let text = fs::read_to_string(entry.path()).expect("a template is text");
                found.push((entry.file_name().to_string_lossy().into_owned(), text));
            }
        }
    }
    assert!(found.len() > 20, "only {} templates were found", found.len());
    found
}

/// Replaces everything between the delimiters by one letter.
fn without(text: &str, open: &str, close: &str) -> String {
    let mut parts = text.split(open);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + "x" + part.split_once(close).map_or("", |(_, rest)| rest))
}

/// The content of each tag, without `<` and `>`.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    text.split('<').skip(1).filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag))
}

/// The tag without the values of its attributes; `None` if a quote is not closed.
fn without_values(tag: &str) -> Option<String> {
    let parts: Vec<&str> = tag.split('"').collect();
    (parts.len() % 2 == 1).then(|| parts.into_iter().step_by(2).collect::<Vec<_>>().join("\""))
}

#[test]
fn templates_bypass_neither_the_escaping_nor_the_policy() {
    for (name, text) in templates() {
        assert!(!text.contains("|safe") && !text.contains("| safe"), "{name} marks text as safe");
        let html = without(&without(&text, "{%", "%}"), "{{", "}}");
        for tag in tags(&html) {
            let bare = without_values(tag).unwrap_or_else(|| panic!("{name}: a quote is not closed in <{tag}>"));
            for attribute in bare.split_whitespace().skip(1) {
                let attribute = attribute.to_lowercase();
                let (key, value) = attribute.split_once('=').unwrap_or((&attribute, "\""));
                assert!(value.starts_with('"'), "{name}: an attribute has no quotes in <{tag}>");
                assert!(!key.starts_with("on") && key != "style", "{name}: <{tag}> has a script or a style");
            }
            let is_script = tag.starts_with("script");
            assert!(!is_script || tag.contains(" src=\""), "{name} has an inline script");
            assert!(!tag.starts_with("style"), "{name} has an inline style");
        }
    }
}

#[test]
fn style_sheet_and_script_are_small() {
    let size = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets").join(name);
        fs::metadata(path).expect("the asset exists").len()
    };
    let all = size("hostler.css") + size("hostler.js");
    assert!(all <= MAX_ASSET_BYTES, "{all} bytes");
}

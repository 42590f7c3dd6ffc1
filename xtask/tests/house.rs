//! The project's rules as tests: dependencies between crates, external dependencies, and requirements for every file.
//!
//! Dependencies come from `cargo metadata`, allowed licences and sources from `deny.toml`. If a rule hinders you,
//! change it here and give the reason in the commit; do not work around it.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::Value;

use crate::paths::{PATH_CALLS, PATHS};

/// Crates without I/O, clock, randomness and async code.
const PURE: [&str; 6] =
    ["hostler-model", "hostler-proto", "hostler-sched", "hostler-core", "hostler-gossip", "hostler-slurm"];

/// Name prefixes of crates that provide a runtime, sockets, databases, system calls or randomness.
const IMPURE: [&str; 26] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "polling",
    "futures-executor",
    "hyper",
    "axum",
    "tower",
    "reqwest",
    "h2",
    "tungstenite",
    "socket2",
    "rustls",
    "ring",
    "openssl",
    "native-tls",
    "rusqlite",
    "libsqlite3-sys",
    "sled",
    "nix",
    "rustix",
    "libc",
    "getrandom",
    "rand",
    "fastrand",
];

/// The arrows of ARCHITECTURE.md: what each crate may use of the workspace. Tests may also use [`TEST_TOOLS`].
const ARROWS: [(&str, &[&str]); 28] = [
    ("hostler-model", &[]),
    ("hostler-project", &["model"]),
    ("hostler-proto", &["model"]),
    ("hostler-sched", &["model"]),
    ("hostler-core", &["model", "proto", "sched"]),
    ("hostler-gossip", &["model"]),
    ("hostler-image", &[]),
    ("hostler-listen", &["sys"]),
    ("hostler-metrics", &[]),
    ("hostler-slurm", &[]),
    ("hostler-snapshot", &["model", "proto", "sys"]),
    ("hostler-sys", &[]),
    ("hostler-tls", &["model"]),
    ("hostler-shepherd", &["sys"]),
    ("hostler-remote", &["listen", "model", "proto", "snapshot", "sys", "tls"]),
    ("hostler-discovery", &["model"]),
    ("hostler-power", &["model", "tls"]),
    // Packet rules, leases and a VPN: it knows no cluster.
    ("hostler-gateway", &["sys"]),
    ("hostler-store", &["model", "proto"]),
    ("hostler-client", &["model", "project", "proto", "snapshot", "sys", "tls"]),
    (
        "hostler-head",
        &[
            "model",
            "proto",
            "sched",
            "core",
            "discovery",
            "listen",
            "metrics",
            "power",
            "snapshot",
            "store",
            "sys",
            "tls",
            "web",
        ],
    ),
    // Pages are made from answers of the API alone.
    ("hostler-web", &["model", "proto"]),
    (
        "hostler-agent",
        &[
            "model", "project", "proto", "core", "gossip", "client", "image", "listen", "metrics", "power", "snapshot",
            "shepherd", "remote", "slurm", "sys", "tls",
        ],
    ),
    // A simulator that linked a daemon would test something else than what it simulates. Its disk is the store's memory backend.
    ("hostler-sim", &["model", "proto", "sched", "core", "store"]),
    ("hostler-testkit", &["model", "proto", "client", "sys"]),
    // Clients only: `hostler-tools` consists of these, and a change of a daemon compiles none of them again.
    (
        "hostler-cli",
        &["model", "proto", "client", "discovery", "listen", "remote", "shepherd", "slurm", "snapshot", "sys"],
    ),
    // Everything but the store: the command line reaches state through the API alone.
    (
        "hostler",
        &[
            "model",
            "proto",
            "sched",
            "cli",
            "snapshot",
            "remote",
            "discovery",
            "gateway",
            "client",
            "head",
            "agent",
            "sim",
            "slurm",
            "sys",
        ],
    ),
    ("xtask", &["model", "sched"]),
];

/// Crates that all tests may use, to act like a user.
const TEST_TOOLS: [&str; 2] = ["client", "testkit"];

/// Maximum length of a source file, in lines.
const MAX_LINES: usize = 700;

#[test]
fn pure_crates_stay_pure() {
    for name in PURE {
        let tree = dependency_tree(name);
        assert!(!tree.is_empty(), "{name} is not in the workspace");
        let found: Vec<_> = tree.iter().filter(|dependency| is_impure(dependency)).collect();
        assert!(found.is_empty(), "{name} is pure and must not depend, however indirectly, on {found:?}");
    }
}

#[test]
fn pure_crates_share_their_bans() {
    let bans = read("crates/core/clippy.toml");
    for name in PURE.map(|name| name.trim_start_matches("hostler-")) {
        assert_eq!(read(&format!("crates/{name}/clippy.toml")), bans, "crates/{name}/clippy.toml links to core's");
    }
}

#[test]
fn crates_use_only_the_allowed_crates() {
    let allowed: BTreeMap<_, _> = ARROWS.into_iter().collect();
    let members = workspace_members();
    let names: BTreeSet<_> = members.iter().map(|package| text(package, "name")).collect();
    for package in &members {
        let name = text(package, "name");
        let targets =
            allowed.get(name).unwrap_or_else(|| panic!("{name} is new: add the crates that it may use to ARROWS"));
        for dependency in array(package, "dependencies") {
            let (used, kind) = (text(dependency, "name"), dependency["kind"].as_str());
            let short = used.trim_start_matches("hostler-");
            let serves_tests = kind == Some("dev") && TEST_TOOLS.contains(&short);
            let fine = !names.contains(used) || targets.contains(&short) || serves_tests;
            assert!(fine, "{name} must not depend on {used}: no such arrow in ARCHITECTURE.md");
        }
    }
}

#[test]
fn licences_are_permissive() {
    let deny = toml_file("deny.toml");
    let allowed = strings(&deny["licenses"]["allow"]);
    for package in array(metadata(), "packages") {
        let name = text(package, "name");
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        assert!(is_permitted(licence, &allowed), "{name} is licensed {licence}, which deny.toml does not allow");
    }
}

#[test]
fn banned_crates_and_foreign_sources_stay_out() {
    let deny = toml_file("deny.toml");
    let banned = deny["bans"]["deny"].as_array().expect("deny.toml lists bans");
    let banned: BTreeSet<_> = banned.iter().filter_map(|ban| ban["crate"].as_str()).collect();
    let registries = strings(&deny["sources"]["allow-registry"]);
    assert!(banned.len() >= 4, "deny.toml has lost bans: {banned:?}");
    for package in array(metadata(), "packages") {
        let name = text(package, "name");
        assert!(!banned.contains(name), "{name} is banned by deny.toml");
        let Some(source) = package["source"].as_str() else { continue };
        let known = registries.iter().any(|registry| source == format!("registry+{registry}"));
        assert!(known, "{name} comes from {source}, which deny.toml does not allow");
    }
}

/// `cargo metadata` lists `rsa`, because Cargo.lock has it for a feature of `ssh-key` that is off. deny.toml says why.
#[test]
fn crate_with_an_open_advisory_is_not_compiled() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--workspace", "--edges=all", "--invert=rsa"])
        .current_dir(root())
        .output()
        .expect("cargo runs these tests, so it can be started");
    let users = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && users.is_empty(), "{users}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = read("Cargo.toml");
    let (_, section) = manifest.split_once("[workspace.dependencies]").expect("the workspace names its dependencies");
    let section = section.split("\n[").next().expect("split gives at least one part");
    let silent: Vec<_> = section
        .lines()
        .filter(|line| line.contains('=') && !line.starts_with('#') && !line.contains("path = "))
        .filter(|line| line.rsplit_once(" # ").is_none_or(|(_, why)| why.trim().is_empty()))
        .collect();
    assert!(
        silent.is_empty(),
        "in Cargo.toml, add a comment with the reason to the end of these lines:\n{}",
        silent.join("\n")
    );
}

#[test]
fn every_dependency_is_used() {
    let mut named = BTreeSet::new();
    for package in workspace_members() {
        let name = text(package, "name");
        let directory = Path::new(text(package, "manifest_path")).parent().expect("a manifest has a directory");
        let mut sources = String::new();
        for path in
            files_of_the_project().iter().filter(|path| path.starts_with(directory) && has_extension(path, "rs"))
        {
            sources += &read_path(path);
        }
        for dependency in array(package, "dependencies") {
            let dependency = text(dependency, "name");
            assert!(is_named(&sources, &dependency.replace('-', "_")), "{name} does not use {dependency}: remove it");
            named.insert(dependency.to_owned());
        }
    }
    named.extend(table(&toml_file("fuzz/Cargo.toml"), "dependencies").keys().cloned());
    let workspace = toml_file("Cargo.toml");
    let workspace = workspace["workspace"].as_table().expect("the workspace is described");
    for dependency in table(workspace, "dependencies").keys() {
        assert!(named.contains(dependency), "no crate uses {dependency}: remove it from the workspace's Cargo.toml");
    }
}

#[test]
fn every_crate_has_a_readme_and_the_workspace_lints() {
    for package in workspace_members() {
        let name = text(package, "name");
        let directory = Path::new(text(package, "manifest_path")).parent().expect("a manifest has a directory");
        let readme = fs::read_to_string(directory.join("README.md")).unwrap_or_default();
        let lines = readme.lines().count();
        assert!((3..=12).contains(&lines), "{name} needs a README.md of about five lines, not {lines}");
        let manifest: toml::Table =
            toml::from_str(&read_path(&directory.join("Cargo.toml"))).expect("a manifest is TOML");
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")?.as_bool());
        assert_eq!(inherits, Some(true), "{name} must have `[lints] workspace = true`");
    }
}

#[test]
fn source_files_are_short_and_have_a_header() {
    for path in files_of_the_project().iter().filter(|path| has_extension(path, "rs")) {
        let content = read_path(path);
        let lines = content.lines().count();
        assert!(lines <= MAX_LINES, "{} has {lines} lines: split it into files with one purpose each", path.display());
        let code = content.lines().find(|line| !line.starts_with("#!"));
        let introduced = code.is_some_and(|line| line.starts_with("//!"));
        assert!(introduced, "{} does not begin with a `//!` line that states its purpose", path.display());
    }
}

#[test]
fn no_file_contains_a_path_of_this_machine() {
    let mut paths = vec![format!("{}/", root().display())];
    // Only home directories of people identify a machine; those in containers may have any short name.
    paths.extend(
        std::env::var("HOME").ok().filter(|home| home == "/root" || home.starts_with("/home/")).map(|h| h + "/"),
    );
    for file in files_of_the_project() {
        let content = String::from_utf8_lossy(&fs::read(&file).expect("listed files can be read")).into_owned();
        for (number, line) in content.lines().enumerate() {
            let named = paths.iter().find(|path| line.contains(path.as_str()));
            assert!(named.is_none(), "{}:{} names a path of this machine", file.display(), number + 1);
        }
    }
}

#[test]
fn relative_links_have_a_target() {
    for file in files_of_the_project().iter().filter(|path| has_extension(path, "md")) {
        let directory = file.parent().expect("a file lies in a directory");
        for target in relative_links(&read_path(file)) {
            assert!(directory.join(&target).exists(), "{} links to {target}, which does not exist", file.display());
        }
    }
}

#[test]
fn only_listed_files_of_root_name_files_by_path() {
    let is_checked = |name: &str| {
        let is_code = name.ends_with(".rs") && !name.contains("/tests");
        let delivers = ["deliver", "beneath", "remove"].map(|part| format!("snapshot/src/{part}.rs"));
        let of_daemons = ["agent/src/", "project/src/", "shepherd/src/"].iter().any(|place| name.starts_with(place));
        is_code && (of_daemons || delivers.contains(&name.into()))
    };
    let mut found = BTreeSet::new();
    for path in files_of_the_project() {
        let name = path.strip_prefix(root().join("crates")).map(|name| name.display().to_string());
        let Some(name) = name.ok().filter(|name| is_checked(name)) else { continue };
        let content = read_path(&path);
        let code = content.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        if code.lines().any(names_a_path) {
            found.insert(name);
        }
    }
    let listed: Vec<String> = PATHS.iter().flat_map(|(_, files)| files.iter().map(ToString::to_string)).collect();
    let allowed: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), allowed.len(), "each file has one reason");
    let new: Vec<&String> = found.difference(&allowed).collect();
    assert!(new.is_empty(), "act as the user or by descriptor, or add to `PATHS` with a reason: {new:?}");
    let stale: Vec<&String> = allowed.difference(&found).collect();
    assert!(stale.is_empty(), "these files name no files by path any more: {stale:?}");
}

#[test]
fn files_for_others_get_their_mode_whatever_the_umask() {
    /// Runs with the umask of its caller, as it should.
    const OF_THE_CALLER: &str = "cli/src/commands/exec/call.rs";
    for path in files_of_the_project() {
        let name = path.strip_prefix(root().join("crates")).map(|name| name.display().to_string());
        let Some(name) = name.ok().filter(|name| name.contains("/src/") && name != OF_THE_CALLER) else { continue };
        let content = read_path(&path);
        let code = content.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (_, rest) in code.match_indices(".mode(0o").map(|(at, found)| code.split_at(at + found.len())) {
            let digits = rest.split(')').next().unwrap_or_default();
            let advice = "daemons have the umask 077: use `hostler_sys::create_directory` or `set_permissions`";
            assert!(digits.ends_with("00"), "{name}: `.mode(0o{digits})` opens a file to others, but {advice}");
        }
    }
}

#[test]
fn calls_with_a_path_are_recognised() {
    for line in [
        "    let text = fs::read(&path)?;",
        "std::fs::remove_file(path)",
        "nix::unistd::chown(&path, None, None)",
        "if directory.join(\"x\").exists() {",
        "    let file = OpenOptions::new().read(true).open(path)?;",
    ] {
        assert!(names_a_path(line), "{line}");
    }
    for line in [
        "use std::fs;",
        "// see fs::read",
        "fn look(found: &fs::Metadata) {",
        "fchown(&file, Some(uid), None)?;",
        "let file = openat2(&directory, name, how)?;",
        "self.may_access(job)",
    ] {
        assert!(!names_a_path(line), "{line}");
    }
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned);
    for fine in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0", "Apache-2.0 / X"] {
        assert!(is_permitted(fine, &allowed), "{fine}");
    }
    for foul in ["MPL-2.0", "MIT AND MPL-2.0", "Apache-2.0 WITH X", ""] {
        assert!(!is_permitted(foul, &allowed), "{foul}");
    }
}

#[test]
fn only_paths_and_attributes_count_as_uses() {
    for used in ["use csv;", "csv::Reader", "(csv::Reader", "use csv as table", "with = \"csv\"", "extern crate csv;"] {
        assert!(is_named(used, "csv"), "{used}");
    }
    for unused in ["a csv file", "read_csv::go", "csv_core::Reader", "roster.csv", ""] {
        assert!(!is_named(unused, "csv"), "{unused}");
    }
}

#[test]
fn only_relative_links_outside_code_count() {
    let page =
        "[a](b.md#part) ![c](d/e.png) [f](https://g) [h](#i) [j](mailto:k)\n```\n[x](no.md)\n```\n[l](<m n.md>)\n";
    assert_eq!(relative_links(page), ["b.md", "d/e.png", "m n.md"]);
}

/// Whether a line of code names a file by its path.
fn names_a_path(line: &str) -> bool {
    let code = line.trim_start();
    if ["//", "use ", "pub use "].iter().any(|start| code.starts_with(start)) {
        return false;
    }
    PATH_CALLS.iter().any(|call| {
        code.match_indices(call).any(|(at, _)| {
            let before = code[..at].chars().next_back();
            let is_whole = call.starts_with('.') || !before.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let is_type = ["fs::Metadata", "fs::FileType"].iter().any(|name| code[at..].starts_with(name));
            is_whole && !is_type
        })
    })
}

/// Whether every part of the SPDX expression offers a licence from `allowed`.
///
/// Stricter than the grammar where AND and OR are mixed without parentheses, never laxer.
fn is_permitted(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|name| allowed.iter().any(|known| known == name.trim())))
}

/// Link targets in Markdown that are files, without anchors. Skips code blocks.
fn relative_links(page: &str) -> Vec<String> {
    let prose = page.split("\n```").step_by(2);
    let targets = prose.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| match rest.strip_prefix('<') {
        Some(quoted) => quoted.split('>').next(),
        None => rest.split([')', ' ']).next(),
    });
    targets
        .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        .filter_map(|target| target.split('#').next().filter(|path| !path.is_empty()))
        .map(str::to_owned)
        .collect()
}

/// Whether source code names a crate: at the start of a path, in `use`, or in a string of an attribute.
fn is_named(sources: &str, name: &str) -> bool {
    sources.match_indices(name).any(|(at, _)| {
        let starts = !sources[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.');
        let rest = &sources[at + name.len()..];
        starts && ["::", ";", " as ", "\""].iter().any(|end| rest.starts_with(end))
    })
}

/// Whether a pure crate must not depend on the crate `name`.
fn is_impure(name: &str) -> bool {
    IMPURE
        .iter()
        .any(|impure| name == *impure || name.strip_prefix(impure).is_some_and(|rest| rest.starts_with(['-', '_'])))
}

/// The names of all packages that package `name` links, including itself, without those for its tests and build.
fn dependency_tree(name: &str) -> BTreeSet<String> {
    let names: BTreeMap<_, _> =
        array(metadata(), "packages").iter().map(|package| (text(package, "id"), text(package, "name"))).collect();
    let nodes: BTreeMap<_, _> =
        array(&metadata()["resolve"], "nodes").iter().map(|node| (text(node, "id"), array(node, "deps"))).collect();
    let mut open: Vec<_> = names.iter().filter(|(_, known)| **known == name).map(|(id, _)| *id).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(
                nodes[id].iter().filter(|dependency| is_linked(dependency)).map(|dependency| text(dependency, "pkg")),
            );
        }
    }
    seen.into_iter().map(|id| names[id].to_owned()).collect()
}

/// Whether a resolved dependency is linked into the program: the kind of a normal dependency is null.
fn is_linked(dependency: &Value) -> bool {
    array(dependency, "dep_kinds").iter().any(|kind| kind["kind"].is_null())
}

fn workspace_members() -> Vec<&'static Value> {
    let members = strings_of(&metadata()["workspace_members"]);
    array(metadata(), "packages").iter().filter(|package| members.contains(text(package, "id"))).collect()
}

/// The output of `cargo metadata` for Linux, cached.
fn metadata() -> &'static Value {
    static METADATA: OnceLock<Value> = OnceLock::new();
    METADATA.get_or_init(|| {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--offline", "--filter-platform=x86_64-unknown-linux-gnu"])
            .current_dir(root())
            .output()
            .expect("cargo runs these tests, so it can be started");
        assert!(output.status.success(), "cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
    })
}

/// All tracked files, and untracked files that are not ignored, except links.
fn files_of_the_project() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git lists the files of the project");
    assert!(output.status.success(), "git ls-files failed:\n{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).expect("names of the project's files are UTF-8");
    let files = names.split_terminator('\0').map(|name| root().join(name));
    files.filter(|path| path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())).collect()
}

/// Root of the checkout whose tests run. It may differ from the checkout that compiled them, because target directories
/// are shared.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let xtask = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the variable");
        Path::new(&xtask).parent().expect("xtask is a direct child of the root").to_owned()
    })
}

fn read(path: &str) -> String {
    read_path(&root().join(path))
}

fn read_path(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn toml_file(path: &str) -> toml::Table {
    toml::from_str(&read(path)).unwrap_or_else(|error| panic!("{path} is not TOML: {error}"))
}

fn table<'a>(table: &'a toml::Table, key: &str) -> &'a toml::Table {
    table[key].as_table().unwrap_or_else(|| panic!("{key} is not a table"))
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found == extension)
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is not a string"))
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is not a list"))
}

fn strings_of(list: &Value) -> BTreeSet<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn strings(list: &toml::Value) -> Vec<String> {
    let list = list.as_array().expect("a list in deny.toml");
    list.iter().map(|item| item.as_str().expect("a list of strings in deny.toml").to_owned()).collect()
}

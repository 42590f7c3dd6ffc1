//! Tests that systemd accepts the service units, and that the commands in packaging and guides exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Path of the program in a package. The program need not be installed on this machine.
const PROGRAM: &str = "/usr/bin/hostler";

#[test]
fn systemd_accepts_the_units() {
    let units = root().join("packaging/systemd");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut copies = Vec::new();
    for path in files(&units).into_iter().filter(|path| path.extension().is_some_and(|kind| kind == "service")) {
        let text = fs::read_to_string(&path).expect("a unit is text");
        let starts_ours = text.contains(&format!("ExecStart={PROGRAM} "));
        assert_eq!(
            starts_ours,
            !path.ends_with("hostler-jobs.service"),
            "{}: only hostler-jobs.service may start another program than {PROGRAM}",
            path.display()
        );
        let copy = scratch.path().join(path.file_name().expect("a file has a name"));
        // The manual pages are not installed either.
        let text = text
            .replace(PROGRAM, "/bin/true")
            .lines()
            .filter(|line| !line.starts_with("Documentation="))
            .fold(String::new(), |text, line| text + line + "\n");
        fs::write(&copy, text).expect("the copy can be written");
        copies.push(copy);
    }
    assert_eq!(copies.len(), 4);
    // Verify after all copies are written, because the units refer to each other.
    for copy in copies {
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&copy)
            .output()
            .expect("systemd-analyze is needed: install the package systemd");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.trim().is_empty(), "{}: {said}", copy.display());
    }
}

/// `cargo xtask docker` runs the real test, which needs a Docker engine and takes minutes.
#[test]
fn commands_in_packaging_and_guides_exist() {
    let reference = fs::read_to_string(root().join("docs/reference/cli.md")).expect("the command reference exists");
    let mut called = 0;
    let directories = [
        "packaging/docker",
        "packaging/systemd",
        "packaging/classroom",
        "docs/guides",
        "docs/personas",
        "docs/internals",
    ];
    for path in directories.iter().flat_map(|directory| files(&root().join(directory))) {
        let text = fs::read_to_string(&path).expect("the file is UTF-8");
        for line in text.lines().filter(|line| path.extension() == Some("md".as_ref()) || !line.starts_with('#')) {
            for words in calls(line) {
                check(&reference, &words).unwrap_or_else(|why| panic!("{}: {why}, in: {line}", path.display()));
                called += 1;
            }
        }
    }
    assert!(called > 50, "only {called} calls were found");
    // The check must detect wrong commands.
    for wrong in ["hostler frobnicate", "hostler node ivite n1", "x | hostler agent run --acounts"] {
        assert!(calls(wrong).iter().any(|words| check(&reference, words).is_err()), "{wrong}");
    }
}

#[test]
fn the_parts_of_the_image_fit_together() {
    let docker = root().join("packaging/docker");
    let read = |name: &str| fs::read_to_string(docker.join(name)).expect(name);
    let (script, compose, image) = (read("hostler-container"), read("compose.yaml"), read("Dockerfile"));
    for command in compose.lines().filter_map(|line| line.trim().strip_prefix("command: ")) {
        assert!(script.contains(&format!("    {command}) ")), "the container knows no `{command}`");
    }
    let copied = image.lines().filter_map(|line| line.strip_prefix("COPY ")?.split(' ').next());
    for path in copied.filter(|path| path.contains('/')) {
        assert!(root().join(path).exists(), "there is no {path}");
    }
    let shell = Command::new("sh").arg("-n").arg(docker.join("hostler-container")).output().expect("there is a shell");
    assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
}

/// `crates/hostler/tests/classroom.rs` runs the script and the settings on real daemons.
#[test]
fn the_files_of_a_class_fit_together() {
    let class = root().join("packaging/classroom");
    let read = |name: &str| fs::read_to_string(class.join(name)).expect(name);
    let (compose, image) = (read("compose.yaml"), read("Dockerfile"));
    for path in image.lines().filter_map(|line| line.strip_prefix("COPY ")?.split(' ').next()) {
        assert!(root().join(path).exists(), "there is no {path}");
    }
    for path in compose.lines().filter_map(|line| line.trim().strip_prefix("- ../classroom/")?.split(':').next()) {
        assert!(class.join(path).exists(), "there is no {path}");
    }
    assert!(
        compose.contains("command: classroom-hub")
            && image.contains("COPY packaging/classroom/hub /usr/bin/classroom-hub")
    );
    // Compose appends lists, and refuses an item that is there twice.
    let limits = fs::read_to_string(root().join("packaging/docker/limits.yaml")).expect("limits.yaml");
    let node = compose.split("\n  node:").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a service");
    for line in limits.lines().map(str::trim).filter(|line| line.starts_with(['c', 's']) && line.ends_with(']')) {
        for item in line.split(['[', ']', ',']).skip(1).map(str::trim).filter(|item| !item.is_empty()) {
            assert!(!node.contains(item), "{item} is in both files");
        }
    }
    for script in ["setup.sh", "hub"] {
        let shell = Command::new("bash").arg("-n").arg(class.join(script)).output().expect("there is a shell");
        assert!(shell.status.success(), "{script}: {}", String::from_utf8_lossy(&shell.stderr));
    }
}

fn root() -> PathBuf {
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets the variable")).join("..")
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    entries.map(|entry| entry.expect("the directory can be listed").path()).collect()
}

/// The words after each `hostler` that a line runs as a program, up to the end of that command.
fn calls(line: &str) -> Vec<Vec<String>> {
    const ENDS: [char; 9] = [';', ')', '`', '|', '>', '<', '&', '#', '\''];
    let mut found = Vec::new();
    let words: Vec<&str> = line.split_whitespace().collect();
    for (index, word) in words.iter().enumerate() {
        let word = word.trim_start_matches(['`', '(', '\'', '"', '!']);
        let word = word.strip_prefix("$(").or(word.rsplit_once("$(").map(|(_, last)| last)).unwrap_or(word);
        if !["hostler", PROGRAM].contains(&word.strip_prefix("ExecStart=").unwrap_or(word)) {
            continue;
        }
        let mut call = Vec::new();
        for word in &words[index + 1..] {
            let plain = word.split(ENDS).next().unwrap_or_default();
            if !plain.is_empty() {
                call.push(plain.trim_matches(['"', ',', '.', ':']).to_owned());
            }
            if plain != *word || *word == "--" {
                break;
            }
        }
        if index > 0 && ["--tag", "--package", "--project-name"].contains(&words[index - 1]) {
            continue;
        }
        // The name of a file or an image is not a command.
        if call.iter().any(|word| !word.starts_with('-'))
            && call.first().is_some_and(|word| word != "hostler" && word != PROGRAM)
        {
            found.push(call);
        }
    }
    found
}

/// Checks that the reference contains the command and its long flags.
fn check(reference: &str, words: &[String]) -> Result<(), String> {
    let mut section = section(reference, "hostler").expect("the program itself");
    let mut name = "hostler".to_owned();
    for word in words.iter().filter(|word| !word.starts_with('-')) {
        let longer = format!("{name} {word}");
        let Some(found) = self::section(reference, &longer) else { break };
        (name, section) = (longer, found);
    }
    if name == "hostler" || (section.contains(&format!("Usage: {name} [OPTIONS] <COMMAND>\n"))) {
        return Err(format!("`hostler {}` is no command", words.join(" ")));
    }
    let global = self::section(reference, "Global options").expect("the reference describes them once");
    let flags = words.iter().filter_map(|word| word.strip_prefix("--").filter(|flag| !flag.is_empty()));
    for flag in flags.map(|flag| flag.split('=').next().unwrap_or(flag)) {
        if ![section, global].iter().any(|text| text.contains(&format!("--{flag}"))) {
            return Err(format!("`{name}` has no --{flag}"));
        }
    }
    Ok(())
}

fn section<'a>(reference: &'a str, command: &str) -> Option<&'a str> {
    let (_, rest) = reference.split_once(&format!("\n## {command}\n"))?;
    rest.split("\n## ").next()
}

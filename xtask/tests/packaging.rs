//! The service units are what systemd understands.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Where a package puts the program; it need not be installed on the machine that runs the test.
const PROGRAM: &str = "/usr/bin/hostler";

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let units = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo says whose tests it runs"))
        .join("../packaging/systemd");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut copies = Vec::new();
    for entry in fs::read_dir(&units).expect("the units are there") {
        let path = entry.expect("it can be listed").path();
        let text = fs::read_to_string(&path).expect("a unit is text");
        let starts_ours = text.contains(&format!("ExecStart={PROGRAM} "));
        assert_eq!(starts_ours, !path.ends_with("hostler-jobs.service"), "{} starts something else", path.display());
        let copy = scratch.path().join(path.file_name().expect("a file has a name"));
        // The manual pages are not installed either.
        let text = text
            .replace(PROGRAM, "/bin/true")
            .lines()
            .filter(|line| !line.starts_with("Documentation="))
            .fold(String::new(), |text, line| text + line + "\n");
        fs::write(&copy, text).expect("it can be written");
        copies.push(copy);
    }
    assert_eq!(copies.len(), 3);
    // Once all of them are there, as they name each other.
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

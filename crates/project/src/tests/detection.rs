//! Tests of requirement detection and of the fingerprint.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::symlink;

use super::{Place, detect};
use crate::{Bound, Kind, ProjectError, Stopped};

fn fingerprint(files: &[(&str, &str)]) -> String {
    Place::with(files).detect().fingerprint().to_hex().to_string()
}

fn kind(files: &[(&str, &str)]) -> Option<Kind> {
    detect(&Place::with(files).project(), "main.py").expect("a sound project").map(|found| found.kind())
}

#[test]
fn most_exact_source_of_requirements_wins() {
    let pyproject = ("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndependencies = ['six']\n");
    let lock = ("uv.lock", "version = 1\n");
    let requirements = ("requirements.txt", "six\n");
    let script = ("main.py", "# /// script\n# dependencies = ['six']\n# ///\n");
    assert_eq!(kind(&[]), None);
    assert_eq!(kind(&[("main.py", "print(1)"), ("requirements.txt", "# nothing\n\n")]), None);
    assert_eq!(kind(&[("pyproject.toml", "[tool.ruff]\nline-length = 100\n")]), None);
    assert_eq!(kind(&[lock]), None, "a lock alone cannot be installed");
    assert_eq!(kind(&[pyproject]), Some(Kind::Pyproject));
    assert_eq!(kind(&[pyproject, requirements]), Some(Kind::RequirementsTxt));
    assert_eq!(kind(&[pyproject, requirements, lock]), Some(Kind::UvLock));
    assert_eq!(kind(&[pyproject, requirements, lock, script]), Some(Kind::Script));
    let needs_nothing = ("main.py", "# /// script\n# dependencies = []\n# ///\n");
    assert_eq!(kind(&[pyproject, requirements, lock, needs_nothing]), None, "a script that requires no packages");
}

#[test]
fn fingerprint_ignores_layout_but_not_content() {
    let plain = fingerprint(&[("requirements.txt", "six==1.16.0\ntoolz\n")]);
    let laid_out = "\u{feff}# tools\r\n\r\nsix==1.16.0   # pinned\r\n\r\ntoolz \\\r\n\r\n";
    assert_eq!(plain, fingerprint(&[("requirements.txt", laid_out), ("main.py", "print('edited')")]));
    assert_eq!(
        plain,
        fingerprint(&[("requirements.txt", "-r deep/base.txt\ntoolz"), ("deep/base.txt", "six==1.16.0")])
    );
    assert_ne!(plain, fingerprint(&[("requirements.txt", "six==1.17.0\ntoolz\n")]));
    assert_ne!(plain, fingerprint(&[("requirements.txt", "six==1.16.0\n-c toolz.txt"), ("toolz.txt", "toolz")]));
}

#[test]
fn fingerprint_covers_the_content_of_includes() {
    let with = |base: &'static str, limits: &'static str| {
        fingerprint(&[
            ("requirements.txt", "-r env/base.txt\n"),
            ("env/base.txt", base),
            ("env/limits.txt", limits),
            ("env/more.txt", "toolz"),
        ])
    };
    let base = "--requirement=more.txt\n-c limits.txt\n-rbase.txt\nsix\n";
    assert_eq!(with(base, "six<2"), with(base, "six<2  # why"));
    assert_ne!(with(base, "six<2"), with(base, "six<3"));
}

#[test]
fn includes_outside_the_folder_are_refused() {
    let place = Place::with(&[("requirements.txt", "-r ../secret.txt\n"), ("sub/link.txt", "")]);
    std::fs::write(place.path("secret.txt"), "six").expect("this test owns the path");
    let refused = |place: &Place| detect(&place.project(), "main.py").expect_err("the path leads out of the folder");
    let error = refused(&place);
    assert!(matches!(error, ProjectError::OutsideProject { .. }), "{error}");
    assert_eq!(error.to_string(), "requirements.txt refers to ../secret.txt, which is outside the project folder");
    assert!(error.hint().is_some());

    symlink(place.path("secret.txt"), place.project().join("innocent.txt")).expect("this test owns the path");
    place.write(&[("requirements.txt", "-r innocent.txt\n")]);
    assert!(matches!(refused(&place), ProjectError::OutsideProject { .. }));
    place.write(&[("requirements.txt", "../\n")]);
    assert!(matches!(refused(&place), ProjectError::OutsideProject { .. }));
    place.write(&[("requirements.txt", "-r absent.txt\n")]);
    assert_eq!(refused(&place).to_string(), "requirements.txt: refers to absent.txt, which does not exist");
}

#[test]
fn fingerprint_covers_the_content_of_local_packages() {
    for line in [
        "-e .",
        "./pkg",
        "-e ./pkg",
        "pkg @ ./pkg",
        "file:./pkg",
        "-e file:pkg#egg=pkg",
        "pkg @ file:pkg",
        "pkg/",
        "--find-links ./pkg\nsix",
        "./pkg[extra] ; python_version > '3'",
    ] {
        let with = |content: &str| {
            let files = [("setup.py", ""), ("pkg/setup.py", ""), ("requirements.txt", line), ("pkg/code.py", content)];
            fingerprint(&files)
        };
        assert_eq!(with("1"), with("1"), "{line}");
        assert_ne!(with("1"), with("2"), "{line}");
    }
    for line in [
        "six",
        "six ; python_version > '3'",
        "-i https://example.org/a/b",
        "p @ https://example.org/./pkg",
        "-e git+https://x.org/a",
    ] {
        let with = |content: &str| fingerprint(&[("requirements.txt", line), ("pkg/code.py", content)]);
        assert_eq!(with("1"), with("2"), "{line}");
    }
}

/// A project that requires a wheel of this size.
fn with_wheel(bytes: u64) -> Place {
    let wheel = "wheels/one-1-py3-none-any.whl";
    let place = Place::with(&[("requirements.txt", "six\n./wheels/one-1-py3-none-any.whl\n"), (wheel, "")]);
    let file = File::options().write(true).open(place.project().join(wheel)).expect("this test owns the path");
    file.set_len(bytes).expect("sparse");
    place
}

#[test]
fn fingerprint_of_large_files_ends_with_its_job() {
    let place = with_wheel(64 << 20);
    let checks = Cell::new(0);
    let most = Cell::new(usize::MAX);
    let goes_on = || {
        checks.set(checks.get() + 1);
        if checks.get() <= most.get() { Ok(()) } else { Err(Stopped::TimedOut { limit_secs: 2 }) }
    };
    let detect = || crate::detect(&place.project(), "main.py", &goes_on);
    detect().expect("the job goes on").expect("the project has requirements");
    assert!(checks.get() >= 64, "at least one check for each MiB: {}", checks.get());
    checks.set(0);
    most.set(10);
    let error = detect().expect_err("the job has reached its time limit");
    assert!(matches!(error, ProjectError::Stopped(Stopped::TimedOut { limit_secs: 2 })), "{error}");
    assert_eq!(checks.get(), 11, "nothing more is read");
}

#[test]
fn content_of_local_packages_has_a_size_limit() {
    let error = detect(&with_wheel((4 << 30) + 1).project(), "main.py").expect_err("too large");
    assert!(matches!(error, ProjectError::TooLong { bound: Bound::LocalBytes(_), .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "wheels/one-1-py3-none-any.whl is too large: the local files that the environment depends on have more than 4G in \
         total"
    );
    let hint = error.hint().expect("there is something to do");
    assert!(hint.contains(".hostlerignore") && hint.contains("index") && hint.contains("hash"), "{hint}");
}

#[test]
fn fingerprint_covers_only_dependencies_of_pyproject() {
    let with = |dependencies: &str, rest: &str| {
        fingerprint(&[(
            "pyproject.toml",
            &format!("[project]\nname = 'p'\nversion = '1'\ndependencies = {dependencies}\n{rest}"),
        )])
    };
    assert_eq!(with("['six']", ""), with("[ 'six', ] # same", "[tool.ruff]\nline-length = 90\n"));
    assert_ne!(with("['six']", ""), with("['six', 'toolz']", ""));
    assert_ne!(with("['six']", ""), with("['six']", "[tool.uv]\nindex-url = 'https://example.org'\n"));
    let dynamic =
        Place::with(&[("pyproject.toml", "[project]\nname = 'p'\nversion = '1'\ndynamic = ['dependencies']")]);
    let error = detect(&dynamic.project(), "main.py").expect_err("computed dependencies cannot be read");
    assert!(error.to_string().contains("requirements.txt"), "{error}");
    let broken = Place::with(&[("pyproject.toml", "[project\n")]);
    let error = detect(&broken.project(), "main.py").expect_err("not TOML");
    assert!(error.to_string().starts_with("pyproject.toml: "), "{error}");
}

#[test]
fn source_of_a_package_is_part_of_the_fingerprint_only_if_it_is_installed_as_a_copy() {
    let with = |text: &str, code: &str| {
        let project = format!("[project]\nname = 'p'\nversion = '1'\n{text}");
        let place = Place::with(&[("pyproject.toml", &project), ("src/p/__init__.py", code)]);
        let found = detect(&place.project(), "main.py").expect("a sound project");
        found.map(|found| found.fingerprint().to_hex().to_string())
    };
    let build = |requires: &str, backend: &str| {
        format!("[build-system]\nrequires = [{requires}]\nbuild-backend = '{backend}'\n")
    };
    for text in [
        build("'uv_build>=0.9,<1'", "uv_build"),
        build("'hatchling'", "hatchling.build"),
        build("'setuptools>=61', 'wheel'", "setuptools.build_meta"),
        "[tool.uv]\npackage = true\n".to_owned(),
    ] {
        assert!(with(&text, "1").is_some(), "{text}");
        assert_eq!(with(&text, "1"), with(&text, "2"), "{text}");
        assert_ne!(with(&text, "1"), with(&format!("{text}[tool.other]\nx = 1\n"), "1"), "{text}");
    }
    for text in [
        build("'maturin'", "maturin"),
        build("'setuptools', 'Cython'", "setuptools.build_meta"),
        build("'hatchling'", "hatchling.build") + "[tool.hatch.build.hooks.custom]\n",
        build("'setuptools'", "setuptools.build_meta") + "[tool.uv.sources]\nq = { path = 'q' }\n",
        "dynamic = ['description']\n".to_owned() + &build("'flit_core'", "flit_core.buildapi"),
    ] {
        assert_eq!(with(&text, "1"), with(&text, "1"), "{text}");
        assert_ne!(with(&text, "1"), with(&text, "2"), "{text}");
    }
    let opted_out = build("'uv_build'", "uv_build") + "[tool.uv]\npackage = false\n";
    assert_eq!((with("", ""), with(&opted_out, "")), (None, None));
}

#[test]
fn names_of_top_level_modules_are_part_of_the_fingerprint_with_setuptools() {
    let with = |backend: &str, file: &str| {
        let project = format!(
            "[project]\nname = 'p'\nversion = '1'\n[build-system]\nrequires = []\nbuild-backend = '{backend}'\n\
             [tool.setuptools.packages.find]\nwhere = ['.', 'lib/python']\n"
        );
        let folder = "lib/python/q/__init__.py";
        fingerprint(&[("pyproject.toml", &project), ("p/__init__.py", ""), (folder, ""), ("src/a", ""), (file, "")])
    };
    let same = "p/__init__.py";
    for new in ["extra.py", "extra/__init__.py", "extra/data.csv", "src/extra/__init__.py", "lib/python/extra.py"] {
        assert_ne!(with("setuptools.build_meta", new), with("setuptools.build_meta", same), "{new}");
        assert_eq!(with("hatchling.build", new), with("hatchling.build", same), "{new}");
    }
    for new in
        ["data.csv", "p/extra.py", "lib/python/q/extra/a.py", ".cache/a.py", "__pycache__/a.pyc", "p.egg-info/PKG-INFO"]
    {
        assert_eq!(with("setuptools.build_meta", new), with("setuptools.build_meta", same), "{new}");
    }
}

#[test]
fn oversized_project_files_are_refused() {
    let place = Place::with(&[("main.py", ""), ("requirements.txt", "")]);
    let file =
        File::options().write(true).open(place.project().join("requirements.txt")).expect("this test owns the path");
    file.set_len(1 << 42).expect("sparse");
    let error = detect(&place.project(), "main.py").expect_err("too long");
    assert_eq!(
        error.to_string(),
        "requirements.txt is too large: requirements files and their includes have more than 4M in total"
    );
}

#[test]
fn project_files_have_a_total_size_limit() {
    let too_long = |files: &[(&str, &str)]| match detect(&Place::with(files).project(), "main.py") {
        Err(ProjectError::TooLong { file, bound }) => Some((file, bound)),
        other => {
            other.expect("the project is valid");
            None
        }
    };
    let bytes = |count: usize| format!("#{}\n", "x".repeat(count - 2));
    let half = bytes(2 << 20);
    let included = |last: &str| {
        let files = [("requirements.txt", "x\n-r a.txt\n-c b.txt\n"), ("a.txt", &half), ("b.txt", last)];
        too_long(&files)
    };
    assert_eq!(included(&bytes((2 << 20) - 22)), None);
    assert_eq!(included(&half), Some(("b.txt".into(), Bound::RequirementsBytes(4 << 20))));
    let lines = |count: usize| too_long(&[("requirements.txt", "-r a.txt\n"), ("a.txt", &"x\n".repeat(count))]);
    assert_eq!(lines(99_999), None);
    assert_eq!(lines(100_000), Some(("a.txt".into(), Bound::RequirementsLines(100_000))));
    let project = "[project]\nname = 'x'\n";
    let long = bytes((4 << 20) + 1);
    assert_eq!(too_long(&[("pyproject.toml", &long)]), Some(("pyproject.toml".into(), Bound::Bytes(4 << 20))));
    assert_eq!(too_long(&[(".python-version", &long)]), Some((".python-version".into(), Bound::Bytes(4 << 20))));
    assert_eq!(too_long(&[("pyproject.toml", project), ("uv.lock", &bytes(16 << 20))]), None);
    let lock = too_long(&[("pyproject.toml", project), ("uv.lock", &bytes((16 << 20) + 1))]);
    assert_eq!(lock, Some(("uv.lock".into(), Bound::Bytes(16 << 20))));
    // Scripts may be long, but their metadata may not.
    assert_eq!(too_long(&[("main.py", &format!("# /// script\n# ///\n{long}"))]), None);
    assert_eq!(too_long(&[("main.py", &long)]), None);
    for (text, problem) in [
        ("# /// script\n# dependencies = []\nprint()\n# ///\n", "has no end"),
        ("# /// script\n# dependencies = []\n", "has no end"),
        ("# /// script\n# ///\n\n# /// script\n# ///\n", "several"),
    ] {
        let refused =
            crate::survey(&Place::with(&[("main.py", text)]).project(), "main.py").expect_err("not one block");
        assert!(refused.to_string().contains(problem), "{refused}");
    }
    let endless = format!("# /// script\n{}", "# x\n".repeat(2 << 20));
    assert_eq!(too_long(&[("main.py", &endless)]), Some(("main.py".into(), Bound::ScriptBytes(4 << 20))));
}

#[test]
fn choice_of_the_index_that_replaces_the_usual_one_is_found() {
    let chooses = |files: &[(&str, &str)]| {
        let place = Place::with(&[("requirements.txt", "six\n")]);
        place.write(files);
        place.detect().chooses_index()
    };
    assert!(!chooses(&[]) && !chooses(&[("uv.toml", "[[index]]\nurl = 'https://example.org'\n")]));
    assert!(!chooses(&[("requirements.txt", "--extra-index-url https://example.org\nsix\n")]));
    assert!(chooses(&[("requirements.txt", "-i https://example.org\nsix\n")]));
    assert!(chooses(&[("uv.toml", "[[index]]\nurl = 'https://example.org'\ndefault = true\n")]));
    assert!(chooses(&[("pyproject.toml", "[tool.uv]\nindex-url = 'https://example.org'\n")]));
}

//! Compares the reader of requirements files with pip's own.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Place, detect};
use crate::{Line, Plan, ProjectError, survey};

/// Prints, for each folder, how pip reads its files `requirements.txt` and `ours.txt`.
const PIP: &str = r"
import os, sys
from pip._internal.network.session import PipSession
from pip._internal.req.constructors import install_req_from_parsed_requirement
from pip._internal.req.req_file import parse_requirements
session = PipSession()
def read(name):
    found = []
    try:
        for line in parse_requirements(name, session=session):
            it = install_req_from_parsed_requirement(line)
            path = os.path.realpath(it.link.file_path) if it.link and it.link.is_file else str(it.link)
            if it.link and it.link.is_file and not os.path.exists(path):
                return 'error'
            if os.path.isdir(path) and not any(os.path.exists(path + name) for name in ('/setup.py', '/pyproject.toml')):
                return 'error'
            if it.editable and os.path.isfile(path):
                return 'error'
            found.append((bool(line.constraint), str(it.req and it.req.name), str(sorted(it.extras or (it.req and it.req.extras) or ())),
                          str(it.markers or (it.req and it.req.marker)), path, str(it.req and it.req.specifier), str(it.hash_options)))
    except Exception:
        return 'error'
    return repr(sorted(set(found)))
for folder in sys.argv[1:]:
    os.chdir(folder)
    theirs = read('requirements.txt')
    ours = read('ours.txt') if os.path.exists('ours.txt') else 'error'
    print('same' if ours == theirs else f'pip: {theirs} ours: {ours}')
";

const FILES: [(&str, &str); 11] = [
    ("libs/one/pyproject.toml", ""),
    ("my libs/one/setup.py", ""),
    ("two/setup.py", ""),
    ("wheels/one-1-py3-none-any.whl", ""),
    ("wheels/my one.tar.gz", ""),
    ("more.txt", "./libs/one\nsix\n"),
    ("more reqs.txt", "-c limits.txt\n\"quoted\n"),
    ("limits.txt", "toolz<2\n"),
    ("sub/nested.txt", "-r more.txt\n./two\n"),
    ("sub/more.txt", "-r ../more.txt\n-e ./my\\\n libs/one\n"),
    ("good reqs.txt", "-c limits.txt\n./two\n"),
];

/// Text chosen by a number, and the number without this choice.
fn choose(number: &mut usize, texts: &[&'static str]) -> &'static str {
    let text = texts[*number % texts.len()];
    *number /= texts.len();
    text
}

/// A line of a requirements file.
fn line(mut number: usize) -> String {
    let n = &mut number;
    if choose(n, &["requirement", "requirement", "include"]) == "include" {
        let option = choose(n, &["-r ", "-r", "-c ", "--requirement=", "--requirem ", "--constraint "]);
        let files =
            ["more.txt", "\"good reqs.txt\"", "'more reqs.txt'", "sub/nested.txt", "absent.txt", "good\\ reqs.txt"];
        return format!("{option}{}{}", choose(n, &files), choose(n, &["", " # why", " --pre"]));
    }
    let option = choose(n, &["", "", "", "-e ", "--editable=", "-e"]);
    let target = choose(
        n,
        &[
            "./libs/one",
            "libs/one",
            "libs/one/",
            "file:./libs/one",
            "file:libs/one",
            "file:libs/one#egg=one",
            "file:my%20libs/one",
            "./my libs/one",
            "my libs/one",
            "./my libs/../two",
            "two",
            "./two",
            "wheels/one-1-py3-none-any.whl",
            "file:wheels/one-1-py3-none-any.whl",
            "wheels/my one.tar.gz",
            "./absent",
            "file:absent",
            "libs",
            "./libs",
            "six",
            "six>=1,<3",
            "https://example.org/one-1.tar.gz",
            "git+https://example.org/one.git#egg=one",
            "one @ https://example.org/one-1.tar.gz",
        ],
    );
    let target = match choose(n, &["", "", "'", "\""]) {
        quote if option.is_empty() || quote.is_empty() => target.to_owned(),
        quote => format!("{quote}{target}{quote}"),
    };
    let extras = choose(n, &["", "", "[extra]", "[a,b]"]);
    let marker = choose(n, &["", "", " ; python_version > '3'", "; python_version>'3'", ";python_version>'3'"]);
    let rest = choose(n, &["", " # comment", "#no comment", "\t# comment", " \\\n # comment", "\\\n"]);
    format!("{option}{target}{extras}{marker}{rest}")
}

/// A file in one of the encodings that pip reads.
fn encoded(text: &str, number: usize) -> Vec<u8> {
    match number % 5 {
        0 => [&b"\xef\xbb\xbf"[..], text.as_bytes()].concat(),
        1 => [&b"\xff\xfe"[..], &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>()].concat(),
        2 => [&b"# -*- coding: latin-1 -*-\n# caf\xe9\n"[..], text.as_bytes()].concat(),
        3 => text.replace('\n', "\r\n").into_bytes(),
        _ => text.as_bytes().to_vec(),
    }
}

#[test]
fn requirements_are_read_as_pip_reads_them() {
    let place = Place::new();
    let mut seed = 1_usize;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 20
    };
    let cases: Vec<_> = (0..400)
        .map(|case| {
            let folder = place.project().join(case.to_string());
            let write = |name: &str, content: &[u8]| {
                let file = folder.join(name);
                fs::create_dir_all(file.parent().expect("a file in a folder")).expect("this test owns the folder");
                fs::write(file, content).expect("this test owns the folder");
            };
            FILES.iter().for_each(|(name, content)| write(name, content.as_bytes()));
            let lines: Vec<String> = (0..=case % 2).map(|_| line(random())).collect();
            let text = lines.join("\n") + "\nsix\n";
            write("requirements.txt", &encoded(&text, random()));
            if let Some(ours) = ours(&folder) {
                write("ours.txt", ours.as_bytes());
            }
            (folder, text)
        })
        .collect();
    let output = Command::new("python3").args(["-c", PIP]).args(cases.iter().map(|(folder, _)| folder)).output();
    let output = output.expect("python3 starts");
    assert!(output.status.success(), "python3 needs pip: {}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut wrong = String::new();
    for ((folder, text), said) in cases.iter().zip(said.lines()).filter(|(_, said)| *said != "same") {
        let error = detect(folder, "main.py").err().map(|error| error.to_string());
        writeln!(wrong, "{text:?}: {said} {error:?}").expect("a string can grow");
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(said.lines().count(), cases.len());
    let read = cases.iter().filter(|(folder, _)| folder.join("ours.txt").exists()).count();
    assert!(read > cases.len() / 4, "{read} of {} files can be read", cases.len());
}

/// The requirements of a folder as they are passed to pip and uv, with the original paths; `None` if they are refused.
fn ours(folder: &Path) -> Option<String> {
    let found = detect(folder, "main.py").ok()?.expect("each file has a requirement");
    let Plan::List(list) = found.plan() else { panic!("a requirements file leads to a list") };
    let text = |lines: &[Line]| {
        let line = |line: &Line| match line {
            Line::Text(text) => text.clone() + "\n",
            Line::Local(local) => local.with_path(&local.path) + "\n",
        };
        lines.iter().map(line).collect::<String>()
    };
    fs::write(folder.join("ours-limits.txt"), text(&list.constraints)).expect("this test owns the folder");
    Some(text(&list.requirements) + "-c ours-limits.txt\n")
}

#[test]
fn check_names_what_cannot_work_on_a_node() {
    let checked = |requirements: &str, files: &[(&str, &str)]| {
        let place = Place::with(files);
        place.write(&[("requirements.txt", requirements)]);
        survey(&place.project(), "main.py").map(|found| found.referred).map_err(|error| error.to_string())
    };
    let package = [("my libs/one/pyproject.toml", ""), ("more reqs.txt", "file:my%20libs/one\n"), ("empty/x", "")];
    assert_eq!(
        checked("-r \"more reqs.txt\"\n", &package),
        Ok(vec!["more reqs.txt".into(), "my libs/one".into()]),
        "the files that the requirements need"
    );
    for (line, problem) in [
        ("file:./absent", "requirements.txt: refers to ./absent, which does not exist"),
        ("-r 'absent reqs.txt'", "requirements.txt: refers to absent reqs.txt, which does not exist"),
        ("./empty", "requirements.txt: refers to ./empty, which has neither pyproject.toml nor setup.py"),
        ("-r 'open", "requirements.txt: unclosed quote in -r 'open"),
        ("# coding: koi8-r", "requirements.txt: is in the encoding koi8-r: save it as UTF-8"),
        ("../outside", "requirements.txt: refers to ../outside, which does not exist"),
    ] {
        assert_eq!(checked(line, &package), Err(problem.to_owned()));
    }
    let place = Place::with(&[("requirements.txt", "file:../outside")]);
    fs::create_dir(place.path("outside")).expect("new");
    let error = survey(&place.project(), "main.py").expect_err("outside");
    assert!(matches!(error, ProjectError::OutsideProject { .. }), "{error}");
}

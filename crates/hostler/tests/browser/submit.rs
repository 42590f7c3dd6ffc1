//! The page *Submit*: scripts by keyboard alone, and uploads of folders and archives.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use hostler_testkit::{Cluster, Size};

use crate::browser::{Browser, DESKTOP, View};
use crate::{HOSTLER, TAB, Visit};

const ENTER: char = '\u{e007}';

/// Moves the focus until it is on an element that matches.
fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..60 {
        browser.press_key(TAB);
        if browser.run_script(&format!("return document.activeElement.matches({selector:?})")) == true {
            return;
        }
    }
    panic!("the keyboard does not reach {selector}");
}

/// A folder with a program that lists what it got, some content of `megabytes`, and things to leave out.
fn project(cluster: &Cluster, megabytes: usize) -> String {
    cluster.write(
        "work/project/main.sh",
        "#!/bin/sh\nfind . -type f | sort; cksum data/big; cat 'odd <b> name'; echo done > result.txt\n",
    );
    cluster.write("work/project/odd <b> name", "odd\n");
    // Chunks of equal content would be sent only once.
    let words = (0..megabytes << 17).flat_map(|word| (word as u64 ^ 0x9E37_79B9_7F4A_7C15).to_le_bytes());
    cluster.write("work/project/data/big", words.collect::<Vec<u8>>());
    for left_out in [".git/config", "node_modules/a.js", "venv/pyvenv.cfg", "venv/lib/b.py", "data/__pycache__/c.pyc"] {
        cluster.write(&format!("work/project/{left_out}"), "left out");
    }
    cluster.path("work/project").display().to_string()
}

/// Chooses the source of the job and what it runs, and submits it. Returns the job's id.
fn submit(visit: &Visit, input: &str, path: &str) -> String {
    let browser = &visit.browser;
    visit.open("/submit");
    browser.find("input[value=folder]").click();
    browser.find(input).type_text(path);
    browser.wait_for("project: ");
    browser.find("textarea[name=command]").type_text("main.sh 'two words'");
    browser.find("input[name=memory]").type_text("32M");
    browser.press("Submit the job");
    id_of(browser)
}

/// The job whose page the browser shows after a submission.
fn id_of(browser: &Browser) -> String {
    let text = browser.wait_for("was submitted.");
    let id = text.split("Job ").find_map(|rest| rest.split_once(" was submitted.")).map(|(id, _)| id);
    id.expect("the notice names the job").to_owned()
}

#[test]
fn script_is_written_and_submitted_with_the_keyboard_alone() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    for is_phone in [false, true] {
        let visit = Visit::of(&cluster, View { is_phone, ..DESKTOP });
        let browser = &visit.browser;
        visit.open("/submit");
        tab_to(browser, "textarea[name=script]");
        browser.type_keys("echo it ran");
        tab_to(browser, "[name=cpus]");
        browser.type_keys("77");
        // The answer comes as soon as the field is left.
        tab_to(browser, "[name=memory]");
        browser.wait_for("no node");
        browser.press_chord(&['\u{e008}', TAB]);
        browser.type_keys("1");
        tab_to(browser, "[name=memory]");
        browser.type_keys("16M");
        tab_to(browser, "[name=time]");
        browser.wait_for("It would start now on n");
        assert_eq!(browser.violations(), [""; 0]);
        browser.take_picture("submit-filled");
        tab_to(browser, "button.main");
        browser.press_key(ENTER);
        let id = id_of(browser);
        cluster.wait_for_state(&id, "completed");
        browser.wait_for("it ran");
        visit.end();
    }
}

#[test]
fn folder_is_uploaded_once_and_continues_after_a_broken_connection() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    let folder = project(&cluster, 24);
    let visit = Visit::of(&cluster, DESKTOP);
    let browser = &visit.browser;
    visit.open("/submit");
    browser.find("input[value=folder]").click();
    browser.find("#folder").type_text(&folder);
    browser.wait_for("project: 3 files, 24.0M.");
    browser.find("textarea[name=command]").type_text("main.sh");
    browser.set_offline(true);
    browser.press("Submit the job");
    browser.wait_for("the upload continues as soon as it does");
    browser.set_offline(false);
    let first = id_of(browser);
    cluster.wait_for_state(&first, "completed");
    let sum = Command::new("cksum").current_dir(&folder).arg("data/big").output().expect("cksum runs");
    let expected = format!("./data/big\n./main.sh\n./odd <b> name\n{}odd\n", String::from_utf8_lossy(&sum.stdout));
    assert_eq!(cluster.ok(&["logs", &first]).trim(), expected.trim());
    visit.open(&format!("/jobs/{first}/tasks/0/files"));
    browser.wait_for("result.txt");

    // The head has the content now, so nothing is sent but what has changed.
    cluster.write("work/project/odd <b> name", "changed\n");
    visit.open("/submit");
    browser.run_script(
        "const send = window.fetch; \
         window.fetch = (path, how) => { if (path === '/submit/chunks') sessionStorage.sent = Number(sessionStorage.sent ?? 0) + how.body.size; return send(path, how); }",
    );
    browser.find("input[value=folder]").click();
    browser.find("#folder").type_text(&folder);
    browser.find("textarea[name=command]").type_text("main.sh");
    browser.press("Submit the job");
    let second = id_of(browser);
    let sent = browser.run_script("return Number(sessionStorage.sent)");
    assert_eq!(sent, 32 + 4 + 1 + "changed\n".len(), "only the changed file is sent");
    cluster.wait_for_state(&second, "completed");
    assert!(cluster.ok(&["logs", &second]).ends_with("changed"));
    visit.end();
}

#[test]
fn archives_are_unpacked_and_hostile_ones_refused() {
    let cluster = Cluster::up(HOSTLER, Size::default());
    project(&cluster, 1);
    let work = cluster.path("work");
    symlink("main.sh", work.join("project/link")).expect("a link can be created");
    let run = |command: &mut Command| {
        assert!(command.current_dir(&work).status().expect("it starts").success(), "{command:?}");
    };
    run(Command::new("tar").args(["czf", "project.tar.gz", "project"]));
    run(Command::new("tar").args(["--format=posix", "-cf", "project.tar", "project"]));
    let zip = "import zipfile, pathlib\nwith zipfile.ZipFile('project.zip', 'w', zipfile.ZIP_DEFLATED) as z:\n for it in \
               sorted(pathlib.Path('project').rglob('*')):\n  z.write(it)\nfor name in ('../evil', '/tmp/evil'):\n with \
               zipfile.ZipFile('project-' + str(len(name)) + '.zip', 'w') as z:\n  z.writestr(name, 'x'); z.writestr('a', 'x')\n";
    run(Command::new("python3").args(["-c", zip]));
    fs::write(work.join("project-cut.tar"), &fs::read(work.join("project.tar")).expect("it exists")[..9000])
        .expect("a file");
    fs::write(work.join("project-junk.zip"), "PK and nothing else").expect("a file");

    let visit = Visit::of(&cluster, DESKTOP);
    for name in ["project.tar.gz", "project.tar", "project.zip"] {
        let id = submit(&visit, "#archive", &work.join(name).display().to_string());
        cluster.wait_for_state(&id, "completed");
        let output = cluster.ok(&["logs", &id]);
        assert!(output.starts_with("./data/big\n") && output.ends_with("odd"), "{name}: {output}");
        assert!(!output.contains("left out") && !output.contains(".git"), "{name}: {output}");
    }
    let browser = &visit.browser;
    for (name, why) in [
        ("project-7.zip", "`..`"),
        ("project-9.zip", "path"),
        ("project-cut.tar", "ends too early"),
        ("project-junk.zip", "damaged"),
    ] {
        visit.open("/submit");
        browser.find("input[value=folder]").click();
        browser.find("#archive").type_text(&work.join(name).display().to_string());
        browser.find("textarea[name=command]").type_text("main.sh");
        browser.press("Submit the job");
        browser.wait_for_element("#problem:not([hidden])");
        let problem = browser.find("#problem").text();
        assert!(problem.contains(why), "{name}: {problem}");
    }
    drop(visit);
    assert_eq!(cluster.ok(&["jobs", "--all", "-q"]).lines().count(), 3, "hostile archives submit nothing");
}

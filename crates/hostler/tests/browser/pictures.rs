//! The pictures in the README and the guides. `cargo xtask pictures` puts them into `docs/pictures`.

use hostler_testkit::{Cluster, Size, wait_until};

use crate::browser::DESKTOP;
use crate::{HOSTLER, Visit};

#[test]
fn pictures_of_the_guides_show_a_cluster_at_work() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 4, cpus: 4, ..Size::default() });
    let run = |words: &[&str]| cluster.ok(&[&["run", "--detach", "-m", "16M"], words].concat());
    let sweep = run(&["--name", "sweep", "-a", "0-119", "--", "sh", "-c", "exit $((HOSTLER_ARRAY_INDEX % 29 == 7))"]);
    cluster.wait_for_state(&sweep, "failed");
    let report = "echo 'reading data.csv'; echo 'Traceback (most recent call last):\n  File \"evaluate.py\", line 12\n\
                  FileNotFoundError: no such file: data.csv' >&2; exit 1";
    let failed = run(&["--name", "evaluate", "--", "sh", "-c", report]);
    cluster.wait_for_state(&failed, "failed");
    for (name, cpus, limit) in
        [("simulate", "4", "2h"), ("train", "3", "1h"), ("mesh", "2", "45m"), ("render", "2", "30m")]
    {
        let id = run(&["--name", name, "-c", cpus, "-t", limit, "--", "sleep", "600"]);
        cluster.wait_for_state(&id, "running");
    }
    run(&["--name", "ensemble", "-c", "4", "-N", "3", "-t", "1h", "--", "true"]);
    run(&["--name", "collect", "-c", "4", "-t", "2h", "--", "true"]);
    let visit = Visit::of(&cluster, DESKTOP);
    let browser = &visit.browser;
    wait_until("an expected start", 60, || {
        visit.open("/");
        browser.text().contains("at the latest").then_some(())
    });
    browser.take_picture("guide-overview");
    for (name, path) in [
        ("job", format!("/jobs/{failed}")),
        ("array", format!("/jobs/{sweep}")),
        ("jobs", "/jobs".to_owned()),
        ("timeline", "/timeline".to_owned()),
    ] {
        visit.open(&path);
        browser.take_picture(&format!("guide-{name}"));
    }
    visit.open("/submit");
    browser.find("textarea[name=script]").type_text("#!/usr/bin/env python3\nprint('hello from the cluster')\n");
    browser.find("[name=time]").type_text("10m");
    browser.press("When would it start?");
    browser.wait_for("It would start");
    browser.take_picture("guide-submit");
    visit.end();
}

//! Charts that grow while somebody looks at them.

use hostler_testkit::{Cluster, Size, wait_until};
use serde_json::Value;

use crate::browser::{Browser, DESKTOP};
use crate::{HOSTLER, Visit};

/// The line of the chart with this title.
fn line(browser: &Browser, title: &str) -> Option<String> {
    let script = format!(
        "const chart = [...document.querySelectorAll('.chart')].find(it => it.querySelector('figcaption').textContent === '{title}'); \
         return chart?.querySelector('.mean')?.getAttribute('d') ?? null"
    );
    match browser.run_script(&script) {
        Value::String(line) => Some(line),
        _ => None,
    }
}

#[test]
fn charts_of_a_job_and_its_node_grow_without_a_reload() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let job = cluster.ok(&["run", "--detach", "-m", "64M", "--", "sh", "-c", "while :; do :; done"]);
    cluster.wait_for_state(&job, "running");
    let visit = Visit::of(&cluster, DESKTOP);
    let browser = &visit.browser;
    for page in [format!("/jobs/{job}/tasks/0/usage"), "/nodes/n1/usage".to_owned()] {
        visit.open(&page);
        browser.press("Live, 5 minutes");
        browser.run_script("window.here = 1");
        let first = wait_until("the first measurements", 60, || line(browser, "Busy CPUs"));
        wait_until("more measurements", 60, || line(browser, "Busy CPUs").filter(|line| *line != first));
        assert_eq!(browser.run_script("return window.here"), 1, "the page was not loaded anew");
        assert_eq!(browser.violations(), [""; 0], "{page}");
    }
    browser.take_picture("node-live");
    // While somebody reads, charts grow but the rest waits, and the offer to show it stays.
    browser.run_script("document.getSelection().selectAllChildren(document.querySelector('h1'))");
    cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--", "true"]);
    browser.wait_for("Show");
    let first = line(browser, "Busy CPUs");
    wait_until("more measurements", 60, || line(browser, "Busy CPUs").filter(|line| Some(line) != first.as_ref()));
    assert!(browser.text().contains("Show"), "{}", browser.text());
    // The figures of whole minutes arrive later, and appear on the pages of the job and the node.
    for page in [format!("/jobs/{job}"), "/nodes/n1".to_owned()] {
        visit.open(&page);
        wait_until("the figures of a minute", 150, || line(browser, "Busy CPUs"));
    }
    browser.take_picture("node-day");
    visit.end();
}

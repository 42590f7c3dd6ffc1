//! The dashboard in a real browser: every page at the sizes of a desktop and a phone, dark and light, with and without
//! scripts, and what people do on it.
//!
//! Pictures of the pages are in `dashboard` in Cargo's folder of temporary files, to look at.

mod browser;
mod charts;
mod pictures;
mod relay;
mod scene;
mod submit;
mod tabs;
mod terminal;
mod webdriver;

use browser::{Browser, DESKTOP, View};
use hostler_testkit::Cluster;
use relay::Relay;
use scene::Scene;

/// The key that moves the focus, as WebDriver names it.
const TAB: char = '\u{e004}';

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A browser that has opened the dashboard.
struct Visit {
    browser: Browser,
    /// Address of the dashboard, without a final slash.
    site: String,
    _relay: Relay,
}

impl Visit {
    fn begin(scene: &Scene, view: View) -> Self {
        Self::of(&scene.cluster, view)
    }

    fn of(cluster: &Cluster, view: View) -> Self {
        let relay = Relay::start(cluster);
        let browser = Browser::start(&cluster.path("browser"), view);
        browser.open(&relay.link);
        browser.wait_for("As of");
        let address = browser.address();
        let site = address.strip_suffix('/').expect("the address ends at the root").to_owned();
        assert_eq!(site.matches('/').count(), 2, "no secret stays in the address {address}");
        Self { browser, site, _relay: relay }
    }

    fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.site));
    }

    /// Ends the visit. Pages must have asked nothing of any other host, and broken no rule of their own.
    fn end(self) {
        let host = self.site.trim_start_matches("http://").split(':').next().unwrap_or_default().to_owned();
        let (hosts, reports) = self.browser.end();
        assert_eq!(hosts, [host], "requests left this machine");
        assert_eq!(reports, [""; 0], "pages broke their security policy, or their script failed");
    }
}

/// All pages, with a name for pictures.
fn pages(scene: &Scene) -> Vec<(&'static str, String)> {
    let Scene { completed, failed, waiting, running, array, hostile, .. } = scene;
    vec![
        ("overview", "/".to_owned()),
        ("jobs", "/jobs".to_owned()),
        ("all-jobs", "/jobs?user=&state=all".to_owned()),
        ("job-completed", format!("/jobs/{completed}")),
        ("job-failed", format!("/jobs/{failed}")),
        ("job-waiting", format!("/jobs/{waiting}")),
        ("job-running", format!("/jobs/{running}")),
        ("job-array", format!("/jobs/{array}")),
        ("job-hostile", format!("/jobs/{hostile}")),
        ("duplicate", format!("/jobs/{failed}/duplicate")),
        ("submit", "/submit".to_owned()),
        ("submit-folder", format!("/submit?like={completed}")),
        ("output", format!("/jobs/{running}/tasks/0/output/stdout")),
        ("search", format!("/jobs/{failed}/tasks/0/output/stderr?q=line")),
        ("no-terminal", format!("/jobs/{running}/tasks/0/terminal")),
        ("job-usage", format!("/jobs/{running}/tasks/0/usage")),
        ("files", format!("/jobs/{completed}/tasks/0/files")),
        ("files-hostile", format!("/jobs/{hostile}/tasks/0/files")),
        ("nodes", "/nodes".to_owned()),
        ("node", "/nodes/n1".to_owned()),
        ("node-usage", "/nodes/n1/usage".to_owned()),
        ("history", "/history".to_owned()),
        ("people", "/people".to_owned()),
        ("settings", "/settings".to_owned()),
        ("audit", "/audit".to_owned()),
        ("no-page", "/nowhere".to_owned()),
        ("no-job", "/jobs/999999".to_owned()),
    ]
}

#[test]
fn every_page_is_accessible_at_every_size_and_theme() {
    let scene = Scene::set(HOSTLER);
    let mut problems = Vec::new();
    for (is_phone, is_dark) in [(false, false), (false, true), (true, false), (true, true)] {
        let visit = Visit::begin(&scene, View { is_phone, is_dark, has_scripts: true });
        for (name, path) in pages(&scene) {
            visit.open(&path);
            visit.browser.take_picture(name);
            problems.extend(visit.browser.violations().into_iter().map(|it| format!("{path}: {it}")));
            let is_too_wide = "return document.documentElement.scrollWidth > window.innerWidth";
            if visit.browser.run_script(is_too_wide) == true {
                problems.push(format!("{path} scrolls sideways, phone: {is_phone}"));
            }
            assert_eq!(visit.browser.run_script("return window.harmed ?? null"), serde_json::Value::Null, "{path}");
        }
        visit.end();
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn first_page_leads_to_what_failed_why_another_waits_and_which_node_is_down() {
    let scene = Scene::set(HOSTLER);
    let agents = scene.cluster.agent_pids();
    agents.last().into_iter().for_each(|&pid| scene.cluster.kill_9(pid));
    let visit = Visit::begin(&scene, DESKTOP);
    let browser = &visit.browser;
    // Live updates bring the news of the dead node.
    let text = browser.wait_for("Not responding");
    assert!(text.contains("n4") && text.contains("silent for"), "{text}");
    assert!(text.contains("evaluate") && text.contains("exit code 3"), "{text}");
    assert!(text.contains("next") && text.contains("waits:"), "{text}");
    assert!(!text.contains("held until released"), "a held job is not next to start: {text}");
    browser.press_in_entry("evaluate", "Last lines");
    browser.wait_for("no such file: data.csv");
    visit.end();
}

#[test]
fn actions_work_with_and_without_scripts_and_ask_before_they_destroy() {
    let scene = Scene::set(HOSTLER);
    for has_scripts in [true, false] {
        let visit = Visit::begin(&scene, View { has_scripts, ..DESKTOP });
        let browser = &visit.browser;
        let job = scene.cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--", "true"]);
        visit.open(&format!("/jobs/{job}"));
        browser.press("Cancel the job…");
        assert_eq!(scene.cluster.state(&job), "pending", "the first press only asks");
        browser.press("Cancel the job");
        browser.wait_for("cancelled");
        assert_eq!(scene.cluster.state(&job), "cancelled");

        let jobs: Vec<String> =
            (0..2).map(|_| scene.cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--", "true"])).collect();
        visit.open("/jobs");
        assert!(!browser.text().contains("Checked jobs"), "the actions appear with the first check");
        for job in &jobs {
            browser.find(&format!("input[name=job][value='{job}']")).click();
        }
        browser.press("Cancel…");
        jobs.iter().for_each(|job| assert_eq!(scene.cluster.state(job), "pending", "the first press only asks"));
        browser.find("button.danger").click();
        // The page that follows would replace the next one if it arrived later.
        browser.wait_for(": cancelled.");
        jobs.iter().for_each(|job| scene.cluster.wait_for_state(job, "cancelled"));

        visit.open("/nodes/n2");
        browser.find("form.fields input[name=reason]").type_text("new disk");
        browser.press("Drain");
        browser.wait_for("new disk");
        assert!(scene.cluster.ok(&["nodes"]).contains("drain"));
        browser.press("Resume");
        let is_back = || (!scene.cluster.ok(&["nodes"]).contains("drain")).then_some(());
        hostler_testkit::wait_until("the node is no longer drained", 60, is_back);
        visit.end();
    }
}

#[test]
fn new_job_appears_without_a_reload_and_waits_while_somebody_reads() {
    let scene = Scene::set(HOSTLER);
    let visit = Visit::begin(&scene, DESKTOP);
    let browser = &visit.browser;
    visit.open("/jobs");
    browser.run_script("window.here = 1");
    scene.cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--name", "first-news", "--", "true"]);
    browser.wait_for("first-news");
    // Checked boxes mean that somebody is about to act.
    browser.run_script("document.querySelector('input[name=job]').click()");
    scene.cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--name", "second-news", "--", "true"]);
    browser.wait_for_element("#banner button");
    let text = browser.text();
    assert!(!text.contains("second-news"), "{text}");
    browser.find("#banner button").click();
    browser.wait_for("second-news");
    assert_eq!(browser.run_script("return window.here"), 1, "the page was not loaded anew");
    visit.open(&format!("/jobs/{}/tasks/0/output/stdout", scene.running));
    let text = browser.text();
    let last = text.lines().filter_map(|line| line.strip_prefix("step ")?.parse::<u64>().ok()).max().unwrap_or(0);
    browser.wait_for(&format!("step {}", last + 4));

    // Lines that arrive are filtered like those before.
    let wanted = format!("step {}", last + 12);
    browser.find("#only").type_text(&wanted);
    browser.wait_for(&wanted);
    let shown = "return [...document.querySelectorAll('.log .l')].filter(it => it.offsetHeight).map(it => it.textContent.trim())";
    assert_eq!(browser.run_script(shown), serde_json::json!([wanted]));
    let wrapping = "return getComputedStyle(document.querySelector('.log')).whiteSpace";
    let before = browser.run_script(wrapping);
    browser.find("#wrap").click();
    assert_ne!(browser.run_script(wrapping), before);

    // So do the last lines on the page of the job, which keeps only a few.
    visit.open(&format!("/jobs/{}", scene.running));
    let shown = "return [...document.querySelectorAll('#last-lines .l')].map(line => line.textContent.trim())";
    let lines = || browser.run_script(shown).as_array().expect("a list").clone();
    let last = |lines: &[serde_json::Value]| {
        let last = lines.last().and_then(|line| line.as_str()?.strip_prefix("step ")?.parse::<u64>().ok());
        last.expect("the job counts")
    };
    let first = last(&lines());
    hostler_testkit::wait_until("more lines", 30, || (last(&lines()) > first + 4).then_some(()));
    assert!(lines().len() <= 15, "{:?}", lines());

    // Browsers open at most six connections to a server. The tabs share one stream, so that all of them load.
    for tab in 0..10 {
        browser.open_in_new_tab(&format!("{}/jobs?tab={tab}", visit.site));
        browser.wait_for("second-news");
    }
    scene.cluster.ok(&["run", "--detach", "--hold", "-m", "16M", "--name", "third-news", "--", "true"]);
    browser.wait_for("third-news");
    visit.end();
}

#[test]
fn keyboard_alone_reaches_the_menu_the_jobs_and_their_actions() {
    let scene = Scene::set(HOSTLER);
    let visit = Visit::begin(&scene, DESKTOP);
    let mut reached = Vec::new();
    for _ in 0..80 {
        visit.browser.press_key(TAB);
        let script = "const it = document.activeElement; if (it === document.body) return ['', '']; const outline = getComputedStyle(it).outlineStyle; \
                      return [it.getAttribute('href') ?? it.textContent.trim(), outline]";
        let focus = visit.browser.run_script(script);
        let name = focus[0].as_str().unwrap_or_default().to_owned();
        assert!(name.is_empty() || focus[1] != "none", "the focus on {name} cannot be seen");
        reached.push(name);
    }
    let failed = format!("/jobs/{}", scene.failed);
    for wanted in ["#main", "/", "/jobs", "/submit", "/nodes", "/history", "/people", "/settings", &failed] {
        assert!(reached.iter().any(|it| it == wanted), "{wanted} is not among {reached:?}");
    }
    visit.end();
}

//! Tabs: memory that does not grow on long visits, and titles and icons that say what happens.

use serde_json::Value;

use crate::browser::DESKTOP;
use crate::scene::Scene;
use crate::{HOSTLER, Visit};

#[test]
fn page_that_was_updated_hundreds_of_times_takes_no_more_memory() {
    /// Updates per call of the driver, whose scripts must end within half a minute.
    const BATCH: u64 = 20;
    let scene = Scene::set(HOSTLER);
    let visit = Visit::begin(&scene, DESKTOP);
    let browser = &visit.browser;
    visit.open("/jobs?user=&state=all");
    browser.wait_for("simulate");
    let update = |first: u64| {
        // What the window with the stream sends to the others. The page loads itself again after each message.
        let script = format!(
            "const done = arguments[0]; const channel = new BroadcastChannel('hostler-live'); let jobs = {first}; let over = false; \
             const watch = new PerformanceObserver(() => {{ \
               performance.clearResourceTimings(); \
               if (++jobs < {first} + {BATCH}) setTimeout(send, 20); else {{ over = true; watch.disconnect(); channel.close(); done(jobs); }} }}); \
             const send = () => over || channel.postMessage({{ from: -1, jobs, nodes: jobs }}); \
             watch.observe({{ type: 'resource' }}); send();"
        );
        assert_eq!(browser.run_async_script(&script), first + BATCH);
    };
    let mut updates = 1;
    let mut repeat = |times: u64| {
        for _ in 0..times / BATCH {
            // The rows change too, not only their times.
            scene.cluster.ok(&["hold", &scene.waiting]);
            update(updates);
            scene.cluster.ok(&["release", &scene.waiting]);
            updates += BATCH;
        }
    };
    // Caches of the browser fill up first.
    repeat(100);
    let before = Memory::of(&browser.metrics());
    repeat(500);
    let after = Memory::of(&browser.metrics());
    for (what, before, after) in [
        ("heap", before.heap, after.heap),
        ("nodes", before.nodes, after.nodes),
        ("documents", before.documents, after.documents),
        ("listeners", before.listeners, after.listeners),
    ] {
        assert!(after <= before * 1.1, "{what}: {before} before, {after} after 500 updates");
    }
    visit.end();
}

#[test]
fn tab_in_the_background_says_that_its_job_has_ended() {
    let scene = Scene::set(HOSTLER);
    let visit = Visit::begin(&scene, DESKTOP);
    let browser = &visit.browser;
    let title = || browser.run_script("return document.title").as_str().unwrap_or_default().to_owned();
    let icon = || browser.run_script("return document.querySelector('link[rel=icon]').href");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("Linux has a host name");
    let failed = title();
    assert!(failed.contains(" running · ") && failed.contains(" failed – "), "{failed}");
    assert!(failed.ends_with(host.trim()), "{failed}");
    let red = icon();

    visit.open(&format!("/jobs/{}", scene.running));
    assert!(title().starts_with(&format!("running: job {} simulate – ", scene.running)), "{}", title());
    let blue = icon();
    assert_ne!(red, blue);
    let picture = browser.run_async_script(
        "const done = arguments[0]; fetch(document.querySelector('link[rel=icon]').href).then(async (it) => \
         done([it.headers.get('content-type'), await it.text()]));",
    );
    assert!(picture[0] == "image/svg+xml" && picture[1].as_str().is_some_and(|it| it.starts_with("<svg")), "{picture}");

    // Nobody answers questions of a browser without a screen.
    browser.run_script(
        "window.told = []; window.Notification = class { constructor(text) { told.push(text); } \
         static async requestPermission() { return 'granted'; } }; document.body.dataset.watch = 1; \
         Object.defineProperty(document, 'hidden', { get: () => true }); document.dispatchEvent(new Event('visibilitychange'));",
    );
    browser.press("Notify me of its end");
    browser.wait_for("You will be notified");
    scene.cluster.ok(&["cancel", &scene.running]);
    let told = hostler_testkit::wait_until("the end is told", 90, || {
        let told = browser.run_script("return window.told");
        told[0].as_str().map(str::to_owned)
    });
    assert!(told.starts_with(&format!("cancelled: job {} simulate – ", scene.running)), "{told}");
    assert_eq!(title(), told);
    assert_ne!(icon(), blue);
    visit.end();
}

/// What a page takes, after a garbage collection.
#[derive(Debug)]
struct Memory {
    heap: f64,
    nodes: f64,
    documents: f64,
    listeners: f64,
}

impl Memory {
    fn of(metrics: &Value) -> Self {
        let value = |name: &str| {
            let all = metrics["metrics"].as_array().expect("a list");
            let metric = all.iter().find(|metric| metric["name"] == name);
            metric.and_then(|metric| metric["value"].as_f64()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
        };
        let (heap, nodes) = (value("JSHeapUsedSize"), value("Nodes"));
        Self { heap, nodes, documents: value("Documents"), listeners: value("JSEventListeners") }
    }
}

//! A real browser, driven by WebDriver.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hostler_testkit::{Running, free_port, program, wait_until};
use serde_json::{Value, json};

use crate::webdriver::{Element, Session};

/// How a page is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) is_phone: bool,
    pub(crate) is_dark: bool,
    pub(crate) has_scripts: bool,
}

/// On a desk, in daylight.
pub(crate) const DESKTOP: View = View { is_phone: false, is_dark: false, has_scripts: true };

impl View {
    /// The name of the view in file names.
    fn name(self) -> String {
        let size = if self.is_phone { "phone" } else { "desktop" };
        let theme = if self.is_dark { "dark" } else { "light" };
        let scripts = if self.has_scripts { "" } else { "-no-scripts" };
        format!("{size}-{theme}{scripts}")
    }
}

/// A browser with one window. Dropping it ends all its processes.
pub(crate) struct Browser {
    session: Session,
    view: View,
    directory: PathBuf,
    _driver: Running,
}

impl Browser {
    /// Starts a browser that keeps its profile and its logs in `directory`.
    pub(crate) fn start(directory: &Path, view: View) -> Self {
        let directory = directory.join(view.name());
        fs::create_dir_all(&directory).expect("a directory can be created");
        let how = "install Debian's chromium and chromium-driver";
        let (driver, chromium) = (program("chromedriver", how), program("chromium", how));
        let port = free_port();
        let mut command = Command::new(driver);
        command.arg(format!("--port={port}")).env("HOME", &directory);
        let driver = Running::start(&mut command, &directory.join("driver.log"));
        wait_until("the browser's driver listens", 30, || TcpStream::connect(("127.0.0.1", port)).ok());
        let session = Session::begin(port, &capabilities(&chromium, &directory, view));
        Self { session, view, directory, _driver: driver }
    }

    pub(crate) fn open(&self, address: &str) {
        self.session.post("url", &json!({ "url": address }));
    }

    /// Opens a page in a new tab, which is then the current one.
    pub(crate) fn open_in_new_tab(&self, address: &str) {
        let tab = self.session.post("window/new", &json!({ "type": "tab" }));
        self.session.post("window", &json!({ "handle": tab["handle"] }));
        self.open(address);
    }

    /// The address of the page.
    pub(crate) fn address(&self) -> String {
        self.session.get("url").as_str().expect("an address is text").to_owned()
    }

    /// The visible text of the page.
    pub(crate) fn text(&self) -> String {
        self.run_script("return document.body?.innerText ?? ''").as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page shows these words.
    pub(crate) fn wait_for(&self, words: &str) -> String {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let text = self.text();
            if text.contains(words) {
                return text;
            }
            assert!(Instant::now() < end, "no {words:?} on the page within a minute:\n{text}");
            sleep(Duration::from_millis(100));
        }
    }

    /// Waits until a CSS selector finds an element.
    pub(crate) fn wait_for_element(&self, selector: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        let script = format!("return document.querySelector({}) !== null", json!(selector));
        while self.run_script(&script) != true {
            assert!(Instant::now() < end, "no {selector:?} on the page within a minute:\n{}", self.text());
            sleep(Duration::from_millis(100));
        }
    }

    /// The first element that a CSS selector finds.
    pub(crate) fn find(&self, selector: &str) -> Element<'_> {
        self.session.find("css selector", selector)
    }

    /// Activates the link or button with this text.
    pub(crate) fn press(&self, label: &str) {
        let kinds = ["a", "button", "summary"].map(|kind| format!("//{kind}[normalize-space()='{label}']"));
        self.session.find("xpath", &kinds.join(" | ")).click();
    }

    /// Activates the link with this text in the list's entry that contains other words.
    pub(crate) fn press_in_entry(&self, words: &str, label: &str) {
        self.session.find("xpath", &format!("//li[contains(., '{words}')]//a[contains(., '{label}')]")).click();
    }

    /// Presses a key, for the element that has the focus.
    pub(crate) fn press_key(&self, key: char) {
        self.type_keys(key.encode_utf8(&mut [0; 4]));
    }

    /// Presses keys one after the other, for the element that has the focus.
    pub(crate) fn type_keys(&self, keys: &str) {
        self.stroke(keys.chars().flat_map(|key| [("keyDown", key), ("keyUp", key)]));
    }

    /// Presses keys together, for the element that has the focus.
    pub(crate) fn press_chord(&self, keys: &[char]) {
        let down = keys.iter().map(|&key| ("keyDown", key));
        self.stroke(down.chain(keys.iter().rev().map(|&key| ("keyUp", key))));
    }

    fn stroke(&self, strokes: impl Iterator<Item = (&'static str, char)>) {
        let strokes: Vec<Value> = strokes.map(|(kind, key)| json!({ "type": kind, "value": key })).collect();
        self.session.post("actions", &json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": strokes }] }));
    }

    /// Takes the network away from the browser, or gives it back.
    pub(crate) fn set_offline(&self, is_offline: bool) {
        let conditions = json!({ "offline": is_offline, "latency": 0, "throughput": -1 });
        self.session.post("chromium/network_conditions", &json!({ "network_conditions": conditions }));
    }

    /// Changes the size of the window.
    pub(crate) fn set_size(&self, width: u32, height: u32) {
        self.session.post("window/rect", &json!({ "width": width, "height": height }));
    }

    pub(crate) fn run_script(&self, script: &str) -> Value {
        self.session.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script that calls its last argument when it is done.
    pub(crate) fn run_async_script(&self, script: &str) -> Value {
        self.session.post("execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Figures about the page after a garbage collection, by Chromium's own protocol.
    pub(crate) fn metrics(&self) -> Value {
        let call = |command: &str| self.session.post("goog/cdp/execute", &json!({ "cmd": command, "params": {} }));
        call("Performance.enable");
        (0..3).for_each(|_| drop(call("HeapProfiler.collectGarbage")));
        call("Performance.getMetrics")
    }

    /// Puts a picture of the page into the folder of artefacts.
    pub(crate) fn take_picture(&self, name: &str) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dashboard");
        fs::create_dir_all(&folder).expect("a directory can be created");
        let picture = self.session.get("screenshot");
        let picture =
            BASE64_STANDARD.decode(picture.as_str().expect("a picture is text")).expect("a picture is base64");
        fs::write(folder.join(format!("{name}-{}.png", self.view.name())), picture).expect("a file can be written");
    }

    /// What `axe` finds wrong on the page for people with disabilities, one line each.
    pub(crate) fn violations(&self) -> Vec<String> {
        let how =
            "set HOSTLER_AXE to the path of axe.min.js from the Python package axe-playwright-python, as .ci/run does";
        let path = std::env::var_os("HOSTLER_AXE").unwrap_or_else(|| panic!("HOSTLER_AXE is not set: {how}"));
        let axe = fs::read_to_string(path).unwrap_or_else(|error| panic!("axe cannot be read: {error}; {how}"));
        let script =
            format!("{axe}; const done = arguments[0]; axe.run(document).then(done, error => done(String(error)));");
        let found = self.session.post("execute/async", &json!({ "script": script, "args": [] }));
        let violations = found["violations"].as_array().unwrap_or_else(|| panic!("axe fails: {found}"));
        violations
            .iter()
            .flat_map(|it| it["nodes"].as_array().into_iter().flatten().map(move |node| (it, node)))
            .map(|(it, node)| format!("{}: {} ({})", it["id"], node["html"], node["failureSummary"]))
            .collect()
    }

    /// Ends the browser. Returns the hosts to which pages sent requests, and what they reported to the console.
    pub(crate) fn end(self) -> (Vec<String>, Vec<String>) {
        self.session.end();
        let network =
            fs::read_to_string(self.directory.join("network.json")).expect("the browser wrote its network log");
        let console = fs::read_to_string(self.directory.join("console.log")).unwrap_or_default();
        (hosts(&network), console.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect())
    }
}

fn capabilities(chromium: &Path, directory: &Path, view: View) -> Value {
    let scheme = u8::from(!view.is_dark);
    let mut options = json!({
        "binary": chromium,
        "args": [
            "--headless=new",
            // Tests run as root, where Chromium's own sandbox does not work.
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            // The browser's own services are out of reach, so that only pages can cause requests.
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE *.localhost",
            "--window-size=1280,900",
            format!("--blink-settings=preferredColorScheme={scheme}"),
            format!("--user-data-dir={}", directory.join("profile").display()),
            format!("--log-net-log={}", directory.join("network.json").display()),
            "--enable-logging",
            format!("--log-file={}", directory.join("console.log").display()),
        ],
    });
    if view.is_phone {
        options["mobileEmulation"] = json!({ "deviceMetrics": { "width": 390, "height": 844, "pixelRatio": 2.0 } });
    }
    if !view.has_scripts {
        options["prefs"] = json!({ "profile.managed_default_content_settings.javascript": 2 });
    }
    json!({ "browserName": "chrome", "goog:chromeOptions": options })
}

/// The hosts to which pages sent requests, according to a network log. The browser's own requests have no origin.
fn hosts(log: &str) -> Vec<String> {
    let log: Value = serde_json::from_str(log).expect("a network log is JSON");
    let events = log["events"].as_array().expect("a network log has events").iter().map(|event| &event["params"]);
    let of_pages = events.filter(|event| event["initiator"].as_str().is_some_and(|origin| origin.contains("://")));
    let addresses = of_pages.filter_map(|event| event["url"].as_str()?.split_once("://")).map(|(_, rest)| rest);
    let hosts: BTreeSet<_> = addresses.filter_map(|it| it.split(['/', ':']).next()).map(str::to_owned).collect();
    hosts.into_iter().collect()
}

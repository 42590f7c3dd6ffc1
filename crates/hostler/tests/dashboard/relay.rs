//! `hostler dashboard`: the relay between a browser and the head.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use hostler_testkit::{Cluster, Size, wait_until};
use serde_json::Value;

use crate::HOSTLER;
use crate::http::{Answer, Ask, read};

/// A running `hostler dashboard`.
pub(crate) struct Relay {
    process: Child,
    address: String,
    link: Option<String>,
}

impl Relay {
    /// Starts the command and waits for its line of JSON.
    pub(crate) fn start(cluster: &Cluster, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let log = fs::File::create(cluster.path("relay.log")).expect("a file can be made");
        let mut command = cluster.command(&[&["dashboard", "--json"], arguments].concat());
        command.stdout(Stdio::piped()).stderr(log).envs(variables.iter().copied());
        let mut process = command.spawn().expect("the executable can be started");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let log = fs::read_to_string(cluster.path("relay.log")).unwrap_or_default();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}{log}"));
        let text = |name: &str| said[name].as_str().map(str::to_owned);
        Self { process, address: text("address").expect("an address"), link: text("link") }
    }

    /// Host and port in the address.
    pub(crate) fn host(&self) -> &str {
        self.address.strip_prefix("http://").expect("plain HTTP").trim_end_matches('/')
    }

    pub(crate) fn port(&self) -> u16 {
        self.host().rsplit_once(':').expect("a port").1.parse().expect("a port")
    }

    /// Path and query of the link.
    fn entry(&self) -> &str {
        let link = self.link.as_deref().expect("the link was printed");
        link.strip_prefix(self.address.trim_end_matches('/')).expect("the link leads to the relay")
    }

    /// Uses the link. Returns the cookie.
    pub(crate) fn enter(&self) -> String {
        let answer = Ask::get(self.entry(), self.host()).send(self.port());
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.cookie()
    }

    fn get(&self, path: &str, cookie: &str) -> Answer {
        Ask::get(path, self.host()).with("cookie", cookie).send(self.port())
    }

    fn stop(mut self) -> i32 {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.process.id()).expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("it runs");
        self.process.wait().expect("it ends").code().expect("an exit code")
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn cluster() -> Cluster {
    Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, memory: "256M" })
}

#[test]
fn link_opens_the_dashboard_once_and_leaves_a_clean_address() {
    let cluster = cluster();
    let relay = Relay::start(&cluster, &["--no-open"], &[]);
    let entry = Ask::get(relay.entry(), relay.host()).with("sec-fetch-site", "cross-site");
    let entry = entry.with("sec-fetch-mode", "navigate").with("sec-fetch-dest", "document").send(relay.port());
    assert_eq!(entry.status, 200, "{entry:?}");
    assert!(entry.body.contains(r#"http-equiv="refresh" content="0;url=/""#), "{entry:?}");
    assert_eq!(entry.header("referrer-policy"), Some("no-referrer"));
    let set = entry.header("set-cookie").expect("a cookie");
    assert!(set.ends_with("; HttpOnly; SameSite=Strict; Path=/") && !set.contains("Secure"), "{set}");
    assert!(set.contains(&relay.port().to_string()), "the cookie's name has the port: {set}");
    let cookie = entry.cookie();
    let page = relay.get("/", &cookie);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("Overview") && page.body.contains("node up"), "{page:?}");
    for (name, part) in [
        ("content-security-policy", "frame-ancestors 'none'"),
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("cross-origin-opener-policy", "same-origin"),
    ] {
        assert!(page.header(name).is_some_and(|value| value.contains(part)), "{name}: {}", page.head);
    }
    assert!(page.header("set-cookie").is_none(), "{page:?}");
    // The address 127.0.0.1 is another host with the same port.
    let plain = format!("127.0.0.1:{}", relay.port());
    assert_eq!(Ask::get("/", &plain).with("cookie", &cookie).send(relay.port()).status, 200);

    let again = Ask::get(relay.entry(), relay.host()).send(relay.port());
    assert_eq!(again.status, 403, "{again:?}");
    assert!(again.body.contains("used already") && again.header("set-cookie").is_none(), "{again:?}");
    assert_eq!(relay.stop(), 0);
}

#[test]
fn requests_of_other_sites_and_without_the_cookie_are_refused() {
    let cluster = cluster();
    let relay = Relay::start(&cluster, &["--no-open"], &[]);
    let cookie = relay.enter();
    let (port, own) = (relay.port(), format!("http://{}", relay.host()));
    let evil = format!("evil.example:{port}");
    let plain = format!("localhost:{port}");
    // A foreign name that resolves to this machine: Host and Origin agree.
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
        for (host, path) in [(&evil, "/"), (&evil, relay.entry()), (&plain, "/"), (&evil, "/api/v1/shutdown")] {
            let origin = format!("http://{host}");
            for upgrade in [false, true] {
                let mut ask = Ask { method, ..Ask::get(path, host) }
                    .with("origin", &origin)
                    .with("cookie", &cookie)
                    .with("sec-fetch-site", "same-origin");
                if upgrade {
                    ask = ask.with("connection", "Upgrade, close").with("upgrade", "websocket");
                }
                assert_eq!(ask.send(port).status, 403, "{ask:?}");
            }
        }
    }
    // A page on another port of this machine, and one that another site sends.
    for (origin, site) in [
        ("http://127.0.0.1:1", "same-site"),
        ("http://localhost:1", "cross-site"),
        ("null", "cross-site"),
        ("https://evil.example", "same-origin"),
        (own.as_str(), "none"),
        (own.as_str(), "same-site"),
    ] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let ask = Ask { method, ..Ask::get("/", relay.host()) };
            let ask = ask.with("origin", origin).with("sec-fetch-site", site).with("cookie", &cookie);
            assert_eq!(ask.send(port).status, 403, "{ask:?}");
        }
        let socket = Ask::get("/", relay.host()).with("cookie", &cookie).with("origin", origin);
        let socket = socket.with("connection", "Upgrade, close").with("upgrade", "websocket");
        assert_eq!(socket.send(port).status == 403, origin != own, "{socket:?}");
    }
    // Another site can neither embed a page nor load it as an image.
    for (mode, destination) in [("no-cors", "image"), ("navigate", "iframe"), ("no-cors", "script")] {
        let ask = Ask::get("/", relay.host()).with("cookie", &cookie).with("sec-fetch-site", "cross-site");
        let ask = ask.with("sec-fetch-mode", mode).with("sec-fetch-dest", destination);
        assert_eq!(ask.send(port).status, 403, "{ask:?}");
    }
    // A page of the dashboard, but no token in the form.
    let form = Ask::post("/", relay.host(), "a=b").with("origin", &own).with("cookie", &cookie);
    let answer = form.with("sec-fetch-site", "same-origin").send(port);
    assert!(answer.status == 403 && answer.body.contains("token"), "{answer:?}");
    // No session: no page, no matter what the request claims.
    let name = cookie.split('=').next().expect("a name");
    for cookie in ["", "a=b", &format!("{name}="), &format!("{name}={}", "0".repeat(64))] {
        let ask = Ask::get("/", relay.host()).with("cookie", cookie);
        let ask = ask.with("authorization", "Bearer x").with("hostler-relayed-user", "0:root");
        assert_eq!(ask.send(port).status, 401, "{ask:?}");
    }
    // The API is not for browsers.
    for path in ["/api/v1/info", "/api/v1/me", "/api", "http://evil.example/api/v1/info", "*"] {
        let answer = relay.get(path, &cookie);
        assert!(matches!(answer.status, 400 | 404), "{path}: {answer:?}");
    }
    assert_eq!(cluster.json(&["info"])["nodes"]["up"], 1, "nothing stopped the head");
}

#[test]
fn link_is_printed_if_the_browser_fails() {
    let cluster = cluster();
    let mut relay = Relay::start(&cluster, &[], &[("BROWSER", "false")]);
    let said = wait_until("the link of the failed browser", 30, || {
        let log = fs::read_to_string(cluster.path("relay.log")).ok()?;
        log.contains("open this link within").then_some(log)
    });
    assert!(said.contains("the browser `false` failed: exit status: 1"), "{said}");
    let link = said.split_whitespace().find(|word| word.contains("127.0.0.1") && word.contains("/enter?key="));
    let path = link.and_then(|link| link.split_once("/enter")).expect("a link").1;
    relay.link = Some(format!("{}/enter{path}", relay.address.trim_end_matches('/')));
    let cookie = relay.enter();
    assert_eq!(relay.get("/", &cookie).status, 200);
}

#[test]
fn browser_gets_a_private_file_and_the_secret_is_nowhere_else() {
    let cluster = cluster();
    // A browser that notes what it was given, and stays.
    let browser = cluster.write(
        "browser.sh",
        "#!/bin/sh\nfile=${1#file://}\nstat -c '%a %a' \"$file\" > \"$HOME/mode\"\nstat -c %a \"$(dirname \"$file\")\" >> \"$HOME/mode\"\n\
         cat \"$file\" > \"$HOME/page.tmp\"\nmv \"$HOME/page.tmp\" \"$HOME/page\"\nexec sleep 600\n",
    );
    fs::set_permissions(&browser, PermissionsExt::from_mode(0o755)).expect("the test owns the file");
    let browser = browser.display().to_string();
    let relay = Relay::start(&cluster, &[], &[("BROWSER", &browser)]);
    assert_eq!(relay.link, None, "the link is not printed");
    let page = wait_until("the browser to read its file", 30, || fs::read_to_string(cluster.path("page")).ok());
    assert_eq!(fs::read_to_string(cluster.path("mode")).expect("the browser wrote it"), "600 600\n700\n");
    let (_, secret) = page.split_once("/enter?key=").expect("the link");
    let secret = &secret[..64];
    assert!(secret.bytes().all(|byte| byte.is_ascii_hexdigit()), "{page}");

    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(secret);
    let mut processes = 0;
    for entry in fs::read_dir("/proc").expect("readable").flatten() {
        for name in ["cmdline", "environ"] {
            // Processes may end meanwhile.
            let Ok(bytes) = fs::read(entry.path().join(name)) else { continue };
            processes += 1;
            assert!(!holds(&bytes), "{} has the secret", entry.path().join(name).display());
        }
    }
    assert!(processes > 10, "{processes} files were read");
    let entry = format!("/enter?key={secret}");
    let answer = Ask::get(&entry, relay.host()).send(relay.port());
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.cookie();
    assert_eq!(relay.get("/", &cookie).status, 200);
    let logs = fs::read_to_string(cluster.path("relay.log")).expect("the log") + &cluster.logs();
    assert!(logs.contains("the dashboard is at http://h") && !holds(logs.as_bytes()), "{logs}");
    assert!(!logs.contains(cookie.split_once('=').expect("a cookie").1), "{logs}");
    let runtime = cluster.path("run");
    let left = || {
        let entries = fs::read_dir(&runtime).expect("readable").flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("hostler-browser-")).count()
    };
    assert_eq!(left(), 1);
    assert_eq!(relay.stop(), 0);
    assert_eq!(left(), 0, "the file for the browser is deleted");
}

#[test]
fn programs_of_other_users_get_no_answer() {
    assert!(nix::unistd::geteuid().is_root(), "this test is several users: run it as root");
    let cluster = cluster();
    let relay = Relay::start(&cluster, &["--no-open"], &[]);
    let cookie = relay.enter();
    let port = relay.port();
    // The other user knows the address and the cookie.
    let request = Ask::get("/", relay.host()).with("cookie", &cookie).text();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf %s \"$0\" >&3; cat <&3");
    let answer_for = |user: &str| {
        let user = [format!("--reuid={user}"), format!("--regid={user}")];
        let mut command = Command::new("setpriv");
        command.args(user).args(["--clear-groups", "--", "bash", "-c", &script, &request]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("setpriv is installed");
        let mut bytes = Vec::new();
        process.stdout.take().expect("piped").read_to_end(&mut bytes).expect("readable");
        process.wait().expect("it ends");
        read(&bytes)
    };
    assert_eq!(answer_for("root").status, 200);
    for user in ["daemon", "games"] {
        let answer = answer_for(user);
        assert_eq!(answer.status, 0, "{user}: {answer:?}");
    }
    // The relay also listens on the port for IPv6, so that no other program can.
    if let Ok(stream) = std::net::TcpStream::connect(("::1", port)) {
        drop(stream);
        assert!(std::net::TcpListener::bind(("::1", port)).is_err(), "the port is taken");
    }
}

#[test]
fn head_that_is_away_gives_an_error() {
    let cluster = cluster();
    let relay = Relay::start(&cluster, &["--no-open"], &[]);
    let cookie = relay.enter();
    cluster.ok(&["down"]);
    let answer = relay.get("/", &cookie);
    assert!(answer.status == 502 && answer.body.contains("The head does not answer"), "{answer:?}");
    // Without a head, the command does not start.
    assert!(cluster.fails(&["dashboard", "--no-open"]).contains("no cluster is running"));
}

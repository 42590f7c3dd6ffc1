//! The dashboard of a site: its certificate, plain HTTP behind a proxy, sessions, and the view without sign-in.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use hostler_proto::join::LoginCode;
pub(crate) use hostler_testkit::free_port;
use hostler_testkit::{Cluster, create_private, wait_until};
use serde_json::Value;

use crate::HOSTLER;
use crate::http::{Answer, Ask, read};

/// A head with options for browsers.
pub(crate) struct Site {
    pub(crate) cluster: Cluster,
    daemons: Vec<Child>,
}

impl Site {
    pub(crate) fn start(options: &[&str]) -> Self {
        let mut site = Self { cluster: Cluster::none(HOSTLER), daemons: Vec::new() };
        site.start_head(options);
        site
    }

    pub(crate) fn start_head(&mut self, options: &[&str]) {
        let (directory, socket) = (self.path("head"), self.socket());
        self.cluster.ok(&["head", "init", "--directory", &directory]);
        let places = ["head", "run", "--directory", &directory, "--socket", &socket, "--listen", "127.0.0.1:0"];
        self.spawn(&[&places[..], options].concat());
        let ready = self.cluster.path("head/head.json");
        wait_until("the head is ready", 30, || ready.exists().then_some(()));
    }

    /// Starts an agent on the node `n1` and waits until the node is up.
    pub(crate) fn start_agent(&mut self) {
        let code = self.admin(&["node", "invite", "n1"]);
        let code = self.cluster.write("code", code).display().to_string();
        let (directory, socket) = (self.path("agent"), self.path("agent.sock"));
        let node = ["agent", "run", "--name", "n1", "--cpus", "0-1", "--memory", "256M", "--root-jobs"];
        self.spawn(&[&node[..], &["--directory", &directory, "--socket", &socket, "--join-file", &code]].concat());
        let nodes_up = || self.cluster.json(&["--head", &self.socket(), "info"])["nodes"]["up"].clone();
        wait_until("the node is up", 30, || (nodes_up() == 1).then_some(()));
    }

    fn spawn(&mut self, arguments: &[&str]) {
        fs::create_dir_all(self.cluster.path("state")).expect("a directory can be made");
        let log = File::create(self.cluster.path(&format!("state/{}.log", self.daemons.len())));
        let mut command = self.cluster.command(arguments);
        command.stderr(log.expect("a file can be made")).stdout(Stdio::null());
        self.daemons.push(command.spawn().expect("the executable can be started"));
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.cluster.path(name).display().to_string()
    }

    pub(crate) fn socket(&self) -> String {
        self.path("head.sock")
    }

    pub(crate) fn port(&self) -> u16 {
        let said: Value =
            serde_json::from_slice(&fs::read(self.cluster.path("head/head.json")).expect("the head is ready"))
                .expect("JSON");
        said["address"].as_str().and_then(|it| it.rsplit_once(':')?.1.parse().ok()).expect("an address with a port")
    }

    pub(crate) fn admin(&self, arguments: &[&str]) -> String {
        self.cluster.ok(&[&["--head", &self.socket()], arguments].concat())
    }

    /// Process id of the head.
    pub(crate) fn head_pid(&self) -> u32 {
        self.daemons.first().expect("the head was started first").id()
    }

    /// A login code for a user.
    pub(crate) fn invite(&self, user: &str) -> String {
        self.admin(&["configure", "user", "invite", user])
    }

    /// Sends a request as a browser that trusts the certificate in `trusted`. Returns the error of TLS, if any.
    fn browse(&self, name: &str, trusted: &str, path: &str, more: &[&str]) -> Result<Answer, String> {
        let port = self.port();
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--include", "--http1.1", "--max-time", "30", "--cacert", trusted])
            .args(["--resolve", &format!("{name}:{port}:127.0.0.1")])
            .args(more)
            .arg(format!("https://{name}:{port}{path}"))
            .output()
            .expect("curl is installed");
        if output.status.success() { Ok(read(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// Signs in and returns the cookie.
    pub(crate) fn sign_in(&self, port: u16, host: &str, code: &str) -> String {
        let answer = sign_in(port, host, code, None);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.cookie()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// Sends the form of the sign-in page.
pub(crate) fn sign_in(port: u16, host: &str, code: &str, cookie: Option<&str>) -> Answer {
    let cookie = cookie.unwrap_or("none=1");
    let page = Ask::get("/sign-in?next=/jobs", host).with("cookie", cookie).send(port);
    let form = format!("token={}&next={}&code={code}", page.field("token"), page.field("next"));
    let ask = Ask::post("/sign-in", host, &form).with("cookie", cookie).with("sec-fetch-site", "same-origin");
    ask.send(port)
}

/// Makes a self-signed certificate. Returns the paths of the certificate and of the key.
fn certificate(directory: &Path, file: &str, name: &str) -> (String, String) {
    let [certificate, key] = ["pem", "key"].map(|end| directory.join(format!("{file}.{end}")).display().to_string());
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"])
        .args(["-subj", "/CN=test", "-addext", &format!("subjectAltName=DNS:{name}")])
        .args(["-keyout", &key, "-out", &certificate])
        .output()
        .expect("openssl is installed");
    assert!(made.status.success(), "{}", text(&made.stderr));
    (certificate, key)
}

#[test]
fn site_certificate_agents_and_logins_share_one_port() {
    let mut site = Site { cluster: Cluster::none(HOSTLER), daemons: Vec::new() };
    let home = site.cluster.home().to_owned();
    let (pem, key) = certificate(&home, "site", "cluster.example");
    site.start_head(&["--tls-cert", &pem, "--tls-key", &key]);
    site.admin(&["configure", "user", "add", "ada"]);
    // An agent joins and connects with the cluster's certificate.
    site.start_agent();
    let nodes_up = || site.cluster.json(&["--head", &site.socket(), "info"])["nodes"]["up"].clone();
    // A user on another machine logs in, and her relay works.
    let code = site.invite("ada");
    let input = site.cluster.write("login-code", &code);
    let elsewhere = |arguments: &[&str]| {
        let mut command = site.cluster.command(arguments);
        command.stdin(File::open(&input).expect("it was just written"));
        command.env("HOME", site.path("away")).env("XDG_CONFIG_HOME", site.path("away/.config"));
        create_private(Path::new(&site.path("away/run")));
        command.env("XDG_RUNTIME_DIR", site.path("away/run"));
        let output = command.output().expect("the executable can be started");
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    elsewhere(&["login", "-"]);
    // A browser gets the site's certificate, without being asked for one of its own.
    let page = site.browse("cluster.example", &pem, "/jobs", &[]).expect("a trusted certificate");
    assert!(page.status == 401 && page.body.contains(r#"action="/sign-in""#), "{page:?}");
    assert!(page.header("content-security-policy").is_some_and(|it| it.contains("frame-ancestors 'none'")), "{page:?}");
    let second = site.browse("cluster.example", &pem, "/jobs", &["--http2"]).expect("a trusted certificate");
    assert!(second.head.starts_with("HTTP/2 401") && second.body.contains("/sign-in"), "{second:?}");
    let asked = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{}", site.port()), "-servername", "cluster.example"])
        .stdin(Stdio::null())
        .output()
        .expect("openssl is installed");
    assert!(text(&asked.stdout).contains("No client certificate CA names sent"), "{}", text(&asked.stdout));
    // The link of `hostler dashboard --link` leads there, and the session works over TLS.
    let link = elsewhere(&["dashboard", "--link"]);
    let origin = format!("https://cluster.example:{}", site.port());
    let path = link.strip_prefix(&origin).unwrap_or_else(|| panic!("{link} leads to {origin}"));
    let page = site.browse("cluster.example", &pem, path, &[]).expect("a trusted certificate");
    let form = format!("token={}&next=/&code={}", page.field("token"), page.field("code"));
    let from_page = ["--data", &form, "--header", "sec-fetch-site: same-origin"];
    let done = site.browse("cluster.example", &pem, "/sign-in", &from_page).expect("trusted");
    let set = done.header("set-cookie").unwrap_or_else(|| panic!("{done:?}"));
    assert!(
        set.starts_with("__Host-hostler=") && set.contains("; Secure; HttpOnly; SameSite=Strict; Path=/;"),
        "{set}"
    );
    let again = site.browse("cluster.example", &pem, "/sign-in", &from_page).expect("trusted");
    assert!(again.status == 401 && again.header("set-cookie").is_none(), "{again:?}");
    let cookie = done.cookie();
    let page = site.browse("cluster.example", &pem, "/", &["--cookie", &cookie]).expect("trusted");
    assert!(page.status == 200 && page.body.contains("ada"), "{page:?}");
    // The cookie is for pages only.
    let api = site.browse("cluster.example", &pem, "/api/v1/me", &["--cookie", &cookie]).expect("trusted");
    assert_eq!(api.status, 401, "{api:?}");
    // A foreign name in the header Host.
    let foreign = site.browse("cluster.example", &pem, "/", &["--cookie", &cookie, "--header", "host: evil.example"]);
    assert_eq!(foreign.expect("trusted").status, 403);

    // Under the cluster's own certificate there are no pages for strangers.
    for name in ["other.example", "head.hostler.internal"] {
        assert!(site.browse(name, &pem, "/", &[]).is_err(), "{name} has another certificate");
        let answer = site.browse(name, &pem, "/", &["--insecure", "--cookie", &cookie]).expect("not checked");
        assert!(answer.status == 404 && answer.body.contains("hostler dashboard"), "{answer:?}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"), "{answer:?}");
    }

    // A new certificate is used without a restart. Agents stay connected.
    let (new, new_key) = certificate(&home, "new", "cluster.example");
    fs::rename(&new_key, &key).expect("replaced");
    fs::copy(&new, &pem).expect("replaced");
    wait_until("the new certificate to be used", 30, || {
        site.browse("cluster.example", &new, "/sign-in", &[]).ok().filter(|page| page.status == 200)
    });
    assert_eq!(nodes_up(), 1);
    elsewhere(&["info"]);
}

#[test]
fn session_begins_with_a_code_and_ends_with_sign_out() {
    let port = free_port();
    let site = Site::start(&["--http", &format!("127.0.0.1:{port}")]);
    let host = &format!("127.0.0.1:{port}");
    for user in ["ada", "ben"] {
        site.admin(&["configure", "user", "add", user]);
    }
    let code = site.invite("ada");
    // An attacker's cookie in the browser before the sign-in does not become the session.
    let name = format!("hostler-{port}");
    let fixed = format!("{name}={}", "a".repeat(64));
    let answer = sign_in(port, host, &code, Some(&fixed));
    assert!(answer.status == 200 && answer.body.contains(r#"content="0;url=/jobs""#), "{answer:?}");
    let set = answer.header("set-cookie").expect("a cookie");
    assert!(set.contains("; HttpOnly; SameSite=Strict; Path=/; Max-Age=43200") && !set.contains("Secure"), "{set}");
    let cookie = answer.cookie();
    assert!(cookie.starts_with(&format!("{name}=")) && cookie != fixed, "{cookie}");
    let get = |path: &str, cookie: &str| Ask::get(path, host).with("cookie", cookie).send(port);
    assert_eq!(get("/", &fixed).status, 401);
    assert!(get("/", &cookie).body.contains("ada"));
    // A code works once.
    assert_eq!(sign_in(port, host, &code, None).status, 401);
    for code in ["", "x", "hostlerlogin1-x", &code[..code.len() - 1]] {
        assert_eq!(sign_in(port, host, code, None).status, 401, "{code}");
    }
    // A new sign-in in the same browser gives a new session, and ends the old one.
    let answer = sign_in(port, host, &site.invite("ben"), Some(&cookie));
    let second = answer.cookie();
    assert!(second != cookie && get("/", &second).body.contains("ben"), "{answer:?}");
    assert_eq!(get("/", &cookie).status, 401, "the first session has ended");
    // Signing out needs a form of the dashboard, and works at once.
    let token = get("/", &second).field("token");
    let leave = |body: &str, site: &str| {
        Ask::post("/sign-out", host, body).with("cookie", &second).with("sec-fetch-site", site).send(port)
    };
    let form = format!("token={token}");
    assert_eq!(leave(&form, "cross-site").status, 403);
    assert_eq!(leave("", "same-origin").status, 403);
    assert_eq!(get("/sign-out", &second).status, 405);
    assert_eq!(get("/", &second).status, 200, "still signed in");
    let answer = leave(&form, "same-origin");
    assert!(
        answer.status == 200 && answer.header("set-cookie").is_some_and(|it| it.contains("Max-Age=0")),
        "{answer:?}"
    );
    assert_eq!(get("/", &second).status, 401);
    let bearer = format!("Bearer {}", second.split_once('=').expect("a cookie").1);
    assert_eq!(Ask::get("/api/v1/me", host).with("authorization", &bearer).send(port).status, 401);

    // Only paths here follow a sign-in.
    let page = Ask::get("/sign-in?next=//evil.example/", host).send(port);
    assert_eq!(page.field("next"), "/");
    // A foreign name that resolves to this machine.
    let evil = format!("evil.example:{port}");
    let origin = format!("http://{evil}");
    for method in ["GET", "POST", "DELETE", "PUT", "PATCH"] {
        let ask = Ask { method, ..Ask::get("/sign-in", &evil) }.with("origin", &origin);
        assert_eq!(ask.send(port).status, 403, "{method}");
    }
    // The API on this port takes no cookie either.
    let cookie = site.sign_in(port, host, &site.invite("ada"));
    assert_eq!(get("/api/v1/me", &cookie).status, 401);
    // Links are for users of the cluster. Root is none.
    let refused = site.cluster.fails(&["--head", &site.socket(), "dashboard", "--link"]);
    assert!(refused.contains("configure user add"), "{refused}");
}

#[test]
fn proxy_passes_the_name_of_the_site() {
    let port = free_port();
    let http = format!("127.0.0.1:{port}");
    let site = Site::start(&["--http", &http, "--site", "https://cluster.example"]);
    site.admin(&["configure", "user", "add", "ada"]);
    let answer = sign_in(port, "cluster.example", &site.invite("ada"), None);
    assert!(answer.header("set-cookie").is_some_and(|it| it.starts_with("__Host-hostler=") && it.contains("Secure")));
    // Browsers of the head's machine could use other names.
    for host in [http.as_str(), "evil.example", "cluster.example:8443", ""] {
        assert_eq!(Ask::get("/sign-in", host).send(port).status, 403, "{host}");
    }
    // Failed sign-ins are counted for the address that the proxy names.
    let attempt = |address: &str| {
        let page = Ask::get("/sign-in", "cluster.example").send(port);
        let form = format!("token={}&code=wrong", page.field("token"));
        let ask = Ask::post("/sign-in", "cluster.example", &form).with("sec-fetch-site", "same-origin");
        ask.with("x-forwarded-for", address).send(port).status
    };
    let statuses: Vec<u16> = (0..11).map(|_| attempt("198.51.100.1, 192.0.2.1")).collect();
    assert_eq!((statuses[0], statuses[10], attempt("192.0.2.1, 192.0.2.2")), (401, 429, 401));
    let log: Vec<Value> = serde_json::from_str(&site.admin(&["configure", "audit", "--json"])).expect("JSON");
    assert!(log.iter().any(|entry| entry["address"] == "192.0.2.2"), "{log:?}");
    // Requests to the API are, too. A valid code is never refused.
    let log_in = |secret: &str, address: &str| {
        let body = format!(r#"{{"secret":"{secret}"}}"#);
        let ask = Ask { body: &body, ..Ask::post("/api/v1/login/code", "cluster.example", "") };
        let headers = vec![("host", "cluster.example"), ("content-type", "application/json")];
        Ask { headers, ..ask }.with("x-forwarded-for", address).send(port).status
    };
    let code: LoginCode = site.invite("ada").parse().expect("a login code");
    assert_eq!(["192.0.2.1", "192.0.2.3"].map(|address| log_in("wrong", address)), [429, 401]);
    assert_eq!([(); 2].map(|()| log_in(&code.secret, "192.0.2.1")), [200, 429]);

    for (options, said) in [
        (&["--http", "0.0.0.0:0"][..], "not a loopback address"),
        (&["--site", "https://cluster.example"], "serves none to browsers"),
        (&["--http", "127.0.0.1:0", "--site", "http://cluster.example"], "https://"),
        (&["--tls-cert", "/nowhere"], "--tls-key"),
        (&["--http", "127.0.0.1:0", "--proxy-user", "root"], "--site"),
        (&["--http", "127.0.0.1:0", "--site", "https://a.example", "--proxy-user", "no-such"], "no account no-such"),
    ] {
        let directory = site.path("other");
        site.cluster.ok(&["head", "init", "--directory", &directory]);
        let failed = site.cluster.fails(&[&["head", "run", "--directory", &directory], options].concat());
        assert!(failed.contains(said), "{options:?}: {failed}");
    }
}

#[test]
fn only_the_proxy_may_name_a_client() {
    assert!(nix::unistd::geteuid().is_root(), "this test is several users: run it as root");
    let port = free_port();
    let http = format!("127.0.0.1:{port}");
    let site = Site::start(&["--http", &http, "--site", "https://cluster.example", "--proxy-user", "games"]);
    site.admin(&["configure", "user", "add", "ada"]);
    // Sends a wrong code as another user of the machine, in the name of the address.
    let guess = |user: &str, address: &str| {
        let body = r#"{"secret":"wrong"}"#;
        let ask = Ask { body, ..Ask::post("/api/v1/login/code", "cluster.example", "") };
        let headers = vec![("host", "cluster.example"), ("content-type", "application/json")];
        let request = Ask { headers, ..ask }.with("x-forwarded-for", address).text();
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf %s \"$0\" >&3; cat <&3");
        let user = [format!("--reuid={user}"), format!("--regid={user}")];
        let mut command = Command::new("setpriv");
        command.args(user).args(["--clear-groups", "--", "bash", "-c", &script, &request]);
        read(&command.output().expect("setpriv is installed").stdout).status
    };
    let statuses: Vec<u16> = (0..11).map(|number| guess("daemon", &format!("192.0.2.{number}"))).collect();
    assert_eq!((statuses[0], statuses[10]), (401, 429), "a user of the machine does not escape the own count");
    assert_eq!(guess("games", "192.0.2.1"), 401, "nor use up that of others");
    assert_eq!(guess("games", "192.0.2.2"), 401);
    let log: Vec<Value> = serde_json::from_str(&site.admin(&["configure", "audit", "--json"])).expect("JSON");
    let of = |address: &str| log.iter().filter(|entry| entry["address"] == address).count();
    assert_eq!((of("127.0.0.1"), of("192.0.2.1"), of("192.0.2.2"), of("192.0.2.3")), (10, 1, 1, 0), "{log:?}");
    // The user who shares the address with the guesses signs in all the same.
    let answer = sign_in(port, "cluster.example", &site.invite("ada"), None);
    assert!(answer.header("set-cookie").is_some_and(|it| it.starts_with("__Host-hostler=")), "{answer:?}");
}

#[test]
fn public_view_shows_the_cluster_but_no_content() {
    let port = free_port();
    let host = &format!("127.0.0.1:{port}");
    let site = Site::start(&["--http", host]);
    let socket = site.socket();
    site.admin(&["run", "--detach", "--hold", "-m", "16M", "--", "sleep", "secret-argument"]);
    let get = |path: &str| Ask::get(path, host).send(port);
    assert_eq!(get("/").status, 401);
    assert_eq!(get("/api/v1/jobs").status, 401);
    site.admin(&["configure", "setting", "dashboard-public", "yes"]);
    let page = get("/");
    assert!(page.status == 200 && page.body.contains("Overview"), "{page:?}");
    for name in ["Your jobs", "Mark as seen", "href=\"/history\""] {
        assert!(!page.body.contains(name), "{name}: {page:?}");
    }
    let queue = get("/jobs");
    assert!(queue.status == 200 && queue.body.contains("sleep"), "the queue of everyone: {queue:?}");
    assert!(!queue.body.contains(">Mine<") && !queue.body.contains("value=\"cancel\""), "{queue:?}");
    for path in ["/info", "/me", "/nodes", "/jobs", "/partitions", "/energy"] {
        let answer = get(&format!("/api/v1{path}"));
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(!answer.body.contains("secret-argument"), "{path}: {answer:?}");
    }
    let me: Value = serde_json::from_str(&get("/api/v1/me").body).expect("JSON");
    assert!(me["identified"] == false && me["user"] == "", "{me}");
    for path in ["/jobs/1", "/jobs/1/tasks/0/output/stdout", "/users", "/audit", "/events", "/settings", "/results"] {
        assert_eq!(get(&format!("/api/v1{path}")).status, 401, "{path}");
    }
    for (method, path) in
        [("POST", "/jobs"), ("POST", "/jobs/1/cancel"), ("PUT", "/settings/policy"), ("POST", "/shutdown")]
    {
        let ask = Ask { method, ..Ask::get("/", host) };
        let path = format!("/api/v1{path}");
        let answer = Ask { path: &path, body: "{}", ..ask }.send(port);
        assert_eq!(answer.status, 401, "{method} {path}: {answer:?}");
    }
    site.admin(&["configure", "setting", "dashboard-public", "--reset"]);
    assert_eq!(get("/").status, 401);
    assert_eq!(site.cluster.json(&["--head", &socket, "job", "1"])["state"], "pending", "the job is untouched");
}

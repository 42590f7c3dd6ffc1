//! Metrics of a real cluster, as promtool checks them and as a real Prometheus scrapes them.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hostler_testkit::{RealCluster, Running, end, free_port, program, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const OPEN_METRICS: &str = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
const TEXT: &str = "text/plain;version=0.0.4";

/// Sends one request and returns the head of the answer and its body.
fn ask(mut stream: impl Read + Write, accept: &str) -> (String, String) {
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer in UTF-8");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a complete answer");
    (head.to_ascii_lowercase(), body.to_owned())
}

fn ask_socket(path: &Path, accept: &str) -> (String, String) {
    ask(UnixStream::connect(path).expect("the daemon listens"), accept)
}

/// Asserts that promtool accepts metrics in the format 0.0.4.
fn check_metrics(text: &str) {
    let mut promtool = Command::new(program("promtool", "install the package prometheus"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    promtool.stdin.take().expect("piped").write_all(text.as_bytes()).expect("promtool reads");
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

/// Value of the only sample that begins with `series`.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().expect("a number")
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// Names of metrics in a text: words that begin with `hostler_`.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("hostler_")).map(str::to_owned).collect()
}

/// The cluster: a head, and two nodes whose agents serve metrics at these ports.
fn cluster(ports: [u16; 2]) -> (RealCluster, Vec<std::process::Child>) {
    let real = RealCluster::start(HOSTLER);
    let agents = ["n1", "n2"].into_iter().zip(ports).map(|(node, port)| {
        fs::create_dir(real.path(node)).expect("a new directory");
        fs::write(real.path(&format!("{node}/agent.toml")), format!("metrics = {port}\n")).expect("writable");
        real.add_node(node)
    });
    let agents = agents.collect();
    (real, agents)
}

#[test]
fn prometheus_scrapes_head_and_agents_and_alerts_when_a_node_dies() {
    let ports = [free_port(), free_port()];
    let (real, mut agents) = cluster(ports);
    real.ok(&["run", "-m", "16M", "--", "true"]);
    assert_eq!(real.home.run(&["--head", &real.address, "run", "-m", "16M", "--", "false"]).code, 1);
    let held = real.ok(&["run", "--detach", "--hold", "-m", "16M", "-a", "0-6", "--name", "secret-name", "--", "true"]);

    // Both formats of the head, for a user on its socket.
    let socket = real.home.path("head/head.sock");
    let (head, text) = ask_socket(&socket, TEXT);
    assert!(head.starts_with("http/1.1 200") && head.contains("content-type: text/plain; version=0.0.4;"), "{head}");
    check_metrics(&text);
    let (head, open) = ask_socket(&socket, OPEN_METRICS);
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0;"), "{head}");
    assert!(open.ends_with("# EOF\n"));
    for (series, expected) in [
        ("hostler_tasks{partition=\"-\",state=\"pending\"}", 7.0),
        ("hostler_tasks{partition=\"-\",state=\"running\"}", 0.0),
        ("hostler_tasks_submitted_total{partition=\"-\"}", 9.0),
        ("hostler_tasks_ended_total{partition=\"-\",state=\"completed\"}", 1.0),
        ("hostler_tasks_ended_total{partition=\"-\",state=\"failed\"}", 1.0),
        ("hostler_tasks_ended_total{partition=\"-\",state=\"cancelled\"}", 0.0),
        ("hostler_queue_wait_seconds_count{partition=\"-\"}", 2.0),
        ("hostler_nodes{state=\"up\"}", 2.0),
        ("hostler_nodes{state=\"down\"}", 0.0),
        ("hostler_node_down{node=\"n1\"}", 0.0),
        ("hostler_agent_links", 2.0),
        ("hostler_head_refusing", 0.0),
        ("hostler_api_requests_total{operation=\"POST /jobs\",status=\"2xx\"}", 3.0),
        ("hostler_api_requests_total{operation=\"POST /jobs\",status=\"5xx\"}", 0.0),
        ("hostler_cpus_held", 0.0),
    ] {
        assert_eq!(value(&text, series), expected, "{series}");
    }
    for positive in [
        "hostler_cpus",
        "hostler_memory_bytes",
        "hostler_scheduling_pass_seconds_count",
        "hostler_store_commit_seconds_count",
        "hostler_process_resident_memory_bytes",
        "hostler_process_cpu_seconds_total",
        "hostler_node_certificate_left_seconds",
        "hostler_head_disk_free_bytes",
    ] {
        assert!(value(&text, positive) > 0.0, "{positive}");
    }
    assert!(!text.contains("secret-name"), "no label names a job");
    real.ok(&["cancel", &held]);

    // Agents, on the socket for local users and on the port.
    let (_, by_socket) = ask_socket(&real.home.path("n1/agent.sock"), TEXT);
    check_metrics(&by_socket);
    assert!(by_socket.contains("hostler_node_info{node=\"n1\","), "{by_socket}");
    let on_port = |port: u16| ask(TcpStream::connect(("127.0.0.1", port)).expect("the agent listens"), TEXT).1;
    assert_eq!(value(&on_port(ports[1]), "hostler_agent_connected"), 1.0);
    let launched: f64 =
        ports.iter().map(|port| value(&on_port(*port), "hostler_agent_launches_total{outcome=\"started\"}")).sum();
    assert_eq!(launched, 2.0);

    // What the dashboard and the rules show exists.
    let exported = &names(&text) | &names(&by_socket);
    let rules = fs::read_to_string(packaging("prometheus/hostler.rules.yml")).expect("the rules exist");
    let dashboard = fs::read_to_string(packaging("grafana/hostler.json")).expect("the dashboard exists");
    serde_json::from_str::<Value>(&dashboard).expect("the dashboard is JSON");
    let wanted = &names(&rules) | &names(&dashboard);
    let missing: Vec<&String> = wanted.difference(&exported).collect();
    assert!(wanted.len() > 30 && missing.is_empty(), "no daemon exports {missing:?}");

    // Prometheus, with the token of the head's file, over TLS.
    let at = free_port();
    let head = real.json(&["info"])["head"]["address"].as_str().expect("an address").to_owned();
    // The test does not wait for minutes.
    let hasty = rules.replace("for: 2m", "for: 1s");
    real.home.write("hostler.rules.yml", hasty);
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
         rule_files: [hostler.rules.yml]\n\
         scrape_configs:\n\
         - job_name: hostler-head\n\
         \x20 scheme: https\n\
         \x20 authorization: {{ credentials_file: {token} }}\n\
         \x20 tls_config: {{ ca_file: {authority}, server_name: head.hostler.internal }}\n\
         \x20 static_configs: [{{ targets: ['{head}'] }}]\n\
         - job_name: hostler-agent\n\
         \x20 static_configs: [{{ targets: ['127.0.0.1:{}', '127.0.0.1:{}'] }}]\n",
        ports[0],
        ports[1],
        token = real.path("head/metrics.token"),
        authority = real.path("head/trust/ca.pem"),
    );
    real.home.write("prometheus.yml", config);
    let _prometheus = Running::start(
        Command::new(program("prometheus", "install the package prometheus"))
            .arg(format!("--config.file={}", real.path("prometheus.yml")))
            .arg(format!("--storage.tsdb.path={}", real.path("prometheus")))
            .arg(format!("--web.listen-address=127.0.0.1:{at}")),
        &real.home.path("prometheus.log"),
    );
    let api = |path: &str| -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", at)).ok()?;
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    };
    let is_up = || {
        let targets = api("targets")?["data"]["activeTargets"].as_array()?.clone();
        let up = targets.iter().filter(|target| target["health"] == "up").count();
        (targets.len() == 3 && up == 3).then_some(())
    };
    wait_until("Prometheus to scrape the head and both agents", 60, is_up);
    let stored = wait_until("the first samples", 60, || {
        let found = api("query?query=hostler_nodes%7Bstate%3D%22up%22%7D")?["data"]["result"].as_array()?.clone();
        found.first().map(|series| series["value"][1].clone())
    });
    assert_eq!(stored, "2");

    let fires = || {
        let alerts = api("alerts")?["data"]["alerts"].as_array()?.clone();
        let of_node =
            |alert: &&Value| alert["labels"]["alertname"] == "HostlerNodeDown" && alert["labels"]["node"] == "n1";
        alerts.iter().find(of_node).filter(|alert| alert["state"] == "firing").map(|_| ())
    };
    assert!(fires().is_none());
    end(agents.remove(0));
    wait_until("the alert for n1", 60, fires);
    end(agents.remove(0));
}

#[test]
fn only_users_and_holders_of_the_token_may_scrape_the_head() {
    let real = RealCluster::start(HOSTLER);
    let head = real.json(&["info"])["head"]["address"].as_str().expect("an address").to_owned();
    let token = fs::read_to_string(real.path("head/metrics.token")).expect("the head wrote it");
    let curl = |authorization: Option<&str>, path: &str| {
        let mut curl = Command::new(program("curl", "install the package curl"));
        curl.args(["-s", "--insecure", "-o", "/dev/null", "-w", "%{http_code}"]);
        curl.args(authorization.into_iter().flat_map(|shown| ["-H".to_owned(), format!("Authorization: {shown}")]));
        let output = curl.arg(format!("https://{head}{path}")).output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let bearer = format!("Bearer {}", token.trim());
    assert_eq!(curl(Some(&bearer), "/metrics"), "200");
    for wrong in [None, Some("Bearer "), Some("Bearer 00"), Some(token.trim()), Some("Basic eDp5")] {
        assert_eq!(curl(wrong, "/metrics"), "401", "{wrong:?}");
    }
    // The token gives no other right.
    for path in ["/api/v1/info", "/api/v1/jobs", "/api/v1/me", "/api/v1/events"] {
        assert_eq!(curl(Some(&bearer), path), "401", "{path}");
    }
}

#[test]
fn alert_rules_pass_their_tests() {
    for arguments in [["check", "rules", "hostler.rules.yml"], ["test", "rules", "hostler.rules.test.yml"]] {
        let output = Command::new(program("promtool", "install the package prometheus"))
            .args(arguments)
            .current_dir(packaging("prometheus"))
            .output()
            .expect("promtool starts");
        let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
    }
}

//! Pages about nodes, ended jobs and files of results, and the operations behind them, on a live cluster.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use hostler_testkit::{Cluster, Size, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Answers of the head on its Unix socket.
struct Browser<'a>(&'a Cluster);

struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
}

impl Answer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .lines()
            .find_map(|line| line.split_once(": ").filter(|(it, _)| *it == name).map(|(_, value)| value))
    }
}

impl Browser<'_> {
    fn request(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        let socket = self.0.path("run/hostler/head.sock");
        let mut stream = UnixStream::connect(socket).expect("the head accepts connections");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(head.as_bytes()).expect("the request is sent");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("the answer is complete");
        let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("the answer has headers");
        let headers = String::from_utf8_lossy(&all[..end]).into_owned();
        let status = headers[9..12].parse().expect("a status");
        let body = all[end + 4..].to_vec();
        let is_chunked = headers.to_lowercase().contains("transfer-encoding: chunked");
        Answer { status, headers, body: if is_chunked { unchunked(&body) } else { body } }
    }

    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, "", "")
    }

    /// The text of a page.
    fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.text()
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(&format!("/api/v1{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).expect("the API answers with JSON")
    }

    /// Sends the form that a page contains: with the hidden token of the page.
    fn post(&self, page: &str, action: &str, fields: &str) -> Answer {
        let form = self.page(page);
        let token = form.split("name=\"token\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let token = token.expect("the page has a form with a token");
        let body = format!("token={token}&{fields}");
        let headers = "content-type: application/x-www-form-urlencoded\r\nsec-fetch-site: same-origin\r\n";
        self.request("POST", action, headers, &body)
    }

    /// Sends the form that a page contains. Returns the page after the action.
    fn submit(&self, page: &str, action: &str, fields: &str) -> String {
        let answer = self.post(page, action, fields);
        assert_eq!(answer.status, 303, "{}", answer.text());
        self.page(answer.header("location").expect("the answer redirects"))
    }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = body.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(str::from_utf8(&body[..end]).expect("digits"), 16).expect("a length");
        whole.extend(&body[end + 2..end + 2 + length]);
        body = &body[(end + 2 + length + 2).min(body.len())..];
    }
    whole
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut all, byte| {
        write!(all, "%{byte:02X}").expect("strings accept all writes");
        all
    })
}

#[test]
fn node_pages_say_who_holds_what_and_operators_act() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 3, cpus: 2, ..Size::default() });
    let browser = Browser(&cluster);
    let name = "a<b>\"&'c";
    let id = cluster.ok(&["run", "--detach", "--name", name, "-m", "16M", "--", "sleep", "600"]);
    cluster.wait_for_state(&id, "running");
    let node =
        browser.json("/nodes?holders=true").as_array().expect("a list").iter().find(|node| node["tasks"] == 1).cloned();
    let node = node.expect("a node runs the job");
    let holder = &node["holders"][0];
    assert_eq!(
        (holder["name"].as_str(), holder["cpus"].as_u64(), holder["state"].as_str()),
        (Some(name), Some(1), Some("running"))
    );
    assert!(node["since"].as_i64().is_some_and(|since| since > 1_700_000_000_000), "{node}");
    let host = node["name"].as_str().expect("a name").to_owned();

    let page = browser.page("/nodes");
    assert!(page.contains(&format!("/jobs/{id}\"")) && page.contains("1 of 2 free; a&#60;b&#62;"), "{page}");
    assert!(!page.contains("a<b>"), "names are escaped");
    let page = browser.page(&format!("/nodes/{host}"));
    assert!(page.contains("a&#60;b&#62;") && page.contains("In this state since"), "{page}");

    let page =
        browser.submit("/nodes", "/nodes", &format!("action=drain&reason=new+disk&node={host}&node=n9&back=/nodes"));
    assert!(page.contains("1 of 2 nodes are being drained.") && page.contains("n9"), "{page}");
    let listed = |query: &str| -> Vec<String> {
        let nodes = browser.json(&format!("/nodes?{query}"));
        nodes.as_array().expect("a list").iter().map(|node| node["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(listed("state=draining,drained"), [host.as_str()]);
    assert_eq!(listed("text=NEW%20disk"), [host.as_str()]);
    assert_eq!(listed(&format!("text={}", encoded("A<B"))), [host.as_str()]);
    assert_eq!(listed("state=up").len(), 2);
    assert_eq!(
        (listed("limit=2"), listed("after=n2")),
        (vec!["n1".to_owned(), "n2".to_owned()], vec!["n3".to_owned()])
    );
    assert_eq!(browser.get("/api/v1/nodes?state=broken").status, 400);
    let drained = browser.json(&format!("/nodes/{host}"));
    assert_eq!(drained["since"], drained["drain"]["at"], "{drained}");
    assert!(drained["why"].as_str().is_some_and(|why| why.ends_with(": new disk")), "{drained}");
    let page =
        browser.submit(&format!("/nodes/{host}"), &format!("/nodes/{host}"), "action=traits&weight=7&features=fast");
    assert!(page.contains("Changed the weight and features"), "{page}");
    assert_eq!(browser.json(&format!("/nodes/{host}"))["weight"], 7);
    let page = browser.submit(&format!("/nodes/{host}"), &format!("/nodes/{host}"), "action=resume");
    assert!(page.contains("gets tasks again"), "{page}");
    let page = browser.submit(&format!("/nodes/{host}"), &format!("/nodes/{host}"), "action=off");
    assert!(page.contains("notice bad"), "the head cannot switch this node: {page}");

    // Switching several nodes off asks first, and names them with what runs there.
    let nodes = format!("action=off&node={host}&node=n9&back=/nodes");
    let question = browser.post("/nodes", "/nodes", &nodes);
    assert_eq!(question.status, 200, "{}", question.text());
    let question = question.text();
    for part in ["Switch off 2 nodes?", &format!("<li>{host}: up, 1 task there</li>"), "<li>n9: ", "name=\"confirmed\""]
    {
        assert!(question.contains(part), "no {part} in {question}");
    }
    let page = browser.submit("/nodes", "/nodes", &format!("{nodes}&confirmed=yes"));
    assert!(page.contains("0 of 2 nodes are being switched off.") && page.contains(&format!("{host}: ")), "{page}");

    // A node that died stays down since its last message, also after a restart of the head.
    let agent = browser.json(&format!("/nodes/{host}"))["agent_pid"].as_u64().expect("a process id");
    cluster.kill_9(u32::try_from(agent).expect("a process id"));
    let down = wait_until("the node to be down", 60, || {
        let node = browser.json(&format!("/nodes/{host}"));
        (node["state"] == "down").then_some(node)
    });
    assert!(
        down["since"].is_i64() && down["why"].as_str().is_some_and(|why| why.starts_with("no message for")),
        "{down}"
    );
    assert!(browser.page("/nodes?state=suspect%2Cdown").contains("no message for"));
    let events = wait_until("the events", 10, || {
        let page = browser.page("/audit?kind=cluster");
        page.contains(&format!("node {host} is down")).then_some(page)
    });
    assert!(!events.contains("/nodes/"), "{events}");
    let people = browser.page("/audit?kind=people");
    assert!(people.contains("/nodes/") && !people.contains("is down"), "{people}");
}

#[test]
fn history_adds_up_what_jobs_used() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 2, ..Size::default() });
    let browser = Browser(&cluster);
    let busy = "end=$(($(date +%s%N) + 1500000000)); while [ $(date +%s%N) -lt $end ]; do :; done";
    let good = cluster.ok(&["run", "--detach", "--name", "train", "-c", "2", "-m", "64M", "--", "sh", "-c", busy]);
    let bad = cluster.ok(&["run", "--detach", "--name", "test", "-m", "16M", "--", "false"]);
    cluster.wait_for_state(&good, "completed");
    cluster.wait_for_state(&bad, "failed");
    let sums = |query: &str| browser.json(&format!("/accounting{query}"));
    let all =
        wait_until("both jobs to be counted", 30, || Some(sums("?by=name")).filter(|sums| sums["total"]["jobs"] == 2));
    assert_eq!(all["groups"][0]["key"], "train", "most core time first: {all}");
    let train = &all["groups"][0];
    let core_hours = train["core_hours"].as_f64().expect("a number");
    assert!((2.0 / 3600.0..60.0 / 3600.0).contains(&core_hours), "two CPUs for at least a second: {train}");
    let efficiency = train["cpu_efficiency"].as_f64().expect("a number");
    assert!((0.05..0.75).contains(&efficiency), "one of two CPUs was busy: {train}");
    assert_eq!((&all["total"]["endings"]["completed"], &all["total"]["endings"]["failed"]), (&1.into(), &1.into()));
    assert_eq!(sums("?by=day")["groups"].as_array().map(Vec::len), Some(1));
    assert_eq!(sums("?from=2020-01-01&to=2020-01-31")["total"]["jobs"], 0);
    assert_eq!(sums("?from=2020-01-01")["total"]["jobs"], 2, "too early a start is moved to the earliest allowed");
    for refused in ["?from=yesterday", "?by=colour"] {
        assert_eq!(browser.get(&format!("/api/v1/accounting{refused}")).status, 400, "{refused}");
    }

    let ids = |query: &str| -> Vec<String> {
        let page = browser.json(&format!("/history{query}"));
        page["jobs"].as_array().expect("a list").iter().map(|job| job["id"].to_string()).collect()
    };
    assert_eq!(ids("?state=failed"), [bad.as_str()]);
    assert_eq!(ids("?name=RAI"), [good.as_str()]);
    let first = browser.json("/history?limit=1");
    let next = first["next"].as_str().expect("there is another page");
    let second = browser.json(&format!("/history?limit=1&before={next}"));
    assert_ne!(first["jobs"][0]["id"], second["jobs"][0]["id"]);

    // A requeued job counts again when it ends, with what both attempts used.
    cluster.ok(&["requeue", &bad]);
    wait_until("the job to end again", 30, || {
        (browser.json(&format!("/jobs/{bad}"))["attempt"] == 2 && cluster.state(&bad) == "failed").then_some(())
    });
    wait_until("the job to be counted", 30, || (sums("")["total"]["jobs"] == 2).then_some(()));
    let page = browser.page("/history?by=name");
    assert!(
        page.contains("2 jobs") && page.contains("1 completed, 1 failed") && page.contains(&format!("/jobs/{good}\"")),
        "{page}"
    );
    assert!(!browser.page("/history?state=failed,timeout").contains(&format!("/jobs/{good}\"")));
}

#[test]
fn stages_of_a_job_are_timed() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let browser = Browser(&cluster);
    let back_end = "import os, time, zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    while not os.path.exists('GO'): time.sleep(0.05)
    with zipfile.ZipFile(os.path.join(directory, 'slow-1-py3-none-any.whl'), 'w') as wheel:
        wheel.writestr('slow.py', '')
        wheel.writestr('slow-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: slow\\nVersion: 1\\n')
        wheel.writestr('slow-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        wheel.writestr('slow-1.dist-info/RECORD', '')
    return 'slow-1-py3-none-any.whl'
";
    let project = "[build-system]\nrequires = []\nbuild-backend = 'back'\nbackend-path = ['.']\n[project]\nname = 'slow'\nversion = '1'\n";
    let go = cluster.path("go");
    cluster.write("project/main.py", "import slow, time\ntime.sleep(0.3)\n");
    cluster.write("project/requirements.txt", "./dependency\n");
    cluster.write("project/dependency/pyproject.toml", project);
    cluster.write("project/dependency/back.py", back_end.replace("GO", &go.display().to_string()));
    let id = cluster.ok(&["submit", "project", "main.py", "-m", "256M"]);
    let building = wait_until("the environment to be built", 60, || {
        let job = cluster.ok(&["job", &id]);
        job.contains("environment ").then_some(job)
    });
    assert!(
        building.contains("queued ") && building.contains("staging ") && building.contains(" so far"),
        "{building}"
    );
    assert!(browser.page(&format!("/jobs/{id}")).contains("Environment prepared"));
    let second = cluster.ok(&["submit", "project", "main.py", "-m", "256M"]);
    let logs = cluster.run(&["logs", &second]);
    assert!(
        logs.stdout.is_empty()
            && logs.stderr.contains(&format!("note: job {second} has no output yet, because it waits: ")),
        "{logs:?}"
    );
    cluster.ok(&["cancel", &second]);
    cluster.write("go", "");
    cluster.wait_for_state(&id, "completed");
    let task = browser.json(&format!("/jobs/{id}"))["tasks_shown"][0].clone();
    let at = |value: &Value| value.as_i64().unwrap_or_else(|| panic!("no time in {task}"));
    let (stages, started) = (&task["stages"], at(&task["started_at"]));
    let times =
        [at(&stages["placed_at"]), at(&stages["staged_at"]), started, at(&stages["exited_at"]), at(&task["ended_at"])];
    assert!(times.is_sorted() && times[3] - times[2] >= 250, "{task}");
    let page = browser.page(&format!("/jobs/{id}"));
    for step in ["Queued", "Files fetched", "Environment prepared", "Ran", "Results collected", "Ended"] {
        assert!(page.contains(&format!("<th scope=\"row\">{step}</th>")), "no {step}: {page}");
    }
    let said = cluster.ok(&["job", &id]);
    assert!(said.contains("running ") && said.contains("collecting ") && !said.contains("so far"), "{said}");

    // An attempt that fails before its process starts has the stages up to there.
    cluster.write("broken/main.py", "");
    cluster.write("broken/requirements.txt", "./dependency\n");
    cluster.write("broken/dependency/pyproject.toml", project);
    cluster.write("broken/dependency/back.py", "raise SystemExit('no wheel today')\n");
    let broken = cluster.ok(&["submit", "broken", "main.py", "-m", "256M"]);
    cluster.wait_for_state(&broken, "failed");
    let task = browser.json(&format!("/jobs/{broken}"))["tasks_shown"][0].clone();
    let stages = &task["stages"];
    assert!(at(&stages["staged_at"]) <= at(&task["ended_at"]) && task["started_at"].is_null(), "{task}");
    let page = browser.page(&format!("/jobs/{broken}"));
    assert!(page.contains("Environment prepared") && !page.contains("<th scope=\"row\">Ran</th>"), "{page}");
    let list = cluster.ok(&["jobs", "--all"]);
    assert!(list.contains("building the environment failed"), "{list}");
}

#[test]
fn wrong_addresses_lead_to_an_error_page() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let browser = Browser(&cluster);
    for (path, status, message) in [
        ("/jobs/abc", 400, "a name or number in this address is not valid"),
        ("/nodes/n1/usage/more", 404, "there is no page at this address"),
        ("/jobs?order=upward", 400, "`order` cannot be `upward`"),
        ("/jobs/77", 404, "there is no job 77"),
    ] {
        let answer = browser.get(path);
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        let page = answer.text();
        assert!(page.contains("<h1>This did not work</h1>") && page.contains(message), "{path}: {page}");
        assert!(page.contains("aria-label=\"Pages\""), "the page has the menu: {page}");
    }
}

#[test]
fn files_of_results_are_listed_shown_and_never_run() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let browser = Browser(&cluster);
    let script = r#"
import os
open('evil.html', 'w').write('<script>alert(1)</script>')
open('evil.svg', 'w').write('<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>')
open('fake.png', 'w').write('<script>alert(2)</script>')
open('plot.png', 'wb').write(b'\x89PNG\r\n\x1a\n' + b'x' * 100)
open('table.csv', 'w').write('a,b\n1,"<i>x</i>"\n')
open('numbers.bin', 'wb').write(bytes(range(256)) * 4096)
open('<img src=x onerror=alert(3)>', 'w').write('name')
open('line\nbreak "quoted"', 'w').write('name')
open(b'bytes-\xff\\', 'w').write('bytes')
os.makedirs('deep/er')
open('deep/er/file.txt', 'w').write('deep')
os.symlink('/etc/passwd', 'link') if False else os.symlink('table.csv', 'link')
"#;
    cluster.write("project/make.py", script);
    let id = cluster.ok(&["submit", "project", "make.py"]).split_whitespace().last().expect("an id").to_owned();
    cluster.wait_for_state(&id, "completed");
    let base = format!("/jobs/{id}/tasks/0");
    let list = browser.json(&format!("{base}/files"));
    let paths: Vec<&str> =
        list["files"].as_array().expect("a list").iter().filter_map(|file| file["path"].as_str()).collect();
    assert!(paths.contains(&"bytes-\\xff\\x5c") && paths[0] == "deep", "{paths:?}");
    assert_eq!(browser.json(&format!("{base}/files?directory=deep%2Fer"))["files"][0]["path"], "deep/er/file.txt");

    let file = |path: &str, headers: &str| {
        browser.request("GET", &format!("/api/v1{base}/file?path={}", encoded(path)), headers, "")
    };
    assert_eq!(file("bytes-\\xff\\x5c", "").text(), "bytes");
    assert_eq!(file("<img src=x onerror=alert(3)>", "").text(), "name");
    let whole = file("numbers.bin", "");
    assert_eq!(whole.body.len(), 256 * 4096);
    let part = file("numbers.bin", "range: bytes=500000-500009\r\n");
    assert_eq!((part.status, part.header("content-range")), (206, Some("bytes 500000-500009/1048576")));
    assert_eq!(part.body, whole.body[500_000..500_010]);
    assert_eq!(file("numbers.bin", "range: bytes=2000000-\r\n").status, 416);
    for answer in [file("evil.html", ""), browser.get(&format!("{base}/files/download?path=evil.html"))] {
        assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert!(answer.header("content-disposition").is_some_and(|value| value.starts_with("attachment")));
        assert!(answer.header("content-security-policy").is_some_and(|policy| policy.starts_with("sandbox")));
        assert_eq!(answer.text(), "<script>alert(1)</script>");
    }
    for path in
        ["../make.py", "/etc/passwd", "deep/../evil.html", "./evil.html", "deep", "link", "", "deep/er/", "evil.html\0"]
    {
        assert_eq!(file(path, "").status, 404, "{path}");
    }
    for path in ["\\", "\\xzz"] {
        assert_eq!(file(path, "").status, 400, "{path}");
    }
    assert_eq!(browser.get(&format!("/api/v1{base}/files?directory=..")).status, 404);
    assert_eq!(browser.get(&format!("/api/v1/jobs/{id}/tasks/7/files")).status, 404);

    // Everything as one archive, as `tar` reads it.
    let archive = browser.get(&format!("{base}/files/archive"));
    assert_eq!(archive.header("content-type"), Some("application/x-tar"));
    std::fs::write(cluster.path("all.tar"), &archive.body).expect("a file");
    std::fs::create_dir(cluster.path("unpacked")).expect("a directory");
    let tar = |args: &[&str]| {
        let output = std::process::Command::new("tar").arg("-f").arg(cluster.path("all.tar")).args(args).output();
        let output = output.expect("tar runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    tar(&["-x", "-C", &cluster.path("unpacked").to_string_lossy()]);
    let unpacked = cluster.path("unpacked").join(format!("job-{id}"));
    let read = |name: &str| std::fs::read_to_string(unpacked.join(name)).expect("a file of the archive");
    assert_eq!((read("deep/er/file.txt").as_str(), read("table.csv")), ("deep", read("link")));
    assert_eq!(std::fs::read(unpacked.join("numbers.bin")).expect("a file of the archive"), whole.body);
    let count = std::fs::read_dir(&unpacked).expect("a directory").count();
    assert_eq!(count, paths.len(), "all entries of the top");
    assert_eq!(browser.get(&format!("/jobs/{id}/tasks/7/files/archive")).status, 404);

    let page = browser.page(&format!("{base}/files"));
    assert!(page.contains("&#60;img src=x onerror") && !page.contains("<img src=x"), "{page}");
    let shown = |path: &str| browser.page(&format!("{base}/files?file={}", encoded(path)));
    for (path, escaped) in
        [("evil.html", "&#60;script&#62;alert(1)"), ("evil.svg", "&#60;svg"), ("fake.png", "&#60;script&#62;alert(2)")]
    {
        let page = shown(path);
        assert!(page.contains(escaped) && !page.contains("<script>alert") && !page.contains("<svg xmlns"), "{page}");
        assert_eq!(browser.get(&format!("{base}/files/image?path={path}")).status, 400, "{path} is no image");
    }
    assert!(shown("table.csv").contains("<td>&#60;i&#62;x&#60;/i&#62;</td>"));
    assert!(shown("numbers.bin").contains("Download it to use it"));
    assert!(shown("plot.png").contains("files/image?path=plot.png"));
    let image = browser.get(&format!("{base}/files/image?path=plot.png"));
    assert_eq!((image.header("content-type"), image.body.len()), (Some("image/png"), 108));
    assert!(image.header("content-security-policy").is_some_and(|policy| policy.starts_with("sandbox")));
}

#[test]
fn settings_pages_change_partitions_settings_and_users() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    let browser = Browser(&cluster);
    let page = browser.submit("/settings", "/settings", "action=set&setting=grace&value=7s");
    assert!(page.contains("grace is 7s."), "{page}");
    let page = browser.submit("/settings", "/settings", "action=add&name=small&nodes=n1");
    assert!(page.contains("Partition small is added."), "{page}");
    assert_eq!(browser.json("/partitions/small")["node_count"], 1);
    let page = browser.submit("/settings", "/settings", "action=remove&name=small");
    assert!(page.contains("Partition small is removed."), "{page}");

    let page = browser.submit("/people", "/people", "name=ada&role=operator&uid=&groups=lab&keys=");
    assert!(page.contains("User ada is added."), "{page}");
    let page = browser.submit("/people/ada", "/people/ada", "action=quota&cpus=8&memory=1G&jobs=&queued=");
    assert!(page.contains("8 CPUs, 1G memory"), "{page}");
    let page = browser.submit("/people/ada", "/people/ada", "action=block");
    assert!(page.contains("ada is blocked."), "{page}");
    assert!(browser.page("/people").contains("blocked"));
    assert!(
        browser.page("/audit?text=ada").contains("POST /users/{name}/block")
            || browser.page("/audit?text=ada").contains("block")
    );
}

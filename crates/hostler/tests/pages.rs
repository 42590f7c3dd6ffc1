//! The dashboard's pages about jobs on a real cluster, read over the head's socket as a browser without scripts does.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SMALL: Size = Size { nodes: 2, cpus: 2, memory: "1G" };

/// An answer of the head.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body, which must contain all parts.
    fn has(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.body.contains(part), "no `{part}` in: {}", self.body);
        }
    }

    fn lacks(&self, parts: &[&str]) {
        for part in parts {
            assert!(!self.body.contains(part), "`{part}` in: {}", self.body);
        }
    }
}

/// A browser without scripts.
struct Browser<'a> {
    cluster: &'a Cluster,
    cookie: Option<String>,
}

impl<'a> Browser<'a> {
    const fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, cookie: None }
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.cluster.path("run/hostler/head.sock")).expect("the head listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout can be set");
        stream
    }

    fn send(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).expect("the head reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the head answers");
        let end = bytes.windows(4).position(|part| part == b"\r\n\r\n").expect("an answer has a head");
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut body = bytes[end + 4..].to_vec();
        if head.to_lowercase().contains("transfer-encoding: chunked") {
            body = dechunked(&body);
        }
        Answer { status, head, body: String::from_utf8_lossy(&body).into_owned() }
    }

    fn get(&self, path: &str) -> Answer {
        let cookie = self.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{cookie}Connection: close\r\n\r\n"))
    }

    fn page(&self, path: &str) -> Answer {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer
    }

    /// Sends a form as the page at `from` would: with the hidden token that the page contains.
    fn post(&self, from: &str, path: &str, form: &str) -> Answer {
        let page = self.get(from).body;
        let token = page.split("name=\"token\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
        let form = format!("token={}&{form}", token.unwrap_or_default());
        let cookie = self.cookie.as_ref().map(|cookie| format!("Cookie: {cookie}\r\n")).unwrap_or_default();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n{cookie}Content-Type: \
             application/x-www-form-urlencoded\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{form}",
            form.len()
        ))
    }

    /// Sends a request of an upload, with the token of the page *Submit*.
    fn upload(&self, path: &str, token: &str, body: &str) -> Answer {
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\nHostler-Form-Token: {token}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Sends a form and returns the page that it redirects to.
    fn act(&self, from: &str, path: &str, form: &str) -> Answer {
        let answer = self.post(from, path, form);
        assert_eq!(answer.status, 303, "{path}: {}", answer.body);
        self.page(answer.header("location").expect("a redirect has a target"))
    }
}

fn dechunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = bytes.windows(2).position(|part| part == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..end]).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else { break };
        body.extend_from_slice(&bytes[end + 2..end + 2 + size]);
        bytes = &bytes[end + 4 + size..];
    }
    body
}

fn run(cluster: &Cluster, options: &[&str], script: &str) -> String {
    let mut all = vec!["run", "--detach", "-m", "16M"];
    all.extend(options);
    all.extend(["--", "sh", "-c", script]);
    cluster.ok(&all)
}

#[test]
fn pages_show_what_failed_what_waits_and_what_is_free() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let mut browser = Browser::new(&cluster);
    let evil = "<script>alert(1)</script>\"'&";
    let failed = run(
        &cluster,
        &["--exclusive", "--oom", "fail", "--name", evil],
        "echo fine; printf '\\033[31m<b>broken\\033[0m\\n' >&2; exit 3",
    );
    cluster.wait_for_state(&failed, "failed");
    let running = run(&cluster, &["-c", "2", "--name", "holder", "-t", "1h"], "sleep 600");
    let other = run(&cluster, &["-c", "2", "--name", "second", "-t", "1h"], "sleep 600");
    cluster.wait_for_state(&running, "running");
    cluster.wait_for_state(&other, "running");
    let waiting = run(&cluster, &["-c", "2", "--name", "late"], "true");

    let overview = browser.page("/");
    overview.has(&[
        "Failed with exit code 3",
        "<code>&#60;b&#62;broken</code>",
        &format!("/jobs/{failed}#last-lines"),
        "&#60;script&#62;alert(1)",
        "waits:",
        "0 of 4 free",
        "As of <time",
    ]);
    overview.lacks(&["<script>alert"]);
    wait_until("an expected start", 30, || browser.page("/").body.contains("at the latest").then_some(()));

    // The lines of the failure are on the job's page, with colours and without markup of the job.
    let job = browser.page(&format!("/jobs/{failed}"));
    job.has(&[
        "Last lines of stderr",
        "<span class=\"t1\">&lt;b&gt;broken</span>",
        "hostler run --exclusive --oom=fail --name",
        "<dt>Measured</dt><dd>",
        "Ran",
        "Timeline",
    ]);
    job.lacks(&["<b>broken", "<script>alert"]);
    let job = browser.page(&format!("/jobs/{waiting}"));
    job.has(&["Why it waits", "holder"]);
    job.lacks(&["Last lines", "stdout"]);
    assert_eq!(browser.get("/jobs/999").status, 404);
    browser.get("/jobs/999").has(&["This did not work", "<nav", "999"]);

    // After a visit, the overview starts anew.
    let marked = browser.post("/", "/seen", "");
    assert_eq!(marked.status, 303);
    let cookie = marked.header("set-cookie").expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    browser.cookie = cookie.split(';').next().map(str::to_owned);
    let overview = browser.page("/");
    overview.has(&["since your last visit"]);
    overview.lacks(&["Failed with exit code 3"]);

    // The queue: mine and live by default; filters are in the address.
    let queue = browser.page("/jobs");
    queue.has(&["3 jobs", "holder", "late", "name=\"job\""]);
    queue.lacks(&["alert(1)"]);
    let found = browser.page("/jobs?state=all&q=SLEEP+600");
    found.has(&["holder", "second"]);
    found.lacks(&[">late<", "alert(1)"]);
    browser.page("/jobs?state=failed").has(&["&#60;script&#62;"]);
    browser.page("/jobs?user=nobody").has(&["No job matches"]);

    // Headers sort, and keep the filter.
    let sorted = browser.page("/jobs?q=e&order=name");
    sorted.has(&["by name.", "/jobs?q=e&#38;order=user\">User</a>", "name=\"order\" value=\"name\""]);
    let at = |name: &str| sorted.body.find(&format!(" {name}</a>")).expect("the job is listed");
    assert!(at("holder") < at("late") && at("late") < at("second"));
    browser.page("/jobs?order=oldest").has(&["aria-sort=\"ascending\"><a href=\"/jobs?order=name\">Job</a>"]);
    browser.page("/jobs?order=size&state=all").has(&["newest first."]);
    assert_eq!(browser.get("/jobs?order=colour").status, 400);
    let names = cluster.ok(&["jobs", "--sort", "name", "--quiet"]);
    assert_eq!(names.split_whitespace().collect::<Vec<_>>(), [&running, &waiting, &other]);
    // Tabs count; the reader's columns stay; the list is a spreadsheet, too.
    queue.has(&["Running <b>2</b>", "Waiting <b>1</b>", "Failed <b>1</b>", "of 1h00m", "starts within"]);
    let chosen = browser.get("/jobs?columns=chosen&column=limit&column=%3Cb%3E");
    let kept = chosen.header("set-cookie").expect("a cookie").split(';').next().expect("a pair").to_owned();
    assert_eq!(kept, "hostler-columns=limit");
    let before = browser.cookie.replace(kept);
    let fewer = browser.page("/jobs");
    fewer.has(&["order=limit\">Limit</a>"]);
    fewer.lacks(&["<th scope=\"col\">Last change</th>"]);
    browser.cookie = before;
    let sheet = browser.page("/jobs.csv?state=all&q=holder");
    assert_eq!(sheet.header("content-type"), Some("text/csv; charset=utf-8"));
    let lines: Vec<&str> = sheet.body.lines().collect();
    assert!(lines[0].starts_with("job,name,user,state,") && lines.len() == 2, "{lines:?}");
    assert!(lines[1].starts_with(&format!("{running},holder,")), "{lines:?}");
    // One node is kept for the waiting job.
    browser.page("/timeline").has(&["holder of", "runs, for", "kept free for job"]);
    let columns = cluster.ok(&["jobs", "-o", "id,limit", "--sort", "oldest"]);
    assert!(columns.starts_with("ID  LIMIT\n") && columns.contains(" 2  1h00m"), "{columns}");
    assert_eq!(cluster.ok(&["jobs", "--failed", "--since", "1h", "-q"]).trim(), failed);
    browser.page("/jobs?q=%3Cscript%3E&state=all").has(&["value=\"&#60;script&#62;\""]);

    // Actions: cancelling asks first; each job has its outcome.
    let asked = browser.post("/jobs", "/jobs/act", &format!("action=cancel&back=%2Fjobs&job={waiting}&job=4711"));
    assert_eq!(asked.status, 200);
    asked.has(&["Cancel 2 jobs?", "name=\"confirmed\" value=\"yes\""]);
    assert_eq!(cluster.state(&waiting), "pending");
    let held = browser.act("/jobs", "/jobs/act", &format!("action=hold&back=%2Fjobs&job={waiting}"));
    held.has(&[": held.", "notice good"]);
    let done =
        browser.act("/jobs", "/jobs/act", &format!("action=cancel&confirmed=yes&back=%2Fjobs&job={waiting}&job=4711"));
    done.has(&["notice bad", ": cancelled.", "Job 4711: not cancelled."]);
    cluster.wait_for_state(&waiting, "cancelled");
    let foreign = browser.post("/jobs", "/jobs/act", &format!("action=hold&back=https%3A%2F%2Fevil&job={running}"));
    assert!(foreign.header("location").is_some_and(|to| to.starts_with("/jobs?done=")));

    // A copy with other values.
    browser.page(&format!("/jobs/{failed}/duplicate")).has(&["Duplicate", "value=\"16M\""]);
    let from = format!("/jobs/{failed}/duplicate");
    let wrong = browser.post(&from, &from, "key=a&command=sh+-c+%27x&cpus=1&memory=16M");
    assert_eq!(wrong.status, 400);
    wrong.has(&["not closed"]);
    let copy = browser.act(&from, &from, "key=a&name=copy&command=sh+-c+%27exit+4%27&cpus=1&memory=32M&time=5m");
    copy.has(&["was submitted as a copy", "copy"]);
    let id = copy.body.split("<h1>Job ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an id");
    assert_eq!(cluster.json(&["job", id])["memory_bytes"], 32 << 20);
    cluster.ok(&["cancel", &running, &other]);
    cluster.wait_for_state(id, "failed");

    // The command to run a job again keeps its files and flags.
    let log = cluster.path("a log").to_string_lossy().into_owned();
    let logged = run(&cluster, &["--stdout", &log, "--append", "--requeue"], "true");
    let command = format!("--stdout &#39;{log}&#39; --requeue --append -- sh -c true");
    browser.page(&format!("/jobs/{logged}")).has(&[&command]);
}

#[test]
fn output_is_shown_in_parts_followed_and_searched() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let browser = Browser::new(&cluster);
    let script = "i=0; while [ $i -lt 9000 ]; do echo \"line $i of a long output <i>\"; i=$((i+1)); done; \
        while [ ! -e go ]; do sleep 0.1; done; printf '10%%\\r20%%\\rdone\\n'; echo last";
    let id = run(&cluster, &[], script);
    let path = format!("/jobs/{id}/tasks/0/output/stdout");
    wait_until("the first lines", 30, || browser.page(&path).body.contains("line 8999 ").then_some(()));

    // The page of the running job shows the last lines, and the script gets those after them.
    let job = browser.page(&format!("/jobs/{id}"));
    job.has(&["Last lines of stdout", "line 8999 of a long output &lt;i&gt;", "data-most=\"15\"", " so far"]);
    job.lacks(&["line 8984 of"]);
    let more = job.body.split("data-follow=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    browser.page(&more.replace("&#38;", "&")).lacks(&["<span", "data-over=\"yes\""]);

    // While the task runs: the last lines first, then backwards without a gap.
    let tail = browser.page(&path);
    tail.has(&["data-follow", "Earlier lines", "line 8999 of a long output &lt;i&gt;"]);
    tail.lacks(&["line 0 of", "<i>"]);
    assert!(tail.body.matches("<span class=\"l").count() <= 2000);
    let lines_of = |body: &str| -> Vec<u32> {
        body.split("\">line ").skip(1).filter_map(|rest| rest.split(' ').next()?.parse().ok()).collect()
    };
    let mut seen = lines_of(&tail.body);
    let mut page = tail;
    while let Some(earlier) = link(&page.body, "Earlier lines") {
        page = browser.page(&earlier);
        let mut before = lines_of(&page.body);
        before.extend(seen);
        seen = before;
    }
    assert_eq!(seen, (0..9000).collect::<Vec<_>>());

    // New lines arrive in fragments.
    let more = browser.page(&path).body;
    let more = more.split("data-follow=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("an address");
    let more = more.replace("&#38;", "&").replace("&amp;", "&");
    cluster.write("go", "");
    cluster.wait_for_state(&id, "completed");
    let rest = browser.page(&more);
    rest.has(&["data-over=\"yes\"", ">done\n", ">last\n"]);
    rest.lacks(&["10%", "line 8999"]);

    // After the end, from the result.
    browser.page(&path).has(&[">last\n"]);
    let hits = browser.page(&format!("{path}?q=LINE+77+"));
    hits.has(&["1 hit", "<mark>line 77 </mark>of a long output &#60;i&#62;"]);
    let raw = browser.page(&format!("{path}/raw"));
    assert_eq!(raw.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(raw.header("x-content-type-options"), Some("nosniff"));
    assert!(raw.header("content-security-policy").is_some_and(|policy| policy.contains("sandbox")));
    assert!(raw.body.starts_with("line 0 of a long output <i>\n"));
    assert_eq!(browser.get(&format!("/jobs/{id}/tasks/7/output/stdout")).status, 404);
    assert_eq!(browser.get(&format!("/jobs/{id}/tasks/0/output/..%2f..%2fetc")).status, 400);
}

/// Address of the link with this text.
fn link(body: &str, text: &str) -> Option<String> {
    let before = &body[..body.find(&format!(">{text}<"))?];
    let href = &before[before.rfind("href=\"")? + 6..];
    Some(href.split('"').next()?.replace("&#38;", "&").replace("&amp;", "&"))
}

#[test]
fn large_log_appears_at_once() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let browser = Browser::new(&cluster);
    let id =
        run(&cluster, &[], "yes 'a line of a log that is as long as lines of logs are on average' | head -c 100000000");
    cluster.wait_for_state(&id, "completed");
    let path = format!("/jobs/{id}/tasks/0/output/stdout");
    browser.page(&path);
    // The shortest of several times, because other programs use the CPUs too.
    let times = (0..5).map(|_| {
        let began = Instant::now();
        let page = browser.page(&path);
        assert!(page.body.len() < 400_000, "{}", page.body.len());
        began.elapsed()
    });
    let shortest = times.min().expect("several times");
    assert!(shortest < Duration::from_secs(1), "{shortest:?}");
}

#[test]
fn failed_tasks_of_an_array_are_found_and_changes_are_streamed() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let browser = Browser::new(&cluster);
    let mut live = browser.connect();
    live.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the head reads");
    let mut text = String::new();
    let mut read_until = |what: &str| {
        let mut piece = [0; 4096];
        while !text.contains(what) {
            let count = live.read(&mut piece).expect("the head sends events");
            assert!(count > 0, "the stream ended: {text}");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        let events = text.matches("event: changed").count();
        text.clear();
        events
    };
    read_until("\"jobs\":0");
    let began = Instant::now();
    let id = run(&cluster, &["-a", "0-120"], "test $HOSTLER_ARRAY_INDEX != 97 || { echo no >&2; exit 7; }");
    cluster.wait_for_state(&id, "failed");
    // Hundreds of changes arrive as few events, at most one per second.
    let (events, seconds) = (read_until("event: changed"), began.elapsed().as_secs());
    assert!(events as u64 <= 2 + seconds, "{events} events in {seconds} s");
    let page = browser.page(&format!("/jobs/{id}"));
    page.has(&[
        "1 failed, 120 completed of 121 tasks",
        "Last lines of stderr of task 97",
        "More tasks",
        "Failed tasks",
        "aria-label=\"Tasks: 1 failed, 120 completed\"",
        "aria-label=\"task 97: failed\"",
    ]);
    let row = |index: u32| page.body.find(&format!("<th scope=\"row\">{index}</th>")).expect("the task is listed");
    assert!(row(97) < row(0), "failed tasks come first");
    browser.page("/timeline").has(&[&format!("of job {id}")]);
    let failed = browser.page(&format!("/jobs/{id}?tasks=failed"));
    failed.has(&["<th scope=\"row\">97</th>", "Failed with exit code 7"]);
    failed.lacks(&["<th scope=\"row\">96</th>"]);
}

#[test]
fn pages_of_a_list_show_each_job_once_while_others_arrive() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let browser = Browser::new(&cluster);
    // Many jobs have the same name, user, size and priority.
    let submit = |number: usize| run(&cluster, &["--hold", "--name", ["a", "b", "c"][number % 3]], "true");
    let first: Vec<String> = (0..20).map(submit).collect();
    for order in ["newest", "oldest", "priority", "name", "user", "size"] {
        let list = format!("/api/v1/jobs?state=pending&limit=7&order={order}");
        let mut seen: Vec<String> = Vec::new();
        let mut next = Some(list.clone());
        while let Some(path) = next {
            let page: serde_json::Value = serde_json::from_str(&browser.page(&path).body).expect("JSON");
            let jobs = page["jobs"].as_array().expect("a list");
            seen.extend(jobs.iter().map(|job| job["id"].to_string()));
            submit(seen.len());
            next = page["next"].as_u64().map(|next| format!("{list}&before={next}"));
        }
        assert!(seen.len() >= first.len(), "{seen:?}");
        for id in &first {
            let count = seen.iter().filter(|it| *it == id).count();
            assert_eq!(count, 1, "job {id} in the order {order}: {seen:?}");
        }
        let mut all = seen.clone();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), seen.len(), "a job appears twice in the order {order}: {seen:?}");
    }
    // An action on all jobs that match asks first, and leaves alone what is submitted after the question.
    let of_list = "action=cancel&all=yes&back=%2Fjobs%3Fstate%3Dpending%26q%3Da";
    let asked = browser.post("/jobs", "/jobs/act", of_list);
    let up_to = asked.body.split("name=\"up_to\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let up_to = up_to.unwrap_or_else(|| panic!("the question names the newest job: {}", asked.body));
    let (later, other) = (submit(0), submit(1));
    assert_eq!(cluster.state(up_to), "pending");
    let done = browser.act("/jobs", "/jobs/act", &format!("{of_list}&confirmed=yes&up_to={up_to}"));
    done.has(&["notice good"]);
    cluster.wait_for_state(up_to, "cancelled");
    assert_eq!((cluster.state(&later), cluster.state(&other)), ("pending".to_owned(), "pending".to_owned()));
    let left = cluster.ok(&["jobs", "-s", "pending", "-q"]);
    assert!(!left.split_whitespace().any(|id| id == first[0]) && left.split_whitespace().any(|id| id == first[1]));
}

#[test]
fn script_is_submitted_once_and_its_form_says_when_it_would_start() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let browser = Browser::new(&cluster);
    browser.page("/submit").has(&["4 of 4 CPUs", "name=\"time\""]);
    let script = "script=%23!%2Fbin%2Fsh%0D%0Aecho+hello+%3E+note.txt%3B+exit+3%0D%0A";
    let form = format!("key=k1&source=script&{script}&name=greet&cpus=1&memory=16M&time=5m&array=0-1");

    browser.post("/submit", "/submit", &format!("{form}&try=yes")).has(&["It would start now on n"]);
    let never = browser.post("/submit", "/submit", &form.replace("cpus=1", "cpus=64&try=yes"));
    assert_eq!(never.status, 200);
    never.has(&["role=\"alert\"", "no node", "value=\"64\"", "echo hello &#62; note.txt"]);
    assert_eq!(cluster.ok(&["jobs", "--all", "-q"]).trim(), "", "questions submit nothing");

    // The same form twice is one job.
    browser.act("/submit", "/submit", &form).has(&["Job 1 was submitted.", "greet"]);
    browser.act("/submit", "/submit", &form).has(&["This form was sent before. It submitted job 1."]);
    cluster.wait_for_state("1", "failed");
    let job = cluster.json(&["job", "1"]);
    assert_eq!(
        (&job["memory_bytes"], &job["array"], &job["exit_code"]),
        (&(16 << 20).into(), &"0-1".into(), &3.into())
    );
    browser.page("/jobs/1/tasks/0/files").has(&["note.txt"]);

    // The next form is filled from the job, which has a folder now.
    let like = browser.page("/submit?like=1");
    let like_it = ["value=\"greet\"", "value=\"16M\"", "value=\"0-1\"", "script.sh</textarea>", "the folder of job 1"];
    like.has(&like_it);
    let folder = like.body.split("name=\"snapshot\" value=\"").nth(1).and_then(|rest| rest.split('"').next());
    let again = format!("key=k2&source=folder&snapshot={}&command=script.sh+x", folder.expect("a hash"));
    browser.act("/submit", "/submit", &again).has(&["Job 2 was submitted."]);
    cluster.wait_for_state("2", "failed");

    for (form, part) in [
        ("key=k3&source=script&script=+", "script is empty"),
        ("key=k3&source=folder&command=main.py", "choose a folder"),
        (&format!("key=k3&source=folder&command=a&snapshot={}", "0".repeat(64)), "folder"),
        (&form.replace("memory=16M", "memory=lots").replace("k1", "k3"), "memory"),
    ] {
        let refused = browser.post("/submit", "/submit", form);
        assert!((400..500).contains(&refused.status), "{form}: {}", refused.status);
        refused.has(&["role=\"alert\">", part]);
    }
}

#[test]
fn hostile_folders_and_foreign_uploads_are_refused() {
    let cluster = Cluster::up(HOSTLER, SMALL);
    let browser = Browser::new(&cluster);
    let page = browser.page("/submit").body;
    let token = page.split("name=\"token\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a token");
    for (list, part) in [
        (r#"[{"path": "../out"}]"#, ".."),
        (r#"[{"path": "/etc/passwd"}]"#, "path"),
        (r#"[{"path": "a//b"}]"#, "path"),
        (r#"[{"path": ""}]"#, "path"),
        (r#"[{"path": "a\u0000b"}]"#, "path"),
        (r#"[{"path": "a"}, {"path": "a/b"}]"#, "parent is not listed"),
        (r#"[{"path": "link", "target": "../../etc"}]"#, "leads out of the folder"),
        (r#"[{"path": "link", "target": "/etc"}]"#, "leads out of the folder"),
        (&format!(r#"[{{"path": "a", "chunks": [["{}", 5]]}}]"#, "7".repeat(64)), "chunk"),
        (r#"[{"path": 5}]"#, "cannot be read"),
        ("[", "cannot be read"),
    ] {
        let refused = browser.upload("/submit/folder", token, list);
        assert!((400..500).contains(&refused.status), "{list}: {} {}", refused.status, refused.body);
        refused.has(&[part]);
    }
    assert_eq!(browser.upload("/submit/folder", token, r#"[{"path": "<img src=x>"}]"#).status, 200);
    for path in ["/submit/folder", "/submit/chunks", "/submit/missing"] {
        for foul in ["", "0", &"0".repeat(64)] {
            assert_eq!(browser.upload(path, foul, "[]").status, 403, "{path} {foul}");
        }
    }
    assert_eq!(browser.upload("/submit/chunks", token, "this is no pack of chunks, but a longer text").status, 422);
}

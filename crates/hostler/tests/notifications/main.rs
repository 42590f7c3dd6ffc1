//! Notifications on a live cluster: a webhook receiver that is slow, down or hostile, and a mail server that is away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_testkit::{
    Cluster, RealCluster, Running, Size, end, fill_disk, free_port, mount_for_this_thread, program, wait_until,
};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/notifications/receiver.py");

/// Short delays, so that tests wait for conditions and not for retries.
const DELIVERY: &str = "[delivery]\nretry = [\"500ms\", \"500ms\", \"500ms\", \"500ms\", \"500ms\", \"500ms\"]\n\
    digest_first = \"500ms\"\ndigest = \"2s\"\ntimeout = \"20s\"\n";

/// A webhook receiver.
struct Receiver {
    folder: PathBuf,
    port: u16,
    _process: Running,
}

impl Receiver {
    fn start(cluster: &RealCluster, name: &str, answer: &str) -> Self {
        let folder = cluster.home.path(name);
        fs::create_dir_all(&folder).expect("the home is writable");
        fs::write(folder.join("answer"), answer).expect("the home is writable");
        let mut command = python();
        command.args([SCRIPT, "http"]).arg(&folder);
        let process = Running::start(&mut command, &folder.join("log"));
        let port = || fs::read_to_string(folder.join("port")).ok()?.parse().ok();
        let port = wait_until("the receiver to listen", 30, port);
        Self { folder, port, _process: process }
    }

    fn answer(&self, answer: &str) {
        let new = self.folder.join("answer.new");
        fs::write(&new, answer).expect("the home is writable");
        fs::rename(new, self.folder.join("answer")).expect("the home is writable");
    }

    fn requests(&self) -> Vec<Value> {
        lines(&self.folder.join("requests"))
    }

    /// Waits until there are this many requests.
    fn wait_for(&self, count: usize) -> Vec<Value> {
        wait_until(&format!("{count} requests"), 60, || Some(self.requests()).filter(|all| all.len() >= count))
    }

    fn webhook(&self, name: &str) -> String {
        format!(
            "[destinations.{name}]\nkind = \"webhook\"\nurl = \"http://127.0.0.1:{}/hook?token=hidden\"\n\
             secrets = [\"whsec_MDEyMzQ1Njc4OWFiY2RlZg==\"]\nallow_private = true\n",
            self.port
        )
    }
}

fn python() -> Command {
    Command::new(program("python3", "install Python"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Writes `notify.toml`, and waits until the head has read it.
fn configure(cluster: &RealCluster, text: &str) {
    let path = cluster.home.write("head/notify.new", text);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the test owns the file");
    fs::rename(path, cluster.home.path("head/notify.toml")).expect("the home is writable");
    let expected = text.matches("[destinations.").count();
    wait_until("the head to read notify.toml", 30, || {
        let view = cluster.json(&["configure", "notify", "list"]);
        let is_read = view["destinations"].as_array()?.len() == expected && view["trouble"].is_null();
        is_read.then_some(())
    });
}

fn run(cluster: &RealCluster, notify: &[&str], name: &str, command: &str) -> String {
    let mut arguments = vec!["run", "--detach", "-c", "1", "-m", "16M", "--name", name];
    notify.iter().for_each(|to| arguments.extend(["--notify", to]));
    arguments.extend(["--", "sh", "-c", command]);
    cluster.ok(&arguments)
}

fn dead_letters(cluster: &RealCluster, count: usize) -> Vec<Value> {
    wait_until("messages to be given up", 60, || {
        let view = cluster.json(&["configure", "notify", "list"]);
        view["dead_letters"].as_array().filter(|all| all.len() == count).cloned()
    })
}

#[test]
fn webhook_reports_start_and_failure_of_a_job() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let receiver = Receiver::start(&cluster, "receiver", "200");
    configure(&cluster, &format!("{DELIVERY}{}", receiver.webhook("lab")));

    let refusal = cluster.fails(&["run", "--detach", "--notify", "pager", "--", "true"]);
    assert!(refusal.contains("there is no destination pager; destinations: lab"), "{refusal}");

    let refusal = cluster.fails(&["configure", "notify", "test", "pager"]);
    let named =
        "there is no destination pager; destinations: lab; the head reads changes of the file within a few seconds";
    assert!(refusal.contains(named), "{refusal}");

    let job = run(&cluster, &["lab=start,failure"], "train <b>", "exit 3");
    // A start and an end in quick succession may arrive together.
    let (requests, events) = wait_until("both events", 60, || {
        let requests = receiver.requests();
        let of = |request: &Value| request["body"]["data"]["events"].as_array().cloned().unwrap_or_default();
        let events: Vec<Value> = requests.iter().flat_map(of).collect();
        (events.len() == 2).then_some((requests, events))
    });
    for request in &requests {
        assert_eq!((&request["signed"], &request["path"]), (&Value::Bool(true), &"/hook?token=hidden".into()));
        assert!(request["age"].as_f64().expect("a number") < 60.0, "{request}");
    }
    let (start, failure) = (&events[0], &events[1]);
    assert_eq!((&start["event"], &start["name"]), (&"start".into(), &"train <b>".into()));
    assert_eq!((&failure["event"], &failure["exit_code"]), (&"failure".into(), &3.into()));
    assert_eq!(failure["job"].to_string(), job);
    let last = requests.last().expect("a request");
    let title = last["body"]["data"]["title"].as_str().expect("a title");
    assert!(title.contains(&format!("job {job} (train <b>) has failed with exit code 3")), "{title}");
    assert!(cluster.ok(&["job", &job]).contains("lab=start,failure"));

    cluster.ok(&["configure", "notify", "test", "lab"]);
    let test = &receiver.wait_for(requests.len() + 1)[requests.len()];
    assert_eq!(test["body"]["data"]["events"][0]["kind"], "test");
    let list = cluster.ok(&["configure", "notify", "list"]);
    assert!(list.contains("lab") && !list.contains("hidden") && !cluster.log("head").contains("hidden"), "{list}");
    assert_eq!(cluster.json(&["configure", "notify", "list"])["destinations"][0]["waiting"], 0);
    end(agent);
}

#[test]
fn message_is_sent_again_with_the_same_id_after_the_head_was_killed() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let receiver = Receiver::start(&cluster, "receiver", "hold");
    let other = Receiver::start(&cluster, "other", "200");
    configure(&cluster, &format!("{DELIVERY}{}{}", receiver.webhook("slow"), other.webhook("fast")));
    run(&cluster, &["slow=failure", "fast=failure"], "one", "exit 1");
    let first = receiver.wait_for(1)[0]["id"].clone();
    assert_eq!(other.wait_for(1).len(), 1, "a receiver that does not answer delays no other");
    wait_until("the delivery to be stored", 30, || {
        let view = cluster.json(&["configure", "notify", "list"]);
        let waiting = |name: &str| {
            let all = view["destinations"].as_array().expect("a list");
            all.iter().find(|it| it["name"] == name).map(|it| it["waiting"].clone())
        };
        (waiting("fast") == Some(0.into()) && waiting("slow") == Some(1.into())).then_some(())
    });
    cluster.kill_head();
    receiver.answer("200");
    cluster.run_head();
    let requests = receiver.wait_for(2);
    assert_eq!(requests[1]["id"], first);
    assert_eq!(requests[1]["body"]["data"]["events"], requests[0]["body"]["data"]["events"]);
    assert_eq!(other.requests().len(), 1, "the delivered message was deleted");
    end(agent);
}

#[test]
fn failing_receivers_are_retried_and_then_shown_as_dead_letters() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let internal = Receiver::start(&cluster, "internal", "200");
    let receiver = Receiver::start(&cluster, "receiver", "500");
    configure(&cluster, &format!("{DELIVERY}{}", receiver.webhook("lab")));

    run(&cluster, &["lab=failure"], "one", "exit 1");
    let requests = receiver.wait_for(2);
    assert_eq!(requests[0]["id"], requests[1]["id"], "a retry has the same id");
    let dead = dead_letters(&cluster, 1);
    assert_eq!((&dead[0]["why"], &dead[0]["to"]), (&"the receiver answered 500".into(), &"lab".into()));
    assert_eq!(receiver.requests().len(), 7, "one attempt and six retries");
    let info = cluster.ok(&["info"]);
    assert!(info.contains("1 notification could not be delivered"), "{info}");
    cluster.kill_head();
    cluster.run_head();
    dead_letters(&cluster, 1);

    // A redirect is not followed.
    receiver.answer(&format!("302\nlocation: http://127.0.0.1:{}/secret", internal.port));
    let refusal = cluster.fails(&["configure", "notify", "test", "lab"]);
    assert!(refusal.contains("302: the head follows no redirects"), "{refusal}");
    assert_eq!(internal.requests().len(), 0);

    receiver.answer("200");
    cluster.ok(&["configure", "notify", "retry"]);
    dead_letters(&cluster, 0);
    let last = receiver.requests().pop().expect("requests");
    assert_eq!(last["id"], requests[0]["id"]);
    assert!(!cluster.ok(&["info"]).contains("could not be delivered"));

    // The receiver asks for a pause that is longer than the retry delay.
    receiver.answer("503\nretry-after: 3");
    let before = receiver.requests().len();
    run(&cluster, &["lab=failure"], "two", "exit 1");
    receiver.wait_for(before + 1);
    receiver.answer("200");
    let requests = receiver.wait_for(before + 2);
    let at = |index: usize| requests[index]["at"].as_f64().expect("a time");
    assert!(at(before + 1) - at(before) >= 3.0, "{}", at(before + 1) - at(before));

    // A receiver that is gone gets nothing more.
    receiver.answer("410");
    run(&cluster, &["lab=failure"], "three", "exit 1");
    let dead = dead_letters(&cluster, 1);
    assert!(dead[0]["why"].as_str().expect("text").contains("410"), "{dead:?}");
    let view = cluster.json(&["configure", "notify", "list"]);
    assert_eq!(view["destinations"][0]["disabled"], true);
    cluster.ok(&["configure", "notify", "clear"]);
    dead_letters(&cluster, 0);
    end(agent);
}

#[test]
fn internal_addresses_and_open_files_are_refused() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let receiver = Receiver::start(&cluster, "receiver", "200");
    // The listening port and a port without a listener give the same error.
    let url = |port: u16| format!("url = \"https://127.0.0.1:{port}/\"\nsecrets = [\"0123456789abcdef\"]\n");
    let closed = free_port();
    configure(
        &cluster,
        &format!(
            "[destinations.open]\nkind = \"webhook\"\n{}[destinations.closed]\nkind = \"webhook\"\n{}",
            url(receiver.port),
            url(closed)
        ),
    );
    for name in ["open", "closed"] {
        let refusal = cluster.fails(&["configure", "notify", "test", name]);
        assert!(refusal.contains(&format!("destination {name}: cannot connect to the receiver")), "{refusal}");
    }
    assert_eq!(receiver.requests().len(), 0);

    let path = cluster.home.path("head/notify.toml");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the test owns the file");
    wait_until("the head to refuse the file", 30, || cluster.ok(&["info"]).contains("chmod 600").then_some(()));
    end(agent);
}

#[test]
fn mail_arrives_when_the_server_is_back_and_endings_are_digested() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let port = free_port();
    let mail = format!(
        "[destinations.mail]\nkind = \"mail\"\nserver = \"127.0.0.1\"\nport = {port}\nsecurity = \"none\"\n\
         from = \"hostler@example.org\"\ndomains = [\"example.org\"]\nallow_private = true\n"
    );
    // Enough retries for the time without a server.
    let delivery = DELIVERY.replace("retry = [", &format!("retry = [{}", "\"500ms\", ".repeat(60)));
    configure(&cluster, &format!("{delivery}{mail}"));

    let refusal = cluster.fails(&["run", "--detach", "--notify", "mail:ada@example.com", "--", "true"]);
    assert!(refusal.contains("only addresses at example.org"), "{refusal}");

    let to = ["mail:ada@example.org"];
    let jobs = ["a\u{202e}b", "<!channel>"].map(|name| run(&cluster, &to, name, "exit 3"));
    jobs.iter().for_each(|job| cluster.wait_for_job(job, "failed"));
    wait_until("a delivery to fail", 60, || {
        let view = cluster.json(&["configure", "notify", "list"]);
        (view["destinations"][0]["fault"] == "cannot connect to the receiver").then_some(())
    });

    let folder = cluster.home.path("mailbox");
    fs::create_dir_all(&folder).expect("the home is writable");
    let mut command = python();
    command.args([SCRIPT, "smtp"]).arg(&folder).arg(port.to_string());
    let _server = Running::start(&mut command, &folder.join("log"));
    let text = |mails: &[Value]| mails.iter().map(|mail| mail["text"].as_str().unwrap_or_default()).collect::<String>();
    let mails = wait_until("mail about both jobs", 60, || {
        let mails = lines(&folder.join("mails"));
        jobs.iter().all(|job| text(&mails).contains(&format!("job {job} ("))).then_some(mails)
    });
    assert_eq!((&mails[0]["to"][0], &mails[0]["from"]), (&"ada@example.org".into(), &"hostler@example.org".into()));
    assert!(text(&mails).contains("has failed with exit code 3"), "{mails:?}");
    assert!(!text(&mails).contains('\u{202e}'), "{mails:?}");

    // Later endings wait for the window, and arrive together.
    let count = mails.len();
    let jobs = ["c", "d", "e"].map(|name| run(&cluster, &to, name, "true"));
    let mails = wait_until("a digest", 60, || {
        let mails = lines(&folder.join("mails"));
        jobs.iter().all(|job| text(&mails[count..]).contains(&format!("job {job} ("))).then_some(mails)
    });
    assert!(mails.len() - count < jobs.len(), "{:?}", &mails[count..]);

    // The server knows no such user: no retry can succeed.
    run(&cluster, &["mail:nobody@example.org"], "f", "true");
    assert_eq!(dead_letters(&cluster, 1)[0]["why"], "the mail server answered 550");
    end(agent);
}

#[test]
fn mail_and_password_are_sent_only_over_a_trusted_encrypted_connection() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let home = &cluster.home;
    let certificate = |name: &str| {
        let [pem, key] = ["pem", "key"].map(|end| home.path(&format!("{name}.{end}")).display().to_string());
        let made = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "30",
            ])
            .args(["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"])
            .args(["-addext", "basicConstraints=critical,CA:FALSE", "-keyout", &key, "-out", &pem])
            .output()
            .expect("openssl is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        [pem, key]
    };
    let (own, foreign) = (certificate("own"), certificate("foreign"));
    // Servers with a trusted certificate, with another one, and without encryption.
    let mut servers = Vec::new();
    let mut destinations = String::new();
    for (name, certificate) in [("good", Some(&own)), ("foreign", Some(&foreign)), ("plain", None)] {
        let (port, folder) = (free_port(), home.path(&format!("mailbox-{name}")));
        fs::create_dir_all(&folder).expect("the home is writable");
        let mut command = python();
        command.args([SCRIPT, "smtp"]).arg(&folder).arg(port.to_string()).args(certificate.into_iter().flatten());
        servers.push(Running::start(&mut command, &folder.join("log")));
        wait_until("the server to listen", 30, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        destinations += &format!(
            "[destinations.{name}]\nkind = \"mail\"\nserver = \"127.0.0.1\"\nport = {port}\nsecurity = \"starttls\"\n\
             user = \"hostler\"\npassword = \"correct horse\"\nca = \"{}\"\nfrom = \"hostler@example.org\"\n\
             domains = [\"example.org\"]\nallow_private = true\n",
            own[0]
        );
    }
    configure(&cluster, &format!("{DELIVERY}{destinations}"));
    run(&cluster, &["good:ada@example.org"], "a", "true");
    let mails =
        wait_until("the mail", 60, || Some(lines(&home.path("mailbox-good/mails"))).filter(|it| !it.is_empty()));
    assert_eq!(mails[0]["to"][0], "ada@example.org");
    let commands = |name: &str| lines(&home.path(&format!("mailbox-{name}/commands")));
    let verbs = |name: &str, is_encrypted: bool| -> Vec<String> {
        let sent = commands(name).into_iter().filter(|it| it["encrypted"] == is_encrypted);
        sent.filter_map(|it| it["line"].as_str()?.split(' ').next().map(str::to_owned)).collect()
    };
    assert_eq!(verbs("good", false), ["EHLO", "STARTTLS"]);
    assert_eq!(verbs("good", true)[..3], ["EHLO", "AUTH", "MAIL"]);

    for name in ["foreign", "plain"] {
        run(&cluster, &[&format!("{name}:ada@example.org")], "b", "true");
        wait_until("the delivery to fail", 60, || {
            let view = cluster.json(&["configure", "notify", "list"]);
            let all = view["destinations"].as_array().cloned().unwrap_or_default();
            all.into_iter().find(|it| it["name"] == name && it["fault"].is_string())
        });
        assert!(!home.path(&format!("mailbox-{name}/mails")).exists());
        let sent = commands(name);
        let is_harmless = |line: &str| ["EHLO", "STARTTLS", "QUIT"].iter().any(|verb| line.starts_with(verb));
        assert!(sent.iter().all(|it| it["line"].as_str().is_some_and(is_harmless)), "{name}: {sent:?}");
    }
    drop(servers);
    end(agent);
}

#[test]
fn operators_learn_that_a_node_is_down_and_back() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let receiver = Receiver::start(&cluster, "receiver", "200");
    configure(&cluster, &format!("operators = [\"lab\"]\n{DELIVERY}{}", receiver.webhook("lab")));
    end(agent);
    let event = |count: usize| receiver.wait_for(count)[count - 1]["body"]["data"]["events"][0].clone();
    let down = event(1);
    assert_eq!((&down["kind"], &down["node"]), (&"node_down".into(), &"n1".into()));
    cluster.wait_for_log("head", "node is down node=n1\n");
    let agent = cluster.run_agent("n1");
    cluster.wait_for_log("head", "node is back node=n1\n");
    let back = event(2);
    assert_eq!((&back["kind"], &back["node"]), (&"node_back".into(), &"n1".into()));
    end(agent);
}

#[test]
fn operators_learn_that_the_heads_disk_is_nearly_full_and_has_space_again() {
    const DISK: u64 = 64 << 20;
    let cluster = RealCluster::start(HOSTLER);
    cluster.kill_head();
    // The head's directory moves to a small disk. Only this thread and the new head see it.
    let (directory, copy) = (cluster.home.path("head"), cluster.home.path("copy"));
    fs::rename(&directory, &copy).expect("the home is writable");
    fs::create_dir(&directory).expect("the home is writable");
    mount_for_this_thread(&directory, DISK);
    let copied = Command::new("cp").arg("-a").arg(copy.join(".")).arg(&directory).status();
    assert!(copied.expect("cp is installed").success());
    cluster.run_head();
    let receiver = Receiver::start(&cluster, "receiver", "200");
    configure(&cluster, &format!("operators = [\"lab\"]\n{DELIVERY}{}", receiver.webhook("lab")));
    let ballast = directory.join("ballast");
    let wait_for = |is_over: bool| {
        wait_until("an alert", 90, || {
            let bodies = receiver.requests().into_iter().map(|request| request["body"]["data"].clone());
            let mut events = bodies.flat_map(|data| data["events"].as_array().cloned().unwrap_or_default());
            events.find(|event| event["alert"] == "disk_nearly_full" && event["text"].is_null() == is_over)
        })
    };
    // Twice the space that the head keeps free is 6.4 MiB here.
    fill_disk(&ballast, 5 << 20);
    let alert = wait_for(false);
    assert!(alert["text"].as_str().is_some_and(|text| text.contains("refuses uploads and submissions")), "{alert}");
    fs::remove_file(&ballast).expect("the test owns the file");
    wait_for(true);
}

#[test]
fn chats_get_their_own_shapes() {
    let cluster = RealCluster::start(HOSTLER);
    let agent = cluster.add_node("n1");
    let receiver = Receiver::start(&cluster, "receiver", "200");
    let url = format!("http://127.0.0.1:{}", receiver.port);
    let chats = format!(
        "{DELIVERY}[destinations.slack]\nkind = \"slack\"\nurl = \"{url}/slack\"\nallow_private = true\n\
         [destinations.ntfy]\nkind = \"ntfy\"\nurl = \"{url}/\"\ntopic = \"topic\"\nallow_private = true\n\
         [destinations.matrix]\nkind = \"matrix\"\nhomeserver = \"{url}\"\nroom = \"!r:x\"\ntoken = \"t\"\nallow_private = true\n"
    );
    configure(&cluster, &chats);
    run(&cluster, &["slack", "ntfy", "matrix"], "<!channel> @room", "true");
    let requests = receiver.wait_for(3);
    let of = |path: &str| requests.iter().find(|it| it["path"].as_str().is_some_and(|it| it.starts_with(path)));
    let slack = &of("/slack").expect("a message to Slack")["body"];
    assert!(slack["text"].as_str().is_some_and(|text| text.contains("(&lt;!channel&gt; @room)")), "{slack}");
    let matrix = of("/_matrix/client/v3/rooms/%21r%3Ax/send/m.room.message/").expect("a message to Matrix");
    assert_eq!((&matrix["method"], &matrix["body"]["msgtype"]), (&"PUT".into(), &"m.notice".into()));
    let ntfy = requests.iter().find(|it| it["path"] == "/").expect("a message to ntfy");
    assert_eq!(ntfy["body"]["topic"], "topic");
    end(agent);
}

#[test]
fn desktop_shows_how_a_followed_job_ended() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    cluster.write("project/main.sh", "echo trained; exit 3\n");
    let desktop = cluster.write(
        "bin/notify-send",
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$HOME/shown.new\"\nmv \"$HOME/shown.new\" \"$HOME/shown\"\n",
    );
    fs::set_permissions(&desktop, fs::Permissions::from_mode(0o755)).expect("the test owns the file");
    let on_terminal = |arguments: &str| {
        // Variables of the cluster; the program finds the desktop's command on the path.
        let environment = cluster.command(&[]);
        let variables = environment.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let path = format!("{}:/usr/bin:/bin", cluster.path("bin").display());
        let mut command = Command::new(program("script", "install Debian's package bsdutils"));
        command.env_clear().envs(variables).env("PATH", path).env("DISPLAY", ":0");
        let line = format!("{HOSTLER} {arguments}");
        let output = command.args(["-qec", &line, "/dev/null"]).current_dir(cluster.home()).output();
        String::from_utf8_lossy(&output.expect("script runs").stdout).into_owned()
    };
    let said = on_terminal("submit project main.sh -m 16M --name 'a<b>' --follow --bell --to results");
    assert!(said.contains("trained") && said.contains("\u{7}\u{1b}]9;job "), "{said:?}");
    let shown = wait_until("the desktop's command", 30, || fs::read_to_string(cluster.path("shown")).ok());
    let last = shown.lines().last().expect("a line");
    assert!(last.starts_with("job ") && last.contains("(a<b>)") && last.contains("exit code 3"), "{shown}");
    cluster.write("project/slow.sh", "sleep 2\n");
    let said = on_terminal("submit project slow.sh -m 16M --wait");
    assert!(said.contains("\njob 2: "), "a person who waits sees what the job does: {said}");
}

//! The tools of the Python cluster manager, with the example of its authors: four compute nodes of 2 CPUs and 512 MB,
//! and jobs of two users on two nodes each.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use hostler_testkit::{Cluster, Size, kill, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Exit code, stdout and stderr of a command.
type Said = (i32, String, String);

fn said(output: &Output) -> Said {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A head and compute nodes, set up by hand, with the tools in a directory that all users can reach.
struct Machines {
    home: Cluster,
    daemons: Vec<Child>,
}

impl Machines {
    fn start(nodes: u32) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this test becomes other users: run it as root");
        let home = Cluster::none(HOSTLER);
        let mut machines = Self { home, daemons: Vec::new() };
        open_to_all(machines.home.home());
        let program = machines.home.write("bin/hostler", "");
        fs::copy(HOSTLER, &program).expect("there is room for the executable");
        let bin = machines.home.path("bin");
        open_to_all(&bin);
        machines.ok("root", "hostler", &["shims", &bin.display().to_string(), "--relative"]);
        machines.start_head();
        // The users of the tests are accounts that every Debian has.
        machines.ok("root", "hostler", &["configure", "setting", "system-accounts", "yes"]);
        (1..=nodes).for_each(|number| machines.start_node(number));
        machines
    }

    fn socket(&self) -> PathBuf {
        // Users of the tests cannot enter `run`.
        self.home.path("head.sock")
    }

    fn start_head(&mut self) {
        let (directory, socket) = (self.home.path("head"), self.socket());
        let mut command = self.tool("root", "cmdaemon");
        command.arg("--head").arg("--directory").arg(&directory).arg("--socket").arg(&socket);
        command.args(["--listen", "127.0.0.1:0"]);
        self.start_daemon(command, "head.log");
        wait_until("the head to be ready", 30, || directory.join("head.json").exists().then_some(()));
    }

    fn start_node(&mut self, number: u32) {
        let name = format!("n{number}");
        let code = self.home.write(&format!("{name}.code"), self.ok("root", "hostler", &["node", "invite", &name]));
        let mut command = self.tool("root", "cmdaemon");
        command.args(["--compute", "--name", &name, "--cpus", "0-1", "--memory", "512M"]);
        command.arg("--directory").arg(self.home.path(&name)).arg("--join-file").arg(code);
        command.arg("--head-file").arg(self.home.path("head/head.json"));
        self.start_daemon(command, &format!("{name}.log"));
    }

    fn start_daemon(&mut self, mut command: Command, log: &str) {
        fs::create_dir_all(self.home.path("state")).expect("the home is ours");
        let log = fs::File::create(self.home.path("state").join(log)).expect("the home is ours");
        self.daemons.push(command.stdout(Stdio::null()).stderr(log).spawn().expect("the daemon can be started"));
    }

    /// One of the tools, to be run by `user` in the directory that all users share.
    fn tool(&self, user: &str, name: &str) -> Command {
        let mut command = Command::new("setpriv");
        let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
        command.args([&uid, &gid, "--clear-groups"]).arg(self.home.path("bin").join(name));
        let directory = self.home.path("shared");
        fs::create_dir_all(&directory).expect("the home is ours");
        command
            .current_dir(&directory)
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("HOME", self.home.path("shared"))
            .env("HOSTLER_HEAD", format!("unix:{}", self.socket().display()))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, user: &str, tool: &str, arguments: &[&str]) -> Said {
        said(&self.tool(user, tool).args(arguments).output().expect("setpriv and the tool can be started"))
    }

    fn ok(&self, user: &str, tool: &str, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(user, tool, arguments);
        assert_eq!(code, 0, "{tool} {arguments:?} failed: {stderr}{}", self.home.logs());
        stdout.trim_end().to_owned()
    }

    /// The output of `cminfo` once `is_so` holds.
    fn info(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, 60, || {
            let text = self.ok("games", "cminfo", &["--json"]);
            Some(serde_json::from_str(&text).expect("JSON")).filter(&is_so)
        })
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // Nodes first: their shepherds remove the cgroups when the jobs have ended.
        for mut daemon in self.daemons.drain(..).rev() {
            hostler_testkit::kill(daemon.id(), Signal::SIGTERM);
            let _ = daemon.wait();
        }
    }
}

fn open_to_all(directory: &Path) {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).expect("the folder is ours");
}

/// Status, CPUs, memory in megabytes, free CPUs and free memory of a node.
fn row(node: &Value) -> (&str, u64, u64, u64, u64) {
    let number = |key: &str| node[key].as_u64().expect(key);
    let status = node["status"].as_str().expect("a status");
    (status, number("cpus"), number("memory_bytes") >> 20, number("cpus_free"), number("memory_free_bytes") >> 20)
}

fn rows(info: &Value) -> Vec<(&str, u64, u64, u64, u64)> {
    info["nodes"].as_array().expect("a list").iter().map(row).collect()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|name| name.as_str().expect("a name")).collect()
}

/// Whether exactly these jobs run or wait, in this order.
fn jobs_are(info: &Value, expected: &[(&str, &str)]) -> bool {
    let jobs = info["jobs"].as_array().expect("a list");
    jobs.len() == expected.len()
        && jobs.iter().zip(expected).all(|(job, (name, status))| job["name"] == *name && job["status"] == *status)
}

#[test]
fn example_of_the_original_tools_works() {
    const IDLE: (&str, u64, u64, u64, u64) = ("Idle", 2, 512, 2, 512);
    let machines = Machines::start(4);
    let before = machines.info("four nodes to be idle", |info| rows(info) == [IDLE; 4]);
    assert!(jobs_are(&before, &[]), "{before}");
    let (status, cpus, memory, cpus_free, memory_free) = row(&before["heads"][0]);
    assert!(
        status == "Up" && cpus > 0 && (cpus, memory) == (cpus_free, memory_free),
        "the head runs no jobs: {before}"
    );

    let waits = "#!/bin/sh\nuntil [ -e release ]; do sleep 0.05; done\n";
    for script in ["mini_scraper.sh", "mini_gpt_dist.sh"] {
        let path = machines.home.write(&format!("shared/{script}"), waits);
        fs::set_permissions(path, Permissions::from_mode(0o755)).expect("the test owns the file");
    }
    let two_nodes = ["-n", "2", "--num-cpus-per-node", "2", "--mem-per-node"];
    let scrape = [&["-a", "scrape"][..], &two_nodes, &["128", "./mini_scraper.sh", "-c"]].concat();
    let minig = [&["-a", "minig"][..], &two_nodes, &["256", "./mini_gpt_dist.sh", "2"]].concat();
    assert_eq!(machines.ok("games", "cmrun", &scrape), "1", "only the id is printed");
    assert_eq!(machines.ok("news", "cmrun", &minig), "2");
    let during = machines.info("both to run", |info| jobs_are(info, &[("scrape", "Running"), ("minig", "Running")]));
    let jobs = &during["jobs"];
    let (scraper, gpt) = (("games", "./mini_scraper.sh -c"), ("news", "./mini_gpt_dist.sh 2"));
    let commands = |jobs: &Value| {
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        [0, 1].map(|job| (text(&jobs[job]["user"]), text(&jobs[job]["command"])))
    };
    let owned = |(user, command): (&str, &str)| (user.to_owned(), command.to_owned());
    assert_eq!(
        commands(jobs),
        [owned(scraper), owned(("news", ""))],
        "a command line may hold secrets: only its user sees it"
    );
    let all: Value = serde_json::from_str(&machines.ok("root", "cminfo", &["--json"])).expect("JSON");
    assert_eq!(commands(&all["jobs"]), [owned(scraper), owned(gpt)], "and operators");
    for (job, memory_free) in [(&jobs[0], 384), (&jobs[1], 256)] {
        let nodes = names(&job["nodes"]);
        assert_eq!(nodes.len(), 2, "{during}");
        for node in during["nodes"]
            .as_array()
            .expect("a list")
            .iter()
            .filter(|node| nodes.contains(&node["node"].as_str().expect("a name")))
        {
            assert_eq!(row(node), ("InUse", 2, 512, 0, memory_free), "{during}");
        }
    }
    let mut free: Vec<u64> = rows(&during).into_iter().map(|row| row.4).collect();
    free.sort_unstable();
    assert_eq!(free, [256, 256, 384, 384]);
    let text = machines.ok("root", "cminfo", &[]);
    let used = |line: &str| line.split_whitespace().skip(1).collect::<Vec<_>>() == ["InUse", "2", "512", "0", "384"];
    assert_eq!(text.lines().filter(|line| used(line)).count(), 2, "{text}");
    assert!(text.contains("scrape  games  Running  ./mini_scraper.sh -c"), "{text}");

    // No resources are left for a third job, and users cannot cancel or configure what belongs to others.
    assert_eq!(machines.ok("games", "cmrun", &["hostname"]), "3");
    machines.info("the third to wait", |info| info["jobs"][2]["status"] == "Pending");
    let (code, _, stderr) = machines.run("news", "cmkill", &["1"]);
    assert!(code == 4 && stderr.contains("belongs to games"), "{code} {stderr}");
    let (code, _, stderr) = machines.run("games", "cmconfigure", &["setting", "grace", "1s"]);
    assert_eq!(code, 4, "{stderr}");
    machines.ok("games", "cmkill", &["3"]);
    machines.info("the third to be gone", |info| jobs_are(info, &[("scrape", "Running"), ("minig", "Running")]));

    machines.home.write("shared/release", "");
    machines.info("all to be as before", |info| rows(info) == [IDLE; 4] && jobs_are(info, &[]));
    assert_eq!(machines.ok("games", "hostler", &["job", "1", "--json"]).matches("\"state\":\"completed\"").count(), 4);
}

/// Runs a tool by a link to the executable in the cluster's home.
fn tool(cluster: &Cluster, name: &str, arguments: &[&str]) -> Said {
    let mut command = cluster.command(&[]);
    let link = cluster.path("bin").join(name);
    let environment: Vec<_> =
        command.get_envs().filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned()))).collect();
    command = Command::new(link);
    command.args(arguments).current_dir(cluster.home()).env_clear().envs(environment).stdin(Stdio::null());
    said(&command.output().expect("the link leads to the executable"))
}

#[test]
fn tools_work_on_an_embedded_cluster() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, cpus: 2, memory: "512M" });
    let bin = cluster.path("bin").display().to_string();
    let links = cluster.ok(&["shims", &bin]);
    assert_eq!(links.lines().count(), cluster.ok(&["shims", "--list"]).lines().count());

    // The tool waits for the job only with -w, and then exits with the job's exit code.
    assert_eq!(
        tool(&cluster, "cmrun", &["-w", "echo some output; exit 3"]),
        (3, "some output\n".into(), String::new())
    );
    let (code, stdout, stderr) = tool(&cluster, "cmrun", &["--wait", "-p", "2", "echo from $RANK"]);
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines), (0, vec!["from 0", "from 1"]), "{stderr}");
    let id = tool(&cluster, "cmrun", &["-t", "0.5", "sleep", "60"]).1;
    let id = id.trim();
    let job = cluster.json(&["job", id]);
    assert_eq!((&job["name"], &job["cpus"], &job["memory_bytes"]), (&"sleep".into(), &1.into(), &(100 << 20).into()));
    let limit = |job: &Value| {
        job["limits"].as_array().expect("a list").iter().any(|it| it["name"] == "time" && it["value"] == 1_800_000)
    };
    assert!(limit(&job), "{job}");
    assert_eq!(tool(&cluster, "cmkill", &[id]).0, 0);
    cluster.wait_for_state(id, "cancelled");
    assert_eq!(tool(&cluster, "cmrun", &["--gres", "1"]).0, 2);

    // Settings apply at once to values that users leave out, and persist.
    for (name, value) in
        [("default-nodes", "2"), ("default-memory", "64M"), ("heartbeat", "3s"), ("suspect-after", "5s")]
    {
        let (code, _, stderr) = tool(&cluster, "cmconfigure", &["setting", name, value]);
        assert_eq!((code, stderr.trim_end()), (0, format!("{name} is {value}").as_str()));
    }
    let (code, _, stderr) = tool(&cluster, "cmconfigure", &["setting", "suspect-after", "3s"]);
    assert!(code == 4 && stderr.contains("at least 1s more than heartbeat (3s)"), "{code} {stderr}");
    cluster.ok(&["down"]);
    cluster.start(Size { nodes: 2, cpus: 2, memory: "512M" });
    let outcome = cluster.run(&["run", "--", "sh", "-c", "echo ${WORLD_SIZE:-1}"]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "2\n2\n"), "{}", outcome.stderr);
    assert_eq!(
        cluster.ok(&["run", "-N", "1", "-m", "100M", "--", "sh", "-c", "echo ${WORLD_SIZE:-1}"]),
        "1",
        "given values are not changed"
    );
    let by = |name: &str| cluster.json(&["configure", "setting", name])["source"].clone();
    assert_eq!((by("default-nodes"), by("grace")), ("set".into(), "default".into()));
    assert_eq!(tool(&cluster, "cmconfigure", &["setting", "default-nodes", "--reset"]).0, 0);
    assert_eq!(cluster.ok(&["run", "--", "sh", "-c", "echo ${WORLD_SIZE:-1}"]), "1");
    let (code, stdout, _) = tool(&cluster, "cmconfigure", &["node", "list", "--quiet"]);
    assert_eq!((code, stdout.as_str()), (0, "n1\nn2\n"));
}

#[test]
fn job_is_unknown_while_its_node_is_silent() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    cluster.ok(&["shims", &cluster.path("bin").display().to_string()]);
    for (setting, time) in [("heartbeat", "1s"), ("suspect-after", "3s"), ("down-after", "4s"), ("lost-after", "20s")] {
        cluster.ok(&["configure", "setting", setting, time]);
    }
    let id = cluster.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "600"]);
    cluster.wait_for_state(&id, "running");
    let status = || tool(&cluster, "cminfo", &["--json"]);
    let is = |word: &str| status().1.contains(&format!("\"status\":\"{word}\",\"command\"")).then_some(());
    let agent = cluster.agent_pids()[0];

    kill(agent, Signal::SIGSTOP);
    wait_until("cminfo to show the state Unknown", 30, || is("Unknown"));
    assert!(cluster.ok(&["jobs"]).contains(" unknown "), "{}", cluster.ok(&["jobs"]));
    assert!(cluster.ok(&["job", &id]).contains("state      unknown on n1"), "{}", cluster.ok(&["job", &id]));
    let job = cluster.json(&["job", &id]);
    assert_eq!(job["state"], "running", "the stored state does not change");
    assert!(job["node_problem"].as_str().is_some_and(|problem| problem.starts_with("n1 silent for ")), "{job}");
    kill(agent, Signal::SIGCONT);
    wait_until("the node to return", 30, || is("Running"));

    kill(agent, Signal::SIGSTOP);
    wait_until("the node to be silent again", 30, || is("Unknown"));
    cluster.wait_for_state(&id, "node_fail");
    assert!(cluster.ok(&["jobs", "--all"]).contains(" node_fail "), "{}", cluster.ok(&["jobs", "--all"]));
    kill(agent, Signal::SIGCONT);
}

#[test]
fn yaml_of_the_original_tools_is_imported() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, ..Size::default() });
    let yaml = "daemon_port: 5001\ndefault_mem_per_node: 100\ndefault_time_limit: 2\nhue: 7\n";
    let file = cluster.write("defaults.yaml", yaml);
    let import = |more: &[&str]| cluster.run(&[&["import", "cm", file.to_str().expect("a text")], more].concat());
    let changes = "hostler configure setting default-memory 100M\nhostler configure setting default-time-limit 7200s\n";
    let dry = import(&["--dry-run"]);
    assert_eq!((dry.code, dry.stdout.as_str()), (0, changes), "{dry:?}");
    assert!(
        dry.stderr.contains("not taken over: hue: unknown key") && dry.stderr.contains("nothing was changed"),
        "{dry:?}"
    );
    let made = import(&[]);
    assert!(made.stdout == changes && made.stderr.contains("2 changes made"), "{made:?}");
    let again = import(&[]);
    assert!(again.stdout.is_empty() && again.stderr.contains("nothing to change"), "{again:?}");
    let id = cluster.ok(&["run", "--detach", "--", "sleep", "600"]);
    assert_eq!(cluster.json(&["job", &id])["time_limit_ms"], 7_200_000);

    cluster.write("defaults.yaml", "default_mem_per_node: plenty\ndefault_time_limit: 3\n");
    let wrong = import(&[]);
    assert!(wrong.code == 2 && wrong.stderr.contains("line 1: default_mem_per_node is `plenty`"), "{wrong:?}");
    cluster.write("defaults.yaml", yaml);
    assert!(import(&[]).stderr.contains("nothing to change"), "the mistake changed nothing");
    let none = cluster.run(&["import", "cm", "missing.yaml"]);
    assert!(none.code != 0 && none.stderr.contains("cannot read missing.yaml"), "{none:?}");
}

//! A real cluster, set up by the documented commands: invite, join, drain, resume and remove nodes.

use std::fs;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Command;

use hostler_testkit::{Cluster, RealCluster, end, is_alive, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

#[test]
fn cluster_can_be_set_up_and_nodes_drained_and_removed() {
    let real = RealCluster::start(HOSTLER);
    let again = real.home.run(&["head", "init", "--directory", &real.path("head")]);
    assert_eq!(again.code, 0, "a second call changes nothing: {again:?}");
    let other = real.home.fails(&["head", "init", "--directory", &real.path("head"), "--advertise", "elsewhere"]);
    assert!(other.contains("exists and contradicts the flags"), "{other}");

    let agent = real.add_node("n1");
    let node = real.json(&["node", "show", "n1"]);
    assert!(node["cpus"].as_u64() > Some(0) && node["memory_bytes"].as_u64() > Some(64 << 20), "discovered: {node}");
    let discovered = real.home.json(&["node", "discover"]);
    assert_eq!(node["memory_bytes"], discovered["memory"]["usable_bytes"], "the node offers the discovered memory");
    assert!(node["certificate"]["life_ms"].as_u64() > Some(0), "{node}");
    assert_eq!(real.ok(&["run", "-m", "16M", "--", "echo", "hello"]), "hello");

    // On a drained node, running jobs finish, and new jobs wait with a reason.
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", real.path("release"));
    let running = real.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &script]);
    real.wait_for_job(&running, "running");
    real.ok(&["node", "drain", "n1", "--reason", "new disk"]);
    real.wait_for_node("n1", "draining");
    let waiting = real.ok(&["run", "--detach", "-m", "16M", "--", "true"]);
    let why = real.ok(&["why", &waiting]);
    assert!(why.contains("drained: n1") && why.contains("new disk"), "{why}");
    real.home.write("release", "");
    real.wait_for_job(&running, "completed");
    real.wait_for_node("n1", "drained");
    let shown = real.ok(&["node", "show", "n1"]);
    assert!(shown.contains("drained") && shown.contains("new disk"), "{shown}");
    assert_eq!(real.json(&["job", &waiting])["state"], "pending");
    real.ok(&["node", "resume", "n1"]);
    real.wait_for_job(&waiting, "completed");

    // When a node is removed, its connection closes, its task ends, and the node cannot connect again.
    let lost = real.ok(&["run", "--detach", "-m", "16M", "--", "sleep", "1000"]);
    real.wait_for_job(&lost, "running");
    let refusal = real.fails(&["node", "remove", "n1"]);
    assert!(refusal.contains("--yes"), "stdin is not a terminal: {refusal}");
    real.ok(&["node", "remove", "n1", "--yes"]);
    real.wait_for_job(&lost, "node_fail");
    assert_eq!(real.json(&["nodes"]), Value::Array(Vec::new()));
    real.wait_for_log("n1", "has removed node n1 from the cluster");
    real.wait_for_log("n1", "it was removed");
    end(agent);

    // After a new invitation, n1 is an ordinary node without the old task.
    let agent = real.add_node("n1");
    assert_eq!(real.ok(&["run", "-m", "16M", "--", "echo", "again"]), "again");
    end(agent);
}

#[test]
fn missing_cluster_error_explains_how_to_start_one() {
    let home = Cluster::none(HOSTLER);
    let said = home.fails(&["jobs"]);
    assert!(said.contains("hostler up") && said.contains("hostler head init"), "{said}");
    let said =
        home.fails(&["head", "run", "--directory", &home.path("nowhere/head").display().to_string(), "--listen", "x"]);
    assert!(said.contains("--listen"), "{said}");
}

#[test]
fn join_codes_are_valid_once_and_for_one_name() {
    let real = RealCluster::start(HOSTLER);
    let code = real.ok(&["node", "invite"]);
    assert!(code.starts_with("hostler1-") && !code.contains(char::is_whitespace), "only the code is printed: {code}");
    let joined = real.join("first", &code, &["--name", "first"], |_| {});
    assert!(joined.code == 0 && joined.stderr.contains("is node first of the cluster"), "{joined:?}");
    let used = real.join("second", &code, &["--name", "second"], |_| {});
    assert!(used.code != 0 && used.stderr.contains("is not valid for this machine"), "{used:?}");
    let for_other = real.ok(&["node", "invite", "third"]);
    let other = real.join("second", &for_other, &["--name", "second"], |_| {});
    assert_eq!((other.code, &other.stderr), (used.code, &used.stderr), "the error does not reveal what is wrong");
    let damaged = real.join("second", &code[..code.len() - 3], &[], |_| {});
    assert!(damaged.code != 0 && damaged.stderr.contains("is not a join code"), "{damaged:?}");
    let taken = real.join("second", &real.ok(&["node", "invite"]), &["--name", "first"], |_| {});
    assert!(taken.code != 0 && taken.stderr.contains("there is a node first already"), "{taken:?}");
    let homeless = real.home.fails(&["agent", "run", "--directory", &real.path("second")]);
    assert!(homeless.contains("has not joined a cluster yet"), "{homeless}");
}

#[test]
fn join_is_retried_and_a_running_agent_adopts_a_new_identity() {
    let real = RealCluster::start(HOSTLER);
    let head = real.json(&["info"])["head"]["address"].as_str().expect("an address").to_owned();
    // A proxy closes the first three connections, as a flooded head does.
    let way = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = way.local_addr().expect("the listener has an address").to_string();
    std::thread::spawn(move || {
        for stream in way.incoming().skip(3) {
            let near = stream.expect("a client connects");
            let far = TcpStream::connect(&head).expect("the head listens");
            for (mut from, mut to) in
                [(&near, &far), (&far, &near)].map(|(a, b)| (a.try_clone(), b.try_clone())).map(both)
            {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    let code = real.ok(&["node", "invite", "n1", "--address", &address]);
    let joined = real.join("n1", &code, &[], |_| {});
    assert!(joined.code == 0 && joined.stderr.contains("retrying"), "{joined:?}");
    assert!(joined.stderr.contains("next: `hostler agent run"), "{joined:?}");

    let agent = real.run_agent("n1");
    real.wait_for_node("n1", "up");
    let again = real.join("n1", &real.ok(&["node", "invite", "n1"]), &[], |_| {});
    assert!(again.code == 0 && again.stderr.contains("the running agent adopts the change"), "{again:?}");
    real.wait_for_log("n1", "this node has joined again");
    real.wait_for_node("n1", "up");
    assert_eq!(real.ok(&["run", "-m", "16M", "--", "echo", "it works"]), "it works");
    // A machine does not get another name while it has tasks. A removed node ends them at once.
    let pid = real.path("pid");
    let sleeps = format!("echo $$ > {pid}.new; mv {pid}.new {pid}; exec sleep 600");
    let job = real.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &sleeps]);
    let pid: u32 = wait_until("the pid", 30, || std::fs::read_to_string(&pid).ok()?.trim().parse().ok());
    let refused = real.join("n1", &real.ok(&["node", "invite", "n2"]), &[], |_| {});
    assert!(refused.code != 0 && refused.stderr.contains("is node n1 and has tasks"), "{refused:?}");
    real.ok(&["node", "remove", "n1", "--yes"]);
    wait_until("the task to end", 10, || (!is_alive(pid)).then_some(()));
    real.wait_for_job(&job, "node_fail");
    // Changes that a running agent cannot adopt are logged.
    let other = real.join("n1", &real.ok(&["node", "invite", "n2"]), &["--end-tasks"], |_| {});
    assert_eq!(other.code, 0, "{other:?}");
    real.wait_for_log("n1", "this node has joined again as n2, but this agent was started as n1: restart the agent");
    end(agent);
}

fn both<T>((from, to): (std::io::Result<T>, std::io::Result<T>)) -> (T, T) {
    (from.expect("a socket"), to.expect("a socket"))
}

#[test]
fn node_of_another_cluster_is_rejected_with_a_reason() {
    let (mine, theirs) = (RealCluster::start(HOSTLER), RealCluster::start(HOSTLER));
    end(theirs.add_node("n1"));
    // Send a node to the head of another cluster.
    let address = mine.json(&["info"])["head"]["address"].as_str().expect("an address").to_owned();
    fs::write(theirs.home.path("n1/identity/head"), &address).expect("the file exists");
    let agent = theirs.run_agent("n1");
    theirs.wait_for_log("n1", "belongs to a different cluster than this node, or its authority was replaced");
    let at_node = format!("unix:{}", theirs.path("n1/agent.sock"));
    let told = theirs.home.fails(&["--head", &at_node, "--wait-for-head", "0s", "jobs"]);
    assert!(told.contains("an admin must let the node join again"), "{told}");
    let authority = &theirs.json(&["info"])["head"]["authority"];
    let login = serde_json::json!({ "address": address, "authority": authority, "token": "of theirs" });
    theirs.home.write(&format!("config/hostler/logins/{}.json", address.replace(':', "_")), login.to_string());
    let told = theirs.home.fails(&["--head", &address, "jobs"]);
    assert!(told.contains(&format!("log in with `hostler login {address} --authority FINGERPRINT`")), "{told}");
    end(agent);
    // With this cluster's authority, the node trusts the head, but the head does not trust the node.
    end(mine.add_node("n1"));
    fs::copy(mine.home.path("n1/identity/authority.pem"), theirs.home.path("n1/identity/authority.pem"))
        .expect("the file exists");
    let agent = theirs.run_agent("n1");
    theirs.wait_for_log("n1", "does not accept this node's certificate");
    end(agent);
}

#[test]
fn node_with_a_wrong_clock_joins_and_works() {
    let real = RealCluster::start(HOSTLER);
    let library = build_clock_library(&real);
    for (node, years) in [("past", -30), ("future", 30)] {
        let offset = (i64::from(years) * 365 * 24 * 3600).to_string();
        let shifted = |command: &mut Command| {
            command.env("LD_PRELOAD", &library).env("CLOCK_OFFSET_SECS", &offset);
        };
        let joined = real.join(node, &real.ok(&["node", "invite", node]), &[], shifted);
        assert_eq!(joined.code, 0, "{joined:?}");
        let directory = real.path(node);
        let agent =
            real.daemon(&format!("{node}.log"), &["agent", "run", "--directory", &directory, "--root-jobs"], shifted);
        real.wait_for_node(node, "up");
        assert_eq!(real.ok(&["run", "-m", "16M", "--", "echo", "it works"]), "it works");
        // The times in the log prove that the test has shifted the clock.
        let log = real.log(node);
        let linked =
            log.lines().find(|line| line.contains("linked to the head")).expect("the log has a line about the link");
        let year: i32 = linked[..4].parse().expect("a line begins with a date");
        let now = year_now();
        assert!((year - now - years).abs() <= 1, "the node thinks it is {year}, and it is {now}");
        real.ok(&["node", "remove", node, "--yes"]);
        end(agent);
    }
}

fn year_now() -> i32 {
    let output = Command::new("date").arg("+%Y").output().expect("date is everywhere");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a year")
}

/// Builds a library that shifts the wall clock of a process by CLOCK_OFFSET_SECS.
fn build_clock_library(real: &RealCluster) -> String {
    let source = real.home.write(
        "clock.c",
        "#define _GNU_SOURCE\n#include <stdlib.h>\n#include <sys/syscall.h>\n#include <sys/time.h>\n#include <time.h>\n\
         #include <unistd.h>\n\
         static time_t off(void) { const char *t = getenv(\"CLOCK_OFFSET_SECS\"); return t ? atoll(t) : 0; }\n\
         int clock_gettime(clockid_t id, struct timespec *ts) {\n\
         \x20 long r = syscall(SYS_clock_gettime, id, ts);\n\
         \x20 if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) ts->tv_sec += off();\n\
         \x20 return (int)r;\n}\n\
         time_t time(time_t *t) { struct timespec ts; clock_gettime(CLOCK_REALTIME, &ts); if (t) *t = ts.tv_sec; return ts.tv_sec; }\n\
         int gettimeofday(struct timeval *tv, void *tz) { struct timespec ts; (void)tz; clock_gettime(CLOCK_REALTIME, &ts);\n\
         \x20 tv->tv_sec = ts.tv_sec; tv->tv_usec = ts.tv_nsec / 1000; return 0; }\n",
    );
    let library = real.path("clock.so");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &library]).arg(source).output();
    let built = built.expect("a C compiler is needed to build this project");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    library
}

#[test]
fn certificates_are_renewed_automatically() {
    let real = RealCluster::start(HOSTLER);
    let settings = real.home.path("head/head.toml");
    let text = fs::read_to_string(&settings).expect("init has written it");
    let text = text.replace("#certificate_life = \"365d\"", "certificate_life = \"12s\"");
    fs::write(&settings, text).expect("the file is writable");
    real.kill_head();
    real.run_head();
    let agent = real.add_node("n1");
    let credentials = || fs::read(real.home.path("n1/identity/credentials.pem")).expect("the node has joined");
    let first = credentials();
    let second = wait_until("a second certificate", 60, || Some(credentials()).filter(|now| *now != first));
    // The link stays open. New connections use the new key, and so does a restarted agent.
    assert_eq!(real.ok(&["run", "-m", "16M", "--", "echo", "renewed"]), "renewed");
    end(agent);
    let agent = real.run_agent("n1");
    wait_until("the new key to be used", 60, || {
        let certificate = &real.json(&["node", "show", "n1"])["certificate"];
        (certificate["is_being_renewed"] == false).then_some(())
    });
    real.wait_for_node("n1", "up");
    // Long after the first certificate would have expired, the node still works.
    wait_until("a third certificate", 60, || Some(credentials()).filter(|now| *now != second));
    assert_eq!(real.ok(&["run", "-m", "16M", "--", "echo", "still here"]), "still here");
    end(agent);
}

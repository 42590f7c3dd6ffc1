//! Adding and removing nodes, and nodes with more CPUs than the machine.

use std::fs;

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.ok(&["nodes", "--quiet"]).lines().map(str::to_owned).collect()
}

#[test]
fn nodes_of_an_earlier_larger_cluster_are_not_listed() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 3, ..Size::default() });
    let refusal = cluster.fails(&["node", "forget", "n3"]);
    assert!(refusal.contains("connected"), "{refusal}");
    let other = cluster.run(&["up", "--nodes", "1"]);
    assert_eq!(other.code, 2, "{other:?}");
    let words = ["already running with other sizes: 3 nodes with", "`hostler down`"];
    assert!(words.iter().all(|word| other.stderr.contains(word)), "{other:?}");
    for same in [&["up", "--nodes", "3"][..], &["up"]] {
        assert_eq!(cluster.run(same).code, 0);
    }
    assert_eq!(names(&cluster), ["n1", "n2", "n3"]);
    cluster.ok(&["down"]);
    assert!(!cluster.path("run/hostler").exists(), "`down` removes the directory for sockets");
    cluster.start(Size { nodes: 1, cpus: 1, ..Size::default() });
    assert_eq!(names(&cluster), ["n1"]);
    assert!(cluster.fails(&["run", "-c", "2", "--", "true"]).contains("1 CPU"), "nodes that are gone accept no jobs");
    cluster.ok(&["down"]);
    cluster.start(Size { nodes: 2, ..Size::default() });
    assert_eq!(names(&cluster), ["n1", "n2"]);
    assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "fine"]), "fine");
}

#[test]
fn node_with_a_task_stays_listed_until_the_task_ends() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 2, cpus: 1, ..Size::default() });
    let release = cluster.path("release");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done", release.display());
    let jobs: Vec<String> =
        (0..2).map(|_| cluster.ok(&["run", "--detach", "-m", "16M", "--", "sh", "-c", &script])).collect();
    jobs.iter().for_each(|id| cluster.wait_for_state(id, "running"));
    cluster.ok(&["down", "--keep"]);
    cluster.start(Size { nodes: 1, cpus: 1, ..Size::default() });
    assert_eq!(names(&cluster), ["n1", "n2"], "n2 still has a job");
    let refusal = cluster.fails(&["node", "forget", "n2"]);
    assert!(refusal.contains("still has a task"), "{refusal}");
    // After another start with both nodes, both jobs are still there.
    cluster.ok(&["down", "--keep"]);
    cluster.start(Size { nodes: 2, cpus: 1, ..Size::default() });
    fs::write(&release, "").expect("a file can be written");
    jobs.iter().for_each(|id| cluster.wait_for_state(id, "completed"));
}

#[test]
fn removed_node_joins_again_with_the_next_up() {
    let cluster = Cluster::up(HOSTLER, Size { nodes: 1, cpus: 1, ..Size::default() });
    cluster.ok(&["node", "remove", "n1", "--yes"]);
    assert!(names(&cluster).is_empty());
    cluster.ok(&["down"]);
    cluster.start(Size { nodes: 1, cpus: 1, ..Size::default() });
    assert_eq!(names(&cluster), ["n1"]);
    assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "fine"]), "fine");
}

#[test]
fn nodes_may_have_more_cpus_than_the_machine() {
    let cluster = Cluster::none(HOSTLER);
    let there_are = std::thread::available_parallelism().expect("Linux says").get();
    let more = (there_are + 2).to_string();
    let up = cluster.run(&["up", "--nodes", "1", "--cpus", &more, "--memory", "1G"]);
    assert!(up.code == 0 && up.stderr.contains(&format!("this machine has {there_are} CPU")), "{up:?}");
    // The nodes use all CPU ids, so one of them has only ids that do not exist.
    let script = "nproc; touch $HOSTLER_ARRAY_INDEX; while [ ! -e release ]; do sleep 0.05; done";
    let array = format!("0-{}", there_are + 1);
    let id = cluster.ok(&["run", "--detach", "-a", &array, "-m", "16M", "--", "sh", "-c", script]);
    let all_run = || (0..there_are + 2).all(|index| cluster.path(&index.to_string()).exists()).then_some(());
    wait_until("all to run at once", 30, all_run);
    cluster.write("release", "");
    cluster.ok(&["wait", &id]);
    let beyond: usize = cluster.ok(&["logs", &format!("{id}_{}", there_are + 1)]).trim().parse().expect("a number");
    assert!((1..=there_are).contains(&beyond), "the task runs on existing CPUs");
}

#[test]
fn nodes_with_the_same_cpus_say_so_in_up_nodes_and_job() {
    let note = "share CPUs with other nodes of their machine";
    let cpus = std::thread::available_parallelism().expect("the number of CPUs is known").get();
    let cluster = Cluster::none(HOSTLER);
    // By default, no CPU belongs to two nodes.
    let up = cluster.run(&["up", "--memory", "256M"]);
    assert!(up.code == 0 && !up.stderr.contains(note), "{}", up.stderr);
    assert_eq!(names(&cluster).len(), cpus.min(4));
    assert!(!cluster.run(&["nodes"]).stderr.contains(note));
    cluster.ok(&["down"]);

    let up = cluster.run(&["up", "--nodes", "2", "--cpus", &cpus.to_string(), "--memory", "256M"]);
    assert!(up.code == 0 && up.stderr.contains(note), "{}", up.stderr);
    assert!(cluster.run(&["nodes"]).stderr.contains(note));
    assert!(cluster.ok(&["node", "show", "n1"]).contains("; other nodes of the machine use them too)"));
    assert_eq!(cluster.ok(&["run", "-m", "16M", "--", "echo", "done"]), "done");
    let job = cluster.ok(&["job", "1"]);
    let limits = job.lines().find(|line| line.starts_with("limits")).expect("the job has limits");
    let is_shared = limits.contains("cpus 1 (enforced; other nodes of this machine use the same CPUs)");
    assert!(is_shared || limits.contains("cpus 1 (advisory"), "{limits}");
}

//! Jobs on several nodes, from the user's view.

use std::fs;
use std::io::Read;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hostler_testkit::{Cluster, Size, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

fn four_nodes() -> Cluster {
    Cluster::up(HOSTLER, Size { nodes: 4, cpus: 2, ..Size::default() })
}

#[test]
fn processes_get_their_ranks_and_output_is_labelled() {
    let cluster = four_nodes();
    let script = "echo $HOSTLER_NODE_RANK $LOCAL_RANK $RANK/$WORLD_SIZE $HOSTLER_RANK $HOSTLER_WORLD_SIZE $MASTER_ADDR; echo oops >&2";
    let outcome = cluster.run(&["run", "-N", "2", "-n", "2", "-m", "64M", "--label", "sh", "-c", script]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let mut lines: Vec<&str> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    let expected = [
        "0: 0 0 0/4 0 4 127.0.0.1",
        "1: 0 1 1/4 1 4 127.0.0.1",
        "2: 1 0 2/4 2 4 127.0.0.1",
        "3: 1 1 3/4 3 4 127.0.0.1",
    ];
    assert_eq!(lines, expected);
    for rank in 0..4 {
        assert!(outcome.stderr.lines().any(|line| line == format!("{rank}: oops")), "{}", outcome.stderr);
    }
    let alone = cluster.run(&["run", "-m", "64M", "sh", "-c", "echo ${RANK-none} $HOSTLER_NODES $HOSTLER_WORLD_SIZE"]);
    assert_eq!(alone.stdout, "none 1 1\n", "a job of one process is not distributed");
}

/// Starts a command, and creates the file `go` when its standard output contains `awaited`. Returns all output.
fn output_after(cluster: &Cluster, arguments: &[&str], awaited: &str) -> String {
    let mut child = cluster.command(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("piped");
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&seen);
    let reader = std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut piece) {
            all.lock().expect("the lock is not poisoned").extend(&piece[..count]);
        }
    });
    let text = || String::from_utf8_lossy(&seen.lock().expect("the lock is not poisoned")).into_owned();
    wait_until(&format!("{awaited:?}"), 30, || text().contains(awaited).then_some(()));
    cluster.write("go", "");
    reader.join().expect("the reader ends");
    assert!(child.wait().expect("it ends").success(), "{}", text());
    fs::remove_file(cluster.path("go")).expect("it was written");
    text()
}

#[test]
fn progress_bars_and_prompts_appear_while_the_line_is_incomplete() {
    let cluster = four_nodes();
    let go = cluster.path("go");
    let wait = format!("while ! [ -e {} ]; do sleep 0.05; done", go.display());

    // Only one node writes, so nothing is changed.
    let bar = format!("[ $HOSTLER_NODE_RANK = 1 ] || exit 0; printf '\\r10%%\\r20%%'; {wait}; printf '\\r100%%'");
    let nodes = ["run", "-N", "2", "-m", "64M", "sh", "-c", &bar];
    assert_eq!(output_after(&cluster, &nodes, "20%"), "\r10%\r20%\r100%");

    // Both nodes write. Neither continues the other's line.
    let prompt = format!("printf \"from $HOSTLER_NODE_RANK\"; {wait}; echo; echo end");
    let seen = output_after(&cluster, &["run", "-N", "2", "-m", "64M", "sh", "-c", &prompt], "from 1");
    let mut lines: Vec<&str> = seen.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["end", "end", "from 0", "from 1"]);

    // Each state that is shown gets a label.
    let bar = format!("printf '\\r10%%\\r20%%'; {wait}; printf '\\r90%%\\r100%%'");
    let labelled = ["run", "-n", "2", "-m", "64M", "--label", "sh", "-c", &bar];
    let seen = output_after(&cluster, &labelled, "1: 20%\n");
    let mut lines: Vec<&str> = seen.split_inclusive('\n').collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines, ["0: 100%\n", "0: 20%\n", "1: 100%\n", "1: 20%\n"]);

    let inner = format!("{HOSTLER} step --all sh -c \"printf '10%%\\r20%%\\r'; {wait}; echo 100%\"");
    let step = ["run", "--first-node", "-N", "2", "-m", "64M", "sh", "-c", &inner];
    let seen = output_after(&cluster, &step, ": 20%\n");
    assert_eq!(seen.matches(": 100%\n").count(), 2, "{seen:?}");
    assert!(!seen.contains('\r'), "no carriage return overwrites a label: {seen:?}");
}

#[test]
fn first_failure_ends_the_other_processes_and_is_reported() {
    let cluster = four_nodes();
    let begun = Instant::now();
    let script = "if [ $RANK = 2 ]; then sleep 0.3; exit 9; fi; sleep 60";
    let outcome = cluster.run(&["run", "-N", "3", "-m", "64M", "sh", "-c", script]);
    assert_eq!(outcome.code, 9);
    assert!(begun.elapsed() < Duration::from_secs(30), "the other processes are ended");
    assert!(outcome.stderr.contains("(rank 2) was the first to fail: exit code 9"), "{}", outcome.stderr);
    let job = cluster.json(&["job", "1"]);
    let states: Vec<&str> = job["tasks_shown"][0]["parts"]
        .as_array()
        .expect("one for each node")
        .iter()
        .filter_map(|part| part["state"].as_str())
        .collect();
    assert_eq!(states, ["cancelled", "cancelled", "failed"]);
    // The job also ends at the first failure of several processes on one node.
    let outcome =
        cluster.run(&["run", "-n", "2", "-m", "64M", "sh", "-c", "if [ $LOCAL_RANK = 1 ]; then exit 5; fi; sleep 60"]);
    assert_eq!(outcome.code, 5, "{}", outcome.stderr);
}

#[test]
fn job_starts_on_all_its_nodes_or_none() {
    let cluster = four_nodes();
    let blocker = cluster.ok(&["run", "--detach", "-c", "2", "-m", "64M", "sleep", "60"]);
    cluster.wait_for_state(&blocker, "running");
    let wide = cluster.ok(&["run", "--detach", "-N", "4", "-c", "2", "-m", "64M", "true"]);
    let why = cluster.ok(&["why", &wide]);
    assert!(why.contains("the job needs 4 nodes at once and 3 have enough free now"), "{why}");
    let refusal = cluster.fails(&["run", "-N", "5", "-m", "64M", "true"]);
    assert!(
        refusal.contains("asks for 5 nodes at once") && refusal.contains("only 4 nodes are large enough"),
        "{refusal}"
    );
    cluster.ok(&["cancel", &blocker]);
    cluster.wait_for_state(&wide, "completed");
}

#[test]
fn results_of_all_nodes_are_fetched() {
    let cluster = four_nodes();
    cluster.write(
        "p/main.py",
        "import os\nr = os.environ['RANK']\nopen('out-' + r, 'w').write(r * 100_000)\nprint('rank', r)\n",
    );
    let id = cluster.ok(&["submit", &cluster.path("p").to_string_lossy(), "main.py", "-N", "3", "-m", "64M"]);
    cluster.ok(&["wait", &id]);
    assert!(cluster.ok(&["logs", &id, "--node-rank", "2"]).contains("rank 2"));
    cluster.ok(&["fetch", &id, "--to", "home"]);
    for (rank, folder) in [(0, id.clone()), (1, format!("{id}.node1")), (2, format!("{id}.node2"))] {
        let read = |name: &str| fs::read_to_string(cluster.path(&format!("home/{folder}/{name}"))).expect(name);
        assert_eq!(read(&format!("out-{rank}")), rank.to_string().repeat(100_000));
        assert_eq!(read("stdout.log"), format!("rank {rank}\n"));
    }
    assert!(cluster.ok(&["fetch", "--all"]).is_empty(), "all results were fetched before");
}

#[test]
fn example_trains_one_model_on_four_nodes() {
    let cluster = four_nodes();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data-parallel");
    let id = cluster.ok(&["submit", example, "main.py", "-N", "4", "-c", "1", "-m", "200M", "-t", "5m"]);
    let wait = cluster.run(&["wait", &id]);
    assert_eq!(wait.code, 0, "{}\n{}", wait.stderr, cluster.ok(&["logs", &id]));
    cluster.ok(&["fetch", &id, "--to", "home"]);
    let model = fs::read(cluster.path(&format!("home/{id}/model.json"))).expect("rank 0 wrote it");
    let model: serde_json::Value = serde_json::from_slice(&model).expect("JSON");
    assert_eq!(model["processes"], 4);
    assert!(model["accuracy"].as_f64().expect("a number") > 0.9, "{model}");
    assert!(model["difference_to_one_process"].as_f64().expect("a number") < 1e-9, "{model}");
}

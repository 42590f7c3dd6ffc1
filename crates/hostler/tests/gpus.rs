//! GPUs from the user's view: requested, assigned, shown, and denied to other jobs by the kernel.
//!
//! The machine is simulated: four NVIDIA cards on two NUMA nodes. Their device files are `/dev/zero` and similar ones
//! under other names, so that opening them shows whether the kernel allows it. No driver or card is needed.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::process::Command;

use hostler_testkit::{Cluster, wait_until};
use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Minor numbers of `/dev/zero`, `/dev/full`, `/dev/random` and `/dev/kmsg`, one per card.
const CARDS: [u64; 4] = [5, 7, 8, 11];

/// Minor number of `/dev/urandom`, for the device that all cards share.
const SHARED: u64 = 9;

/// Major number of these devices.
const MEMORY_DEVICES: u64 = 1;

/// The message of a shell if opening is denied.
const DENIED: &str = "Operation not permitted";

/// The captured machine, with this major number for its devices.
fn machine(major: u64) -> String {
    let mut text = String::from(
        "[files.\"/sys/devices/system/cpu\"]\nonline = \"0-3\"\n[files.\"/sys/devices/system/node/node0\"]\ncpulist = \"0-1\"\n\
         [files.\"/sys/devices/system/node/node1\"]\ncpulist = \"2-3\"\n[files.\"/proc\"]\nmeminfo = \"MemTotal: 8388608 kB\"\n",
    );
    for card in 0..CARDS.len() {
        let pci = format!("0000:0{card}:00.0");
        let information =
            format!("Model: Test card\\nGPU UUID: {}\\nBus Location: {pci}\\nDevice Minor: {card}", uuid(card));
        write!(text, "[files.\"/proc/driver/nvidia/gpus/{pci}\"]\ninformation = \"{information}\"\n")
            .expect("a string");
        write!(text, "[files.\"/sys/bus/pci/devices/{pci}\"]\nnuma_node = \"{}\"\n", card / 2).expect("a string");
    }
    write!(text, "[devices]\n\"/dev/nvidiactl\" = \"{major}:{SHARED}\"\n").expect("a string");
    for (card, minor) in CARDS.iter().enumerate() {
        writeln!(text, "\"/dev/nvidia{card}\" = \"{major}:{minor}\"").expect("a string");
    }
    text
}

fn uuid(card: usize) -> String {
    format!("GPU-{card}{card}{card}{card}")
}

/// A home with that machine, and with device files under other names.
fn home(major: u64) -> Cluster {
    assert!(nix::unistd::geteuid().is_root(), "names for devices can only be made by root");
    let cluster = Cluster::none(HOSTLER);
    cluster.write("machine.toml", machine(major));
    let names = CARDS.iter().enumerate().map(|(card, minor)| (format!("card{card}"), *minor));
    for (name, minor) in names.chain([("shared".to_owned(), SHARED)]) {
        let path = cluster.path(&name);
        let number = makedev(MEMORY_DEVICES, minor);
        mknod(&path, SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), number).expect("as root");
        File::open(&path).expect("the temporary directory must be one whose devices can be opened");
    }
    let tries = "for it in card0 card1 card2 card3 shared; do (: < $HOME/$it) 2> /dev/null && echo $it; done";
    cluster.write("tries", format!("{tries}\n(sh -c '(: < /dev/zero) 2>&1 && echo zero' | sed 's/.*: //') & wait\n"));
    cluster
}

/// The arguments of `up`.
fn up<'a>(nodes: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let usual = ["up", "--nodes", nodes, "--cpus", "4", "--memory", "1G", "--machine-from", "machine.toml"];
    usual.iter().chain(more).copied().collect()
}

/// Output of a run of `tries` with these flags, on one line.
fn opens(cluster: &Cluster, flags: &[&str]) -> String {
    let script = format!("sh {}", cluster.path("tries").display());
    let arguments = [&["run", "-m", "16M"], flags, &["--", "sh", "-c", &script]].concat();
    cluster.ok(&arguments).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn limit(job: &Value) -> (String, String) {
    let limits = job["limits"].as_array().expect("a list");
    let gpus = limits.iter().find(|limit| limit["name"] == "gpus").expect("there are GPUs");
    let text = |key: &str| gpus[key].as_str().unwrap_or_default().to_owned();
    (text("enforcement"), text("why"))
}

/// The GPU ids of a job.
fn held(cluster: &Cluster, job: &str) -> Vec<String> {
    let ids = cluster.json(&["job", job])["tasks_shown"][0]["gpu_ids"].clone();
    let ids = ids.as_array().unwrap_or_else(|| panic!("job {job} holds some: {}", cluster.json(&["job", job])));
    ids.iter().map(|id| id.as_str().expect("text").to_owned()).collect()
}

#[test]
fn job_can_open_only_its_own_gpus() {
    let cluster = home(MEMORY_DEVICES);
    cluster.ok(&up("1", &[]));
    assert_eq!(opens(&cluster, &["-g", "1"]), "card0 shared zero");
    assert_eq!(opens(&cluster, &["-g", "4"]), "card0 card1 card2 card3 shared zero");
    assert_eq!(opens(&cluster, &[]), DENIED, "a job without GPUs can open none");
    let tries = cluster.path("tries").display().to_string();
    assert_eq!(cluster.ok(&["exec", "sh", &tries]), DENIED, "a remote command can open none");
    let mut of_both: Vec<String> = opens(&cluster, &["-g", "1", "-n", "2"]).split(' ').map(str::to_owned).collect();
    of_both.sort_unstable();
    assert_eq!(
        of_both,
        ["card0", "card0", "shared", "shared", "zero", "zero"],
        "the processes of a job share its GPUs"
    );

    let shown = ["run", "-m", "16M", "-g", "2", "--env", "CUDA_VISIBLE_DEVICES=7", "--", "sh", "-c"];
    let text = "echo $CUDA_VISIBLE_DEVICES $HOSTLER_GPUS";
    let both = format!("{},{}", uuid(0), uuid(1));
    assert_eq!(cluster.ok(&[&shown[..], &[text]].concat()), format!("{both} {both}"));
    let none = ["run", "-m", "16M", "--", "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-unset}."];
    assert_eq!(cluster.ok(&none), ".", "the variable is set and empty");

    let refusal = cluster.fails(&["run", "-g", "5", "--", "true"]);
    assert!(refusal.contains("asks for 5 GPUs; no node has more than n1, which has 4 GPUs"), "{refusal}");
}

#[test]
fn gpu_is_never_given_to_two_jobs_despite_crashes() {
    let cluster = home(MEMORY_DEVICES);
    let size = up("1", &[]);
    cluster.ok(&size);
    let release = cluster.path("release");
    let script = format!("while [ ! -e {} ]; do sleep 0.05; done; sh $HOME/tries", release.display());
    let hold = |gpus: &str| {
        cluster.ok(&[
            "run",
            "--detach",
            "--requeue",
            "-g",
            gpus,
            "-m",
            "16M",
            "--env",
            "HOME",
            "--",
            "sh",
            "-c",
            &script,
        ])
    };
    let (one, two) = (hold("1"), hold("2"));
    [&one, &two].iter().for_each(|job| cluster.wait_for_state(job, "running"));
    let before = [held(&cluster, &one), held(&cluster, &two)];
    assert_eq!(before, [vec![uuid(0)], vec![uuid(2), uuid(3)]], "both are on one NUMA node");
    let three = hold("2");
    let why = cluster.ok(&["why", &three]);
    assert!(why.contains("A task asks for 1 CPU, 2 GPUs and 16M of memory.") && why.contains("1 of 4 GPUs"), "{why}");
    assert!(why.contains("it lacks 1 GPU"), "{why}");
    assert_eq!(limit(&cluster.json(&["job", &one])), ("enforced".to_owned(), String::new()));

    let node = cluster.json(&["node", "show", "n1"]);
    assert_eq!((node["gpus"].as_u64(), node["gpus_free"].as_u64()), (Some(4), Some(1)));
    let holders: Vec<u64> = node["gpu_list"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|gpu| gpu["held_by"]["job"].as_u64().unwrap_or(0))
        .collect();
    let id = |job: &str| job.parse::<u64>().expect("a number");
    assert_eq!(holders, [id(&one), 0, id(&two), id(&two)]);
    assert_eq!(cluster.json(&["info"])["gpus"], serde_json::json!({ "total": 4, "free": 1 }));
    assert!(cluster.ok(&["nodes"]).contains("GPUS  GPUS FREE"), "people see them too");

    cluster.agent_pids().into_iter().for_each(|pid| cluster.kill_9(pid));
    cluster.kill_9(cluster.head_pid());
    cluster.ok(&size);
    [&one, &two].iter().for_each(|job| cluster.wait_for_state(job, "running"));
    assert_eq!([held(&cluster, &one), held(&cluster, &two)], before, "both keep their GPUs");
    assert_eq!(cluster.state(&three), "pending");
    cluster.ok(&["requeue", &one]);
    wait_until("the job to run again", 60, || (cluster.json(&["job", &one])["attempt"] == 2).then_some(()));
    cluster.wait_for_state(&one, "running");
    assert_eq!(held(&cluster, &one).len(), 1);

    fs::write(&release, "").expect("ours");
    [&one, &two, &three].iter().for_each(|job| cluster.wait_for_state(job, "completed"));
    let opened = cluster.ok(&["logs", &two]);
    assert!(opened.starts_with("card2\ncard3\nshared\n") && opened.contains("not permitted"), "{opened}");
    assert_eq!(cluster.json(&["info"])["gpus"]["free"], 4);
}

#[test]
fn virtual_nodes_divide_the_gpus_and_bpf_enforces_it() {
    let cluster = home(MEMORY_DEVICES);
    // Hide a device controller of cgroup v1, so that the test machine looks like one with v2.
    let hide = "if mountpoint -q /sys/fs/cgroup/devices; then umount /sys/fs/cgroup/devices; fi; exec \"$0\" \"$@\"";
    let by_hand = cluster.command(&[]);
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", hide, HOSTLER])
        .args(up("2", &["--gpus", "0,2,3"]))
        .current_dir(cluster.home());
    command.env_clear().envs(by_hand.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = command.output().expect("util-linux is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let nodes = cluster.json(&["nodes"]);
    let gpus: Vec<_> = nodes.as_array().expect("a list").iter().map(|node| node["gpus"].as_u64()).collect();
    assert_eq!(gpus, [Some(2), Some(1)], "the cap removes one, the others are each on one node");
    assert_eq!(opens(&cluster, &["-g", "2"]), "card0 card3 shared zero");
    assert_eq!(opens(&cluster, &[]), DENIED);
    let groups = cluster.ok(&["run", "-m", "16M", "--", "cat", "/proc/self/cgroup"]);
    let is_of_controller = |line: &str| line.contains(":devices:") && line.contains("hostler");
    assert!(
        groups.contains("0::/") && !groups.lines().any(is_of_controller),
        "no device controller may be in use: {groups}"
    );
    let alone = cluster.ok(&["run", "--detach", "-g", "1", "-m", "16M", "--", "sleep", "60"]);
    cluster.wait_for_state(&alone, "running");
    let job = cluster.json(&["job", &alone]);
    assert_eq!(
        (job["nodes"][0].as_str(), limit(&job).0.as_str()),
        (Some("n2"), "enforced"),
        "the node with the fewest sufficient GPUs"
    );
    cluster.ok(&["cancel", &alone]);
}

#[test]
fn unenforceable_gpu_limits_are_reported_as_advisory() {
    let cluster = home(4000);
    let told = cluster.run(&up("1", &[]));
    assert_eq!(told.code, 0, "{}", told.stderr);
    let why = "/dev/nvidia0 (4000:5) of GPU-0000 is not on this machine";
    assert!(
        told.stderr.contains(&format!("the kernel does not limit jobs to their GPUs here: {why}")),
        "{}",
        told.stderr
    );
    let job = cluster.ok(&["run", "--detach", "-g", "1", "-m", "16M", "--", "true"]);
    cluster.wait_for_state(&job, "completed");
    assert_eq!(limit(&cluster.json(&["job", &job])), ("advisory".to_owned(), format!("on node n1: {why}")));
    let shown = cluster.ok(&["job", &job]);
    assert!(shown.contains("gpus 1 (advisory: on node n1: /dev/nvidia0"), "{shown}");
    let shown = cluster.ok(&["node", "show", "n1"]);
    assert!(shown.contains("advisory   GPUs: /dev/nvidia0 (4000:5)"), "{shown}");
}

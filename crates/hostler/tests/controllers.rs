//! Nodes that a real head switches by other means: nodes borrowed from a real Slurm cluster, and commands written by
//! an operator.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use hostler_testkit::{RealCluster, Slurm, end, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A node that has joined and connected once, so that the head knows its resources. Returns the command of its agent.
fn known(cluster: &RealCluster, node: &str) -> Vec<String> {
    end(cluster.add_node(node));
    let directory = cluster.path(node);
    let agent = ["agent", "run", "--directory", &directory, "--root-jobs", "--shared-machine", "--cpus", "0-1"];
    [HOSTLER].iter().chain(&agent).map(|word| (*word).to_owned()).collect()
}

fn wait_for_power(cluster: &RealCluster, node: &str, power: &str) {
    let is_so = || (cluster.json(&["info", "--energy"])["nodes"][node]["state"] == power).then_some(());
    wait_until(&format!("{node} to be {power}"), 60, is_so);
}

#[test]
fn node_is_borrowed_from_slurm_and_returned() {
    let slurm = Slurm::start();
    let head = RealCluster::start(HOSTLER);
    let agent = known(&head, "borrowed");
    let words: Vec<String> = agent.iter().map(|word| format!("\"{word}\"")).collect();
    let text = format!(
        "idle = \"2s\"\nmin_up = \"0s\"\nwatch = \"500ms\"\npoll = \"1s\"\n[nodes.borrowed.controller]\nkind = \"slurm\"\n\
         agent = [{}]\npartition = \"idle\"\noptions = [\"--ntasks=1\", \"--time=10\"]\nenvironment = {{ SLURM_CONF = \"{}\" }}\n",
        words.join(", "),
        slurm.path("slurm.conf").display()
    );
    head.home.write("head/power.toml", text);
    wait_for_power(&head, "borrowed", "off");
    assert_eq!(slurm.ask("squeue", &["-h"]), "", "no node is requested from Slurm without need");

    let job = head.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "sh", "-c", "sleep 2; echo done"]);
    wait_until("Slurm to run the agent", 60, || {
        (slurm.ask("squeue", &["-h", "-o", "%j %P %T"]) == "hostler-borrowed idle RUNNING").then_some(())
    });
    head.ok(&["wait", &job]);
    assert_eq!(head.ok(&["logs", &job]), "done");
    wait_for_power(&head, "borrowed", "off");
    assert_eq!(slurm.ask("squeue", &["-h", "-t", "pending,running"]), "", "the node is returned");
    assert!(head.ok(&["info", "--energy"]).contains("borrowed"));
}

/// An operator's script with a power switch and a meter.
const PLUG: &str = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\necho \"$*\" >> said\n\
    alive() { [ -e pid ] && kill -0 \"$(cat pid)\" 2>/dev/null; }\n\
    case $1 in\nstatus) alive && echo on || echo off;;\n\
    on) setsid sh -c 'echo $$ > pid; exec \"$@\"' agent AGENT < /dev/null > agent.log 2>&1 &;;\n\
    off) kill \"$(cat pid)\";;\nwatts) echo 87.5;;\nesac\n";

#[test]
fn operators_commands_switch_a_node_and_measure_its_power() {
    let head = RealCluster::start(HOSTLER);
    let agent = known(&head, "plugged");
    let plug = head.home.write("plug", PLUG.replace("AGENT", &agent.join(" ")));
    std::fs::set_permissions(&plug, Permissions::from_mode(0o700)).expect("the test owns the file");
    let verb = |name: &str, verb: &str| format!("{name} = [\"{}\", \"{verb}\"]\n", plug.display());
    let commands: String = ["status", "on", "off", "watts"].map(|name| verb(name, name)).concat();
    let text = format!(
        "idle = \"3s\"\nmin_up = \"0s\"\nwatch = \"500ms\"\npoll = \"1s\"\n[nodes.plugged]\n\
         watts = {{ off = 2, idle = 10, busy = 20 }}\n[nodes.plugged.controller]\nkind = \"command\"\n{commands}"
    );
    head.home.write("head/power.toml", text);
    wait_for_power(&head, "plugged", "off");
    assert_eq!(head.json(&["node", "power", "plugged", "status"])["power"], "off");
    // A file that others can write is not read, until it is closed to them.
    for (mode, is_open) in [(0o666, true), (0o600, false)] {
        let path = head.home.path("head/power.toml");
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("the test owns the file");
        wait_until("the head to notice the mode", 30, || {
            (head.ok(&["info"]).contains("chmod go-w") == is_open).then_some(())
        });
    }

    let job = head.ok(&["run", "--detach", "-c", "1", "-m", "16M", "--", "sleep", "6"]);
    wait_until("the meter to be read", 30, || {
        let power = &head.json(&["info", "--energy"])["nodes"]["plugged"];
        (power["gauge"] == "controller" && power["watts"] == 88).then_some(())
    });
    head.ok(&["wait", &job]);
    let energy = &head.json(&["job", &job])["energy"];
    // The job used half of the node for about six seconds, nearly all of it measured.
    let [joules, measured] = ["joules", "measured_joules"].map(|name| energy[name].as_u64().expect("a number"));
    assert!(measured >= 100 && measured <= joules && joules < 10_000, "{energy}");
    assert!(head.ok(&["job", &job]).contains("Wh"));
    wait_for_power(&head, "plugged", "off");

    assert!(
        ["up", "idle"].contains(&head.json(&["node", "power", "plugged", "on"])["power"].as_str().expect("a word"))
    );
    assert_eq!(head.json(&["node", "power", "plugged", "cycle"])["power"].as_str().map(|it| it != "off"), Some(true));
    let said = std::fs::read_to_string(head.home.path("said")).expect("the script was called");
    let count = |verb: &str| said.lines().filter(|line| *line == verb).count();
    assert_eq!((count("on"), count("off")), (3, 2), "{said}");
}

/// A cloud: `on` makes a machine from an image with a join code, `off` deletes the machine.
const CLOUD: &str = "#!/bin/sh\ncd \"$(dirname \"$0\")\"\nm=\"$PWD/machine-$HOSTLER_NODE\"\n\
    case $1 in\nstatus) [ -e \"$m/pid\" ] && kill -0 \"$(cat \"$m/pid\")\" 2>/dev/null && echo on || echo off;;\n\
    on) mkdir -m 700 \"$m\" && echo \"$HOSTLER_NODE\" >> booted\n\
    PROGRAM agent join - --directory \"$m\" --name \"$HOSTLER_NODE\" < image.code > \"$m.log\" 2>&1 || exit 1\n\
    setsid sh -c 'echo $$ > \"$1/pid\"; exec PROGRAM agent run --directory \"$1\" --root-jobs --shared-machine --cpus 0-1' \
    sh \"$m\" < /dev/null >> \"$m.log\" 2>&1 &;;\n\
    off) kill \"$(cat \"$m/pid\")\"; rm -rf \"$m\";;\nesac\n";

#[test]
fn machines_that_were_never_here_join_with_the_code_of_their_partition() {
    let head = RealCluster::start(HOSTLER);
    head.ok(&["configure", "partition", "add", "cloud", "--nodes", "cloud[1-2]"]);
    let invite = ["node", "invite", "--partition", "cloud"];
    assert!(head.fails(&[&invite[..], &["--valid-for", "400d"]].concat()).contains("at most 366d"));
    assert!(head.fails(&["node", "invite", "--partition", "clod"]).contains("no partition clod"));
    let (old, code) = (head.ok(&invite), head.ok(&[&invite[..], &["--valid-for", "90d"]].concat()));
    assert!(head.ok(&["configure", "partition", "show", "cloud"]).contains("join code  valid until"));
    for (code, name, words) in [
        (&old, "cloud1", "the join code is not valid"),
        (&code, "cloud3", "for the nodes cloud[1-2] of partition cloud, not for cloud3"),
    ] {
        let said = head.join("stranger", code, &["--name", name], |_| {});
        assert!(said.code != 0 && said.stderr.contains(words), "{said:?}");
    }

    head.home.write("image.code", format!("{code}\n"));
    let cloud = head.home.write("cloud", CLOUD.replace("PROGRAM", HOSTLER));
    std::fs::set_permissions(&cloud, Permissions::from_mode(0o700)).expect("the test owns the file");
    let commands: String =
        ["status", "on", "off"].map(|verb| format!("{verb} = [\"{}\", \"{verb}\"]\n", cloud.display())).concat();
    let node = |name: &str| {
        format!("[nodes.{name}]\ncpus = 2\nmemory = \"1G\"\n[nodes.{name}.controller]\nkind = \"command\"\n{commands}")
    };
    let rules = "idle = \"2s\"\nmin_up = \"0s\"\nwatch = \"500ms\"\npoll = \"1s\"\n";
    head.home.write("head/power.toml", format!("{rules}{}{}", node("cloud1"), node("cloud2")));
    wait_for_power(&head, "cloud1", "off");
    assert_eq!(head.json(&["node", "show", "cloud2"])["cpus"], 2);
    // The code is valid after a restart of the head, and machines of the same name are made again.
    for round in 1..=2 {
        head.kill_head();
        head.run_head();
        let script = format!("echo $HOSTLER_NODE; until [ -e {}-{round} ]; do sleep 0.05; done", head.path("go"));
        let job = head.ok(&["run", "--detach", "-c", "2", "-m", "16M", "--", "sh", "-c", &script]);
        head.wait_for_job(&job, "running");
        let booted = std::fs::read_to_string(head.home.path("booted")).expect("a machine was made");
        assert_eq!(booted.lines().count(), round, "{booted}");
        let name = booted.lines().last().expect("a line");
        let taken = head.join("stranger", &code, &["--name", name], |_| {});
        assert!(taken.code != 0 && taken.stderr.contains(&format!("node {name} is there")), "{taken:?}");
        head.home.write(&format!("go-{round}"), "");
        head.ok(&["wait", &job]);
        assert!(head.ok(&["logs", &job]).starts_with("cloud"));
        wait_for_power(&head, name, "off");
        wait_until("the machine to be deleted", 10, || {
            (!head.home.path(&format!("machine-{name}")).exists()).then_some(())
        });
    }
    head.ok(&["configure", "partition", "set", "cloud", "--end-join-code"]);
    let ended = head.join("stranger", &code, &["--name", "cloud1"], |_| {});
    assert!(ended.code != 0 && ended.stderr.contains("the join code is not valid"), "{ended:?}");
    head.ok(&["node", "remove", "cloud2", "--yes"]);
}

//! The same files and host lists, read by a real Slurm.

use std::path::Path;
use std::process::Command;

use hostler_slurm::hostlist::{compress, expand};
use hostler_testkit::{Cluster, Outcome};

use super::{HOSTLER, fixture, site_with};

/// Runs Slurm's `scontrol` with a configuration.
fn scontrol(configuration: &Path, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("scontrol");
    let output = command.args(arguments).env("SLURM_CONF", configuration).output();
    Outcome::of(&output.expect("Slurm's scontrol is installed (Debian package slurm-client)"))
}

#[test]
fn real_slurm_reads_the_fixtures() {
    for name in ["classroom", "lab", "centre"] {
        let outcome = scontrol(fixture(&format!("{name}/slurm.conf")).as_ref(), &["show", "hostnames", "a"]);
        assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "a\n", ""), "{name}");
    }
}

const START: &str = "ClusterName=c\nSlurmctldHost=h\n";

/// Whether real Slurm and Hostler accept a configuration, and what they say.
fn accepted(home: &Cluster, text: &str) -> (bool, bool, String) {
    let (_directory, path) = site_with(&format!("{START}{text}\n"));
    let real = scontrol(&path, &["show", "hostnames", "a"]);
    let ours = home.run(&["import", "slurm", path.to_str().expect("text"), "--dry-run"]);
    (real.code == 0, ours.code == 0, format!("{text}\nSlurm: {}\nHostler: {}", real.stderr, ours.stderr))
}

/// Both accept a configuration, or both refuse it.
#[test]
fn configurations_are_accepted_as_by_real_slurm() {
    let home = Cluster::none(HOSTLER);
    for text in [
        "NodeName=n",
        "nodename=n cpus=2 STATE=unknown",
        "NodeName = n  CPUs= 2",
        "NodeName=n \\\n  CPUs=2\\\n State=UNKNOWN",
        "NodeName=n CPUs=2 # two",
        "NodeName=n Reason=\"two words\" State=DOWN",
        "NodeName=n Reason=a\\#b State=DOWN",
        "NodeName=DEFAULT CPUs=2\nNodeName=n[1-3]",
        "NodeName=n[1-3],m\nPartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE",
        "NodeName=n\nPartitionName=p Nodes=n MaxTime=1-12:30:00 DefaultTime=90",
        "NodeName=n\nPartitionName=p Nodes=n MaxTime=10:00 State=DRAIN",
        "NodeName=n\nPartitionName=DEFAULT MaxTime=5\nPartitionName=p Nodes=n",
        "NodeName=n Feature=a\nNodeSet=s Feature=a\nPartitionName=p Nodes=s",
        "NodeName=n\nDownNodes=n State=DOWN Reason=x",
        "NodeName=n\nKillWait=10\nMinJobAge=20",
        "NodeName=n\nKillWait=10 MinJobAge=20",
        "KillWait=10 NodeName=n",
        "NodeName=n\n\n\t\n   # only a comment",
        "NodeName=n Weight=5 Features=a,b Gres=gpu:2\nGresTypes=gpu",
        "NodeName=n\nPartitionName=p Nodes=n AllowGroups=a,b PriorityTier=5 OverSubscribe=NO",
        "NodeName=n\nPartitionName=p Nodes=n Shared=EXCLUSIVE Priority=7",
        "NodeName=n CPUs",
        "NodeName=n CPUs=",
        "NodeNames=n",
        "hello world",
        "NodeName=n\n= 5",
        "NodeName=n\nPartitionName=p Nodes=n MaxTime=soon",
        "NodeName=n\nPartitionName=p Nodes=n DefaultTime=x",
        "NodeName=n\nPartitionName=p Nodes=n State=OPEN",
        "NodeName=n\nPartitionName=p Nodes=n Default=perhaps",
        "NodeName=n\nPartitionName=p Nodes=n MaxNodes=some",
        "NodeName=n\nPartitionName=p Nodes=n PriorityTier=high",
        "NodeName=n Weight=heavy",
        "NodeName=n\nKillWait=long",
        "NodeName=n\nPartitonName=p Nodes=n",
    ] {
        let (real, ours, said) = accepted(&home, text);
        assert_eq!(real, ours, "{said}");
    }
}

/// Slurm's commands take these; its controller ends with an error, or a value would be lost.
#[test]
fn mistakes_that_slurms_commands_overlook_are_refused() {
    let home = Cluster::none(HOSTLER);
    for text in [
        "NodeName=n Reason=\"open",
        "NodeName=n\nNodeName=n",
        "NodeName=n\nPartitionName=p Nodes=m",
        "NodeName=n\nPartitionName=p Nodes=n\nPartitionName=p Nodes=n",
        "NodeName=n State=BROKEN",
    ] {
        let (real, ours, said) = accepted(&home, text);
        assert_eq!((real, ours), (true, false), "{said}");
    }
}

/// Slurm accepts no text after the last bracket, which Hostler does.
#[test]
fn host_lists_stand_for_the_same_names_as_in_real_slurm() {
    let (_directory, path) = site_with("ClusterName=c\nSlurmctldHost=h\nNodeName=n\n");
    let mut lists: Vec<String> = [
        "n1",
        "n[1-3]",
        "node[01-12,20]",
        "n[08-11],m",
        "n[001-3]",
        "n[0-2,02]",
        "a[1-2]b[3-4]",
        "a[1-2][3-4]",
        "c-[1-2]",
        "n[3]",
        "n[9-11]",
        "rack[1-2]-[01-03]",
        "a,b,a",
        "n1,n[2-3],n10",
        "n[0007-0011]",
        "x[1,3,5-6]",
        "n[10-12]z[1-2],k",
    ]
    .map(str::to_owned)
    .into();
    // More, from a fixed sequence of numbers.
    let mut seed = 7_u64;
    let mut next = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..60 {
        let part = |next: &mut dyn FnMut(u64) -> u64| {
            let (low, width) = (next(120), 1 + next(4) as usize);
            format!(
                "{}[{low:0width$}-{:0width$},{}]",
                ["n", "gpu-", "r1c"][next(3) as usize],
                low + next(9),
                200 + next(9)
            )
        };
        let parts: Vec<String> = (0..=next(2)).map(|_| part(&mut next)).collect();
        lists.push(parts.join(","));
    }
    for list in &lists {
        let real = scontrol(&path, &["show", "hostnames", list]);
        let names = expand(list).unwrap_or_else(|error| panic!("{list}: {error}"));
        assert_eq!((names.join("\n") + "\n", real.code), (real.stdout, 0), "{list}");
        // The shorter list stands for the same names in both.
        let short = compress(&names);
        let again = scontrol(&path, &["show", "hostnames", &short]);
        assert_eq!(names.join("\n") + "\n", again.stdout, "{list} as {short}");
    }
}

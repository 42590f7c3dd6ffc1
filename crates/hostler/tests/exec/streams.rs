//! Input and output of commands.

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use hostler_testkit::wait_until;

use crate::machines::Machines;

/// Resident memory of a process, in MiB.
fn memory_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}

#[test]
fn streams_behave_like_local_ones() {
    let machines = Machines::of(2);
    streams_are_as_they_are_here(&machines);
    two_hundred_megabytes_arrive_whole(&machines);
}

fn streams_are_as_they_are_here(machines: &Machines) {
    let apart = "dsh --node n2 sh -c 'echo out; echo err >&2' >out 2>err; cat out; cat err";
    assert_eq!(machines.ok(0, apart), "out\nerr");

    // Output to one file keeps its order.
    let turns = "for i in $(seq 2000); do echo out $i; echo err $i >&2; done";
    let together = machines.ok(0, &format!("dsh --node n2 bash -c '{turns}' 2>&1"));
    assert_eq!(together.lines().count(), 4000);
    assert!(together == machines.ok(0, &format!("({turns}) 2>&1")), "{together}");

    // Output that cannot be written is an error on another node as well.
    let lost = machines.run(0, "dsh --node n2 echo hi >/dev/full");
    assert_eq!(lost.code, 125, "{lost:?}");
    assert!(lost.stderr.contains("cannot write the output of the command: No space left on device"), "{lost:?}");
    assert_eq!(machines.run(0, "dsh --node n2 sh -c 'echo hi >&2; exit 3' 2>/dev/full").code, 3);
    assert_eq!(machines.ok(0, "dsh --node n2 yes | head -1; echo ${PIPESTATUS[0]}"), "y\n141");

    // Binary data, from a file and through a pipe, and to a file opened for appending.
    let bytes = "head -c 3000000 /dev/urandom >bytes; echo begun >all; dsh --node n2 cat <bytes >>all; tail -c +7 all | cmp - bytes; \
                 cat bytes | dsh --node n2 cat | cmp - bytes; dsh --node n2 wc -c <bytes; dsh --node n2 wc -c </dev/null; \
                 dsh -n --node n2 wc -c <bytes; dsh --node n2 wc -c <&-";
    assert_eq!(machines.ok(0, bytes), "3000000\n0\n0\n0");

    // The command has the caller's input even if it is at its end: programs check for that.
    let kinds = "look='test -p /dev/stdin && echo pipe; test -c /dev/stdin && echo device; cat'; for at in n1 n2; do \
                 : | (sleep 0.5; dsh --node $at sh -c \"$look\"); dsh --node $at sh -c \"$look\" </dev/null; done";
    assert_eq!(machines.ok(0, kinds), "pipe\ndevice\npipe\ndevice");

    // If the reader of the output has ended, the command gets SIGPIPE.
    let pipes = "set -o pipefail; dsh --node n2 sh -c 'echo $$ >pid; exec yes' | head -1; echo ${PIPESTATUS[0]}; \
                 dsh --node n2 sh -c 'kill -0 $(cat pid) 2>/dev/null && echo it runs on'; \
                 dsh --node n2 bash -c 'trap \"\" PIPE; yes 2>/dev/null; echo $? >ended' | head -1; echo ${PIPESTATUS[0]}";
    assert_eq!(machines.ok(0, pipes), "y\n141\ny\n0");
    assert_eq!(machines.line_of("ended"), "1");
    // The same holds for stderr, to which the caller also writes its own messages.
    assert_eq!(machines.ok(0, "dsh --node n2 sh -c 'echo $$ >pid; exec yes >&2' 2> >(head -1); echo $?"), "y\n141");

    // Input that a command does not read is left for the next reader.
    machines.write("lines", (1..=60).map(|line| format!("{line}\n")).collect::<String>());
    let every =
        machines.ok(0, "while read line; do dsh --node n2 true; echo $line; done <lines | cmp - lines && echo all");
    assert_eq!(every, "all");
    assert_eq!(machines.ok(0, "(read a; dsh --node n2 head -c 3; read b; echo $a-$b) <lines"), "2\n31-");

    // A silent background process that keeps the output open does not delay the end.
    let since = Instant::now();
    assert_eq!(machines.ok(0, "dsh --node n2 sh -c 'sleep 60 & echo started'"), "started");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    machines.wait_for_none(1, "sleep 60", 10);
}

#[test]
fn unread_output_blocks_its_writer() {
    let machines = Machines::of(2);
    let memory = || [0, 1].map(|node| memory_mib(machines.agent_pid(node)));
    machines.ok(0, "dsh --node n2 true");
    let before = memory();
    // Five commands write without end and one reads nothing; their output is not read.
    let mut writers: Vec<_> = (0..5).map(|_| machines.start(0, "exec dsh --node n2 yes of-the-unread")).collect();
    writers.push(machines.start(0, "yes | dsh --node n2 sleep 1001"));
    wait_until("all to run", 30, || {
        (machines.processes(1, "of-the-unread") == 5 && machines.processes(1, "sleep 1001") == 1).then_some(())
    });
    // They are blocked: a command that could write would do so.
    let written = || {
        machines.nodes[1].ok(&[
            "sh",
            "-c",
            "for f in /proc/[0-9]*; do grep -aq unread $f/cmdline 2>/dev/null && grep wchar $f/io; done | sort",
        ])
    };
    let mut last = written();
    wait_until("nothing more to be written", 30, || {
        std::thread::sleep(Duration::from_millis(300));
        let now = written();
        let stands = now == last;
        last = now;
        stands.then_some(())
    });
    // Other commands are not affected.
    let since = Instant::now();
    assert_eq!(machines.ok(0, "for i in $(seq 20); do echo $i | dsh --node n2 cat; done | tail -1"), "20");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let after = memory();
    for (before, after) in before.iter().zip(after) {
        assert!(after < before + 24, "agents grew from {before} to {after} MiB");
    }
    // Blocked output is not lost: it arrives once it is read.
    let mut first = writers.remove(0);
    let mut bytes = vec![0; 4 << 20];
    first.stdout.as_mut().expect("the stream is piped").read_exact(&mut bytes).expect("the stream is readable");
    assert!(bytes.chunks_exact(14).all(|line| line == b"of-the-unread\n"));
    writers.push(first);
    for mut writer in writers {
        drop(writer.stdout.take());
        let _ = writer.kill();
        let _ = writer.wait();
    }
}

fn two_hundred_megabytes_arrive_whole(machines: &Machines) {
    let bytes = "head -c 200000000 /dev/zero | openssl enc -aes-128-ctr -K 0123 -iv 4567 2>/dev/null";
    let sum = machines.ok(0, &format!("{bytes} | sha256sum"));
    for node in ["n1", "n2"] {
        assert_eq!(machines.ok(0, &format!("{bytes} | dsh --node {node} cat | sha256sum")), sum, "{node}");
    }
}

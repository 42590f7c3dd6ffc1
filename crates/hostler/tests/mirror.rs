//! `hostler exec --mirror`: commands on nodes without a shared disk. Hosts in network namespaces; needs root and a C
//! compiler.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};
use serde_json::Value;

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Path of the tree on the caller's host.
const TREE: &str = "/home/games/src/tree";

/// A head, the caller's host, and nodes without the caller's files.
struct Machines {
    caller: Host,
    nodes: Vec<Host>,
    agents: Vec<Daemon>,
    _head: (Host, Daemon),
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn new(count: usize) -> Self {
        let network = Network::new(HOSTLER);
        let head = network.head();
        let hosts: Vec<Host> = (0..=count)
            .map(|number| {
                let host = network.host(&if number == 0 { "home".to_owned() } else { format!("n{number}") });
                host.join(&head.0);
                host
            })
            .collect();
        let run = ["hostler", "agent", "run", "--cpus", "0-1"];
        let agents = hosts.iter().map(|host| host.daemon("agent", &run)).collect();
        let mut hosts = hosts.into_iter();
        let caller = hosts.next().expect("there is a host for the caller");
        caller.ok(&["sh", "-c", &format!("mkdir -p {TREE}/.git && chown -R games /home/games")]);
        let machines = Self { caller, nodes: hosts.collect(), agents, _head: head, _network: network };
        wait_until("all nodes to accept commands", 60, || {
            let told = machines.caller.run(&["hostler", "exec", "--explain", "--json"]).stdout;
            let told: Value = serde_json::from_str(&told).unwrap_or_default();
            (told["candidates"].as_array()?.len() == count + 1).then_some(())
        });
        machines
    }

    /// Runs a shell command of the caller in the tree.
    fn shell(&self, text: &str) -> Outcome {
        self.caller.run(&as_user(text).each_ref().map(String::as_str))
    }

    fn ok(&self, text: &str) -> String {
        let outcome = self.shell(text);
        assert_eq!(outcome.code, 0, "{text}: {}{}", outcome.stdout, outcome.stderr);
        outcome.stdout.trim_end().to_owned()
    }

    /// Runs a command of the tree on a node; returns the cost of shipping the tree.
    fn on(&self, node: &str, command: &str) -> Value {
        let outcome = self.shell(&format!("hostler --json exec --report --mirror --node {node} -- {command}"));
        assert_eq!(outcome.code, 0, "{command}: {}", outcome.stderr);
        let told = outcome.stderr.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
        told.unwrap_or_else(|| panic!("nothing was told: {}", outcome.stderr))["mirror"].clone()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.caller.path(&format!("{TREE}/{name}"));
        std::fs::write(path, text).expect("the file is writable");
        self.caller.ok(&["chown", "games", &format!("{TREE}/{name}")]);
    }

    fn modified(&self, name: &str) -> SystemTime {
        let path = self.caller.path(&format!("{TREE}/{name}"));
        path.metadata().and_then(|found| found.modified()).expect("the file exists")
    }

    /// Checks that no file of a tree is left on a node outside the agent's directory.
    fn check_nothing_is_left(&self) {
        for node in &self.nodes {
            assert!(!Path::new(&node.path("/home/games")).exists(), "{} has a directory more", node.name());
            let mounts = node.ok(&["cat", "/proc/self/mounts"]);
            assert!(!mounts.contains("hostler-mirror"), "{mounts}");
        }
    }
}

fn as_user(text: &str) -> [String; 9] {
    let text = format!("export HOME=/home/games; cd {TREE} && {{ {text}\n}}");
    ["setpriv", "--reuid", "games", "--regid", "games", "--init-groups", "bash", "-c", &text].map(ToOwned::to_owned)
}

#[test]
fn tree_is_shipped_and_written_files_come_back() {
    let machines = Machines::new(2);
    machines.write(".gitignore", "config.h\n");
    machines.write("config.h", "#define ANSWER 42\n");
    machines.write(
        "a.c",
        "#include \"config.h\"\n#include <stdio.h>\nint main(void) { printf(\"%d %s\\n\", ANSWER, __FILE__); }\n",
    );
    machines.ok("ln -s /usr/include inc; mkdir sub; echo old >sub/old; echo 'kept by git' >.git/HEAD");

    // A compiler with a relative path from a subdirectory, an ignored header and a dependency file.
    let cost = machines.on("n1", "gcc -g -MMD -c -o sub/a.o $PWD/a.c");
    assert!(cost["returned_files"] == 2 && cost["sent_chunks"].as_u64() >= Some(4), "{cost}");
    assert_eq!(machines.ok("cat sub/a.d"), format!("sub/a.o: {TREE}/a.c {TREE}/config.h"));
    assert_eq!(
        machines.ok("gcc -g -c -o /home/games/here.o $PWD/a.c && cmp /home/games/here.o sub/a.o && echo same"),
        "same"
    );
    assert!(machines.modified("sub/a.o") >= machines.modified("a.c"));
    assert_eq!(machines.ok("stat -c '%a %U' sub/a.o"), "644 games");

    // Content that the node has is not sent again, including files that it created.
    let cost = machines.on("n1", "gcc -o prog sub/a.o");
    assert_eq!(cost["sent_chunks"], 0, "the object was made there: {cost}");
    assert_eq!(machines.ok("./prog; stat -c %a prog"), format!("42 {TREE}/a.c\n755"));
    machines.on("n1", "true");
    let cost = machines.on("n1", "true");
    assert!(cost["sent_bytes"] == 0 && cost["returned_files"] == 0, "{cost}");
    let cost = machines.on("n2", "./prog");
    assert!(cost["sent_chunks"].as_u64() >= Some(5), "this node has seen nothing yet: {cost}");

    // Changes, removals, links, modes and times are copied back.
    let script = "set -e; rm sub/old; ln -s a.c link; chmod 700 a.c; mkdir -p d/e; echo 1 >d/e/f; touch -d '2001-01-01 UTC' d/old; \
                  mkdir gone; rmdir gone; echo appended >>config.h; exec 3<>.gitignore; test ! -e .git";
    let cost = machines.on("n1", &format!("sh -c \"{script}\""));
    assert_eq!((&cost["returned_files"], &cost["removed_files"]), (&7.into(), &1.into()), "{cost}");
    let seen = machines.ok("test ! -e sub/old; readlink link; stat -c %a a.c; cat d/e/f; stat -c %Y d/old; tail -1 config.h; cat .git/HEAD");
    assert_eq!(seen, "a.c\n700\n1\n978307200\nappended\nkept by git");
    machines.on("n1", "sh -c 'rm -r d sub && mkdir d && echo new >d/new'");
    assert_eq!(machines.ok("find d sub 2>/dev/null; true"), "d\nd/new");

    // Files of a failing command come back too; exit code, input and output are passed on.
    let outcome = machines
        .shell("echo in | hostler exec --mirror --node n2 -- sh -c 'cat >partial; echo out; echo err >&2; exit 7'");
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (7, "out\n", "err\n"));
    assert_eq!(machines.ok("cat partial"), "in");

    // Subdirectories, and trees named with --mirror=DIR.
    machines.ok("mkdir -p deep/er; cd deep/er; hostler exec --mirror --node n2 -- sh -c 'pwd >../where'");
    assert_eq!(machines.ok("cat deep/where"), format!("{TREE}/deep/er"));
    machines.ok("cd deep/er; hostler exec --mirror=.. --node n1 -- sh -c 'ls .. >../../seen-there; ls .. >list'");
    assert_eq!(
        machines.ok("cat deep/er/list; ls seen-there 2>&1 | grep -o 'cannot access'"),
        "er\nwhere\ncannot access"
    );
    machines.check_nothing_is_left();
    drop(machines.agents);
}

#[test]
fn concurrent_commands_do_not_disturb_each_other() {
    let machines = Machines::new(1);
    machines.write("a", "first");
    let text = as_user(
        "hostler exec --mirror --node n1 -- sh -c 'cat a; echo started; read x; cat a; echo mine >own; cat own a'",
    );
    let mut slow = machines.caller.command(&text.each_ref().map(String::as_str));
    let mut slow = slow.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut printed = std::io::BufReader::new(slow.stdout.take().expect("the stream is piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut printed, &mut line).expect("the stream is readable");
    assert_eq!(line, "firststarted\n");
    // Meanwhile the tree changes, is shipped again and overwritten.
    for round in 0..25 {
        machines.write("a", &format!("round {round}"));
        machines.on("n1", &format!("sh -c 'cp a copy; echo {round} >own'"));
        assert_eq!(machines.ok("cat copy own"), format!("round {round}{round}"));
    }
    drop(slow.stdin.take());
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut printed, &mut rest).expect("the process ends");
    assert!(slow.wait().expect("the process ends").success());
    assert_eq!(rest, "firstmine\nfirst");
    assert_eq!(machines.ok("cat a own"), "round 24mine");

    // Many commands at once, which write different files and read each other's.
    let many = "for i in $(seq 24); do hostler exec --mirror --node n1 -- sh -c \"echo $i >out$i; test -e a\" & done; wait; cat out* | sort -n | tr '\\n' ' '";
    let all: String = (1..=24).map(|n| format!("{n} ")).collect();
    assert_eq!(machines.ok(many), all.trim_end());
    assert_eq!(machines.ok("ls -A | grep hostler; true"), "", "no temporary file is left");
    let kept = machines.nodes[0].ok(&["sh", "-c", "cd /var/lib/hostler/agent/mirrors/trees/*/ && ls | wc -l"]);
    assert!(kept.parse::<u32>().expect("a number") < 40, "{kept} layers are kept");
    machines.check_nothing_is_left();
}

/// Each command sees the present state of the tree, whatever has changed since the last one.
#[test]
fn changes_between_commands_are_shipped() {
    let machines = Machines::new(1);
    machines.ok("mkdir -p d/e other; for i in $(seq 40); do echo $i >d/f$i; done; ln d/f1 /home/games/second-name");
    let list = "find . -mindepth 1 -name .git -prune -o -printf '%p %M %l ' -type f -exec md5sum {} ';' -o -printf '\\n' | LC_ALL=C sort";
    let seen_there = || machines.ok(&format!("hostler exec --mirror --node n1 -- sh -c \"{list}\""));
    let seen_here = || machines.ok(list);
    assert_eq!(seen_there(), seen_here());
    let steps = [
        "echo changed >d/f2",
        "echo x >>d/f3; touch -d 2001-01-01 d/f3",
        "rm d/f4; mkdir d/f4; echo below >d/f4/x",
        "mkdir -p new/deep/er; echo new >new/deep/er/x",
        "echo again >new/deep/er/x",
        "mv new d/moved; echo more >d/moved/deep/y",
        "echo last >d/moved/deep/er/x",
        "mv d/moved/deep other/; rm -r d/moved",
        "mkdir p; mv d p/; mv p q",
        "echo in the moved one >q/d/f2; echo and below >q/d/e/x",
        "mv q/d .; rmdir q",
        "chmod 600 d/f5; chmod 711 d/e; ln -s f5 d/link",
        "ln d/f11 other/link; echo by the new name >>other/link",
        "ln -sf f6 d/link; mv d/f7 d/f8",
        "echo through another name >/home/games/second-name",
        "python3 -c \"import mmap; f = open('d/f9', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:1] = b'M'; m.close()\"",
        "rm -r d/e; mkdir d/e; echo e >d/e/e",
        "chmod 000 other; true",
        "chmod 755 other; echo in >other/in",
        "for i in $(seq 30); do echo many >d/many$i; done",
        "hostler exec --mirror --node n1 -- sh -c 'echo made there >d/there; rm d/many*'",
        "echo after that >d/there",
    ];
    for step in steps {
        machines.ok(step);
        assert_eq!(seen_there(), seen_here(), "after {step}");
    }
    // Another directory replaces the tree.
    machines.ok("cd ..; mv tree old; cp -r old tree; echo of the copy >tree/d/f2; cd tree; rm d/f10");
    assert_eq!(seen_there(), seen_here());
    machines.ok("echo more >>d/f2");
    assert_eq!(seen_there(), seen_here());
    machines.check_nothing_is_left();
}

#[test]
fn unsuitable_program_or_tree_is_refused_with_a_reason() {
    let machines = Machines::new(2);
    machines.write("a.c", "int a;\n");
    // One node has another program of this name.
    machines.nodes[0].ok(&[
        "sh",
        "-c",
        "mkdir -p /home/tools && printf '#!/bin/sh\\necho another\\n' >/home/tools/cc1 && chmod +x /home/tools/cc1",
    ]);
    for host in [&machines.caller, &machines.nodes[1]] {
        host.ok(&["sh", "-c", "mkdir -p /home/tools && printf '#!/bin/sh\\necho mine\\n' >/home/tools/cc1 && chmod 755 /home/tools /home/tools/cc1"]);
    }
    machines.nodes[0].ok(&["chmod", "755", "/home/tools"]);
    let refused = machines.shell("PATH=$PATH:/home/tools hostler exec --mirror --node n1 -- cc1");
    assert_eq!(refused.code, 126, "{refused:?}");
    assert!(refused.stderr.contains("/home/tools/cc1 on node n1 differs from the caller's program"), "{refused:?}");
    let taken = machines.ok("PATH=$PATH:/home/tools hostler exec --mirror --any-program --node n1 -- cc1");
    assert_eq!(taken, "another");
    let taken = machines.ok("PATH=$PATH:/home/tools hostler exec --mirror --exclude home -- cc1");
    assert_eq!(taken, "mine", "another node has the same program");
    let refused = machines.shell("hostler exec --mirror --node n2 -- no-such-program");
    assert_eq!(refused.code, 127, "{refused:?}");
    // System directories, and trees that do not contain the command's directory.
    let refused = machines.shell("cd /usr && hostler exec --mirror --node n1 -- ls");
    assert!(refused.code == 2 && refused.stderr.contains("/usr is a system directory"), "{refused:?}");
    let refused = machines.shell("cd / && hostler exec --mirror --node n1 -- ls");
    assert!(refused.code == 2 && refused.stderr.contains("/ is a system directory"), "{refused:?}");
    let refused = machines.shell("hostler exec --mirror=/usr --node n1 -- ls");
    assert!(refused.code == 2 && refused.stderr.contains("is not in the tree /usr"), "{refused:?}");
    // The link is cut while a command runs: no partial files are placed.
    let text = as_user("hostler exec --mirror --node n2 -- sh -c 'echo half >half; echo started; sleep 60'");
    let mut cut = machines.caller.command(&text.each_ref().map(String::as_str));
    let mut cut = cut.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut line = String::new();
    let mut printed = std::io::BufReader::new(cut.stdout.take().expect("the stream is piped"));
    std::io::BufRead::read_line(&mut printed, &mut line).expect("the stream is readable");
    machines.nodes[1].cut();
    assert_eq!(cut.wait().expect("the process ends").code(), Some(125));
    assert_eq!(machines.ok("ls -A"), ".git\na.c");
    machines.nodes[1].heal();
    // If files cannot be placed, the command fails with an error.
    let outcome =
        machines.shell("mkdir ro; hostler exec --mirror --node n1 -- sh -c 'chmod 500 ro; echo a >b' && chmod 700 ro");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let outcome = machines.shell("chmod 500 ro; hostler exec --mirror --node n1 -- sh -c 'chmod 700 ro; echo a >ro/b'");
    assert_eq!(outcome.code, 125, "{outcome:?}");
    assert!(outcome.stderr.contains("ro/b") && outcome.stderr.contains("Permission denied"), "{outcome:?}");
}

/// Writes a program: files in directories that include each other's headers, one of them generated.
fn write_program(machines: &Machines, count: usize) {
    let at = |name: &str| machines.caller.path(&format!("{TREE}/{name}"));
    for directory in ["src/core", "src/more", "include"] {
        std::fs::create_dir_all(at(directory)).expect("the directory can be created");
    }
    let mut calls = String::new();
    for number in 0..count {
        let directory = if number.is_multiple_of(2) { "src/core" } else { "src/more" };
        let header = format!(
            "#pragma once\n#include <stddef.h>\nstruct s{number} {{ int a; size_t b[{}]; }};\nint f{number}(int);\n",
            number % 7 + 1
        );
        std::fs::write(at(&format!("include/f{number}.h")), header).expect("the file is writable");
        let (next, after) = ((number + 1) % count, (number + 2) % count);
        let source = format!(
            "#include <stdio.h>\n#include <assert.h>\n#include \"f{number}.h\"\n#include \"f{next}.h\"\n#include \"f{after}.h\"\n#include \"generated.h\"\n\
             static const char *where = __FILE__;\nint f{number}(int n) {{ struct s{next} s = {{ .a = n }}; assert(n >= 0);\n\
             return n <= 0 ? VERSION + (where[0] == '/') : s.a % 3 + f{next}(n - 1); }}\n"
        );
        std::fs::write(at(&format!("{directory}/f{number}.c")), source).expect("the file is writable");
        calls.push_str(&format!("int f{number}(int); "));
    }
    let main = format!("#include <stdio.h>\n{calls}\nint main(void) {{ printf(\"%d\\n\", f0({count})); return 0; }}\n");
    std::fs::write(at("src/main.c"), main).expect("the file is writable");
    let makefile = "CC = gcc\nCFLAGS = -O1 -g -Iinclude -MMD -MP\nSRC := $(wildcard src/*.c src/*/*.c)\nOBJ := $(SRC:.c=.o)\n\
        prog: $(OBJ)\n\t$(CC) -o $@ $(OBJ)\n$(OBJ): include/generated.h\n\
        include/generated.h:\n\techo '#define VERSION 7' >$@\n\
        -include $(OBJ:.o=.d)\nclean:\n\trm -f prog include/generated.h $(OBJ) $(OBJ:.o=.d)\n";
    std::fs::write(at("Makefile"), makefile).expect("the file is writable");
    std::fs::write(at(".gitignore"), "*.o\n*.d\ngenerated.h\nprog\n").expect("the file is writable");
    machines.caller.ok(&["chown", "-R", "games", "/home/games"]);
}

/// Digests of all objects and dependency files, by name.
fn made(machines: &Machines) -> BTreeMap<String, String> {
    let sums = machines.ok("find . -name '*.o' -o -name '*.d' -o -name prog | xargs sha256sum");
    sums.lines()
        .map(|line| line.split_once("  ").expect("a sum"))
        .map(|(sum, name)| (name.into(), sum.into()))
        .collect()
}

#[test]
fn program_of_hundreds_of_files_is_built_as_locally() {
    const FILES: usize = 202;
    let machines = Machines::new(3);
    write_program(&machines, FILES);
    machines.ok("make -j2 >/dev/null");
    let at_home = made(&machines);
    assert_eq!(at_home.len(), 2 * (FILES + 1) + 1);
    machines.ok("make clean >/dev/null");
    let build = "make -j8 CC='hostler --json exec --report --mirror --exclude home -- gcc' >build.log 2>where.log";
    machines.ok(build);
    assert_eq!(made(&machines), at_home);
    assert_eq!(machines.ok("make -q CC=anything prog && ./prog"), machines.ok("./prog"), "make has nothing left to do");
    let told = machines.ok("cat where.log");
    let told: Vec<Value> = told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(told.len(), FILES + 2, "every call was sent");
    let mut per_node: BTreeMap<String, usize> = BTreeMap::new();
    for call in &told {
        *per_node.entry(call["placed"]["node"].as_str().expect("a name").to_owned()).or_default() += 1;
    }
    assert!(per_node.len() == 3 && per_node.values().all(|count| *count > FILES / 12), "{per_node:?}");

    // After a change of a header, only the files that depend on it are compiled again.
    std::thread::sleep(Duration::from_millis(20));
    machines.ok("echo '/* edited */' >>include/f3.h");
    machines.ok(&format!("{build}; test $(grep -c -- -c build.log) -eq 3"));
    machines.ok("make -q prog");
    machines.check_nothing_is_left();
}

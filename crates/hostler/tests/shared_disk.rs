//! Commands on a network disk that nodes share: directory identity, and visibility of recent writes in spite of
//! caches of kernels and programs. Needs root, sshfs and sshd.

use hostler_testkit::{Daemon, Host, Network, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// Mount point of the disk on all hosts except its server.
const SHARED: &str = "/home/op/shared";

/// A head that serves a disk, and two nodes that mount it with all caches enabled.
struct Machines {
    nodes: Vec<Host>,
    _daemons: Vec<Daemon>,
    _head: Host,
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn new() -> Self {
        let network = Network::new(HOSTLER);
        let (head, daemon) = network.head();
        let mut daemons = vec![daemon, serve_files(&head)];
        let nodes: Vec<Host> = ["n1", "n2"].map(|name| network.host(name)).into();
        for node in &nodes {
            node.join(&head);
            mount(&head, node);
            daemons.push(node.daemon("agent", &["hostler", "agent", "run", "--cpus", "0-1", "--root-jobs"]));
        }
        let machines = Self { nodes, _daemons: daemons, _head: head, _network: network };
        wait_until("n1 to know n2", 60, || {
            (machines.nodes[0].run(&["hostler", "exec", "-C", "/", "--node", "n2", "true"]).code == 0).then_some(())
        });
        machines
    }

    /// Output of a script on the first node, in the shared directory.
    fn here(&self, script: &str) -> String {
        self.nodes[0].ok(&["sh", "-c", &format!("cd {SHARED} && {script}")])
    }

    /// Output of a script that the first node runs on the second node with Hostler.
    fn there(&self, script: &str) -> String {
        self.here(&format!("hostler exec --node n2 -- sh -c '{script}'"))
    }

    /// Output of a script on the second node, run without Hostler.
    fn second(&self, script: &str) -> String {
        self.nodes[1].ok(&["sh", "-c", &format!("cd {SHARED} && {script}")])
    }
}

/// Starts an SSH file server on a host, with its own keys.
fn serve_files(host: &Host) -> Daemon {
    host.ok(&["sh", "-c", "mkdir -p /home/op/disk /run/sshd && cd /home/op && ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f key && cp key.pub authorized && chmod 600 authorized"]);
    let settings = "Port 22\nHostKey /home/op/host\nAuthorizedKeysFile /home/op/authorized\nStrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n";
    host.write("/home/op/sshd.conf", settings);
    host.daemon("sshd", &["/usr/sbin/sshd", "-D", "-e", "-f", "/home/op/sshd.conf"])
}

/// Mounts the disk with default cache options.
fn mount(from: &Host, on: &Host) {
    on.write("/home/op/key", from.read("/home/op/key"));
    on.ok(&["sh", "-c", &format!("chmod 600 key && mkdir {SHARED}")]);
    let options = "IdentityFile=/home/op/key,StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null";
    let source = format!("root@{}:/home/op/disk", from.address());
    wait_until("the disk to be mounted", 30, || {
        (on.run(&["sshfs", "-o", options, &source, SHARED]).code == 0).then_some(())
    });
}

#[test]
fn recent_writes_are_visible_on_both_nodes() {
    let machines = Machines::new();
    for round in 0..3 {
        // The second node has read the attributes and caches them.
        machines.here(&format!("printf short > input{round}"));
        assert_eq!(machines.second(&format!("stat -c %s input{round} && ls | grep -c input{round}")), "5\n1");
        machines.here(&format!("printf 'much longer' > input{round}"));
        assert_eq!(machines.second(&format!("stat -c %s input{round}")), "5", "the cache must be stale for this test");
        assert_eq!(machines.there(&format!("cat input{round}; stat -c \" %s\" input{round}")), "much longer 11");

        // The first node also sees what a command on the second node has written.
        machines.here(&format!("printf old > output{round}; stat output{round} >/dev/null; ls >/dev/null"));
        machines.there(&format!("printf brand-new > output{round}; printf x > more{round}"));
        let seen = machines.here(&format!("stat -c %s output{round} && cat output{round} && ls | grep -c more{round}"));
        assert_eq!(seen, format!("9\nbrand-new1"));
    }
    let left = machines.here("ls -A | grep -c hostler || true");
    assert_eq!(left, "0", "no temporary file is left");
}

#[test]
fn make_gives_the_same_result_with_remote_commands() {
    let machines = Machines::new();
    // Each step of the build uses files that a node has just written.
    let makefile = "CC = hostler exec --node $(NODE) -- cc\nOBJECTS = main.o a.o b.o\nprogram: $(OBJECTS)\n\tcc -o $@ $(OBJECTS)\n\
                    version.h: VERSION\n\tprintf '#define VERSION \"%s\"\\n' `cat VERSION` > $@\n$(OBJECTS): version.h\n\
                    main.o: NODE = n2\na.o: NODE = n2\nb.o: NODE = n1\n%.o: %.c\n\t$(CC) -g -c $<\n";
    machines.here(&format!("cat > Makefile <<'END'\n{makefile}END\n"));
    machines.here("echo 'int a(void); int b(void); int main(void) { return a() + b(); }' > main.c");
    for name in ["a", "b"] {
        machines.here(&format!("printf '#include \"version.h\"\\n#include <stdio.h>\\nint {name}(void) {{ puts(\"{name} \" VERSION); return 0; }}\\n' > {name}.c"));
    }
    for round in 0..10 {
        let version = "9".repeat(round + 1);
        // File times on this disk have a resolution of one second.
        std::thread::sleep(std::time::Duration::from_millis(1_100));
        machines.here(&format!("printf {version} > VERSION"));
        machines.here("make -j4 >/dev/null");
        assert_eq!(machines.here("./program"), format!("a {version}\nb {version}"), "round {round}");
        assert_eq!(machines.here("make -q; echo $?"), "0", "nothing is left to do");
        let objects = machines.here("md5sum *.o");
        machines.here("rm *.o program && make -j4 CC=cc >/dev/null");
        assert_eq!(machines.here("md5sum *.o"), objects, "the same objects as a local build");
    }
}

#[test]
fn different_directory_of_the_same_name_is_detected() {
    let machines = Machines::new();
    for node in &machines.nodes {
        node.ok(&["sh", "-c", "mkdir own && hostname > own/name"]);
    }
    let called = |arguments: &str| machines.nodes[0].run(&["sh", "-c", &format!("cd own && hostler exec {arguments}")]);
    let refused = called("--node n2 cat name");
    assert_eq!(refused.code, 126, "{refused:?}");
    assert!(refused.stderr.contains("/home/op/own on node n2 is not the caller's directory"), "{refused:?}");
    // If any node is allowed, a node with the right directory is chosen.
    let there = called("--exclude n3 --report cat name");
    assert_eq!((there.code, there.stdout.as_str()), (0, "n1\n"), "{there:?}");
    let named = called("--node n2 -C /home/op/own cat name");
    assert_eq!((named.code, named.stdout.as_str()), (0, "n2\n"), "{named:?}");
    let missing = machines.nodes[0].run(&["sh", "-c", "mkdir gone && cd gone && hostler exec --node n2 true"]);
    assert_eq!(missing.code, 126);
    assert!(missing.stderr.contains("cannot enter the directory /home/op/gone: No such file"), "{missing:?}");
    assert_eq!(
        machines.nodes[0].ok(&["sh", "-c", "ls -A own gone"]),
        "gone:\n\nown:\nname",
        "no temporary file is left"
    );
}

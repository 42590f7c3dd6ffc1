//! `dshd` and `dsh` on machines without a head, in network namespaces. Needs root.

use hostler_testkit::{Daemon, Host, Network, Outcome, wait_until};

const HOSTLER: &str = env!("CARGO_BIN_EXE_hostler");

/// A bash script that prints what a port sends.
const READ: &str = "exec 3<>/dev/tcp/127.0.0.1/$0 && cat <&3";

const NOBODY: [&str; 6] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", "-i"];

/// Hosts with one key, in which everybody can run `dshd` and `dsh`.
struct Machines {
    hosts: Vec<Host>,
    daemons: Vec<Option<Daemon>>,
    // Last: the daemons must end before their hosts.
    _network: Network,
}

impl Machines {
    fn of(count: usize) -> Self {
        let network = Network::new(HOSTLER);
        let hosts: Vec<_> = (1..=count).map(|number| network.host(&format!("n{number}"))).collect();
        for host in &hosts {
            host.ok(&["sh", "-c", "for name in dshd dsh; do ln -s hostler /run/bin/$name; done"]);
        }
        hosts[0].ok(&["dshd", "--new-key", "/etc/dsh.key"]);
        let key = hosts[0].read("/etc/dsh.key");
        let machines = Self { hosts, daemons: (0..count).map(|_| None).collect(), _network: network };
        (0..count).for_each(|at| machines.set_key(at, &key));
        machines
    }

    /// Writes the key of a host, which root and the host's `nobody` can read.
    fn set_key(&self, at: usize, key: &str) {
        self.hosts[at].write("/etc/dsh.key", key);
        self.hosts[at].ok(&[
            "sh",
            "-c",
            "cp /etc/dsh.key /etc/nobody.key; chown nobody /etc/nobody.key; chmod 600 /etc/*.key",
        ]);
    }

    fn set_list(&self, at: usize, list: &str) {
        self.hosts[at].write("/etc/hostler/dsh.conf", list);
    }

    fn start(&mut self, at: usize, flags: &[&str]) {
        self.daemons[at] = Some(self.hosts[at].daemon("dshd", &[&["dshd", "--key", "/etc/dsh.key"], flags].concat()));
    }

    fn start_as_nobody(&mut self, at: usize) {
        let dshd = [&NOBODY[..], &["PATH=/run/bin:/usr/bin:/bin", "dshd", "--key", "/etc/nobody.key"]].concat();
        self.daemons[at] = Some(self.hosts[at].daemon("dshd", &dshd));
    }

    fn kill(&mut self, at: usize) {
        self.daemons[at].take().expect("it runs").kill_9();
    }

    /// The words of each line that a port of a host sends.
    fn lines(&self, at: usize, port: u16) -> Vec<Vec<String>> {
        let said = self.hosts[at].run(&["timeout", "20", "bash", "-c", READ, &port.to_string()]);
        said.stdout.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect()
    }

    fn names(&self, at: usize) -> Vec<String> {
        self.lines(at, 8181).into_iter().map(|mut line| line.swap_remove(0)).collect()
    }

    fn wait_for_names(&self, at: usize, expected: &[&str]) {
        wait_until(&format!("n{} to list {expected:?}", at + 1), 60, || (self.names(at) == expected).then_some(()));
    }

    fn wait_for_log(&self, at: usize, part: &str) {
        wait_until(&format!("n{} to log: {part}", at + 1), 60, || {
            self.hosts[at].read("/home/op/dshd.log").contains(part).then_some(())
        });
    }

    fn dsh(&self, arguments: &[&str]) -> Outcome {
        self.hosts[0].run(&[&["timeout", "60", "dsh"], arguments].concat())
    }
}

/// Starts an SSH server on `there` that `here` trusts and can log in to.
fn open_ssh(here: &Host, there: &Host) -> Daemon {
    let keys = "mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N '' -f /home/op/host";
    there.ok(&["sh", "-c", keys]);
    here.ok(&["sh", "-c", "ssh-keygen -q -t ed25519 -N '' -f /home/op/key"]);
    there.write("/home/op/authorized", here.read("/home/op/key.pub"));
    there.write(
        "/home/op/sshd.conf",
        "HostKey /home/op/host\nAuthorizedKeysFile /home/op/authorized\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n",
    );
    here.write("/home/op/known", format!("{} {}", there.name(), there.read("/home/op/host.pub")));
    here.write("/etc/ssh/ssh_config", "UserKnownHostsFile /home/op/known\nBatchMode yes\nIdentityFile /home/op/key\n");
    let server = there.daemon("sshd", &["/usr/sbin/sshd", "-D", "-e", "-f", "/home/op/sshd.conf"]);
    wait_until("ssh to work", 30, || (here.run(&["ssh", there.name(), "true"]).code == 0).then_some(()));
    server
}

#[test]
fn listed_machines_share_loads_without_a_head_and_as_nobody() {
    let mut machines = Machines::of(3);
    // The lines are in another order, and with domains.
    machines.set_list(0, "n1 1.5 2\nn2\nn3\n");
    machines.set_list(1, "n3 9\nn2 2.5\nn1 9\n");
    machines.set_list(2, "n2\nN3\nn1\n");
    machines.start(0, &[]);
    machines.start_as_nobody(1);
    machines.start(2, &[]);
    for at in 0..3 {
        machines.wait_for_names(at, &["n1", "n2", "n3"]);
    }
    let owner = machines.hosts[1].ok(&["sh", "-c", "ps -o uid= -C dshd"]);
    assert_eq!(owner.trim(), "65534");
    // The weights are those of each machine's own file.
    let weights: Vec<_> = machines.lines(2, 8181).into_iter().map(|line| [line[7].clone(), line[8].clone()]).collect();
    assert_eq!(weights, [["1.50", "2.00"], ["2.50", "1.00"], ["1.00", "1.00"]]);
    assert_eq!(machines.lines(1, 8282).len(), 1);
    machines.kill(2);
    machines.wait_for_names(0, &["n1", "n2"]);
    machines.start(2, &[]);
    machines.wait_for_names(0, &["n1", "n2", "n3"]);
    machines.wait_for_names(2, &["n1", "n2", "n3"]);
    let log = machines.hosts[0].read("/home/op/dshd.log");
    assert!(!log.contains("has another") && !log.contains("is also called"), "{log}");

    // In the background, on other ports, beside nothing else: the address for programs is taken.
    let second = machines.hosts[0].run(&[
        "timeout",
        "60",
        "dshd",
        "--key",
        "/etc/dsh.key",
        "-b",
        "-p",
        "-t",
        "9181",
        "-r",
        "9282",
    ]);
    assert!(second.code == 1 && second.stderr.contains("does another dshd run?"), "{second:?}");
    machines.kill(0);
    let started = machines.hosts[0].run(&[
        "timeout",
        "60",
        "dshd",
        "--key",
        "/etc/dsh.key",
        "-b",
        "-p",
        "-t",
        "9181",
        "-r",
        "9282",
    ]);
    assert_eq!((started.code, started.stderr.as_str()), (0, ""), "{started:?}");
    wait_until("the other port to list all", 60, || (machines.lines(0, 9181).len() == 3).then_some(()));
    machines.hosts[0].ok(&["kill", started.stdout.trim()]);
}

#[test]
fn different_keys_and_lists_are_reported() {
    let mut machines = Machines::of(4);
    machines.set_list(0, "n1\nn2\nn3\n");
    machines.set_list(1, "n1\nn2\nn3\nn4\n");
    machines.set_list(2, "n1\nn2\nn3\n");
    machines.set_key(2, &"0f".repeat(32));
    (0..3).for_each(|at| machines.start(at, &[]));
    // Machines on both lists know each other; a machine with another key is a stranger.
    machines.wait_for_names(0, &["n1", "n2"]);
    machines.wait_for_names(1, &["n1", "n2"]);
    machines.wait_for_names(2, &["n3"]);
    machines.wait_for_log(0, "machine n2 at 10.203.0.2:7761 has another cluster file: only its file lists n4; give both machines the same file");
    machines.wait_for_log(
        1,
        "machine n1 at 10.203.0.1:7761 has another cluster file: only the file of this machine lists n4",
    );
    machines.wait_for_log(0, "machine n3 at 10.203.0.3:7761 has another key; copy the key file");
    machines.wait_for_log(2, "machine n1 at 10.203.0.1:7761 has another key");
    // A machine without a list is not heard by those with one.
    machines.start(3, &[]);
    machines.wait_for_log(1, "machine n4 at 10.203.0.4:7761 has no cluster file, and this machine has one");

    let dshd = |at: usize, flags: &[&str]| machines.hosts[at].run(&[&["timeout", "60", "dshd"], flags].concat());
    let refused = |said: &Outcome, parts: &[&str]| {
        assert!(said.code == 1 && parts.iter().all(|part| said.stderr.contains(part)), "{said:?}");
    };
    let host = &machines.hosts[0];
    host.ok(&["chmod", "644", "/etc/dsh.key"]);
    refused(
        &dshd(0, &["--key", "/etc/dsh.key"]),
        &["other users may read or change the key file", "chmod 600 /etc/dsh.key"],
    );
    refused(&dshd(0, &["--key", "/etc/nobody.key"]), &["belongs to another user (uid 65534)"]);
    refused(&dshd(0, &["--key", "/nowhere"]), &["cannot read the key file /nowhere", "dshd --new-key"]);
    refused(&dshd(0, &["--new-key", "/etc/dsh.key"]), &["cannot create the key file", "copy the existing file"]);
    host.ok(&["chmod", "600", "/etc/dsh.key"]);
    host.write("/home/op/list", "n1\nn2=here 1\n");
    refused(
        &dshd(0, &["--key", "/etc/dsh.key", "-f", "list"]),
        &["line 2 of the cluster file", "`here` is not an IP address"],
    );
    host.write("/home/op/list", "n7\nn8\n");
    refused(&dshd(0, &["--key", "/etc/dsh.key", "-f", "list"]), &["does not list this machine, n1", "--name NAME"]);
}

#[test]
fn machines_with_one_key_find_each_other_on_the_network() {
    let mut machines = Machines::of(4);
    machines.set_key(3, &"0f".repeat(32));
    machines.start(0, &[]);
    machines.start_as_nobody(1);
    machines.start(3, &[]);
    machines.wait_for_names(0, &["n1", "n2"]);
    machines.start(2, &[]);
    for at in 0..3 {
        machines.wait_for_names(at, &["n1", "n2", "n3"]);
    }
    machines.wait_for_names(3, &["n4"]);
    machines.wait_for_log(3, "has another key");
    machines.kill(1);
    machines.wait_for_names(0, &["n1", "n3"]);
    machines.start(1, &[]);
    machines.wait_for_names(0, &["n1", "n2", "n3"]);
    // A second machine with the same name is reported by the first.
    machines.kill(2);
    machines.start(2, &["--name", "n1"]);
    machines.wait_for_log(0, "another machine, at 10.203.0.3:7761, is also called n1");
}

#[test]
fn dsh_runs_commands_by_ssh_on_the_best_machine() {
    let mut machines = Machines::of(2);
    (0..2).for_each(|at| machines.set_list(at, "n1\nn2\n"));
    // More load than other processes on this machine cause.
    let settings = "[dsh]\ncall_load = 100000\ncall_ms = 60000\nremote_margin = 0\n";
    machines.hosts[0].write("/etc/hostler/agent.toml", settings);
    let said = machines.dsh(&["hostname"]);
    assert!(said.stdout == "n1\n" && said.stderr.contains("running the command here"), "no daemon yet: {said:?}");
    (0..2).for_each(|at| machines.start(at, &[]));
    machines.wait_for_names(0, &["n1", "n2"]);
    let _server = open_ssh(&machines.hosts[0], &machines.hosts[1]);

    // In the same directory, with arguments, input, output and the exit code as they are.
    let script = "cd /usr/share && dsh --node n2 sh -c 'hostname; pwd; cat; echo \"$1\" >&2; exit 7' sh \"it's  \\$1\"";
    let said = machines.hosts[0].run_with_input(&["sh", "-c", script], "input");
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (7, "n2\n/usr/share\ninput", "it's  $1\n"));
    let said = machines.hosts[0].ok(&["script", "-qec", "dsh --node n2 sh -c 'hostname; tty'", "/dev/null"]);
    assert!(said.contains("n2\r\n/dev/pts/"), "on a terminal: {said}");
    let said = machines.dsh(&["--exclude", "n1", "--report", "hostname"]);
    assert!(said.stdout == "n2\n" && said.stderr.contains("ran on n2 (score "), "{said:?}");
    let said = machines.dsh(&["--node", "n1", "--report", "hostname"]);
    assert!(said.stdout == "n1\n" && said.stderr.contains("ran on n1 (here, score "), "{said:?}");
    assert_eq!(machines.dsh(&["--node", "n2", "-C", "/nowhere", "true"]).code, 125, "the directory is missing there");
    assert_eq!(machines.dsh(&["--node", "n2", "no-such-program"]).code, 127);
    let said = machines.dsh(&["--explain"]);
    assert!(said.stdout.contains("n1 (here)") && said.stdout.contains("\nn2 "), "{said:?}");
    assert!(said.stdout.contains("commands so far: 1 here, 5 elsewhere"), "{said:?}");
    let said = machines.dsh(&["--all", "hostname"]);
    assert!(said.code == 0 && said.stdout.contains("n1: n1\n") && said.stdout.contains("n2: n2\n"), "{said:?}");
    for option in [&["--memory", "1G"][..], &["--constraint", "ssd"], &["--sandbox"], &["--mirror"]] {
        let said = machines.dsh(&[option, &["true"]].concat());
        assert!(said.code == 2 && said.stderr.contains("needs an agent"), "{said:?}");
    }
    let said = machines.dsh(&["--node", "n9", "true"]);
    assert!(said.code == 125 && said.stderr.contains("n9: no node of that name is known here"), "{said:?}");

    // Commands that start at the same moment go to different machines. Those above count as load for `call_ms`.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let many = "for i in 1 2 3 4 5 6 7 8; do dsh sh -c 'hostname; sleep 2' & done; wait";
    let ran = machines.hosts[0].ok(&["sh", "-c", many]);
    assert!(ran.matches("n1").count() >= 2 && ran.matches("n2").count() >= 2 && ran.lines().count() == 8, "{ran}");

    // Another program in place of ssh; the option is passed on.
    machines.hosts[0].write("/home/op/rsh", "#!/bin/sh\necho \"$@\"\n");
    machines.hosts[0].ok(&["chmod", "755", "/home/op/rsh"]);
    let said = machines.hosts[0].ok(&["env", "DSH_RSH=/home/op/rsh -x", "dsh", "--node", "n2", "true"]);
    assert_eq!(said, "-x n2 cd '/home/op' || exit 125; exec 'true'");

    // A daemon of another person gets no questions.
    machines.kill(0);
    machines.hosts[0].ok(&[
        "sh",
        "-c",
        "cp /etc/dsh.key /etc/person.key; chown 4321 /etc/person.key; chmod 600 /etc/person.key",
    ]);
    let person = ["setpriv", "--reuid=4321", "--regid=4321", "--clear-groups", "dshd", "--key", "/etc/person.key"];
    machines.daemons[0] = Some(machines.hosts[0].daemon("dshd", &person));
    machines.wait_for_names(0, &["n1", "n2"]);
    let said = machines.dsh(&["hostname"]);
    assert!(said.stdout == "n1\n" && said.stderr.contains("runs as another user (uid 4321)"), "{said:?}");
    let said = machines.dsh(&["--node", "n2", "hostname"]);
    assert!(said.code == 125 && said.stdout.is_empty() && said.stderr.contains("as yourself"), "{said:?}");
}

//! A remote command has the caller's user, directory, environment and limits, and its end is passed on.

use hostler_testkit::{Outcome, wait_until};

use crate::machines::{Machines, USER};

/// Prints the properties of a command that must not depend on the node.
const TELL: &str = "id -un; id -u; id -Gn; pwd; pwd -P; umask; ulimit -Sa; ulimit -Ha; \
                    env -0 | LC_ALL=C grep -azv -e ^HOSTLER_NODE= -e ^SHLVL= -e ^_= | sort -z | od -An -c; ls -a";

#[test]
fn remote_command_has_the_callers_identity_and_exit_status() {
    let machines = Machines::of(2);
    a_command_is_its_callers(&machines);
    a_command_ends_as_it_does_here(&machines);
}

fn a_command_is_its_callers(machines: &Machines) {
    // Both nodes run on one kernel, so the known limits are the same.
    let prepare = "d=$(printf 'a b\\n\\377\\001'); mkdir -p \"$d\" && cd \"$d\" && touch here && umask 027 && ulimit -n 64 && ulimit -Sn 61 \
                   && ulimit -c 0 && ulimit -Sf 5000 && export ODD=$(printf 'x\\ny\\377\\001 =') EMPTY=";
    let tell = |command: &str| machines.ok(0, &format!("{prepare} && tell='{TELL}' && {command} bash -c \"$tell\""));
    let (here, there) = (tell(""), tell("env dsh --node n2"));
    assert_eq!(here, there);
    for words in [USER, "\n0027\n", "61", "E   M   P   T   Y", "\nhere"] {
        assert!(there.contains(words), "{words:?}: {there}");
    }
    assert_eq!(
        machines
            .ok(0, &format!("{prepare} && dsh --node n2 sh -c 'echo $HOSTLER_NODE; touch made' && stat -c %U-%a made")),
        format!("n2\n{USER}-640")
    );
    // Limits above the caller's hard limit stay, and users can raise their soft limits.
    let raised = machines
        .ok(0, &format!("{prepare}; dsh --node n2 bash -c 'ulimit -Sn 64 && ulimit -n 65 2>/dev/null || ulimit -n'"));
    assert_eq!(raised, "64");
}

#[test]
fn login_uid_of_remote_commands_is_their_users_and_fixed() {
    let own = std::fs::read_to_string("/proc/self/loginuid").unwrap_or_default();
    let machines = Machines::of(2);
    let tell = "cat /proc/self/loginuid; echo; (echo 0 > /proc/self/loginuid) 2>/dev/null && echo changed; cat /proc/self/loginuid";
    // If the one of the tests is set, they run in a login, which a container without rights over the audit log cannot leave.
    // Without the file, the kernel has no audit log.
    let uid = if own == "4294967295" { machines.ok(0, "id -u") } else { own };
    for options in ["", "--sandbox"] {
        let told =
            machines.ok(0, &format!("mkdir -p work; cd work; dsh {options} --node n2 sh -c '{tell}' 2>/dev/null"));
        let told: Vec<&str> = told.split_whitespace().collect();
        assert!(told.is_empty() == uid.is_empty() && told.iter().all(|told| **told == uid), "{options} {told:?}");
    }
}

#[test]
fn remote_command_does_not_see_the_file_that_proves_its_directory() {
    let machines = Machines::of(2);
    let shared = machines.shared();
    // Each directory is new to n2, so it needs a proof.
    let listed = "for name in $(seq 40); do mkdir $name; cd $name; dsh --node n2 ls -A; ls -A; cd ..; done";
    assert_eq!(machines.ok(0, listed), "");
    // A node that cannot remove the file waits until the caller has.
    machines.ok(0, "mkdir fixed");
    let fixed = format!("{shared}/fixed");
    machines.nodes[1].ok(&["mount", "--bind", &fixed, &fixed]);
    machines.nodes[1].ok(&["mount", "-o", "remount,bind,ro", &fixed]);
    assert_eq!(
        machines.ok(0, "cd fixed; dsh --node n2 sh -c 'ls -A; touch x 2>/dev/null || echo read-only'; ls -A"),
        "read-only"
    );
}

fn a_command_ends_as_it_does_here(machines: &Machines) {
    let codes: Vec<_> =
        (0..=255).step_by(3).chain([1, 2, 125, 127, 128, 130, 254]).map(|code: u8| code.to_string()).collect();
    let ended = format!("for code in {}; do dsh --node n2 sh -c \"exit $code\"; echo $?; done", codes.join(" "));
    assert_eq!(machines.ok(0, &ended), codes.join("\n"));

    // A shell reports 128 and more for a signal; its parent sees the signal itself.
    let script = "\
import resource, signal, subprocess
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for number in [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 24, 30, 31, 34, 64]:
    for where in [[], ['dsh', '--node', 'n2'], ['dsh', '--node', 'n1']]:
        ended = subprocess.run([*where, 'python3', '-c', f'import os, signal; {number} in (2, 13) and signal.signal({number}, signal.SIG_DFL); os.kill(os.getpid(), {number})'], stderr=subprocess.PIPE)
        if ended.returncode != -number or ended.stderr:
            print(number, where, ended.returncode, ended.stderr)
";
    assert_eq!(machines.python(0, script), Vec::<String>::new());

    // The exit codes are those of a shell, but the messages are Hostler's.
    machines.write("data", "no program");
    let script = "chmod 644 data; for program in /no/such/program ./data . ./none; do \
                  $dsh $program 2>message; echo $?; [ -s message ] || echo $program was refused without a word; done";
    let with = |dsh: &str| machines.ok(0, &format!("dsh='{dsh}'; {script}"));
    for dsh in ["env", "dsh --node n1", "dsh --node n2"] {
        assert_eq!(with(dsh), "127\n126\n126\n127", "{dsh}");
    }
}

#[test]
fn blocked_user_cannot_run_remote_commands() {
    let machines = Machines::of(2);
    let admin = |arguments: &[&str]| machines.head.ok(&[&["hostler", "configure", "user"], arguments].concat());
    assert_eq!(machines.ok(0, "dsh --node n2 id -un"), USER);
    let uid = crate::machines::ids().0.to_string();
    // Users are blocked by uid, whatever the name of the account.
    admin(&["block", "somebody", "--uid", &uid, "--reason", "see the desk"]);
    for command in ["dsh --node n2 id -un", "dsh --node n1 id -un", "dsh id -un"] {
        let refused = wait_until("the nodes to learn of the change", 30, || {
            Some(machines.run(0, command)).filter(|it| it.code != 0)
        });
        assert_eq!((refused.code, refused.stdout.as_str()), (126, ""), "{command}: {refused:?}");
        assert!(refused.stderr.contains(&format!("an admin has blocked user `{USER}`")), "{command}: {refused:?}");
    }
    admin(&["unblock", "somebody"]);
    wait_until("the nodes to learn of the change", 30, || {
        (machines.run(0, "dsh --node n2 id -un").code == 0).then_some(())
    });
}

#[test]
fn privileged_account_needs_permission_for_remote_commands() {
    let machines = Machines::of(2);
    let admin = |arguments: &[&str]| machines.head.ok(&[&["hostler", "configure"], arguments].concat());
    assert_eq!(machines.ok(0, "dsh --node n2 id -un"), USER);
    admin(&["user", "add", USER, "--role", "operator"]);
    let refused = wait_until("the nodes to learn of the change", 30, || {
        Some(machines.run(0, "dsh --node n2 id -un")).filter(|it| it.code != 0)
    });
    assert_eq!((refused.code, refused.stdout.as_str()), (126, ""), "{refused:?}");
    assert!(refused.stderr.contains("other nodes may not act for such an account"), "{refused:?}");
    assert!(refused.stderr.contains("roles-through-nodes yes"), "{refused:?}");
    assert_eq!(machines.ok(0, "dsh --node n1 id -un"), USER, "its own node trusts its own kernel");
    let root = machines.nodes[0].run(&["dsh", "--node", "n2", "-C", "/", "id", "-un"]);
    assert!(root.code == 126 && root.stdout.is_empty() && root.stderr.contains("--root-jobs"), "{root:?}");
    admin(&["setting", "roles-through-nodes", "yes"]);
    wait_until("the nodes to learn of the change", 30, || {
        (machines.run(0, "dsh --node n2 id -un").code == 0).then_some(())
    });
}

#[test]
fn system_accounts_run_nothing_until_an_admin_allows_it() {
    let machines = Machines::of(2);
    let admin = |arguments: &[&str]| machines.head.ok(&[&["hostler", "configure"], arguments].concat());
    // Debian has no group `nobody`.
    let id_of = |user: &'static str| if user == "nobody" { "65534" } else { user };
    for id in ["daemon", "nobody"].map(id_of) {
        machines.nodes[0].ok(&["sh", "-c", &format!("mkdir /home/{id} && chown {id} /home/{id}")]);
    }
    let run_as = |user: &'static str, command: &str| {
        let user = id_of(user);
        let output = machines.command_of(user, 0, &["bash", "-c", command]).output().expect("nsenter can be started");
        Outcome::of(&output)
    };
    let submit = "hostler run -c 1 -m 32M -- id -un";
    // The testkit allows them.
    admin(&["setting", "system-accounts", "--reset"]);
    for user in ["daemon", "nobody", USER] {
        for command in ["dsh --node n2 id -un", "dsh --node n1 id -un", "dsh id -un", submit] {
            let refused = wait_until("the nodes to learn of the change", 30, || {
                Some(run_as(user, command)).filter(|it| it.code != 0)
            });
            assert_eq!(refused.stdout, "", "{user}, {command}: {refused:?}");
            for part in ["system account", "setting system-accounts yes", &format!("user add {user}")] {
                assert!(refused.stderr.contains(part), "{user}, {command}: {refused:?}");
            }
        }
    }

    // Neither a user nor an operator can change the setting.
    admin(&["user", "add", "mail", "--role", "operator"]);
    for (user, only) in [("daemon", "only operators may"), ("mail", "only admins may")] {
        let they = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "env", "HOME=/", "hostler"];
        let change = ["configure", "setting", "system-accounts", "yes"];
        let refused = machines.head.run(&[&they[..], &change].concat());
        assert!(refused.code != 0 && refused.stderr.contains(only), "{user}: {refused:?}");
    }

    let is_allowed = |user: &'static str, command: &str| {
        wait_until("the nodes to learn of the change", 30, || {
            let ran = run_as(user, command);
            (ran.code == 0 && ran.stdout == format!("{user}\n")).then_some(())
        });
    };
    // An admin can allow one account, or all.
    admin(&["user", "add", USER]);
    for command in ["dsh --node n2 id -un", submit] {
        is_allowed(USER, command);
        assert_ne!(run_as("daemon", command).code, 0, "{command}");
    }
    admin(&["setting", "system-accounts", "yes"]);
    for user in ["daemon", "nobody"] {
        for command in ["dsh --node n2 id -un", submit] {
            is_allowed(user, command);
        }
    }
}

#[test]
fn restarted_node_refuses_the_same_accounts_while_the_head_is_away() {
    let mut machines = Machines::of(2);
    let command = "dsh --node n2 id -un";
    machines.head.ok(&["hostler", "configure", "user", "add", USER, "--role", "operator"]);
    let is_refused = |ran: &Outcome| ran.stderr.contains("other nodes may not act for such an account");
    wait_until("the nodes to learn of the change", 30, || is_refused(&machines.run(0, command)).then_some(()));
    machines.head_daemon.take().expect("the daemon runs").kill_9();
    machines.kill_agent(1);
    machines.start_agent(1, &[]);
    // A system account that was allowed stays allowed.
    wait_until("n2 to take commands again", 60, || {
        let output = machines.command_of("news", 0, &["bash", "-c", command]).output().expect("nsenter can be started");
        let ran = Outcome::of(&output);
        (ran.code == 0 && ran.stdout == "news\n").then_some(())
    });
    let refused = machines.run(0, command);
    assert!(refused.code == 126 && is_refused(&refused), "{refused:?}");
}

//! A simulated user who acts at random and records each submission that the cluster has acknowledged.
//!
//! Each task of each job appends `INDEX ATTEMPT` to a file named by the job's token. The final checks compare these
//! files with the records.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hostler_testkit::Random;

use crate::world::{FIRST_UID, World};

/// Message of a job that failed because the small disk of its node was full.
pub(crate) const DISK_FULL: &str = "the disk of node n1 is full";

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) user: u32,
    pub(crate) jobs: Vec<Submitted>,
    /// Tokens of submissions without an answer. Each such job may have run at most once.
    pub(crate) unknown: Vec<String>,
    /// Wrong results seen by the user.
    pub(crate) faults: Vec<String>,
    pub(crate) operations: u64,
    /// Refused submissions: their number, with the first reason.
    pub(crate) refused: u64,
    pub(crate) first_refusal: Option<String>,
}

/// An acknowledged submission.
pub(crate) struct Submitted {
    pub(crate) id: u64,
    pub(crate) token: String,
    pub(crate) kind: Kind,
    pub(crate) tasks: u32,
    /// Exit code of each task.
    pub(crate) exit: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Command,
    Project,
    /// A job that tries to harm the cluster. It may end in any state.
    Hostile,
}

/// Acts as a user until `over` is set.
pub(crate) fn live(world: &World, user: u32, mut random: Random, over: &AtomicBool) -> Ledger {
    let mut ledger = Ledger { user, ..Ledger::default() };
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        turn += 1;
        ledger.operations += 1;
        let token = format!("u{user}t{turn}");
        let mut person = Person { world, user, random: &mut random, ledger: &mut ledger };
        match person.random.below(100) {
            0..30 => person.command(token),
            30..38 => person.attached(&token),
            38..46 => person.project(token),
            46..52 => person.array(token),
            52..55 => person.hostile(token),
            55..65 => person.on_own("cancel"),
            65..70 => person.on_own("requeue"),
            70..73 => person.on_own("hold"),
            73..77 => person.on_own("release"),
            77..80 => person.meddle(),
            80..84 => person.leave(),
            84..88 => person.fetch(),
            _ => person.look(),
        }
        thread::sleep(Duration::from_millis(100 + random.below(1_200)));
    }
    ledger
}

struct Person<'a> {
    world: &'a World,
    user: u32,
    random: &'a mut Random,
    ledger: &'a mut Ledger,
}

/// Logs its start, works for a while, and exits with the given code.
const TASK: &str = r#"echo "${HOSTLER_ARRAY_INDEX:-0} $HOSTLER_ATTEMPT" >> "$HOME/ran/$0"; sleep "$1"; exit "$2""#;

/// Scripts that abuse the cluster.
const HARM: [&str; 6] = [
    "setsid sleep 600 </dev/null >/dev/null 2>&1 & sleep 0.1",
    "python3 -c 'bytearray(1 << 30)'",
    "truncate -s 10T /proc/self/fd/1",
    "head -c 30000000 /dev/zero | tr '\\0' 'x'",
    "for i in 1 2 3 4 5 6 7 8; do (trap '' TERM; sleep 300) & done",
    "python3 -c \"import os\nfor _ in range(2000): os.mkdir('d'); os.chdir('d')\"",
];

impl Person<'_> {
    fn hostler(&self, arguments: &[&str]) -> hostler_testkit::Outcome {
        self.world.run(Some(self.user), arguments)
    }

    /// Records a submission by its outcome.
    fn enter(&mut self, outcome: &hostler_testkit::Outcome, token: String, kind: Kind, tasks: u32, exit: i32) {
        match (outcome.code, outcome.stdout.trim().parse()) {
            (0, Ok(id)) => self.ledger.jobs.push(Submitted { id, token, kind, tasks, exit }),
            (0, Err(_)) => self.ledger.faults.push(format!("a submission printed no id: {outcome:?}")),
            _ => {
                self.ledger.refused += 1;
                self.ledger.first_refusal.get_or_insert_with(|| outcome.stderr.clone());
                self.ledger.unknown.push(token);
            }
        }
    }

    fn command(&mut self, token: String) {
        let (nap, exit) = (format!("0.{}", self.random.below(9)), i32::from(self.random.below(5) == 0));
        let mut arguments = vec!["run", "--detach", "-c", "1", "-m", "64M"];
        if self.random.below(2) == 0 {
            arguments.push("--requeue");
        }
        if self.random.below(10) == 0 {
            arguments.push("--hold");
        }
        let exit_text = exit.to_string();
        arguments.extend(["--", "sh", "-c", TASK, &token, &nap, &exit_text]);
        let outcome = self.hostler(&arguments);
        self.enter(&outcome, token, Kind::Command, 1, exit);
    }

    fn array(&mut self, token: String) {
        let outcome = self.hostler(&[
            "run",
            "--detach",
            "--requeue",
            "-a",
            "0-9%4",
            "-c",
            "1",
            "-m",
            "64M",
            "--",
            "sh",
            "-c",
            TASK,
            &token,
            "0.1",
            "0",
        ]);
        self.enter(&outcome, token, Kind::Command, 10, 0);
    }

    /// Runs a command and checks its output, unless the cluster was unavailable.
    fn attached(&mut self, token: &str) {
        let outcome =
            self.hostler(&["run", "-t", "20s", "-c", "1", "-m", "64M", "--", "sh", "-c", "echo $0; exit 7", token]);
        match outcome.code {
            7 if outcome.stdout.trim() == token => {}
            124 | 125 | 137 | 143 => {}
            // The node's full disk had no space for the output of the job.
            7 if outcome.stderr.contains(DISK_FULL) => {}
            _ => self.ledger.faults.push(format!("`run` of {token} ended with {outcome:?}")),
        }
    }

    fn project(&mut self, token: String) {
        let folder = self.world.home_of(self.user).join(format!("project-{}", self.random.below(3)));
        let _ = fs::create_dir(&folder);
        let script = "echo \"${HOSTLER_ARRAY_INDEX:-0} $HOSTLER_ATTEMPT\" >> \"$HOME/ran/$1\"; echo \"$1\" > result; cat data | wc -c >> result";
        let data = vec![b'x'; self.random.below(200_000) as usize];
        for (name, content) in [("main.sh", script.as_bytes()), ("data", &data)] {
            fs::write(folder.join(name), content).expect("root has permission");
            let id = Some(FIRST_UID + self.user);
            chown(folder.join(name), id, id).expect("root has permission");
        }
        let id = Some(FIRST_UID + self.user);
        chown(&folder, id, id).expect("root has permission");
        let folder = folder.to_string_lossy().into_owned();
        let outcome = self.hostler(&["submit", "--requeue", &folder, "main.sh", "-c", "1", "-m", "64M", "--", &token]);
        self.enter(&outcome, token, Kind::Project, 1, 0);
    }

    fn hostile(&mut self, token: String) {
        let harm = *self.random.one_of(&HARM);
        let outcome = self.hostler(&["run", "--detach", "-t", "10s", "-c", "1", "-m", "128M", "--", "sh", "-c", harm]);
        self.enter(&outcome, token, Kind::Hostile, 1, 0);
    }

    fn on_own(&mut self, verb: &str) {
        let Some(last) = self.ledger.jobs.len().checked_sub(1) else { return };
        let job = last - (self.random.below(20) as usize).min(last);
        let id = self.ledger.jobs[job].id.to_string();
        drop(self.hostler(&[verb, &id]));
    }

    /// Tries to cancel another user's job.
    fn meddle(&mut self) {
        let id = 1 + self.random.below(500);
        if self.ledger.jobs.iter().any(|job| job.id == id) {
            return;
        }
        let text = id.to_string();
        let shown = self.hostler(&["job", &text, "--json"]).stdout;
        let own = shown.contains(&format!("\"user\":\"{}\"", crate::world::name_of(self.user)));
        if !own && self.hostler(&["cancel", &text]).code == 0 {
            self.ledger.faults.push(format!("user {} could cancel job {id} of another user", self.user));
        }
    }

    /// Follows a job and disconnects before it ends.
    fn leave(&mut self) {
        let Some(job) = self.ledger.jobs.last() else { return };
        let id = job.id.to_string();
        let mut command = self.world.command(Some(self.user), &["logs", "-f", &id]);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program can be started");
        thread::sleep(Duration::from_millis(self.random.below(500)));
        child.kill().expect("the process is not reaped yet");
        child.wait().expect("the process is not reaped yet");
    }

    /// Fetches the result of a project and checks it.
    fn fetch(&mut self) {
        let projects: Vec<_> = self.ledger.jobs.iter().filter(|job| job.kind == Kind::Project).collect();
        let Some(job) = projects.len().checked_sub(1).map(|last| projects[self.random.below(last as u64 + 1) as usize])
        else {
            return;
        };
        let (id, token) = (job.id.to_string(), job.token.clone());
        let outcome = self.hostler(&["fetch", &id, "--to", "results"]);
        let result = self.world.home_of(self.user).join(format!("results/{id}/result"));
        if outcome.code == 0
            && let Ok(content) = fs::read_to_string(&result)
            && content.lines().next() != Some(token.as_str())
        {
            self.ledger.faults.push(format!("the result of job {id} contains {content:?} instead of {token}"));
        }
        let _ = fs::remove_file(result);
    }

    fn look(&mut self) {
        let id = self.ledger.jobs.last().map_or_else(|| "1".to_owned(), |job| job.id.to_string());
        let commands: [&[&str]; 6] =
            [&["jobs"], &["jobs", "--all"], &["job", &id], &["why", &id], &["logs", &id], &["nodes"]];
        let command = *self.random.one_of(&commands);
        let outcome = self.hostler(command);
        if outcome.code > 128 && outcome.code != 137 && outcome.code != 143 {
            self.ledger.faults.push(format!("hostler {command:?} ended with {outcome:?}"));
        }
    }
}

//! Limits hold on each way on which tasks get into the queue. `docs/internals/security.md` names these tests.

use hostler_core::head::{Caller, Command, NewUser, Refusal, UsersCommand, explain};
use hostler_model::{Condition, Dependency, JobId, JobSpec, PartitionState, Quota, Request, Role, UserName};
use hostler_proto::api::{JobAction, JobChange};
use hostler_proto::link::{HeadMessage, RunStatus};
use hostler_proto::partitions::PartitionChange;

use crate::harness::*;
use crate::partitions::{add, change, on};

/// A way on which tasks get into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Submission,
    Array,
    /// The user queues a failed job again.
    Requeue,
    /// The head queues a run again that its node has lost.
    Loss,
    /// The job that this job depends on ends.
    Dependency,
    /// The user changes a held job, and releases it.
    Change,
}

use Way::{Array, Change, Dependency as Dependent, Loss, Requeue, Submission};

const WAYS: [Way; 6] = [Submission, Array, Requeue, Loss, Dependent, Change];

/// What happens to a task that comes on a way while a limit applies.
enum Outcome {
    /// The command is refused with this code.
    Refused(&'static str),
    /// The task waits for this reason.
    Waits(&'static str),
    /// The task starts: the limit does not concern this way.
    Starts,
}

use Outcome::{Refused, Starts, Waits};

/// A job that needs one more command to get into the queue on its way.
struct Entry {
    way: Way,
    caller: Caller,
    spec: JobSpec,
    /// The job, if it has been submitted already.
    job: Option<JobId>,
    /// The job of another user that the job depends on.
    parent: Option<JobId>,
}

impl Entry {
    /// Prepares a job on the node n1.
    fn prepare(head: &mut Head, way: Way, caller: &Caller, spec: &JobSpec) -> Self {
        let mut entry = Self { way, caller: caller.clone(), spec: spec.clone(), job: None, parent: None };
        match way {
            Submission | Array => {}
            Requeue => {
                let job = entry.submit(head, spec.clone()).expect("no limit applies yet");
                head.report(1, head.run_of(job), ended(1)).expect("accepted");
                entry.job = Some(job);
            }
            Loss => {
                let job = entry.submit(head, JobSpec { requeue: true, ..spec.clone() }).expect("no limit applies yet");
                head.report(1, head.run_of(job), RunStatus::Running).expect("accepted");
                entry.job = Some(job);
            }
            Dependent => {
                let parent = head.submit_as(user("ben"), JobSpec { hold: true, ..self::spec() }).expect("accepted");
                let after = [Dependency::new(Condition::AfterAny, parent)].into();
                entry.job = Some(entry.submit(head, JobSpec { after, ..spec.clone() }).expect("no limit applies yet"));
                entry.parent = Some(parent);
            }
            Change => {
                let other = JobSpec { hold: true, request: Request::new(2, 2 << 30), ..elsewhere() };
                entry.job = Some(entry.submit(head, other).expect("no limit applies yet"));
            }
        }
        entry
    }

    /// Gives the command that puts the job into the queue.
    fn enter(&self, head: &mut Head) -> Result<JobId, Refusal> {
        let Some(job) = self.job else {
            let array = (self.way == Array).then(|| "0-1".parse().expect("an array"));
            return self.submit(head, JobSpec { array, ..self.spec.clone() });
        };
        match self.way {
            Submission | Array => {}
            Requeue => self.act(head, job, JobAction::Requeue)?,
            Loss => head.hello("n1", 100, "another boot", vec![]),
            Dependent => {
                let cancel = JobAction::Cancel;
                let parent = self.parent.expect("the job has a dependency");
                head.command(&Command::Act { caller: user("ben"), job: parent, index: None, action: cancel })?;
            }
            Change => {
                let JobSpec { request, time_limit_ms, priority, partition, constraint, .. } = self.spec.clone();
                let change = JobChange {
                    cpus: Some(request.cpus),
                    memory_bytes: Some(request.memory_bytes),
                    time_limit_ms,
                    priority: Some(priority),
                    partition,
                    constraint: Some(constraint),
                    ..JobChange::default()
                };
                head.command(&Command::Change { caller: self.caller.clone(), job, change: Box::new(change) })?;
                self.act(head, job, JobAction::Release)?;
            }
        }
        Ok(job)
    }

    fn submit(&self, head: &mut Head, spec: JobSpec) -> Result<JobId, Refusal> {
        head.submit_as(self.caller.clone(), spec)
    }

    fn act(&self, head: &mut Head, job: JobId, action: JobAction) -> Result<(), Refusal> {
        head.command(&Command::Act { caller: self.caller.clone(), job, index: None, action })
    }
}

/// A head with the users ada and ben, the nodes n1 and n2 of two CPUs each, and the partition p that contains n1.
fn cluster() -> Head {
    let mut head = Head::new();
    (head.runs_sandboxes, head.quiets_machine) = (true, true);
    head.hello("n1", 1, "boot", vec![]);
    head.hello("n2", 2, "boot", vec![]);
    add(&mut head, "p", on("n1"));
    let new = |user: &str, uid| NewUser {
        name: name_of(user),
        uid: Some(uid),
        role: Role::User,
        groups: Default::default(),
        keys: Vec::new(),
    };
    users(&mut head, UsersCommand::Import(vec![new("ada", 1000), new("ben", 1001)]));
    head
}

fn name_of(user: &str) -> UserName {
    user.parse().expect("a valid name")
}

fn users(head: &mut Head, command: UsersCommand) {
    head.command(&Command::Users(command)).expect("accepted");
}

fn ada() -> Caller {
    Caller { uid: Some(1000), ..user("ada") }
}

/// A job of one CPU on n1.
fn here() -> JobSpec {
    JobSpec { constraint: Some("n1".parse().expect("a constraint")), ..spec() }
}

/// A job of one CPU on n2.
fn elsewhere() -> JobSpec {
    JobSpec { constraint: Some("n2".parse().expect("a constraint")), ..spec() }
}

fn within_p() -> JobSpec {
    JobSpec { partition: Some("p".parse().expect("a name")), ..here() }
}

/// Checks a limit on these ways, each in a cluster of its own: what happens while the limit applies, and that the job starts when
/// the limit no longer applies.
fn check(
    ways: &[Way],
    (caller, spec): (&Caller, &JobSpec),
    begin: impl Fn(&mut Head),
    end: impl Fn(&mut Head),
    expected: impl Fn(Way) -> Outcome,
) {
    for &way in ways {
        let mut head = cluster();
        head.state.settings.user_priority = 5;
        head.state.settings.system_accounts = true;
        let entry = Entry::prepare(&mut head, way, caller, spec);
        begin(&mut head);
        let entered = entry.enter(&mut head);
        let has_started = |head: &Head, job| !head.job(job).active.is_empty();
        match (expected(way), &entered) {
            (Refused(code), Err(refusal)) => assert_eq!(refusal.code(), code, "{way:?}: {refusal}"),
            (Waits(why), Ok(job)) => {
                assert!(!has_started(&head, *job), "{way:?} evades the limit");
                let reason = explain(&head.state, head.job(*job)).expect("the job waits").to_string();
                assert_eq!(reason, why, "{way:?}");
            }
            (Starts, Ok(job)) => assert!(has_started(&head, *job), "{way:?}"),
            (_, entered) => panic!("{way:?}: {entered:?}"),
        }
        end(&mut head);
        let job = entered.unwrap_or_else(|_| entry.enter(&mut head).expect("the limit no longer applies"));
        assert!(has_started(&head, job), "{way:?}: {:?}", explain(&head.state, head.job(job)));
    }
}

#[test]
fn blocked_account_starts_nothing_on_any_way_into_the_queue() {
    let reason = || Some("see the desk".to_owned());
    let block = |head: &mut Head| {
        let block = UsersCommand::Block { name: name_of("ada"), uid: None, by: "root".to_owned(), reason: reason() };
        users(head, block);
    };
    let unblock = |head: &mut Head| users(head, UsersCommand::Unblock(name_of("ada")));
    check(&WAYS, (&ada(), &here()), block, unblock, |way| match way {
        Submission | Array => Refused("blocked"),
        // The API refuses requests of blocked users. Operators can make the other requests for them.
        Requeue | Change | Loss | Dependent => Waits("ada is blocked on this cluster: see the desk"),
    });
}

#[test]
fn system_account_is_refused_or_left_to_its_node_on_any_way_into_the_queue() {
    let daemon = Caller { uid: Some(1), ..user("daemon") };
    let set = |value: bool| move |head: &mut Head| head.state.settings.system_accounts = value;
    check(&WAYS, (&daemon, &here()), set(false), set(true), |way| match way {
        Submission | Array => Refused("system_account"),
        // `system_accounts_are_refused_unless_the_head_allows_them` shows that agents refuse these runs.
        Requeue | Change | Loss | Dependent => Starts,
    });
}

#[test]
fn root_starts_nothing_where_it_is_refused_on_any_way_into_the_queue() {
    let root = Caller { uid: Some(0), ..user("root") };
    let refuse = |head: &mut Head| {
        head.advisory.refuses_root = true;
        head.hello("n1", 10, "boot", vec![]);
    };
    let accept = |head: &mut Head| {
        head.advisory.refuses_root = false;
        head.hello("n1", 200, "third boot", vec![]);
    };
    check(&WAYS, (&root, &here()), refuse, accept, |way| match way {
        Submission | Array | Change => Refused("not_for_root"),
        Requeue | Loss | Dependent => Waits("no node that has n1 runs jobs of root"),
    });
}

#[test]
fn quota_holds_on_every_way_into_the_queue() {
    let limit = |head: &mut Head, cpus: Option<u64>| {
        users(head, UsersCommand::SetQuota(name_of("ada"), Quota { cpus, ..Quota::default() }));
    };
    let use_up = |head: &mut Head| {
        head.submit_as(ada(), elsewhere()).expect("ada has no quota yet");
        limit(head, Some(1));
    };
    let lift = |head: &mut Head| limit(head, None);
    check(&WAYS, (&ada(), &here()), use_up, lift, |_| {
        Waits("the quota of ada limits running jobs to 1 CPU; 1 in use or ahead in the queue")
    });

    let mut large = here();
    large.request.cpus = 2;
    let lower = |head: &mut Head| limit(head, Some(1));
    check(&WAYS, (&ada(), &large), lower, lift, |way| match way {
        Submission | Array | Requeue | Change => Refused("over_quota"),
        Loss | Dependent => Waits("the quota of ada limits running jobs to 1 CPU; 0 in use or ahead in the queue"),
    });
}

#[test]
fn partition_holds_on_every_way_into_the_queue() {
    let set = |value: PartitionChange| move |head: &mut Head| change(head, "p", value.clone()).expect("accepted");
    let state = |state| set(PartitionChange { state: Some(state), ..PartitionChange::default() });
    let users = |names: &[&str]| {
        let users = names.iter().map(|name| name_of(name)).collect();
        set(PartitionChange { users: Some(users), ..PartitionChange::default() })
    };
    let mine = (&ada(), &within_p());
    let (pause, open) = (state(PartitionState::Paused), state(PartitionState::Open));
    check(&WAYS, mine, pause, &open, |_| Waits("partition p is paused"));
    check(&WAYS, mine, set(on("n2")), set(on("n1")), |way| match way {
        Submission | Array | Change => Refused("never_fits"),
        Requeue | Loss | Dependent => Waits("no node of partition p that has n1 is in the cluster"),
    });
    // A job that waits is in its partition already.
    let entrance = |way| match way {
        Submission | Array | Requeue | Change => Refused("partition_refuses"),
        Loss | Dependent => Starts,
    };
    check(&WAYS, mine, state(PartitionState::Closed), open, entrance);
    check(&WAYS, mine, users(&["ben"]), users(&[]), entrance);
    let hours = |hours: u64| PartitionChange { max_time_ms: Some(hours * 3_600_000), ..PartitionChange::default() };
    let long = JobSpec { time_limit_ms: Some(2 * 3_600_000), ..within_p() };
    check(&WAYS, (&ada(), &long), set(hours(1)), set(hours(2)), entrance);
}

#[test]
fn drained_node_gets_no_task_on_any_way_into_the_queue() {
    let drain = |head: &mut Head| {
        let drain = Command::DrainNode { node: name("n1"), by: "root".to_owned(), reason: None };
        head.command(&drain).expect("known");
    };
    let resume = |head: &mut Head| head.command(&Command::ResumeNode { node: name("n1") }).expect("known");
    check(&WAYS, (&ada(), &here()), drain, resume, |_| Waits("every node that could run the job is drained: n1"));
}

#[test]
fn exclusive_node_gets_no_task_on_any_way_into_the_queue() {
    let occupy = |head: &mut Head| {
        head.submit_as(user("ben"), around(here(), |it| it.exclusive = true)).expect("n1 is idle");
    };
    let leave = |head: &mut Head| {
        let theirs =
            head.state.jobs().find(|job| job.spec.surroundings.exclusive).map(|job| job.id).expect("ben's job runs");
        head.report(1, head.run_of(theirs), ended(0)).expect("accepted");
    };
    // A run is lost with its own node, which no other job can have to itself meanwhile.
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| *way != Loss).collect();
    check(&ways, (&ada(), &here()), occupy, leave, |_| {
        Waits("no node has enough free now; closest is n1, which lacks 1 CPU and 1G of memory")
    });
}

#[test]
fn sandboxed_job_waits_for_a_node_that_can_run_it_on_any_way_into_the_queue() {
    let set = |runs_sandboxes, connection, boot: &'static str| {
        move |head: &mut Head| {
            head.runs_sandboxes = runs_sandboxes;
            head.hello("n1", connection, boot, vec![]);
        }
    };
    let (lose, regain) = (set(false, 10, "boot"), set(true, 200, "third boot"));
    let sandboxed = around(here(), |it| it.sandbox = true);
    // A change cannot add a sandbox to a job.
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| *way != Change).collect();
    check(&ways, (&ada(), &sandboxed), lose, regain, |way| match way {
        Submission | Array | Change => Refused("no_sandbox"),
        Requeue | Loss | Dependent => Waits("no node that has n1 runs sandboxed jobs"),
    });
}

#[test]
fn job_with_a_quiet_machine_waits_for_a_node_that_offers_it_on_any_way_into_the_queue() {
    let set = |quiets_machine, connection, boot: &'static str| {
        move |head: &mut Head| {
            head.quiets_machine = quiets_machine;
            head.hello("n1", connection, boot, vec![]);
        }
    };
    let (lose, regain) = (set(false, 10, "boot"), set(true, 200, "third boot"));
    let quiet = around(here(), |it| (it.exclusive, it.quiet_machine) = (true, true));
    // A change cannot add it to a job.
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| *way != Change).collect();
    check(&ways, (&ada(), &quiet), lose, regain, |way| match way {
        Submission | Array | Change => Refused("no_quiet_machine"),
        Requeue | Loss | Dependent => Waits("no node that has n1 makes its machine quiet"),
    });
}

#[test]
fn priority_is_bounded_on_every_way_into_the_queue() {
    let set = |most: u32| move |head: &mut Head| head.state.settings.user_priority = most;
    let urgent = JobSpec { priority: 5, ..here() };
    check(&WAYS, (&ada(), &urgent), set(0), set(5), |way| match way {
        Submission | Array | Change => Refused("priority_too_high"),
        // The job keeps the priority that was allowed at its submission.
        Requeue | Loss | Dependent => Starts,
    });
}

#[test]
fn every_launch_has_the_limits_of_its_job() {
    let limited = JobSpec { time_limit_ms: Some(60_000), ..here() };
    for way in WAYS {
        let mut head = cluster();
        let entry = Entry::prepare(&mut head, way, &ada(), &limited);
        head.sent();
        let job = entry.enter(&mut head).expect("accepted");
        let launches = head.sent().into_iter().filter_map(|message| match message {
            HeadMessage::Launch(launch) if launch.job.id == job => Some(launch),
            _ => None,
        });
        let mut cpus = Vec::new();
        for launch in launches {
            assert_eq!(launch.job.spec.time_limit_ms, Some(60_000), "{way:?}");
            for placement in launch.runs {
                assert_eq!(placement.resources.memory_bytes, 1 << 30, "{way:?}");
                cpus.extend(placement.resources.cpus.iter());
            }
        }
        let tasks = if way == Array { 2 } else { 1 };
        cpus.sort_unstable();
        cpus.dedup();
        assert_eq!(cpus.len(), tasks, "{way:?}: each task has a CPU of its own");
    }
}

//! Scripted tests of quotas and blocks: what may start, the reasons shown, and independence of other users.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Ended, EndedJobs, Event, Job, NewUser, Now, PendingMoves, Record, Refusal,
    Stamped, State, SubmissionKey, UsersCommand, decide, explain, schedule, update,
};
use hostler_model::{
    CpuSet, JobId, JobSpec, NodeFacts, Quota, QuotaKind, Reason, Request, Resources, Role, RunId, Timestamp, UserName,
    WallTime, Work,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::{Fate, RunEnd, Usage};

/// A head with one node of 16 CPUs and 16 GiB.
struct Head {
    state: State,
    ended: Stored,
    keys: u128,
}

/// Ended jobs, in place of a store.
#[derive(Default)]
struct Stored(BTreeMap<JobId, Arc<Job>>);

impl EndedJobs for Stored {
    type Error = Infallible;

    fn job(&self, id: JobId) -> Result<Option<Arc<Job>>, Infallible> {
        Ok(self.0.get(&id).cloned())
    }

    fn job_of_key(&self, _: SubmissionKey) -> Result<Option<JobId>, Infallible> {
        Ok(None)
    }

    fn first_ended(&self, _: bool, _: usize) -> Result<Vec<(JobId, Timestamp)>, Infallible> {
        Ok(Vec::new())
    }
}

const GIB: u64 = 1 << 30;

const NOW: Now = Now { at: Timestamp(0), wall: WallTime(0) };

impl Head {
    fn start() -> Self {
        let mut head = Self { state: State::default(), ended: Stored::default(), keys: 0 };
        let node: hostler_model::NodeName = "n1".parse().expect("a valid name");
        let facts = NodeFacts::new("boot", Resources::new(CpuSet::first(16), 16 * GIB));
        head.apply(Event::NodeSeen { node: node.clone(), facts: Box::new(facts) });
        let connection = ConnectionId(1);
        head.apply(Event::Connected { node, connection, pid: 1, version: String::new(), holds: Vec::new() });
        head
    }

    fn apply(&mut self, event: Event) {
        let mut changes = Changes::default();
        update(&mut self.state, &Stamped { now: NOW, event }, &mut changes);
        self.ended.0.extend(changes.records.into_iter().filter_map(|record| match record {
            Record::JobEnded(job) => Some((job.id, job)),
            _ => None,
        }));
    }

    fn command(&mut self, command: &Command) -> Result<(), Refusal> {
        let Ok(ended) = Ended::look_up(&self.state, &PendingMoves::default(), &self.ended, command);
        let events = decide(&self.state, command, &ended, NOW)?;
        events.into_iter().for_each(|event| self.apply(event));
        Ok(())
    }

    fn users(&mut self, command: UsersCommand) {
        self.command(&Command::Users(command)).expect("accepted");
    }

    fn add(&mut self, user: &str, groups: &[&str]) {
        let groups: BTreeSet<UserName> = groups.iter().map(|group| name(group)).collect();
        let user = NewUser { name: name(user), uid: None, role: Role::User, groups, keys: Vec::new() };
        self.users(UsersCommand::Import(vec![user]));
    }

    fn limit(&mut self, user: &str, quota: Quota) {
        self.users(UsersCommand::SetQuota(name(user), quota));
    }

    fn block(&mut self, user: &str, reason: &str) {
        let (by, reason) = ("root".to_owned(), Some(reason.to_owned()));
        self.users(UsersCommand::Block { name: name(user), uid: Some(1000), by, reason });
    }

    /// Submits a job with this many tasks, and CPUs and GiB per task.
    fn submit(&mut self, user: &str, tasks: u32, cpus: u32, gib: u64) -> Result<JobId, Refusal> {
        let request = Request::new(cpus, gib * GIB);
        let mut spec = JobSpec::new("job", Work::command(["true"], "/"), request);
        spec.array = (tasks > 1).then(|| format!("0-{}", tasks - 1).parse().expect("an array"));
        self.submit_spec(user, spec)
    }

    fn submit_spec(&mut self, user: &str, spec: JobSpec) -> Result<JobId, Refusal> {
        self.keys += 1;
        let key = SubmissionKey(self.keys);
        let caller = Caller { user: user.to_owned(), uid: None, operator: false };
        self.command(&Command::Submit {
            caller,
            key,
            spec: Arc::new(spec),
            environment: None,
            snapshot_is_complete: true,
        })?;
        Ok(self.state.job_of_key(key).expect("just submitted"))
    }

    fn pass(&mut self) {
        while let Some(event) = schedule(&mut self.state, NOW) {
            self.apply(event);
        }
    }

    fn running(&self, job: JobId) -> usize {
        self.state.job(job).expect("the job exists").active.len()
    }

    fn reason(&self, job: JobId) -> Option<Reason> {
        explain(&self.state, self.state.job(job).expect("the job exists"))
    }

    fn end_one(&mut self, job: JobId) {
        let run: RunId = self.state.job(job).expect("the job exists").active.values().next().expect("a task runs").run;
        let ending = hostler_model::Ending { state: hostler_model::JobState::Completed, exit_code: Some(0) };
        let usage = Usage::default();
        let end = RunEnd { usage, ..RunEnd::without_result(Fate::Ended(ending), None) };
        self.apply(Event::Ended { run, rank: 0, end });
    }
}

fn name(name: &str) -> UserName {
    name.parse().expect("a valid name")
}

#[test]
fn quota_covers_all_jobs_of_a_pass() {
    let mut head = Head::start();
    head.add("ada", &[]);
    head.limit("ada", Quota { cpus: Some(5), ..Quota::default() });
    let jobs = [(3, 1), (1, 2), (4, 1)].map(|(tasks, cpus)| head.submit("ada", tasks, cpus, 1).expect("accepted"));
    let other = head.submit("ben", 2, 4, 1).expect("accepted");
    head.pass();
    assert_eq!(jobs.map(|job| head.running(job)), [3, 1, 0]);
    assert_eq!(head.running(other), 2, "one user's quota does not delay another user");
    let quota = |used| Some(Reason::Quota { whose: "ada".to_owned(), kind: QuotaKind::Cpus, used, limit: 5 });
    assert_eq!(head.reason(jobs[2]), quota(5));
    assert_eq!(
        head.reason(jobs[2]).expect("the job waits").to_string(),
        "the quota of ada limits running jobs to 5 CPUs; 5 in use or ahead in the queue"
    );
    head.end_one(jobs[1]);
    head.pass();
    assert_eq!(head.running(jobs[2]), 2, "each freed CPU starts a task");
}

#[test]
fn exclusive_task_counts_as_the_largest_node_that_it_may_use() {
    let mut head = Head::start();
    head.add("ada", &[]);
    let alone = || {
        let mut spec = JobSpec::new("job", Work::command(["true"], "/"), Request::new(1, GIB));
        spec.surroundings.exclusive = true;
        spec
    };
    head.limit("ada", Quota { cpus: Some(15), ..Quota::default() });
    let refused = head.submit_spec("ada", alone()).expect_err("the node has 16 CPUs").to_string();
    assert!(
        refused
            .starts_with("the job could never run: ada may have at most 15 CPUs running; an exclusive job counts as")
    );
    head.limit("ada", Quota { cpus: Some(16), memory_bytes: Some(16 * GIB), ..Quota::default() });
    let job = head.submit_spec("ada", alone()).expect("accepted");
    head.pass();
    assert_eq!(head.running(job), 1);
    let next = head.submit("ada", 1, 1, 1).expect("accepted");
    head.pass();
    assert_eq!(
        head.reason(next).expect("the job waits").to_string(),
        "the quota of ada limits running jobs to 16 CPUs; 16 in use or ahead in the queue"
    );
}

#[test]
fn reason_names_the_tightest_limit() {
    let mut head = Head::start();
    head.add("ada", &[]);
    head.limit("ada", Quota { memory_bytes: Some(5 * GIB), jobs: Some(3), ..Quota::default() });
    let (large, small) =
        (head.submit("ada", 9, 1, 2).expect("accepted"), head.submit("ada", 9, 1, 1).expect("accepted"));
    head.pass();
    assert_eq!((head.running(large), head.running(small)), (2, 1));
    let reason = |head: &Head, job| match head.reason(job) {
        Some(Reason::Quota { kind, .. }) => kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&head, large), QuotaKind::Memory);
    head.limit("ada", Quota { jobs: Some(3), ..Quota::default() });
    assert_eq!(reason(&head, large), QuotaKind::Jobs);
    head.limit("ada", Quota::default());
    assert!(head.state.needs_pass(), "waiting jobs may start now");
    head.pass();
    assert_eq!(head.running(large), 7, "tasks fill the node");
}

#[test]
fn group_shares_its_quota_and_lowering_it_ends_nothing() {
    let mut head = Head::start();
    head.add("ada", &["lab"]);
    head.add("ben", &["lab", "other"]);
    head.users(UsersCommand::SetGroupQuota(name("lab"), Quota { jobs: Some(4), ..Quota::default() }));
    let jobs = ["ada", "ben", "cy"].map(|user| head.submit(user, 3, 1, 1).expect("accepted"));
    head.pass();
    assert_eq!(jobs.map(|job| head.running(job)), [2, 2, 3], "the users of the group take turns");
    head.users(UsersCommand::SetGroupQuota(name("lab"), Quota { jobs: Some(1), ..Quota::default() }));
    head.pass();
    assert_eq!(jobs.map(|job| head.running(job)), [2, 2, 3]);
    let reason = Reason::Quota { whose: "group lab".to_owned(), kind: QuotaKind::Jobs, used: 4, limit: 1 };
    assert_eq!(head.reason(jobs[1]), Some(reason));
    head.end_one(jobs[0]);
    head.pass();
    assert_eq!(head.running(jobs[1]), 2, "lowering the limit to one ends no running task");
    // A user who leaves the group is free of its quota.
    head.add("ben", &["other"]);
    head.pass();
    assert_eq!(head.running(jobs[1]), 3);
}

#[test]
fn each_user_of_a_group_has_its_member_quota_unless_the_own_quota_sets_the_limit() {
    let mut head = Head::start();
    head.add("ada", &["class"]);
    head.add("ben", &["class"]);
    head.add("cy", &["class", "staff"]);
    let each = |head: &mut Head, group: &str, jobs, queued| {
        let quota = Quota { jobs, queued, ..Quota::default() };
        head.users(UsersCommand::SetMemberQuota(name(group), quota));
    };
    each(&mut head, "class", Some(2), Some(9));
    each(&mut head, "staff", Some(4), None);
    head.limit("ben", Quota { jobs: Some(1), cpus: Some(3), ..Quota::default() });
    let jobs = ["ada", "ben", "cy", "dan"].map(|user| head.submit(user, 6, 1, 1).expect("accepted"));
    head.pass();
    let running = jobs.map(|job| head.running(job));
    assert_eq!(running, [2, 1, 4, 6], "ben's own limit counts, cy has that of the larger group, and dan is in none");
    let reason = Reason::Quota { whose: "ada".to_owned(), kind: QuotaKind::Jobs, used: 2, limit: 2 };
    assert_eq!(head.reason(jobs[0]), Some(reason));
    // A limit that the own quota does not set is the group's.
    let refused = head.submit("ben", 5, 1, 1).expect_err("five wait");
    assert_eq!(refused.to_string(), "ben may have at most 9 tasks waiting, and has 5 now");
    assert!(head.submit("ben", 1, 4, 1).is_err(), "the own quota allows 3 CPUs");
    each(&mut head, "class", None, None);
    assert!(head.state.needs_pass(), "waiting jobs may start now");
    assert_eq!(head.state.users.groups().count(), 1, "a quota without limits is removed");
}

#[test]
fn jobs_beyond_quota_or_queue_limit_are_refused() {
    let mut head = Head::start();
    head.add("ada", &["lab"]);
    head.limit("ada", Quota { cpus: Some(4), queued: Some(10), ..Quota::default() });
    let never = head.submit("ada", 1, 5, 1).expect_err("the task is above the quota");
    assert_eq!(never.to_string(), "the job could never run: ada may have at most 4 CPUs running");
    assert_eq!(never.code(), "over_quota");
    assert!(matches!(never, Refusal::OverQuota { group: None, .. }), "ada's own quota");
    let first = head.submit("ada", 8, 1, 1).expect("accepted");
    let many = head.submit("ada", 3, 1, 1).expect_err("more tasks would wait than allowed");
    assert_eq!(many.to_string(), "ada may have at most 10 tasks waiting, and has 8 now");
    head.pass();
    head.submit("ada", 3, 1, 1).expect("four of eight run");
    head.submit("ben", 1_000, 5, 1).expect("ben has no quota");
    head.users(UsersCommand::SetGroupQuota(name("lab"), Quota { queued: Some(7), ..Quota::default() }));
    let refused = head.submit("ada", 1, 1, 1).expect_err("seven wait");
    assert_eq!(refused.to_string(), "group lab may have at most 7 tasks waiting, and has 7 now");
    assert!(matches!(refused, Refusal::OverQuota { group: Some(group), .. } if group == name("lab")));
    let caller = Caller { user: "ada".to_owned(), uid: None, operator: false };
    head.command(&Command::Act { caller, job: first, index: None, action: JobAction::Cancel }).expect("accepted");
    head.submit("ada", 1, 1, 1).expect("three wait");
}

#[test]
fn quota_of_a_removed_user_still_counts() {
    let mut head = Head::start();
    head.add("ada", &["lab"]);
    head.limit("ada", Quota { cpus: Some(4), ..Quota::default() });
    head.users(UsersCommand::SetGroupQuota(name("lab"), Quota { jobs: Some(2), ..Quota::default() }));
    let job = head.submit("ada", 3, 1, 1).expect("accepted");
    head.users(UsersCommand::Remove(name("ada")));
    assert_eq!(head.submit("ada", 1, 5, 1).expect_err("over quota as before").code(), "over_quota");
    head.pass();
    assert_eq!(head.running(job), 2, "the quota of the removed user's group still applies");
    // A returning user gets the old quota; an admin can lift it after the removal.
    head.add("ada", &[]);
    head.pass();
    assert_eq!(head.running(job), 3, "the group's quota no longer applies");
    assert_eq!(head.submit("ada", 1, 5, 1).expect_err("her own quota counts again").code(), "over_quota");
    head.users(UsersCommand::Remove(name("ada")));
    head.limit("ada", Quota::default());
    head.submit("ada", 1, 5, 1).expect("no quota is left");
}

#[test]
fn blocked_user_is_refused_and_waiting_jobs_start_after_the_unblock() {
    let mut head = Head::start();
    let running = head.submit("ada", 1, 1, 1).expect("accepted");
    head.pass();
    let waiting = head.submit("ada", 1, 1, 1).expect("accepted");
    head.block("ada", "ask at the desk");
    let other = head.submit("ben", 1, 1, 1).expect("accepted");
    head.pass();
    assert_eq!([running, waiting, other].map(|job| head.running(job)), [1, 0, 1], "running jobs continue");
    let reason = head.reason(waiting).expect("the job waits").to_string();
    assert_eq!(reason, "ada is blocked on this cluster: ask at the desk");
    let refused = head.submit("ada", 1, 1, 1).expect_err("blocked");
    assert_eq!((refused.code(), refused.to_string().as_str()), ("blocked", reason.as_str()));
    let token = UsersCommand::IssueToken { token: hostler_model::Digest([1; 32]), user: name("ben"), until: None };
    head.add("ben", &[]);
    head.block("ben", "x");
    assert_eq!(head.command(&Command::Users(token)).expect_err("blocked").code(), "blocked");
    // Another name with the same uid does not help, nor does removal.
    let namesake = Caller { user: "ada2".to_owned(), uid: Some(1000), operator: false };
    let spec = Arc::new(JobSpec::new("job", Work::command(["true"], "/"), Request::new(1, GIB)));
    let submit = Command::Submit {
        caller: namesake,
        key: SubmissionKey(99),
        spec,
        environment: None,
        snapshot_is_complete: true,
    };
    assert_eq!(head.command(&submit).expect_err("the same account").code(), "blocked");
    head.users(UsersCommand::Remove(name("ben")));
    assert_eq!(head.submit("ben", 1, 1, 1).expect_err("still blocked").code(), "blocked");

    head.users(UsersCommand::Unblock(name("ada")));
    assert!(head.state.needs_pass(), "waiting jobs may start now");
    head.pass();
    assert_eq!(head.running(waiting), 1);
    head.submit("ada", 1, 1, 1).expect("ada is unblocked");
    let again = head.command(&Command::Users(UsersCommand::Unblock(name("ada"))));
    assert_eq!(again.expect_err("ada is not blocked").code(), "not_blocked");
    let root = UsersCommand::Block { name: name("root"), uid: Some(0), by: "root".to_owned(), reason: None };
    assert_eq!(head.command(&Command::Users(root)).expect_err("root cannot be blocked").code(), "cannot_block");
}

#[test]
fn waiting_jobs_of_one_user_are_bounded_without_any_quota() {
    let mut head = Head::start();
    head.state.settings.waiting_jobs = 3;
    // An array counts once, however many tasks it has.
    let array = head.submit("ada", 1_000_000, 1, 1).expect("the first job");
    head.submit("ada", 1, 1, 1).expect("the second job");
    head.submit("ada", 1, 1, 1).expect("the third job");
    let refused = head.submit("ada", 1, 1, 1).expect_err("three wait");
    assert!(refused.to_string().starts_with("ada may have at most 3 jobs waiting"), "{refused}");
    assert_eq!(refused.code(), "over_quota");
    head.submit("ben", 1, 1, 1).expect("accepted");
    let caller = Caller { user: "ada".to_owned(), uid: None, operator: false };
    head.command(&Command::Act { caller, job: array, index: None, action: JobAction::Cancel }).expect("accepted");
    head.submit("ada", 1, 1, 1).expect("two wait");
    let again = |operator: bool| {
        let caller = Caller { user: "ada".to_owned(), uid: None, operator };
        Command::Act { caller, job: array, index: None, action: JobAction::Requeue }
    };
    assert_eq!(
        head.command(&again(false)).expect_err("three wait").code(),
        "over_quota",
        "a requeue counts against the limit"
    );
    head.command(&again(true)).expect("operators may");
    assert_eq!(State::default().settings.waiting_jobs, 100_000);
}

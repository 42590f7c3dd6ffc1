//! Changes of settings at run time: checked, stored, and effective at once.

use hostler_core::head::{Caller, Command, Event, NewUser, Refusal, Setting, SettingValue, UsersCommand};
use hostler_model::{JobSpec, JobState, NodeState, Request, Role};
use hostler_proto::api::JobAction;

use crate::harness::{Head, ended, name, spec, user};

impl Head {
    fn set(&mut self, setting: Setting, value: &str) -> Result<(), Refusal> {
        self.command(&Command::Set { by: "root".to_owned(), setting, value: Some(value.to_owned()) })
    }

    fn reset(&mut self, setting: Setting) -> Result<(), Refusal> {
        self.command(&Command::Set { by: "root".to_owned(), setting, value: None })
    }
}

#[test]
fn settings_survive_a_restart_and_can_be_reset() {
    let mut head = Head::new();
    head.set(Setting::Retention, "3d").expect("a time");
    let set_by = head.state.set_by[&Setting::Retention].clone();
    assert_eq!((set_by.user.as_str(), set_by.at), ("root", head.now.wall));
    head.restart();
    assert_eq!(head.state.settings.get(Setting::Retention), Some(SettingValue::TimeMs(3 * 24 * 3_600_000)));
    assert_eq!(head.state.set_by[&Setting::Retention], set_by);
    head.reset(Setting::Retention).expect("accepted");
    assert_eq!(head.state.settings, Default::default());
    assert!(head.state.set_by.is_empty());
    head.restart();
    assert_eq!(head.state.settings, Default::default());
}

#[test]
fn invalid_values_are_refused() {
    let mut head = Head::new();
    for (setting, value) in [(Setting::SuspectAfter, "4s"), (Setting::Retention, "soon"), (Setting::DefaultNodes, "0")]
    {
        let refusal = head.set(setting, value).expect_err(value);
        assert_eq!(refusal.code(), "bad_setting", "{refusal}");
    }
    head.set(Setting::LostAfter, "10m").expect("accepted");
    head.set(Setting::DownAfter, "5m").expect("accepted");
    let refusal = head.reset(Setting::LostAfter).expect_err("lost-after must exceed down-after");
    assert!(refusal.to_string().contains("down-after (5m) must be less than lost-after (1m)"), "{refusal}");
}

#[test]
fn new_silence_limits_count_from_the_last_message() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    head.set(Setting::LostAfter, "1h").expect("accepted");
    head.set(Setting::DownAfter, "10m").expect("accepted");
    head.set(Setting::SuspectAfter, "5m").expect("accepted");
    head.pass_ms(4 * 60_000);
    assert_eq!(head.node_state("n1"), NodeState::Up);
    head.reset(Setting::SuspectAfter).expect("accepted");
    head.stand_still_ms(1);
    assert_eq!(head.node_state("n1"), NodeState::Suspect, "the node has been silent longer than the new limit");
    head.reset(Setting::DownAfter).expect("accepted");
    head.pass_ms(9_000);
    assert_eq!(head.node_state("n1"), NodeState::Down);
}

#[test]
fn agents_reconnect_to_learn_a_shorter_heartbeat() {
    let mut head = Head::new();
    head.hello("n1", 1, "boot", Vec::new());
    head.set(Setting::Heartbeat, "5s").expect("accepted");
    assert_eq!(head.node_state("n1"), NodeState::Up, "frequent heartbeats do no harm");
    head.set(Setting::Heartbeat, "2s").expect("accepted");
    assert_eq!(head.node_state("n1"), NodeState::Suspect, "the head closed the node's connection");
    head.hello("n1", 2, "boot", Vec::new());
    assert_eq!(head.node_state("n1"), NodeState::Up);
}

#[test]
fn new_policy_applies_to_waiting_jobs() {
    let mut head = Head::new();
    head.set(Setting::Policy, "fcfs").expect("a policy");
    head.hello("n1", 1, "boot", Vec::new());
    let one_cpu = |time| JobSpec { time_limit_ms: Some(time), ..spec() };
    let long = head.submit(one_cpu(600_000)).expect("accepted");
    let both = Request { cpus: 2, ..spec().request };
    let first = head.submit(JobSpec { request: both, ..spec() }).expect("accepted");
    let short = head.submit(one_cpu(1_000)).expect("accepted");
    assert_eq!(
        [long, first, short].map(|job| head.job(job).pending.len()),
        [0, 1, 1],
        "the policy starts jobs in queue order"
    );
    head.set(Setting::Policy, "easy").expect("a policy");
    assert_eq!([first, short].map(|job| head.job(job).pending.len()), [1, 0], "the last job delays no other");
    let run = head.run_of(short);
    head.report(1, run, ended(0)).expect("accepted");
    assert_eq!(head.state_of(short), JobState::Completed);
    assert!(head.state.node(&name("n1")).is_some());
}

#[test]
fn users_may_raise_the_priority_only_up_to_the_setting() {
    let mut head = Head::new();
    let with = |priority: i32| JobSpec { priority, ..spec() };
    let operator = || Caller { operator: true, ..user("olga") };
    for priority in [0, -5, i32::MIN] {
        head.submit(with(priority)).expect("users may lower the priority");
    }
    for priority in [1, i32::MAX] {
        let refusal = head.submit(with(priority)).expect_err("users may not raise the priority");
        assert_eq!(refusal, Refusal::PriorityTooHigh { priority, most: 0 });
        assert_eq!(refusal.code(), "priority_too_high");
    }
    for priority in [1_000, i32::MAX] {
        head.submit_as(operator(), with(priority)).expect("operators may set any priority");
    }

    head.set(Setting::UserPriority, "5").expect("a number");
    head.restart();
    let raised = head.submit(with(5)).expect("the setting allows this priority");
    let refusal = head.submit(with(6)).expect_err("the priority is above the setting");
    assert_eq!(refusal.to_string(), "users may set a priority of at most 5, and this job has the priority 6");

    // A lower limit applies to later submissions only.
    head.reset(Setting::UserPriority).expect("accepted");
    for action in [JobAction::Hold, JobAction::Release] {
        head.act(raised, action).expect("the job waits");
    }
    assert_eq!(head.job(raised).spec.priority, 5);
    head.submit(with(1)).expect_err("the default applies again");
    for value in ["-1", "2147483648", "none", "high"] {
        let refusal = head.set(Setting::UserPriority, value).expect_err(value);
        assert_eq!(refusal.code(), "bad_setting", "{refusal}");
    }
}

#[test]
fn system_account_submits_jobs_only_if_an_admin_allows_it() {
    let mut head = Head::new();
    let by = |name: &str, uid: u32| Caller { uid: Some(uid), ..user(name) };
    let system = [("daemon", 1), ("games", 5), ("munge", 999), ("nobody", 65_534)];
    for (name, uid) in system {
        let refusal = head.submit_as(by(name, uid), spec()).expect_err(name);
        assert_eq!(refusal, Refusal::SystemAccount { user: name.to_owned(), uid });
        assert_eq!(refusal.code(), "system_account");
    }
    for (name, uid) in [("ada", 1000), ("bob", 65_533), ("eve", 65_535)] {
        head.submit_as(by(name, uid), spec()).expect(name);
    }

    head.set(Setting::SystemAccounts, "yes").expect("a switch");
    head.restart();
    for (name, uid) in system {
        head.submit_as(by(name, uid), spec()).expect("all system accounts are allowed");
    }
    head.reset(Setting::SystemAccounts).expect("accepted");
    head.submit_as(by("daemon", 1), spec()).expect_err("the default applies again");

    // The account that runs the head, and accounts that an admin has added as users, need no setting.
    let epoch = head.state.next_epoch();
    head.apply(Event::EpochStarted { epoch, owner: Some(999) });
    head.submit_as(by("munge", 999), spec()).expect("the head's own account");
    let games = NewUser {
        name: "games".parse().expect("a valid name"),
        uid: Some(5),
        role: Role::User,
        groups: Default::default(),
        keys: Vec::new(),
    };
    head.command(&Command::Users(UsersCommand::Add(games))).expect("accepted");
    head.submit_as(by("games", 5), spec()).expect("an admin has added the account");
    head.submit_as(by("daemon", 1), spec()).expect_err("no admin has added the account");
}

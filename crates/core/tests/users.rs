//! Scripted tests of users: commands in, user data and messages to agents out.

use std::collections::BTreeSet;
use std::sync::Arc;

use hostler_core::head::{
    Caller, Changes, Command, ConnectionId, Effect, Ended, Event, NewUser, Now, Refusal, Setting, Stamped, State,
    SubmissionKey, TOKEN_TTL_MS, User, UsersCommand, UsersRefusal, decide, update,
};
use hostler_model::{
    CpuSet, Digest, JobId, JobSpec, NodeFacts, Quota, Request, Resources, Role, Timestamp, UserName, WallTime, Work,
};
use hostler_proto::api::JobAction;
use hostler_proto::link::{Account, HeadMessage, SystemAccounts};

#[derive(Default)]
struct Head {
    state: State,
    at: u64,
    said: Vec<(ConnectionId, HeadMessage)>,
    log: Vec<Stamped>,
}

impl Head {
    fn apply(&mut self, event: Event) {
        let stamped = Stamped { now: self.now(), event };
        let mut changes = Changes::default();
        update(&mut self.state, &stamped, &mut changes);
        if stamped.event.is_durable() {
            self.log.push(stamped);
        }
        self.said.extend(changes.effects.into_iter().filter_map(|effect| match effect {
            Effect::Send { connection, message } => Some((connection, message)),
            Effect::Close { .. }
            | Effect::Power { .. }
            | Effect::Notify(_)
            | Effect::Count(_)
            | Effect::Deliver
            | Effect::ReportNode { .. } => None,
        }));
    }

    fn command(&mut self, command: UsersCommand) -> Result<(), UsersRefusal> {
        let events =
            decide(&self.state, &Command::Users(command), &Ended::default(), self.now()).map_err(|refusal| {
                match refusal {
                    Refusal::Users(refusal) => refusal,
                    other => panic!("{other}"),
                }
            })?;
        events.into_iter().for_each(|event| self.apply(event));
        Ok(())
    }

    fn set(&mut self, setting: Setting, value: Option<&str>) {
        let command = Command::Set { by: "root".to_owned(), setting, value: value.map(str::to_owned) };
        let events = decide(&self.state, &command, &Ended::default(), self.now()).expect("a valid value");
        events.into_iter().for_each(|event| self.apply(event));
    }

    fn now(&self) -> Now {
        Now { at: Timestamp(self.at), wall: WallTime(0) }
    }

    fn user(&self, name: &str) -> &User {
        self.state.users.get(name).expect("the user is known")
    }

    fn stands_for(&self, token: u8) -> Option<&str> {
        self.state.users.by_token(&digest(token), Timestamp(self.at)).map(|(user, _)| user.name.as_str())
    }

    fn connect(&mut self, node: &str, connection: u64) {
        let node: hostler_model::NodeName = node.parse().expect("a valid name");
        let facts = NodeFacts::new("boot", Resources::new(CpuSet::default(), 0));
        self.apply(Event::NodeSeen { node: node.clone(), facts: Box::new(facts) });
        let connection = ConnectionId(connection);
        self.apply(Event::Connected { node, connection, pid: 1, version: String::new(), holds: Vec::new() });
    }
}

fn digest(token: u8) -> Digest {
    Digest([token; 32])
}

fn name(name: &str) -> UserName {
    name.parse().expect("a valid name")
}

fn new(user: &str, uid: Option<u32>) -> NewUser {
    NewUser { name: name(user), uid, role: Role::User, groups: BTreeSet::new(), keys: Vec::new() }
}

#[test]
fn every_user_has_their_own_uid() {
    let mut head = Head::default();
    head.command(UsersCommand::Add(new("ada", Some(2000)))).expect("accepted");
    head.command(UsersCommand::Add(new("ben", None))).expect("accepted");
    head.command(UsersCommand::Add(new("cy", None))).expect("accepted");
    assert_eq!([head.user("ada").uid, head.user("ben").uid, head.user("cy").uid], [2000, 20_000, 20_001]);
    let again = head.command(UsersCommand::Add(new("ada", None))).expect_err("ada exists");
    assert_eq!(again.to_string(), "there is a user ada already");
    let taken = head.command(UsersCommand::Add(new("dan", Some(2000)))).expect_err("the uid is taken");
    assert_eq!(taken.to_string(), "uid 2000 belongs to ada, so dan cannot have it");
    assert!(head.state.users.get("dan").is_none());
}

#[test]
fn uid_of_a_removed_user_is_not_reassigned() {
    let mut head = Head::default();
    for user in ["ada", "ben"] {
        head.command(UsersCommand::Add(new(user, None))).expect("accepted");
    }
    head.command(UsersCommand::Remove(name("ben"))).expect("accepted");
    head.command(UsersCommand::Add(new("cy", None))).expect("accepted");
    assert_eq!(head.user("cy").uid, 20_002, "ben's accounts and files may still be on nodes");
    head.command(UsersCommand::Add(new("ben", None))).expect("accepted");
    assert_eq!(head.user("ben").uid, 20_001, "ben's accounts on nodes still have this uid");
    // The shell excludes uids that the machine uses.
    let mut uids = head.state.users.automatic_uids();
    uids.reserve(20_005);
    let mut take = |user: &str| uids.take(&name(user), |uid| uid < 20_005);
    assert_eq!(
        [take("dan"), take("eve"), take("ben")],
        [20_006, 20_007, 20_008].map(Some),
        "ben's former uid is taken"
    );
    assert_eq!(uids.take(&name("fay"), |_| true), None);
    // An admin may reassign a uid, e.g. to the same person under another name.
    head.command(UsersCommand::Remove(name("ben"))).expect("accepted");
    head.command(UsersCommand::Add(new("benjamin", Some(20_001)))).expect("the uid is free");
    head.command(UsersCommand::Add(new("ben", None))).expect("accepted");
    assert_eq!(head.user("ben").uid, 20_003);
}

#[test]
fn replaced_uid_is_not_given_to_a_new_user() {
    let mut head = Head::default();
    head.command(UsersCommand::Add(new("ada", None))).expect("accepted");
    head.command(UsersCommand::Add(new("ben", None))).expect("accepted");
    head.command(UsersCommand::Remove(name("ben"))).expect("accepted");
    let roster = vec![new("ada", Some(31_000)), new("ben", Some(31_001))];
    head.command(UsersCommand::Import(roster)).expect("accepted");
    head.command(UsersCommand::Add(new("eve", None))).expect("accepted");
    assert_eq!(head.user("eve").uid, 20_002, "files on nodes still belong to 20000 and 20001");
}

#[test]
fn job_belongs_to_a_name_and_its_uid() {
    let caller = |uid: Option<u32>| Caller { user: "ada".to_owned(), uid, operator: false };
    let mut state = State::default();
    let spec = Arc::new(JobSpec::new("test", Work::command(["true"], "/"), Request::new(1, 1 << 30)));
    let at = Now { at: Timestamp(0), wall: WallTime(0) };
    let mut submit = |uid: Option<u32>, key: u128| {
        let (job, key) = (state.next_job(), SubmissionKey(key));
        let event = Event::Submitted {
            job,
            key,
            user: "ada".to_owned(),
            uid,
            spec: Arc::clone(&spec),
            environment: None,
            after: Vec::new(),
            past: Vec::new(),
        };
        update(&mut state, &Stamped { now: at, event }, &mut Changes::default());
        job
    };
    let (of_1000, of_nobody_knows) = (submit(Some(1000), 1), submit(None, 2));
    let cancel = |uid: Option<u32>, job: JobId| {
        let command = Command::Act { caller: caller(uid), job, index: None, action: JobAction::Cancel };
        decide(&state, &command, &Ended::default(), at).map(drop)
    };
    for (uid, job) in [(Some(1000), of_1000), (None, of_1000), (Some(1001), of_nobody_knows)] {
        cancel(uid, job).expect("accepted");
    }
    let refused = cancel(Some(1001), of_1000).expect_err("another user of the same name").to_string();
    assert_eq!(refused, format!("job {of_1000} belongs to ada, whose uid is 1000"));
}

#[test]
fn import_is_atomic() {
    let mut head = Head::default();
    head.command(UsersCommand::Add(new("ada", Some(2000)))).expect("accepted");
    head.command(UsersCommand::Add(new("ben", Some(2001)))).expect("accepted");
    let refused = head.command(UsersCommand::Import(vec![new("cy", Some(3000)), new("dan", Some(2001))]));
    assert_eq!(refused.expect_err("the uid belongs to ben").code(), "uid_taken");
    let twice = head.command(UsersCommand::Import(vec![new("cy", None), new("cy", None)]));
    assert_eq!(twice, Err(UsersRefusal::Twice(name("cy"))));
    assert!(head.state.users.get("cy").is_none());
    // Two users swap their uids; a user without a uid in the import keeps theirs.
    head.command(UsersCommand::Import(vec![new("ada", Some(2001)), new("ben", Some(2000)), new("cy", None)]))
        .expect("no uid is shared after the import");
    assert_eq!([head.user("ada").uid, head.user("ben").uid, head.user("cy").uid], [2001, 2000, 20_000]);
    head.command(UsersCommand::Import(vec![new("cy", None)])).expect("accepted");
    assert_eq!(head.user("cy").uid, 20_000);
}

#[test]
fn keys_are_added_and_removed_regardless_of_comments() {
    let mut head = Head::default();
    head.command(UsersCommand::Add(new("ada", None))).expect("accepted");
    let change = |add: &[&str], remove: &[&str]| UsersCommand::ChangeKeys {
        user: name("ada"),
        add: add.iter().map(|&key| key.to_owned()).collect(),
        remove: remove.iter().map(|&key| key.to_owned()).collect(),
    };
    head.command(change(&["ssh-ed25519 AAAA laptop", "ssh-ed25519 AAAA desk", "ssh-ed25519 BBBB"], &[]))
        .expect("accepted");
    assert_eq!(head.user("ada").keys, ["ssh-ed25519 AAAA laptop", "ssh-ed25519 BBBB"]);
    head.command(change(&[], &["ssh-ed25519 AAAA"])).expect("ada has this key");
    assert_eq!(head.command(change(&[], &["ssh-ed25519 AAAA"])), Err(UsersRefusal::NoSuchKey(name("ada"))));
    assert_eq!(head.user("ada").keys, ["ssh-ed25519 BBBB"]);
}

#[test]
fn token_ends_by_expiry_removal_or_revocation() {
    let mut head = Head::default();
    let issue =
        |token: u8, user: &str| UsersCommand::IssueToken { token: digest(token), user: name(user), until: None };
    assert_eq!(head.command(issue(1, "ada")), Err(UsersRefusal::NoSuchUser(name("ada"))));
    head.command(UsersCommand::Add(new("ada", None))).expect("accepted");
    head.command(UsersCommand::Add(new("ben", None))).expect("accepted");
    for (token, user) in [(1, "ada"), (2, "ada"), (3, "ben")] {
        head.command(issue(token, user)).expect("the users exist");
    }
    assert_eq!(head.stands_for(1), Some("ada"));
    head.command(UsersCommand::RevokeToken(digest(1))).expect("accepted");
    head.command(UsersCommand::RevokeToken(digest(1))).expect("revoking a revoked token succeeds");
    head.command(UsersCommand::Remove(name("ben"))).expect("accepted");
    head.at += TOKEN_TTL_MS - 1;
    assert_eq!([head.stands_for(1), head.stands_for(2), head.stands_for(3)], [None, Some("ada"), None]);
    // A restarted head knows the same tokens.
    let mut restarted = State::default();
    head.log.iter().for_each(|event| update(&mut restarted, event, &mut Changes::default()));
    assert!(restarted.users.by_token(&digest(2), Timestamp(head.at)).is_some());
    head.at += 1;
    assert_eq!(head.stands_for(2), None);
    assert!(head.state.users.has_ended(&digest(2), Timestamp(head.at)));
    assert!(!head.state.users.has_ended(&digest(9), Timestamp(head.at)), "this token was never issued");
}

#[test]
fn token_from_a_link_does_not_outlive_the_token_that_made_the_link() {
    let mut head = Head::default();
    head.command(UsersCommand::Add(new("ada", None))).expect("accepted");
    let issue = |token: u8, until: u64| UsersCommand::IssueToken {
        token: digest(token),
        user: name("ada"),
        until: Some(Timestamp(until)),
    };
    head.command(issue(1, head.at + 1_000)).expect("the user exists");
    head.command(issue(2, head.at + 2 * TOKEN_TTL_MS)).expect("the user exists");
    head.at += 999;
    assert_eq!(head.stands_for(1), Some("ada"));
    head.at += 1;
    assert_eq!([head.stands_for(1), head.stands_for(2)], [None, Some("ada")]);
    head.at += TOKEN_TTL_MS;
    assert_eq!(head.stands_for(2), None);
}

#[test]
fn tokens_per_user_are_limited() {
    let mut head = Head::default();
    head.command(UsersCommand::Add(new("ada", None))).expect("accepted");
    for token in 0..100 {
        head.at += 1;
        head.command(UsersCommand::IssueToken { token: digest(token), user: name("ada"), until: None })
            .expect("accepted");
    }
    let good = (0..100).filter(|&token| head.stands_for(token).is_some()).count();
    assert_eq!(good, 64);
    assert_eq!((head.stands_for(0), head.stands_for(99)), (None, Some("ada")));
}

#[test]
fn agents_get_accounts_on_connect_and_on_change() {
    let mut head = Head::default();
    head.connect("n1", 1);
    let told = std::mem::take(&mut head.said);
    head.command(UsersCommand::Import(vec![new("ada", Some(2000)), new("ben", Some(2001))])).expect("accepted");
    let accounts = |all: &[(&str, u32)]| HeadMessage::Accounts {
        accounts: all.iter().map(|(user, uid)| Account { name: name(user), uid: *uid }).collect(),
        blocked: Vec::new(),
        guarded: Vec::new(),
        system: SystemAccounts::default(),
    };
    assert_eq!(told, [(ConnectionId(1), accounts(&[]))], "the agent may know accounts of an earlier connection");
    let both = accounts(&[("ada", 2000), ("ben", 2001)]);
    assert_eq!(std::mem::take(&mut head.said), [(ConnectionId(1), both.clone())], "one message for both users");
    head.command(UsersCommand::SetQuota(name("ada"), Quota { cpus: Some(4), ..Quota::default() })).expect("accepted");
    assert_eq!(head.said, [], "no account has changed");
    head.connect("n2", 2);
    assert_eq!(head.said, [(ConnectionId(2), both)]);
}

#[test]
fn agents_get_blocks_and_their_removal() {
    let mut head = Head::default();
    head.connect("n1", 1);
    head.said.clear();
    let block = |reason: &str| UsersCommand::Block {
        name: name("eve"),
        uid: Some(1005),
        by: "root".to_owned(),
        reason: Some(reason.to_owned()),
    };
    let unknown = UsersCommand::Block { name: name("eve"), uid: None, by: "root".to_owned(), reason: None };
    assert_eq!(head.command(unknown).expect_err("no uid").code(), "unknown_uid");
    assert_eq!(head.command(block("two\nlines")).expect_err("a reason has one line").code(), "bad_spec");
    head.command(block("x")).expect("accepted");
    let blocked = |all: &[(&str, u32)]| HeadMessage::Accounts {
        accounts: Vec::new(),
        blocked: all.iter().map(|(user, uid)| Account { name: name(user), uid: *uid }).collect(),
        guarded: Vec::new(),
        system: SystemAccounts::default(),
    };
    assert_eq!(std::mem::take(&mut head.said), [(ConnectionId(1), blocked(&[("eve", 1005)]))]);
    head.connect("n2", 2);
    assert_eq!(std::mem::take(&mut head.said), [(ConnectionId(2), blocked(&[("eve", 1005)]))]);
    head.command(UsersCommand::Unblock(name("eve"))).expect("eve is blocked");
    assert_eq!(head.said, [(ConnectionId(1), blocked(&[])), (ConnectionId(2), blocked(&[]))]);
}

#[test]
fn agents_get_the_privileged_uids() {
    let mut head = Head::default();
    let guarded = |head: &mut Head| -> Vec<(u64, Vec<u32>)> {
        let said = std::mem::take(&mut head.said).into_iter();
        said.filter_map(|(connection, message)| match message {
            HeadMessage::Accounts { guarded, .. } => Some((connection.0, guarded)),
            _ => None,
        })
        .collect()
    };
    let epoch = head.state.next_epoch();
    head.apply(Event::EpochStarted { epoch, owner: Some(1000) });
    head.connect("n1", 1);
    assert_eq!(guarded(&mut head), [(1, vec![1000])], "the head's own account");
    head.command(UsersCommand::Import(vec![new("ada", Some(2000)), new("ben", Some(2001))])).expect("accepted");
    head.command(UsersCommand::SetRole(name("ada"), Role::Operator)).expect("accepted");
    assert_eq!(guarded(&mut head), [(1, vec![1000]), (1, vec![1000, 2000])]);
    head.set(Setting::RolesThroughNodes, Some("yes"));
    assert_eq!(guarded(&mut head), [(1, vec![])], "an admin has allowed it");
    head.set(Setting::RolesThroughNodes, None);
    head.command(UsersCommand::SetRole(name("ada"), Role::User)).expect("accepted");
    assert_eq!(guarded(&mut head), [(1, vec![1000, 2000]), (1, vec![1000])]);
    // Root is handled separately.
    let epoch = head.state.next_epoch();
    head.apply(Event::EpochStarted { epoch, owner: Some(0) });
    assert_eq!(head.state.guarded_uids(), Vec::<u32>::new());
}

#[test]
fn agents_get_the_allowed_system_accounts() {
    let mut head = Head::default();
    let allowed = |head: &mut Head| -> Vec<(u64, SystemAccounts)> {
        let said = std::mem::take(&mut head.said).into_iter();
        said.filter_map(|(connection, message)| match message {
            HeadMessage::Accounts { system, .. } => Some((connection.0, system)),
            _ => None,
        })
        .collect()
    };
    let only = |uids: &[u32]| SystemAccounts::Only(uids.to_vec());
    let epoch = head.state.next_epoch();
    head.apply(Event::EpochStarted { epoch, owner: Some(998) });
    head.connect("n1", 1);
    assert_eq!(allowed(&mut head), [(1, only(&[998]))], "the head's own account");
    head.command(UsersCommand::Import(vec![new("games", Some(5)), new("ada", Some(2000))])).expect("accepted");
    assert_eq!(allowed(&mut head), [(1, only(&[5, 998]))], "an admin has added games");
    head.set(Setting::SystemAccounts, Some("yes"));
    assert_eq!(allowed(&mut head), [(1, SystemAccounts::All)], "an admin has allowed all");
    // An agent that was away for the change learns of it.
    head.apply(Event::Disconnected { connection: ConnectionId(1) });
    head.set(Setting::SystemAccounts, Some("no"));
    head.command(UsersCommand::Remove(name("games"))).expect("a user");
    head.connect("n1", 2);
    assert_eq!(allowed(&mut head), [(2, only(&[998]))]);
    for (uid, is_allowed) in [(0, true), (998, true), (1000, true), (5, false), (1, false), (65_534, false)] {
        assert_eq!(head.state.system_accounts().allow(uid), is_allowed, "{uid}");
    }
}

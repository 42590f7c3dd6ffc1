//! Identities from users and nodes: keys, signatures, relayed requests, rosters, and API requests about users and
//! settings.

use std::collections::BTreeSet;
use std::fmt::Debug;

use hostler_core::head::{
    Changes, Command, Ended, Event, NewUser, Now, Setting, Stamped, State, UsersCommand, decide, update,
};
use hostler_head::fuzzing::{is_signed, normal_key, queries, relayed};
use hostler_model::{Digest, Quota, Role, Timestamp, UserName, WallTime};
use hostler_proto::settings::NewValue;
use hostler_proto::users::{AddUser, BlockUser, ChangeKeys, CodeLogin, ImportUsers, KeyLogin, SetRole};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::values;
use crate::Target;

#[path = "../../../crates/cli/src/commands/configure/roster.rs"]
mod roster;

pub(crate) const TARGET: Target = Target {
    name: "people",
    about: "keys, signatures, relayed names, rosters, queries, and bodies about users and settings",
    run,
    seeds,
};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKYEzKftZ75Yc3ydsKS5gUD975KGjyY/upbF+qCWw+mx fuzz";
const OTHER_KEY: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBF2PITrm6WxdSeuNJlUp3VDKB9cqQNs/4bwICUlSWhOsmyF6SY8zEsPOZFnC5/6cmMzswCVq4UJvB64Qv5f4rFI= e";
const RSA_KEY: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQCgpjMZvUkuNPhWYFImKJeJBGZv1M8H0wcuOjXkEmbUsw+510JSos8k0E7niGK4KhtRRZjdwBaCvFFUK7hIX4reW3RhTuD4b7IlKvCpLrte7p5s77lrnO/bOkTVJLudmCN0ksykqtXH2jkt6eroAaCt3JAMPTIgkEgOHuPus7w1UuSuzlOx/FPiJFHyJMX+nwSVfcMwBqZmg1c7YUUaFPkYICK/55DX33PJP7gfJnzPk3/LFl9A4JIrRwtKEnGuqZV1VjgRSz2/yM6iiQSxRZ/XqJ8+JFkgaYak0DkpL5DVYkzgLZvd0nAAvkIzGUa6KbCMrPw/Dc9iObaUia4PIonN r";

/// The signature of the text `text` by [`KEY`].
const SIGNATURE: &str = "-----BEGIN SSH SIGNATURE-----
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgpgTMp+1nvlhzfJ2wpLmBQP3vko
aPJj+6lsX6oJbD6bEAAAAQaG9zdGxlci1sb2dpbkB2MQAAAAAAAAAGc2hhNTEyAAAAUwAA
AAtzc2gtZWQyNTUxOQAAAEDoQuEa/VGzvPk2fD3FnuMd4P5Nr4/hUEG9B4+l4+h/C4fAz/
/T95DFK+6KWE5R0qxm9smq341sW3otPgYo/AkF
-----END SSH SIGNATURE-----
";

/// The first byte selects the format.
fn run(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let text = || std::str::from_utf8(bytes).unwrap_or_default();
    match kind % 12 {
        0 => key(text()),
        1 => {
            let _ = is_signed(text(), "text", KEY);
            assert!(!is_signed(text(), "other text", KEY), "a signature must not match another text");
            assert!(!is_signed(text(), "text", OTHER_KEY), "a signature must not match another key");
        }
        2 => relay(bytes),
        3 => csv(text()),
        4 => drop(queries(text())),
        5 | 6 => {
            if let Some(ImportUsers { users }) = reads_back(bytes) {
                import(&users);
            }
        }
        7 => drop((reads_back::<SetRole>(bytes), reads_back::<ChangeKeys>(bytes), reads_back::<BlockUser>(bytes))),
        8 => drop(reads_back::<Quota>(bytes)),
        9 => drop((reads_back::<KeyLogin>(bytes), reads_back::<CodeLogin>(bytes))),
        10 => drop(reads_back::<NewValue>(bytes)),
        _ => settings(text()),
    }
}

/// Decodes a value and checks that it survives another round trip.
fn reads_back<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let text = serde_json::to_vec(&value).expect("plain data");
    let again: T = serde_json::from_slice(&text).expect("encoded values are readable");
    assert_eq!(value, again);
    Some(value)
}

/// Checks that the normal form of a key is stable.
fn key(line: &str) {
    if let Ok(normal) = normal_key(line) {
        assert!(!normal.contains(char::is_control), "{normal:?} is one line");
        assert_eq!(normal_key(&normal).as_ref(), Ok(&normal));
    }
}

/// Checks that a node can give a caller only the role of a user, and never the name of root.
fn relay(header: &[u8]) {
    let mut state = State::default();
    let ada = NewUser {
        name: "ada".parse().expect("a name"),
        uid: Some(2000),
        role: Role::Admin,
        groups: BTreeSet::new(),
        keys: Vec::new(),
    };
    carry_out(&mut state, &Command::Users(UsersCommand::Add(ada)));
    let Some((name, role)) = relayed(&state, &values::node(), header) else { return };
    assert_eq!(role, Role::User);
    // Ada is an admin, and the head does not trust a node's claim to act for an admin.
    assert!(name != "root" && name != "ada", "{name}");
    assert!(name == "root@n1" || name == "ada@n1" || !name.ends_with("@n1"), "{name}");
    if name == "ada@n1" {
        let uid = header.split(|byte| *byte == b':').next().and_then(|uid| std::str::from_utf8(uid).ok());
        assert_eq!(uid.and_then(|uid| uid.parse().ok()), Some(2000), "ada has one uid");
        assert!(header.ends_with(b":ada"), "another name with her uid is not ada");
    }
}

/// Checks that a valid roster has each user once.
fn csv(text: &str) {
    for is_bare in [false, true] {
        let (users, problems) = roster::read(text, is_bare);
        let names: BTreeSet<&UserName> = users.iter().map(|(_, user)| &user.name).collect();
        assert!(!problems.is_empty() || (!users.is_empty() && names.len() == users.len()));
    }
}

/// Imports users, all or none. Accepted users have different uids, and the state survives a round trip.
fn import(users: &[AddUser]) {
    let mut state = State::default();
    for _ in 0..2 {
        let new = users.iter().cloned().map(|user| NewUser {
            name: user.name,
            uid: user.uid,
            role: user.role,
            groups: user.groups,
            keys: user.keys,
        });
        carry_out(&mut state, &Command::Users(UsersCommand::Import(new.collect())));
        let uids: BTreeSet<u32> = state.users.iter().map(|user| user.uid).collect();
        assert_eq!(uids.len(), state.users.iter().count(), "two users must not have the same uid");
    }
    for user in users {
        let token = Digest([user.uid.unwrap_or_default() as u8; 32]);
        carry_out(
            &mut state,
            &Command::Users(UsersCommand::IssueToken { token, user: user.name.clone(), until: None }),
        );
        carry_out(&mut state, &Command::Users(UsersCommand::Remove(user.name.clone())));
    }
    let stored = hostler_proto::encode(&state);
    let read: State = hostler_proto::decode(&stored).expect("a state can be read again");
    assert_eq!(hostler_proto::encode(&read), stored);
}

/// Reads lines of `name=value` and checks that the text form of an accepted value parses to the same value.
fn settings(text: &str) {
    let mut state = State::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
        let Ok(setting) = name.parse::<Setting>() else { continue };
        if let Ok(read) = setting.read(value) {
            assert_eq!(setting.read(&setting.write(read)), Ok(read), "{setting} = {value}");
        }
        carry_out(&mut state, &Command::Set { by: "ada".into(), setting, value: Some(value.into()) });
    }
    let _ = state.next_deadline(Now { at: Timestamp(1), wall: WallTime(1_000_000) });
}

fn carry_out(state: &mut State, command: &Command) {
    let now = Now { at: Timestamp(1), wall: WallTime(1_000_000) };
    for event in decide(state, command, &Ended::default(), now).unwrap_or_default() {
        update(state, &Stamped { now, event: Event::clone(&event) }, &mut Changes::default());
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let roster = format!("\u{feff}name,uid,role,groups,ssh key\nada,2000,admin,lab;a1,\"{KEY}\"\n# none\nben,,,,\n");
    let users = format!(
        r#"{{"users":[{{"name":"ada","uid":2000,"role":"admin","groups":["lab"],"keys":["{KEY}"]}},{{"name":"ben"}}]}}"#
    );
    let values =
        "retention=14d\nheartbeat=4s\npolicy=fcfs\ndefault-memory=1G\ndefault-time-limit=none\ndefault-cpus=2\n";
    let words: [(u8, &str); 18] = [
        (0, KEY),
        (0, OTHER_KEY),
        (0, RSA_KEY),
        (1, SIGNATURE),
        (2, "2000:ada"),
        (2, "0:root"),
        (3, &roster),
        (4, "state=running,failed&user=ada&limit=3&before=12&commands=true"),
        (4, "from=5&follow=true&node_rank=1&rows=24&columns=80&wait_ms=5&tasks=2"),
        (4, "unfetched=true&jobs=1,2&result=12_3&jobs=cancel&since=5&index=3"),
        (5, &users),
        (7, r#"{"role":"operator"}"#),
        (7, r#"{"add":["x"],"remove":[]}"#),
        (8, r#"{"cpus":4,"memory_bytes":5,"jobs":null,"queued":7}"#),
        (9, r#"{"user":"ada","nonce":"0f","signature":"-----BEGIN"}"#),
        (9, r#"{"secret":"x"}"#),
        (10, r#"{"value":"90s"}"#),
        (11, values),
    ];
    words.into_iter().map(|(kind, word)| [&[kind], word.as_bytes()].concat()).collect()
}

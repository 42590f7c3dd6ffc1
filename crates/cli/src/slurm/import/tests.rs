//! Tests of the translation and of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use hostler_model::{NodeState, PartitionState, Quota};
use hostler_proto::api::NodeView;
use hostler_proto::partitions::{NewPartition, PartitionChange, PartitionView};
use hostler_proto::settings::{SettingSource, SettingView};
use hostler_proto::users::{AddUser, GroupView, UserView};
use hostler_slurm::accounts::Accounts;
use hostler_slurm::conf::{Found, NotFound, Problem, Value, read, records};
use proptest::prelude::*;

use super::changes::{Change, Present};
use super::files;
use super::translate::translate;
use super::wanted::{Sources, Wanted};
use crate::slurm::machines::tests::machine;

/// The lines of a text without included files.
fn lines(name: &str, text: &str) -> Result<Vec<Vec<Value>>, Vec<Problem>> {
    let first = Found { id: name.to_owned(), name: name.into(), text: text.to_owned() };
    read(&first, &mut |name| Err(NotFound(format!("cannot read {name}"))))
}

fn sources(text: &str, dump: Option<&str>) -> Result<Sources, Vec<Problem>> {
    let accounts = dump.map(|dump| Accounts::parse(&"dump".into(), dump)).transpose()?;
    Ok(Sources { records: records(lines("s", text)?), accounts })
}

fn wanted(text: &str) -> Wanted {
    translate(&sources(text, None).expect("good lines")).expect("a good configuration")
}

/// The settings of a new cluster, as commands.
fn commands(wanted: &Wanted) -> Vec<String> {
    wanted.changes(&Present::default()).iter().flat_map(Change::commands).collect()
}

/// The mistakes of a configuration.
fn mistakes(text: &str, dump: Option<&str>) -> Vec<String> {
    let problems = sources(text, dump).and_then(|sources| translate(&sources)).expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hostler/tests/slurm_import").join(name)
}

fn load(name: &str, dump: Option<&str>) -> Wanted {
    let dump = dump.map(fixture);
    let sources = files::load(&fixture(name), dump.as_deref()).expect("good files");
    translate(&sources).expect("a good configuration")
}

#[test]
fn partitions_are_translated() {
    let text = "NodeName=n[08-12] CPUs=2\nNodeName=DEFAULT Feature=x\nPartitionName=DEFAULT MaxTime=2:00:00\n\
                PartitionName=a Nodes=n[08-12] Default=YES\n\
                PartitionName=b Nodes=ALL MaxTime=UNLIMITED DefaultTime=30 MaxNodes=3 State=down AllowGroups=x,y\n\
                PartitionName=c Nodes=n08 MaxTime=10 DefaultTime=20 RootOnly=yes State=INACTIVE Default=NO";
    let wanted = wanted(text);
    assert_eq!(
        commands(&wanted),
        [
            "hostler configure partition add a --nodes 'n[08-12]' --default yes --max-time 2h",
            "hostler configure partition add b --nodes '*' --default-time 30m --max-nodes 3 --groups x,y --state paused",
            "hostler configure partition add c --nodes n08 --max-time 10m --default-time 10m --users root --state closed",
        ]
    );
    assert_eq!(
        wanted.notes,
        ["s:6: partition c has a DefaultTime above MaxTime: jobs that set no time limit get MaxTime"]
    );
    assert_eq!(wanted.not_taken, ["CPUs"]);
}

#[test]
fn priorities_and_weights_keep_their_order() {
    let none = wanted("NodeName=n[1-2]\nPartitionName=a Nodes=n1\nPartitionName=b Nodes=n2");
    assert_eq!(none.partitions[0].about.priority, Some(0));
    assert!(none.nodes.values().all(|node| node.weight.is_none()));
    assert!(none.notes[0].starts_with("no partition is the default"));
    let some =
        wanted("NodeName=n1\nNodeName=n2 Weight=0\nPartitionName=a Nodes=n1\nPartitionName=b Nodes=n2 PriorityTier=0");
    let priorities: Vec<_> = some.partitions.iter().map(|partition| partition.about.priority).collect();
    assert_eq!(priorities, [Some(1), Some(0)]);
    assert_eq!(some.nodes.values().map(|node| node.weight).collect::<Vec<_>>(), [Some(1), Some(0)]);
}

#[test]
fn last_default_partition_counts() {
    let wanted = wanted("NodeName=n\nPartitionName=a Nodes=n Default=YES\nPartitionName=b Nodes=n Default=YES");
    let defaults: Vec<_> = wanted.partitions.iter().map(|partition| partition.about.is_default).collect();
    assert_eq!(defaults, [Some(false), Some(true)]);
}

#[test]
fn settings_are_translated() {
    let text = "NodeName=n\nSchedulerType=sched/builtin\nKillWait=5\nDefMemPerNode=1\nDefMemPerNode=2048\nKillWait=4000\nJobRequeue=0";
    let wanted = wanted(text);
    let expected = [("default-memory", "2G"), ("grace", "3600s"), ("policy", "fcfs")];
    assert_eq!(wanted.settings, expected.map(|(name, value)| (name, value.to_owned())).into());
    assert_eq!(wanted.not_taken, ["JobRequeue"], "jobs that must not run twice need an option of their own");
}

#[test]
fn allowed_users_are_never_more_than_the_accounts() {
    let text = "NodeName=n\nPartitionName=DEFAULT AllowGroups=staff\nPartitionName=a Nodes=n AllowAccounts=Ml\n\
                PartitionName=b Nodes=n\nPartitionName=c Nodes=n AllowGroups=ALL DenyAccounts=x";
    let wanted = wanted(text);
    let groups: Vec<Vec<String>> = wanted
        .partitions
        .iter()
        .map(|it| it.about.groups.iter().flatten().map(ToString::to_string).collect())
        .collect();
    assert_eq!(groups, [vec!["ml"], vec!["staff"], vec![]]);
    let notes = [
        "s:3: partition a has AllowGroups and AllowAccounts. Only the accounts count; Slurm wants one of each of a user",
        "s:5: partition c has DenyAccounts, which is not imported: users of these accounts may use it",
    ];
    assert_eq!(wanted.notes[..2], notes);
}

#[test]
fn accounts_with_names_of_settings_do_not_admit_everybody() {
    for (setting, groups) in
        [("AllowAccounts=default", "default"), ("AllowGroups=none", "none"), ("AllowAccounts=ALL", "")]
    {
        let wanted = wanted(&format!("NodeName=n1\nPartitionName=a Nodes=n1 {setting}"));
        let added = commands(&wanted).remove(0);
        let expected = if groups.is_empty() { String::new() } else { format!(" --groups {groups}") };
        assert_eq!(added, format!("hostler configure partition add a --nodes n1{expected}"), "{setting}");
    }
}

#[test]
fn mistakes_have_their_line() {
    for (text, expected) in [
        (
            "NodeName=n\nPartitionName=a Nodes=n MaxTime=soon",
            "s:2: MaxTime=soon is not a time; Slurm takes minutes, or forms such as 12:00:00 and 7-00:00:00",
        ),
        ("NodeName=n\nPartitionName=a Nodes=n,m", "s:2: no NodeName or NodeSet line defines m"),
        ("NodeName=n\nPartitionName=a Nodes=n Default=maybe", "s:2: Default=maybe is neither YES nor NO"),
        ("NodeName=n\nPartitionName=a Nodes=n State=OPEN", "s:2: State=OPEN is not UP, DOWN, DRAIN or INACTIVE"),
        ("NodeName=n\nPartitionName=a Nodes=n MaxNodes=0", "s:2: MaxNodes=0 is not a number of nodes"),
        ("NodeName=n\nPartitionName=a Nodes=n PriorityTier=-1", "s:2: PriorityTier=-1 is not a number from 0 to 65535"),
        (
            "NodeName=n\nPartitionName=a/b Nodes=n",
            "s:2: Hostler has no partition `a/b`: a name has up to 63 letters, digits, `-`, `_`, `.` and `+`",
        ),
        ("NodeName=n\nPartitionName=a Nodes=n\nPartitionName=a Nodes=n", "s:3: partition a is already in s:2"),
        ("NodeName=n Weight=heavy", "s:1: Weight=heavy is not a number from 0 to 4294967295"),
        ("NodeName=n State=BROKEN", "s:1: State=BROKEN is not a state that slurm.conf may give to a node"),
        (
            "NodeName=n\nKillWait=5 MinJobAge=6",
            "s:2: MinJobAge=6 follows KillWait, which is neither NodeName nor PartitionName; write it in a line of its own",
        ),
        ("NodeName=n\nKillWait=long", "s:2: KillWait=long is not a number of seconds"),
        ("NodeName=n\nDefMemPerCPU=2G", "s:2: DefMemPerCPU=2G is not a number of megabytes"),
        ("NodeName=n\nDownNodes=m", "s:2: no NodeName or NodeSet line defines m"),
    ] {
        assert_eq!(mistakes(text, None), [expected], "{text}");
    }
    let all = mistakes("NodeName=n Weight=x\nKillWait=x\nPartitonName=p Nodes=n", None);
    assert_eq!(all.len(), 3, "all mistakes are reported at once: {all:?}");
}

#[test]
fn accounts_become_groups_and_quotas() {
    let wanted = load("lab/slurm.conf", Some("lab/accounts.dump"));
    let people = wanted.people.as_ref().expect("users are imported");
    let groups = |name: &str| people.users[name].groups.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(groups("amira"), ["laser", "lens"]);
    assert_eq!(groups("chidi"), ["laser", "ultrafast"], "a user is in the groups of all accounts above");
    assert!(!people.users.contains_key("root"));
    let quota = |cpus, memory_bytes, jobs, queued| Quota { cpus, memory_bytes, jobs, queued };
    assert_eq!(people.users["amira"].quota, quota(None, None, Some(3), Some(1000)), "the sum over both accounts");
    assert_eq!(people.users["bjarne"].quota, quota(Some(2), None, None, Some(500)));
    assert_eq!(people.users["chidi"].quota, quota(None, None, None, None), "limits of one partition do not count");
    assert_eq!(people.groups["laser"], quota(Some(6), Some(3 << 30), None, None));
    assert_eq!(people.groups["lens"], quota(None, None, Some(4), None));
    assert_eq!(wanted.partitions[2].about.groups.as_ref().map(BTreeSet::len), Some(2));

    let cluster = "Cluster - 'c'\n";
    for (dump, expected) in [
        (format!("{cluster}User - '-x'"), "dump:2: `-x` is not a name of a user or group"),
        (format!("{cluster}Account - 'a':GrpTRES=cpu"), "dump:2: GrpTRES=cpu: `cpu` is not of the form name=amount"),
        (format!("{cluster}Account - 'a':GrpJobs=many"), "dump:2: GrpJobs=many is not a number"),
        (
            format!("{cluster}User - 'a':AdminLevel='King'"),
            "dump:2: AdminLevel=King is not Administrator, Operator or None",
        ),
    ] {
        let mistakes = mistakes("NodeName=n", Some(&dump));
        assert!(mistakes.len() == 1 && mistakes[0].starts_with(expected), "{mistakes:?}");
    }
}

#[test]
fn inherited_limits_are_those_of_the_nearest_account() {
    let dump = "Cluster - 'c':MaxJobs=9\nAccount - 'a':MaxJobs=5\nAccount - 'b'\nParent - 'a'\nAccount - 'a1'\nUser - 'u'\n\
                Parent - 'a1'\nUser - 'v'\nUser - 'w':MaxJobs=1\nParent - 'b'\nUser - 'x'\nUser - 'w':MaxJobs=-1";
    let wanted = translate(&sources("NodeName=n", Some(dump)).expect("good lines")).expect("good accounts");
    let users = wanted.people.expect("users").users;
    let jobs: Vec<_> = ["u", "v", "w", "x"].map(|name| users[name].quota.jobs).into();
    assert_eq!(jobs, [Some(5), Some(5), Some(10), Some(9)]);
}

#[test]
fn other_keys_are_listed_once() {
    let wanted = load("lab/slurm.conf", Some("lab/accounts.dump"));
    assert_eq!(
        wanted.not_taken.join(" "),
        "ClusterName SlurmctldHost AuthType AccountingStorageType AccountingStorageHost AccountingStorageEnforce GresTypes \
         SelectType SchedulerParameters PriorityType PriorityWeightFairshare Prolog MailProg SuspendTime SuspendTimeout \
         ResumeTimeout SuspendProgram ResumeProgram CPUs RealMemory Gres Fairshare QOS Description Organization \
         DefaultAccount Partition"
    );
    let odd = translate(&sources("NodeName=n[1-2] Feature=a,b/c\nHidden=x\nhidden=y", None).expect("good lines"));
    let odd = odd.expect("a good configuration");
    assert_eq!(odd.not_taken, ["Hidden"]);
    assert!(odd.notes[0].starts_with("s:1: not imported: b/c; a feature has up to"), "{:?}", odd.notes);
}

#[test]
fn names_with_dots_and_keys_of_old_releases_are_no_mistakes() {
    let old = "DefaultStorageHost=db\nDefaultStoragePort=3306\nSchedulerAuth=munge\nLayouts=power\nLayoutsCredType=munge\n\
               SlurmdPlugstack=x\nJobContainerPlugin=job_container/tmpfs\nStepdTimeout=5\nNodeName=n\n\
               PartitionName=long.q Nodes=n\nPartitionName=gpu+ Nodes=n";
    let wanted = wanted(old);
    assert_eq!(
        commands(&wanted),
        ["hostler configure partition add long.q --nodes n", "hostler configure partition add gpu+ --nodes n",]
    );
    assert_eq!(
        wanted.not_taken,
        [
            "DefaultStorageHost",
            "DefaultStoragePort",
            "SchedulerAuth",
            "Layouts",
            "LayoutsCredType",
            "SlurmdPlugstack",
            "JobContainerPlugin",
            "StepdTimeout"
        ]
    );
}

#[test]
fn centre_is_translated() {
    let wanted = load("centre/slurm.conf", None);
    assert_eq!(wanted.partitions.len(), 8);
    assert_eq!(wanted.nodes.len(), 600 + 8 + 17 + 2 + 50);
    let main = &wanted.partitions[0].about;
    assert_eq!(main.nodes.as_ref().map(ToString::to_string).as_deref(), Some("c[0001-0600]"));
    let drained: Vec<_> =
        wanted.nodes.iter().filter(|(_, node)| node.drain.is_some()).map(|(name, _)| name.to_string()).collect();
    assert_eq!(drained, ["c0007", "c0009", "login1", "login2"]);
    assert_eq!(wanted.nodes["m01".parse::<hostler_model::NodeName>().as_ref().expect("a name")].weight, Some(500));
}

#[test]
fn corrupted_files_are_refused_or_translated() {
    let texts = ["lab/slurm.conf", "lab/machines.conf", "lab/optics.conf", "classroom/slurm.conf"]
        .map(|name| std::fs::read_to_string(fixture(name)).expect("readable"));
    let mut refused = 0;
    for text in &texts {
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = b"\0=\"\\\n[9 "[at % 8];
            let text = String::from_utf8_lossy(&bytes).into_owned();
            match sources(&text, None).and_then(|sources| translate(&sources)) {
                Err(problems) => {
                    assert!(!problems.is_empty());
                    refused += 1;
                }
                Ok(wanted) => drop(commands(&wanted)),
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// Makes a change to a model of a cluster.
fn make(present: &mut Present, change: &Change) {
    match change {
        Change::Users(users) => users.iter().for_each(|user| put_user(present, user)),
        Change::UserQuota { user, quota, .. } => {
            present.users.iter_mut().filter(|known| known.name == *user).for_each(|known| known.quota = *quota);
        }
        Change::GroupQuota { group, quota, .. } => {
            present.groups.retain(|known| known.name != *group);
            present.groups.push(GroupView { name: group.clone(), quota: *quota, member_quota: Quota::default() });
        }
        Change::Setting { name, value } => {
            present.settings.retain(|setting| setting.name != *name);
            present.settings.push(setting(name, value));
        }
        Change::AddPartition(new) => {
            assert!(present.partitions.iter().all(|known| known.name != new.name), "{} is new", new.name);
            present.partitions.push(new_partition(new));
            put_partition(present, new);
        }
        Change::SetPartition(new) => put_partition(present, new),
        Change::Traits { node, change } => {
            let node = present.nodes.iter_mut().find(|known| known.name == *node).expect("a node of the cluster");
            node.weight = change.weight.unwrap_or(node.weight);
            node.features.extend(change.features.iter().flatten().cloned());
        }
        Change::Drain { node, reason } => {
            let node = present.nodes.iter_mut().find(|known| known.name == *node).expect("a node of the cluster");
            assert_eq!(node.reason.replace(reason.clone()), None);
        }
    }
}

fn setting(name: &str, value: &str) -> SettingView {
    let unit = match name {
        "grace" => "time",
        "default-memory" => "size",
        _ => "word",
    };
    let (name, unit, value) = (name.to_owned(), unit.to_owned(), value.to_owned());
    let source = SettingSource::Set;
    SettingView {
        name,
        unit,
        meaning: String::new(),
        allowed: String::new(),
        default: String::new(),
        value,
        source,
        by: None,
        set_at: None,
    }
}

fn put_user(present: &mut Present, user: &AddUser) {
    let AddUser { name, role, groups, .. } = user.clone();
    let quota = present.users.iter().find(|known| known.name == name).map(|known| known.quota).unwrap_or_default();
    present.users.retain(|known| known.name != name);
    present.users.push(UserView {
        name,
        uid: 20_000,
        role,
        groups,
        keys: Vec::new(),
        quota,
        effective_quota: Some(quota),
        added: true,
        blocked: None,
    });
}

fn new_partition(new: &NewPartition) -> PartitionView {
    PartitionView {
        name: new.name.clone(),
        nodes: new.about.nodes.clone().expect("a new partition has nodes"),
        is_default: false,
        state: PartitionState::Open,
        priority: 0,
        default_time_ms: None,
        max_time_ms: None,
        max_nodes: None,
        users: BTreeSet::new(),
        groups: BTreeSet::new(),
        sandbox: hostler_model::SandboxRule::Optional,
        sandbox_network: hostler_model::SandboxNetwork::None,
        exclusive: hostler_model::ExclusiveRule::Optional,
        join_code_until: None,
        pace: None,
        node_count: 0,
        nodes_up: 0,
        cpus: 0,
        cpus_free: 0,
        waiting: 0,
    }
}

fn put_partition(present: &mut Present, NewPartition { name, about }: &NewPartition) {
    let PartitionChange {
        nodes,
        is_default,
        state,
        priority,
        default_time_ms,
        max_time_ms,
        max_nodes,
        users,
        groups,
        sandbox,
        sandbox_network,
        exclusive,
        ends_join_code: _,
    } = about.clone();
    assert_eq!((sandbox, sandbox_network, exclusive), (None, None, None), "not taken from Slurm");
    if is_default == Some(true) {
        present.partitions.iter_mut().for_each(|partition| partition.is_default = false);
    }
    let limit = |new: Option<u64>, now: &mut Option<u64>| {
        if let Some(new) = new {
            *now = Some(new).filter(|limit| *limit > 0);
        }
    };
    let now = present.partitions.iter_mut().find(|known| known.name == *name).expect("the partition exists");
    now.nodes = nodes.unwrap_or_else(|| now.nodes.clone());
    now.is_default = is_default.unwrap_or(now.is_default);
    now.state = state.unwrap_or(now.state);
    now.priority = priority.unwrap_or(now.priority);
    limit(default_time_ms, &mut now.default_time_ms);
    limit(max_time_ms, &mut now.max_time_ms);
    now.max_nodes = max_nodes.map_or(now.max_nodes, |most| Some(most).filter(|most| *most > 0));
    now.users = users.unwrap_or_else(|| now.users.clone());
    now.groups = groups.unwrap_or_else(|| now.groups.clone());
    assert!(
        now.max_time_ms.is_none_or(|most| now.default_time_ms.is_none_or(|usual| usual <= most)),
        "the head refuses a default above the maximum"
    );
}

/// A cluster with nodes of these names.
fn cluster(names: &[&str]) -> Present {
    let node = |name: &&str| -> NodeView { machine(name, NodeState::Up, 2, 2).view };
    Present { nodes: names.iter().map(node).collect(), ..Present::default() }
}

fn text_of_partition() -> impl Strategy<Value = String> {
    let time = prop::sample::select(vec!["10", "30", "2:00:00", "1-0", "UNLIMITED"]);
    let nodes = prop::sample::select(vec!["ALL", "n1", "n[1-3]", "n[2-3],m1", "old"]);
    let extra = prop::sample::select(vec![
        "",
        "Default=YES",
        "State=DRAIN",
        "PriorityTier=7",
        "AllowGroups=a,b",
        "MaxNodes=2",
        "RootOnly=YES",
    ]);
    (nodes, time.clone(), time, extra)
        .prop_map(|(nodes, most, usual, extra)| format!("Nodes={nodes} MaxTime={most} DefaultTime={usual} {extra}"))
}

fn text_of_site() -> impl Strategy<Value = String> {
    let weight = prop::sample::select(vec!["", "Weight=3", "State=DRAIN", "Feature=a,b", "Feature=b Weight=0"]);
    let setting = prop::sample::select(vec!["", "KillWait=7", "DefMemPerNode=100", "SchedulerType=sched/builtin"]);
    let partitions = prop::collection::vec(text_of_partition(), 1..5);
    (prop::collection::vec(weight, 3), setting, partitions).prop_map(|(weights, setting, partitions)| {
        let mut text = format!(
            "{setting}\nNodeName=n1 {}\nNodeName=n[2-3] {}\nNodeName=m1 {}\nNodeSet=old Nodes=n1,m1\n",
            weights[0], weights[1], weights[2]
        );
        for (at, partition) in partitions.iter().enumerate() {
            text += &format!("PartitionName=p{at} {partition}\n");
        }
        text
    })
}

proptest! {
    /// The second import finds nothing to do, also after another configuration and when a node was missing at first.
    #[test]
    fn second_import_changes_nothing(first in text_of_site(), second in text_of_site()) {
        let dump = "Cluster - 'c'\nAccount - 'a':GrpTRES=cpu=4\nParent - 'a'\nUser - 'u':MaxJobs=2:AdminLevel='Operator'";
        let translate = |text: &str| translate(&sources(text, Some(dump)).expect("good lines")).expect("a good configuration");
        let mut present = cluster(&["n1", "n2", "m1"]);
        for text in [&first, &second] {
            let wanted = translate(text);
            wanted.changes(&present).iter().for_each(|change| make(&mut present, change));
            prop_assert_eq!(wanted.changes(&present), vec![]);
            present.nodes.extend(cluster(&["n3"]).nodes);
            present.nodes.dedup_by(|a, b| a.name == b.name);
            wanted.changes(&present).iter().for_each(|change| make(&mut present, change));
            prop_assert_eq!(wanted.changes(&present), vec![]);
            let defaults = present.partitions.iter().filter(|partition| partition.is_default).count();
            prop_assert!(defaults <= 1);
        }
    }
}

#[test]
fn assigned_features_and_roles_are_kept() {
    let text = "NodeName=n1 Feature=ssd,x86_64 Weight=5\nPartitionName=p Nodes=n1";
    let dump = "Cluster - 'c'\nAccount - 'lab'\nParent - 'lab'\nUser - 'ada'";
    let wanted = translate(&sources(text, Some(dump)).expect("good lines")).expect("a good configuration");
    let mut present = cluster(&["n1"]);
    present.nodes[0].features = ["x86_64", "rack-2"].map(|word| word.parse().expect("a feature")).into();
    present.assigned =
        BTreeMap::from([("n1".parse().expect("a name"), BTreeSet::from(["rack-2".parse().expect("a feature")]))]);
    put_user(
        &mut present,
        &AddUser {
            name: "ada".parse().expect("a name"),
            uid: None,
            role: hostler_model::Role::Admin,
            groups: BTreeSet::from(["staff".parse().expect("a name")]),
            keys: Vec::new(),
        },
    );
    let commands: Vec<String> = wanted.changes(&present).iter().flat_map(Change::commands).collect();
    assert_eq!(
        commands,
        [
            "printf '%s\\n' 'ada,,admin,\"lab;staff\"' | hostler configure user import --no-header /dev/stdin",
            "hostler configure partition add p --nodes n1",
            "hostler node set n1 --features rack-2,ssd --weight 5",
        ]
    );
}

//! `scontrol update`, `create` and `delete`.

use hostler_client::{Client, ClientError};
use hostler_model::{NodeName, PartitionName, PartitionState};
use hostler_proto::partitions::{NewPartition, PartitionChange, TraitsChange};
use hostler_proto::power::{PowerAction, PowerRequest};
use hostler_slurm::hostlist;
use hostler_slurm::time::{Limit, parse_limit};

use super::super::{Ended, Outcome, Refused};
use super::{DISABLED, NAME, Session, refused};
use crate::context::block_on;

/// A name with its value, as the user wrote them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) word: &'a str,
    pub(super) name: &'a str,
    pub(super) value: &'a str,
}

impl<'a> Setting<'a> {
    pub(super) fn parse(word: &'a str) -> Self {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        // `+=` and `-=` change lists in Slurm.
        Self { word, name: name.trim_end_matches(['+', '-']), value }
    }

    /// Whether the name abbreviates one of these to at least three letters.
    pub(super) fn is(&self, names: &[&str]) -> bool {
        let name = self.name.to_ascii_lowercase();
        name.len() >= 3 && names.iter().any(|known| known.starts_with(&name))
    }

    pub(super) fn not_supported(&self) -> Ended {
        Ended::plain(format!("Update of this parameter is not supported: {}\nRequest aborted", self.word))
    }
}

/// What an update is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject<'a> {
    Jobs(&'a str),
    /// The caller's jobs with this name.
    JobsNamed(&'a str),
    Nodes(&'a str),
    Partition(&'a str),
}

/// Finds what the words are about, and the changes.
fn subject(words: &[String]) -> Result<(Subject<'_>, Vec<Setting<'_>>), Ended> {
    // `Partition=big JobId=12` changes the job.
    let names = |subject: &str| words.iter().any(|word| Setting::parse(word).is(&[subject]));
    let names_job = names("jobid");
    // Beside another subject, the name is a change of it.
    let names_other = names_job || names("nodename") || names("partitionname");
    let mut subject = None;
    let mut changes = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let setting = Setting::parse(word);
        // `job 12` means `JobId=12`.
        let mut value = || if word.contains('=') { setting.value } else { words.next().map_or("", String::as_str) };
        match subject {
            None if setting.is(&["jobid"]) => subject = Some(Subject::Jobs(value())),
            None if !names_job && setting.is(&["nodename"]) => subject = Some(Subject::Nodes(value())),
            None if !names_job && setting.is(&["partitionname"]) => subject = Some(Subject::Partition(value())),
            None if !names_other && setting.is(&["jobname"]) => subject = Some(Subject::JobsNamed(value())),
            _ => changes.push(setting),
        }
    }
    let none = || {
        Ended::plain(
            "No valid entity in update command\n\
             Input line must include \"NodeName\", \"PartitionName\", \"Reservation\", \"JobId\", or \"SlurmctldDebug\"",
        )
    };
    Ok((subject.ok_or_else(none)?, changes))
}

impl Session<'_> {
    pub(super) fn update(&self, words: &[String]) -> Outcome {
        let (subject, changes) = subject(words)?;
        match subject {
            Subject::Jobs(ids) => self.update_jobs(ids, &changes),
            Subject::JobsNamed(name) => match self.named(&[format!("jobname={name}")])?.as_slice() {
                [] => Err(Ended::plain("slurm_update error: Invalid job id specified")),
                ids => self.update_jobs(&ids.join(","), &changes),
            },
            Subject::Nodes(list) => self.update_nodes(list, &changes),
            Subject::Partition(name) => self.update_partition(name, &changes),
        }
    }

    fn update_nodes(&self, list: &str, changes: &[Setting<'_>]) -> Outcome {
        let orders = NodeOrders::parse(changes)?;
        let names = hostlist::expand(list).map_err(Ended::error)?;
        let invalid = || Ended::plain("slurm_update error: Invalid node name specified");
        let names = names.iter().map(|name| name.parse::<NodeName>().map_err(|_| invalid()));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        if names.is_empty() {
            return Err(invalid());
        }
        let client = self.context.client()?;
        let given = block_on(async {
            for name in &names {
                match orders.give(&client, name).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(Err(not_drained(name))),
                    Err(error) => return Ok(Err(update_error(error))),
                }
            }
            Ok(Ok(()))
        })?;
        given?;
        if orders.state == Some(NodeOrder::Down) {
            self.complain(&format!("{NAME}: note: the jobs on {list} continue; new ones do not start there"));
        }
        Ok(0)
    }

    fn update_partition(&self, name: &str, changes: &[Setting<'_>]) -> Outcome {
        if changes.is_empty() {
            return Err(Ended::error("No changes specified"));
        }
        let change = partition_change(changes)?;
        let name = partition_name(name)?;
        let client = self.context.client()?;
        block_on(async { Ok(client.change_partition(&name, &change).await) })?.map_err(update_error)?;
        Ok(0)
    }

    pub(super) fn create(&self, words: &[String]) -> Outcome {
        let settings: Vec<Setting<'_>> = words.iter().map(|word| Setting::parse(word)).collect();
        let Some(at) = settings.iter().position(|setting| setting.is(&["partitionname"])) else {
            let word = words.first().map_or("", String::as_str);
            return Err(Ended::error(format!("Invalid creation entity: {word}"))
                .and("hint: only partitions can be created; nodes join with `hostler node invite`"));
        };
        let name = partition_name(settings[at].value)?;
        let others: Vec<Setting<'_>> =
            settings.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, setting)| *setting).collect();
        let about = partition_change(&others)?;
        let client = self.context.client()?;
        let new = NewPartition { name, about };
        let added = block_on(async { Ok(client.add_partition(&new).await) })?;
        added.map_err(|error| {
            let why = Refused::from(error);
            refused("slurm_create_partition error", text_of(&why), &why)
        })?;
        Ok(0)
    }

    pub(super) fn delete(&self, words: &[String]) -> Outcome {
        let [word] = words else { return Err(Ended::plain("too many arguments for delete keyword")) };
        let setting = Setting::parse(word);
        if !setting.is(&["partitionname"]) {
            return Err(Ended::plain(format!("Invalid deletion entity: {word}")));
        }
        let name = partition_name(setting.value)?;
        let client = self.context.client()?;
        let removed = block_on(async { Ok(client.remove_partition(&name).await) })?;
        removed.map_err(|error| {
            let why = Refused::from(error);
            let text = format!("delete_partition {word}: {}", text_of(&why));
            if why.code.as_deref() == Some("no_such_partition") {
                Ended::plain(text)
            } else {
                why.lines().fold(Ended::plain(text), Ended::and)
            }
        })?;
        Ok(0)
    }
}

/// Slurm's text for why the head does not change a node or a partition.
fn text_of(why: &Refused) -> &'static str {
    match why.code.as_deref() {
        Some("no_such_node") => "Invalid node name specified",
        Some("partition_exists") => "Partition already exists",
        Some("partition_in_use") => "Partition is in use",
        Some("bad_partition" | "no_power" | "node_in_use") => DISABLED,
        _ => why.text,
    }
}

fn update_error(error: ClientError) -> Ended {
    let why = Refused::from(error);
    let text = text_of(&why);
    let is_plain = matches!(why.code.as_deref(), Some("no_such_node" | "no_such_partition"));
    if is_plain {
        Ended::plain(format!("slurm_update error: {text}"))
    } else {
        refused("slurm_update error", text, &why)
    }
}

fn not_drained(node: &NodeName) -> Ended {
    Ended::plain(format!("slurm_update error: {DISABLED}"))
        .and(format!("hint: {node} is not drained and has no reason; add State=DRAIN to drain it"))
}

fn partition_name(name: &str) -> Result<PartitionName, Ended> {
    name.parse().map_err(|_| Ended::plain("slurm_update error: Invalid partition name specified"))
}

/// The state that a node shall have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeOrder {
    Drain,
    Down,
    Resume,
    PowerOn,
    PowerOff,
    /// Drained as before, with another reason.
    Explain,
}

/// What to change about nodes.
#[derive(Debug, Default, PartialEq, Eq)]
struct NodeOrders {
    state: Option<NodeOrder>,
    reason: Option<String>,
    traits: TraitsChange,
}

impl NodeOrders {
    fn parse(changes: &[Setting<'_>]) -> Result<Self, Ended> {
        let mut orders = Self::default();
        for change in changes {
            let value = change.value;
            if change.is(&["state"]) {
                orders.state = Some(Self::state(change)?);
            } else if change.is(&["reason"]) {
                orders.reason = Some(value.to_owned());
            } else if change.is(&["weight"]) {
                let bad = || Ended::error(format!("Invalid numeric value \"{value}\" for Weight."));
                orders.traits.weight = Some(value.parse().map_err(|_| bad())?);
            } else if change.is(&["availablefeatures", "activefeatures", "features"]) {
                let names = value.split(',').filter(|name| !name.is_empty()).map(str::parse);
                let bad = |_| Ended::plain("slurm_update error: Invalid feature specification");
                orders.traits.features = Some(names.collect::<Result<_, _>>().map_err(bad)?);
            } else {
                return Err(change.not_supported());
            }
        }
        let drains = matches!(orders.state, Some(NodeOrder::Drain | NodeOrder::Down));
        if drains && orders.reason.as_deref().is_none_or(str::is_empty) {
            return Err(Ended::plain("You must specify a reason when DOWNING or DRAINING a node. Request denied"));
        }
        let has_traits = orders.traits != TraitsChange::default();
        match (orders.state, &orders.reason) {
            (None, None) if !has_traits => Err(Ended::plain("No changes specified")),
            (None, Some(_)) => Ok(Self { state: Some(NodeOrder::Explain), ..orders }),
            _ => Ok(orders),
        }
    }

    fn state(change: &Setting<'_>) -> Result<NodeOrder, Ended> {
        let value = change.value.to_ascii_lowercase();
        let is = |name: &str| value.len() >= 3 && name.starts_with(&value);
        match value.as_str() {
            "idle" => Ok(NodeOrder::Resume),
            "power_up" => Ok(NodeOrder::PowerOn),
            "power_down" | "power_down_asap" | "power_down_force" => Ok(NodeOrder::PowerOff),
            _ if is("drain") => Ok(NodeOrder::Drain),
            _ if is("down") => Ok(NodeOrder::Down),
            _ if is("resume") || is("undrain") => Ok(NodeOrder::Resume),
            "fail" | "future" | "noresp" | "cancel_reboot" => {
                Err(Ended::plain(format!("slurm_update error: {DISABLED}")))
            }
            _ => Err(Ended::plain(format!(
                "Invalid input: {}\nRequest aborted\n\
                 Valid states are: NoResp DRAIN FAIL FUTURE RESUME POWER_DOWN POWER_UP UNDRAIN\n\
                 Not all states are valid given a node's prior state",
                change.word
            ))),
        }
    }

    /// Changes a node. Returns false if only a drained node can have this change, and the node is not drained.
    async fn give(&self, client: &Client, node: &NodeName) -> Result<bool, ClientError> {
        let power = |action: PowerAction| PowerRequest { action, force: false };
        match self.state {
            None => {}
            Some(NodeOrder::Explain) if client.node(node).await?.drain.is_none() => return Ok(false),
            Some(NodeOrder::Explain) => drop(client.drain_node(node, self.reason.clone()).await?),
            Some(NodeOrder::Drain | NodeOrder::Down) => drop(client.drain_node(node, self.reason.clone()).await?),
            Some(NodeOrder::Resume) => drop(client.resume_node(node).await?),
            Some(NodeOrder::PowerOn) => drop(client.power_node(node, power(PowerAction::On)).await?),
            Some(NodeOrder::PowerOff) => drop(client.power_node(node, power(PowerAction::Off)).await?),
        }
        if self.traits != TraitsChange::default() {
            client.set_traits(node, &self.traits).await?;
        }
        Ok(true)
    }
}

/// The change of a partition that the settings describe.
fn partition_change(settings: &[Setting<'_>]) -> Result<PartitionChange, Ended> {
    let mut change = PartitionChange::default();
    for setting in settings {
        let value = setting.value;
        if setting.is(&["state"]) {
            change.state = Some(partition_state(setting)?);
        } else if setting.is(&["maxtime"]) {
            change.max_time_ms = Some(milliseconds(setting)?);
        } else if setting.is(&["defaulttime"]) && setting.name.len() > "default".len() {
            change.default_time_ms = Some(milliseconds(setting)?);
        } else if setting.is(&["default"]) {
            change.is_default = Some(yes_or_no(setting)?);
        } else if setting.is(&["maxnodes"]) {
            change.max_nodes = Some(if is_unlimited(value) { 0 } else { number(setting, "MaxNodes")? });
        } else if setting.is(&["prioritytier"]) {
            change.priority = Some(number(setting, "PriorityTier")?);
        } else if setting.is(&["nodes"]) {
            let pattern = if value.eq_ignore_ascii_case("all") { "*" } else { value };
            let bad = |_| Ended::plain("slurm_update error: Invalid node name specified");
            change.nodes = Some(pattern.to_owned().try_into().map_err(bad)?);
        } else if setting.is(&["allowgroups"]) {
            let names = value.split(',').filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("all"));
            let bad = |_| Ended::plain("slurm_update error: Invalid group name specified");
            change.groups = Some(names.map(str::parse).collect::<Result<_, _>>().map_err(bad)?);
        } else {
            return Err(Ended::error(format!("Update of this parameter is not supported: {}", setting.word))
                .and("error: Request aborted"));
        }
    }
    Ok(change)
}

fn partition_state(setting: &Setting<'_>) -> Result<PartitionState, Ended> {
    match setting.value.to_ascii_lowercase().as_str() {
        "up" => Ok(PartitionState::Open),
        // A partition that starts no jobs is the nearest to one that accepts none, either.
        "down" | "inactive" => Ok(PartitionState::Paused),
        "drain" => Ok(PartitionState::Closed),
        _ => Err(Ended::error(format!("Invalid input: {}", setting.word))
            .and("error: Acceptable State values are UP, DOWN, DRAIN and INACTIVE")),
    }
}

fn yes_or_no(setting: &Setting<'_>) -> Result<bool, Ended> {
    match setting.value.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(Ended::error(format!("Invalid input: {}", setting.word))
            .and("error: Acceptable Default values are YES and NO")),
    }
}

fn is_unlimited(value: &str) -> bool {
    ["infinite", "unlimited", "-1"].iter().any(|word| word.eq_ignore_ascii_case(value))
}

/// A time limit; zero for none.
fn milliseconds(setting: &Setting<'_>) -> Result<u64, Ended> {
    if setting.value.eq_ignore_ascii_case("none") {
        return Ok(0);
    }
    match parse_limit(setting.value) {
        Some(Limit::Unlimited) => Ok(0),
        Some(Limit::Seconds(seconds)) => Ok(seconds.saturating_mul(1000)),
        None => Err(Ended::error(format!("Invalid input {}", setting.word))),
    }
}

fn number<N: std::str::FromStr>(setting: &Setting<'_>, name: &str) -> Result<N, Ended> {
    let bad = |_| Ended::error(format!("Invalid numeric value \"{}\" for {name}.", setting.value));
    setting.value.parse().map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        super::super::split(line)
    }

    fn parsed<T>(line: &str, parse: impl FnOnce(&[Setting<'_>]) -> Result<T, Ended>) -> Result<T, String> {
        let words = words(line);
        let settings: Vec<Setting<'_>> = words.iter().map(|word| Setting::parse(word)).collect();
        parse(&settings).map_err(|ended| ended.texts().collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn subjects_are_found() {
        let found = |line: &str| {
            let words = words(line);
            let (subject, changes) = subject(&words).map_err(|ended| ended.texts().collect::<String>())?;
            Ok::<_, String>((format!("{subject:?}"), changes.len()))
        };
        assert_eq!(found("JobId=3 TimeLimit=5 Nice"), Ok(("Jobs(\"3\")".to_owned(), 2)));
        assert_eq!(found("job 3 timelimit=5"), Ok(("Jobs(\"3\")".to_owned(), 1)));
        assert_eq!(found("Partition=big JobId=12"), Ok(("Jobs(\"12\")".to_owned(), 1)));
        assert_eq!(found("partition=big nice=1 job 12"), Ok(("Jobs(\"12\")".to_owned(), 2)));
        assert_eq!(found("JobName=x TimeLimit=4"), Ok(("JobsNamed(\"x\")".to_owned(), 1)));
        assert_eq!(found("JobName=new JobId=4"), Ok(("Jobs(\"4\")".to_owned(), 1)));
        assert_eq!(found("state=drain nodename=n[1-2] reason=x"), Ok(("Nodes(\"n[1-2]\")".to_owned(), 2)));
        assert_eq!(found("part=big state=up"), Ok(("Partition(\"big\")".to_owned(), 1)));
        assert!(found("foo=1").expect_err("no subject").starts_with("No valid entity in update command"));
    }

    #[test]
    fn orders_for_nodes_are_parsed() {
        let orders = |line: &str| parsed(line, NodeOrders::parse);
        let drain = orders("State=DRAIN Reason=\"bad disk\"").expect("valid");
        assert_eq!((drain.state, drain.reason.as_deref()), (Some(NodeOrder::Drain), Some("bad disk")));
        assert_eq!(orders("state=resume").expect("valid").state, Some(NodeOrder::Resume));
        assert_eq!(orders("state=undrain").expect("valid").state, Some(NodeOrder::Resume));
        assert_eq!(orders("state=power_down").expect("valid").state, Some(NodeOrder::PowerOff));
        assert_eq!(orders("weight=7").expect("valid").traits.weight, Some(7));
        assert_eq!(orders("reason=other").expect("valid").state, Some(NodeOrder::Explain));
        for (line, text) in [
            ("state=drain", "You must specify a reason when DOWNING or DRAINING a node. Request denied"),
            ("state=bogus", "Invalid input: state=bogus"),
            ("bogus=1", "Update of this parameter is not supported: bogus=1\nRequest aborted"),
            ("state=fail reason=x", "slurm_update error: Requested operation is presently disabled"),
            ("", "No changes specified"),
        ] {
            assert!(orders(line).expect_err(line).starts_with(text), "{line}");
        }
    }

    #[test]
    fn changes_of_partitions_are_parsed() {
        let change = |line: &str| parsed(line, partition_change);
        let all = change("State=DOWN MaxTime=1-0 DefaultTime=30 Default=YES MaxNodes=2 PriorityTier=7").expect("valid");
        assert_eq!((all.state, all.is_default, all.max_nodes), (Some(PartitionState::Paused), Some(true), Some(2)));
        assert_eq!((all.max_time_ms, all.default_time_ms, all.priority), (Some(86_400_000), Some(1_800_000), Some(7)));
        let none = change("maxtime=infinite defaulttime=none maxnodes=unlimited allowgroups=ALL").expect("valid");
        assert_eq!((none.max_time_ms, none.default_time_ms, none.max_nodes), (Some(0), Some(0), Some(0)));
        assert_eq!(none.groups.map(|groups| groups.len()), Some(0));
        for (line, text) in [
            ("state=bogus", "error: Invalid input: state=bogus\nerror: Acceptable State values are"),
            ("maxtime=x", "error: Invalid input maxtime=x"),
            ("maxnodes=x", "error: Invalid numeric value \"x\" for MaxNodes."),
            ("default=maybe", "error: Invalid input: default=maybe\nerror: Acceptable Default values are YES and NO"),
            ("bogus=x", "error: Update of this parameter is not supported: bogus=x\nerror: Request aborted"),
        ] {
            assert!(change(line).expect_err(line).starts_with(text), "{line}");
        }
    }
}

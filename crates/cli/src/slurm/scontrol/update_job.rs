//! `scontrol update JobId=`: changes of jobs.

use hostler_client::{Client, ClientError};
use hostler_model::{Constraint, LEAST_MEMORY_BYTES};
use hostler_proto::api::{JobAction, JobChange, JobRecord};
use hostler_slurm::job_options::{JobOptions, Key};
use hostler_slurm::size;
use hostler_slurm::time::{Limit, parse_limit};

use super::super::machines::ALL_NODES;
use super::super::{Ended, Outcome, Refused, request};
use super::actions::{FINISHED, NOT_PENDING, Problem, Target, act_on_waiting, all_tasks};
use super::update::Setting;
use super::{DISABLED, Session};

/// What Slurm can change of a job, and this cluster cannot.
const OTHERS: &[&str] = &[
    "admincomment",
    "burstbuffer",
    "clusterfeatures",
    "contiguous",
    "corespec",
    "deadline",
    "delayboot",
    "endtime",
    "extra",
    "mailtype",
    "mailuser",
    "mintmpdisknode",
    "numtasks",
    "oversubscribe",
    "prefer",
    "reboot",
    "reqcores",
    "reqsockets",
    "reqthreads",
    "resetaccruetime",
    "shared",
    "sitefactor",
    "stderr",
    "stdin",
    "stdout",
    "stepid",
    "switches",
    "systemcomment",
    "taskspernode",
    "threadspec",
    "timemin",
    "userid",
    "workdir",
];

/// Values that the head only stores and shows, and their labels.
const LABELS: &[(&str, &str)] = &[
    ("account", "account"),
    ("comment", "comment"),
    ("licenses", "licenses"),
    ("qos", "qos"),
    ("reservationname", "reservation"),
    ("wckey", "wckey"),
];

/// A time limit, or a difference to the limit that the job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Time {
    Set(u64),
    Add(i64),
}

impl Time {
    /// Returns the new limit of a job with this limit, in milliseconds; 0 for none.
    fn after(self, limit_ms: Option<u64>) -> Result<u64, Problem> {
        const MINUTE_MS: u64 = 60_000;
        match (self, limit_ms) {
            (Self::Set(new_ms), _) => Ok(new_ms),
            // A job without a limit stays without one.
            (Self::Add(_), None | Some(0)) => Ok(0),
            (Self::Add(more_ms), Some(limit_ms)) => {
                let less_ms = if more_ms < 0 { more_ms.unsigned_abs() } else { 0 };
                if less_ms > limit_ms {
                    let (less, limit) = (less_ms.div_ceil(MINUTE_MS), limit_ms / MINUTE_MS);
                    let line = format!("error: TimeLimit decrement larger than current time limit ({less} > {limit})");
                    return Err(Problem { text: "", lines: vec![line] });
                }
                // Slurm's shortest limit is one minute.
                Ok(limit_ms.saturating_add_signed(more_ms).max(MINUTE_MS))
            }
        }
    }
}

/// What to change about jobs. Some values depend on what the job has.
#[derive(Debug, Default)]
struct Orders {
    change: JobChange,
    time: Option<Time>,
    nice: Option<i32>,
    /// CPUs on all nodes.
    cpus: Option<u32>,
    /// Memory per CPU, in mebibytes.
    memory_mib_per_cpu: Option<u64>,
    /// The options that make the constraint of a job; absent ones stay.
    features: Option<String>,
    nodelist: Option<String>,
    exclude: Option<String>,
    /// The model of the GPUs; empty for any.
    gpu_model: Option<String>,
    /// A hold, or the release that a priority implies.
    action: Option<JobAction>,
    /// Whether a value of the job cannot be changed here.
    is_impossible: bool,
}

impl Orders {
    fn parse(settings: &[Setting<'_>]) -> Result<Self, Ended> {
        let mut orders = Self::default();
        for setting in settings {
            if !orders.take_value(setting)? && !orders.take_size(setting)? && !orders.take_label(setting) {
                if !setting.is(OTHERS) {
                    return Err(setting.not_supported());
                }
                orders.is_impossible = true;
            }
        }
        Ok(orders)
    }

    /// Takes a setting of times, priority and dependencies; returns whether it is one.
    fn take_value(&mut self, setting: &Setting<'_>) -> Result<bool, Ended> {
        let (change, value) = (&mut self.change, setting.value);
        if setting.is(&["timelimit"]) {
            self.time = Some(time(setting)?);
        } else if setting.is(&["priority"]) {
            let priority: u32 = number(setting)?;
            if priority == 0 {
                self.action = Some(JobAction::Hold);
            } else {
                change.priority = Some(i32::try_from(priority).unwrap_or(i32::MAX));
                self.action = Some(JobAction::Release);
            }
        } else if setting.is(&["nice"]) {
            let nice: i32 = if value.is_empty() { 100 } else { number(setting)? };
            self.nice = Some(nice);
            change.labels.insert("slurm.nice".to_owned(), (nice != 0).then(|| nice.to_string()));
        } else if setting.is(&["partition"]) {
            let first = request::first_partition(value);
            let bad = |_| Ended::plain("slurm_update error: Invalid partition name specified");
            change.partition = Some(first.parse().map_err(bad)?);
        } else if setting.is(&["jobname", "name"]) {
            change.name = Some(request::name(value));
        } else if setting.is(&["dependency"]) {
            let after = request::dependencies(Some(value)).map_err(of_update)?;
            self.is_impossible |= after.singleton;
            change.after = Some(after.all);
            change.labels.insert(request::SINGLETON.to_owned(), None);
        } else if setting.is(&["starttime", "eligibletime"]) {
            change.begin = Some(if value == "now" { None } else { Some(request::start_time(value)?) });
        } else if setting.is(&["arraytaskthrottle"]) {
            change.array_limit = Some(number(setting)?);
        } else if setting.is(&["requeue"]) {
            change.requeue = Some(number::<u8>(setting)? > 0);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Takes a setting of nodes and resources; returns whether it is one.
    fn take_size(&mut self, setting: &Setting<'_>) -> Result<bool, Ended> {
        let (change, value) = (&mut self.change, setting.value);
        let mebibytes = || {
            let bad = || Ended::error(format!("Invalid numeric value \"{value}\" for {}.", setting.name));
            size::parse(value).ok_or_else(bad)
        };
        // All memory of a node is a job of its own there, which no change makes.
        let is_all = |each: u64| each == 0;
        if setting.is(&["numcpus"]) {
            self.cpus = Some(least(setting)?);
        } else if setting.is(&["mincpusnode"]) {
            change.cpus = Some(number(setting)?);
        } else if setting.is(&["numnodes", "reqnodes"]) {
            change.nodes = Some(least(setting)?);
        } else if setting.is(&["minmemorynode"]) {
            let each = mebibytes()?;
            self.is_impossible |= is_all(each);
            change.memory_bytes = Some(each.saturating_mul(1 << 20).max(LEAST_MEMORY_BYTES));
            change.labels.insert("slurm.mem_per_cpu".to_owned(), None);
        } else if setting.is(&["minmemorycpu"]) {
            let each = mebibytes()?;
            self.is_impossible |= is_all(each);
            self.memory_mib_per_cpu = Some(each);
            change.labels.insert("slurm.mem_per_cpu".to_owned(), Some(each.to_string()));
        } else if setting.is(&["features"]) {
            self.features = Some(value.to_owned());
        } else if setting.is(&["reqnodelist", "nodelist"]) {
            self.nodelist = Some(value.to_owned());
        } else if setting.is(&["excnodelist"]) {
            self.exclude = Some(value.to_owned());
        } else if setting.is(&["gres", "trespernode"]) {
            let bad = || Ended::plain("Invalid generic resource (gres) specification");
            let mut options = JobOptions::default();
            options.apply(Key::Gres, Some(&value.into())).map_err(|_| bad())?;
            change.gpus = Some(options.gpus_per_node.unwrap_or(0));
            change.counted = Some(request::counted(&options).map_err(|_| bad())?);
            self.gpu_model = Some(options.gpu_model.unwrap_or_default());
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn take_label(&mut self, setting: &Setting<'_>) -> bool {
        let Some((_, label)) = LABELS.iter().find(|(name, _)| setting.is(&[name])) else { return false };
        let value = Some(setting.value.to_owned()).filter(|value| !value.is_empty());
        self.change.labels.insert((*label).to_owned(), value);
        true
    }

    /// Returns the change of one job.
    fn of(&self, record: &JobRecord) -> Result<JobChange, Problem> {
        let mut change = self.change.clone();
        change.time_limit_ms = self.time.map(|time| time.after(record.time_limit_ms)).transpose()?;
        if let Some(nice) = self.nice {
            // The head stores the priority less the nice value.
            let old = record.labels.get("slurm.nice").and_then(|nice| nice.parse::<i32>().ok()).unwrap_or(0);
            let priority = change.priority.unwrap_or(record.priority);
            change.priority = Some(priority.saturating_add(old).saturating_sub(nice));
        }
        let nodes = change.nodes.unwrap_or(record.nodes).max(1);
        if let Some(cpus) = self.cpus {
            change.cpus = Some(cpus.div_ceil(nodes));
        }
        if let Some(each) = self.memory_mib_per_cpu {
            let cpus = u64::from(change.cpus.unwrap_or(record.cpus));
            change.memory_bytes = Some(each.saturating_mul(cpus).saturating_mul(1 << 20).max(LEAST_MEMORY_BYTES));
        }
        let places = [&self.features, &self.nodelist, &self.exclude, &self.gpu_model];
        if places.into_iter().any(Option::is_some) {
            change.constraint = Some(self.constraint(record, &mut change)?);
        }
        Ok(change)
    }

    /// The constraint of a job with other features or node lists.
    fn constraint(&self, record: &JobRecord, change: &mut JobChange) -> Result<Option<Constraint>, Problem> {
        let mut option = |new: &Option<String>, label: &str| {
            let known = || record.labels.get(label).cloned();
            let value = new.clone().map_or_else(known, |value| Some(value).filter(|value| !value.is_empty()));
            if new.is_some() {
                change.labels.insert(label.to_owned(), value.clone());
            }
            value
        };
        let constraint = option(&self.features, "slurm.features");
        let nodelist = option(&self.nodelist, "slurm.nodelist");
        let exclude = option(&self.exclude, "slurm.exclude");
        let gpu_model = option(&self.gpu_model, request::GPU_MODEL);
        let nodes = JobOptions { nodelist, exclude, gpu_model, ..JobOptions::default() };
        request::constraint(&nodes).map_err(|_| Problem::new(BAD_NODES))?;
        request::constraint(&JobOptions { constraint, ..nodes }).map_err(|_| Problem::new(BAD_FEATURES))
    }
}

/// Parses a time limit: `90`, `1:00:00`, `+30`, `-10`.
fn time(setting: &Setting<'_>) -> Result<Time, Ended> {
    // `TimeLimit+=30` means the same as `TimeLimit=+30`.
    let sign =
        setting.word.split_once('=').and_then(|(name, _)| name.chars().last()).filter(|c| ['+', '-'].contains(c));
    let (sign, text) = match (sign, setting.value.strip_prefix('+'), setting.value.strip_prefix('-')) {
        (Some(sign), ..) => (Some(sign), setting.value),
        (None, Some(text), _) => (Some('+'), text),
        (None, _, Some(text)) => (Some('-'), text),
        _ => (None, setting.value),
    };
    // `+UNLIMITED` and `-UNLIMITED` are not valid.
    let is_valid = sign.is_none() || text.starts_with(|c: char| c.is_ascii_digit());
    let limit = parse_limit(text).filter(|_| is_valid).ok_or_else(|| Ended::error("Invalid TimeLimit value"))?;
    let ms = match limit {
        Limit::Unlimited => 0,
        Limit::Seconds(seconds) => seconds.saturating_mul(1000),
    };
    let signed = i64::try_from(ms).unwrap_or(i64::MAX);
    Ok(match sign {
        None => Time::Set(ms),
        Some('-') => Time::Add(-signed),
        Some(_) => Time::Add(signed),
    })
}

/// Parses a number, with Slurm's text for other values.
fn number<N: std::str::FromStr>(setting: &Setting<'_>) -> Result<N, Ended> {
    let Setting { name, value, .. } = setting;
    value.parse().map_err(|_| Ended::error(format!("Invalid numeric value \"{value}\" for {name}.")))
}

/// The lower number of a range such as `2-4`.
fn least(setting: &Setting<'_>) -> Result<u32, Ended> {
    let value = setting.value.split_once('-').map_or(setting.value, |(least, _)| least);
    number(&Setting { value, ..*setting })
}

impl Session<'_> {
    pub(super) fn update_jobs(&self, ids: &str, settings: &[Setting<'_>]) -> Outcome {
        if settings.is_empty() {
            return Err(Ended::plain("No changes specified"));
        }
        let orders = Orders::parse(settings)?;
        self.each(&[ids.to_owned()], None, &async |client, target, record| {
            change(client, target, record, &orders).await
        })
    }
}

/// Changes one job.
async fn change(client: &Client, target: &Target, record: &JobRecord, orders: &Orders) -> Result<(), Problem> {
    let problem = |text, hint: &str| Problem { text, lines: vec![format!("hint: {hint}")] };
    if record.state.is_ended() {
        return Err(Problem::new(FINISHED));
    }
    if orders.is_impossible {
        return Err(problem(DISABLED, "`hostler update --help` lists what can be changed"));
    }
    let mut change = orders.of(record)?;
    request::name_tasks(client, change.after.as_deref_mut().unwrap_or_default()).await?;
    if change != JobChange::default() {
        if !all_tasks(target, record) {
            let hint = format!("single tasks of an array cannot be changed; JobId={} changes all of them", target.job);
            return Err(problem(DISABLED, &hint));
        }
        change_values(client, record, &change).await.map_err(explain)?;
    }
    match orders.action {
        // A priority releases a held job, and needs no held one.
        Some(JobAction::Release) if record.reason != Some(hostler_model::Reason::Held) => Ok(()),
        Some(action) => act_on_waiting(client, target, record, action).await,
        None => Ok(()),
    }
}

/// Changes the values of a job. A job without a partition shows [`ALL_NODES`], and keeps it by that name.
async fn change_values(client: &Client, record: &JobRecord, change: &JobChange) -> Result<(), ClientError> {
    let Err(error) = client.change_job(record.id, change).await else { return Ok(()) };
    let is_all = change.partition.as_ref().is_some_and(|partition| partition.as_str() == ALL_NODES);
    if error.code() != Some("no_such_partition") || !is_all || record.partition.is_some() {
        return Err(error);
    }
    let others = JobChange { partition: None, ..change.clone() };
    if others == JobChange::default() {
        return Ok(());
    }
    client.change_job(record.id, &others).await.map(drop)
}

const BAD_FEATURES: &str = "Invalid feature specification";
const BAD_NODES: &str = "Invalid node name specified";

/// Turns an error about options of a submission into one about an update.
fn of_update(ended: Ended) -> Ended {
    ended.instead("Batch job submission failed", "slurm_update error")
}

/// The refusal of a change in Slurm's words.
fn explain(error: ClientError) -> Problem {
    match error.code() {
        Some("wrong_state") => Problem::with(NOT_PENDING, &Refused::from(error)),
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(line: &str) -> Result<Orders, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let settings: Vec<Setting<'_>> = words.iter().map(|word| Setting::parse(word)).collect();
        Orders::parse(&settings).map_err(|ended| ended.texts().collect::<Vec<_>>().join("\n"))
    }

    fn record(labels: &serde_json::Value) -> JobRecord {
        let value = serde_json::json!({
            "id": 12, "name": "x", "user": "ada", "state": "pending", "nodes": 2, "tasks_per_node": 1, "cpus": 1,
            "memory_bytes": 1, "attempt": 0, "priority": 0, "requeue": false, "submitted_at": 0, "time_limit_ms": 600_000,
            "labels": labels,
        });
        serde_json::from_value(value).expect("a record")
    }

    fn change(line: &str) -> JobChange {
        let labels = serde_json::json!({ "slurm.exclude": "n9", "slurm.nice": "10" });
        orders(line).expect(line).of(&record(&labels)).map_err(|_| line.to_owned()).expect("a change")
    }

    fn problem(line: &str) -> (&'static str, Vec<String>) {
        let problem = orders(line).expect(line).of(&record(&serde_json::json!({}))).expect_err(line);
        (problem.text, problem.lines)
    }

    #[test]
    fn time_limits_are_set_and_adjusted() {
        for (line, limit) in [
            ("TimeLimit=90", 5_400_000),
            ("time=1-0", 86_400_000),
            ("timelimit=UNLIMITED", 0),
            ("timelimit=-1", 540_000),
            ("timelimit=+5", 900_000),
            ("timelimit+=5", 900_000),
            ("timelimit=-5", 300_000),
            ("timelimit-=10", 60_000),
        ] {
            assert_eq!(change(line).time_limit_ms, Some(limit), "{line}");
        }
        for line in ["timelimit=x", "timelimit=+UNLIMITED", "timelimit=-UNLIMITED", "timelimit-=infinite"] {
            assert!(orders(line).expect_err(line).ends_with("Invalid TimeLimit value"), "{line}");
        }
        let text = "error: TimeLimit decrement larger than current time limit (30 > 10)";
        assert_eq!(problem("timelimit=-30"), ("", vec![text.to_owned()]));
        assert_eq!(problem("timelimit-=30"), ("", vec![text.to_owned()]));
    }

    #[test]
    fn mistakes_have_slurms_texts() {
        for line in ["ReqNodeList=n[1", "ExcNodeList=n[1", "ReqNodeList=a/b"] {
            assert_eq!(problem(line), (BAD_NODES, Vec::new()), "{line}");
        }
        assert_eq!(problem("Features=&"), (BAD_FEATURES, Vec::new()));
        let ended = Orders::parse(&[Setting::parse("StartTime=soon")]).expect_err("the time is not valid");
        assert_eq!(ended.texts().collect::<Vec<_>>(), ["Invalid time specification (pos=0): soon"]);
        assert_eq!(ended.code, 1);
    }

    #[test]
    fn values_have_slurms_names() {
        let all = change("JobName=new Partition=big,small Nice=5 Requeue=0 ArrayTaskThrottle=3 Comment= Account=lab");
        assert_eq!(
            (all.name.as_deref(), all.partition.map(|it| it.to_string())),
            (Some("new"), Some("big".to_owned()))
        );
        assert_eq!((all.priority, all.requeue, all.array_limit), (Some(5), Some(false), Some(3)));
        assert_eq!((change("Nice=-3").priority, change("Priority=7 Nice=0").priority), (Some(13), Some(17)));
        assert_eq!((all.labels["comment"].as_deref(), all.labels["account"].as_deref()), (None, Some("lab")));
        let size = change("NumCPUs=6-8 MinMemoryCPU=100 StartTime=now Dependency=");
        assert_eq!((size.cpus, size.memory_bytes), (Some(3), Some(300 << 20)));
        assert_eq!((size.begin, size.after), (Some(None), Some(Vec::new())));
        let places = change("Features=ssd ReqNodeList=n[1-2]");
        assert_eq!(places.constraint.flatten().map(|all| all.to_string()), Some("ssd&(n1|n2)&!n9".to_owned()));
        assert_eq!(orders("priority=0").expect("a hold").action, Some(JobAction::Hold));
        assert!(orders("NumTasks=4").expect("known").is_impossible);
        let gpus = change("Gres=gpu:a100:2,fpga:1 Features=ssd");
        assert_eq!((gpus.gpus, gpus.counted.map(|all| all.to_string())), (Some(2), Some("fpga=1".to_owned())));
        assert_eq!(gpus.constraint.flatten().map(|all| all.to_string()), Some("ssd&!n9&gpu-a100".to_owned()));
        assert_eq!(gpus.labels[request::GPU_MODEL].as_deref(), Some("a100"));
        assert_eq!(
            (change("Gres=").gpus, change("Gres=none").counted.map(|all| all.is_empty())),
            (Some(0), Some(true))
        );
        assert_eq!(orders("Gres=gpu:-1").expect_err("negative"), "Invalid generic resource (gres) specification");
        let unknown = orders("bogus=1").expect_err("unknown");
        assert_eq!(unknown, "Update of this parameter is not supported: bogus=1\nRequest aborted");
    }
}

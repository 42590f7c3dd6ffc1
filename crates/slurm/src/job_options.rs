//! The options that describe a job, as `sbatch`, `salloc` and `srun` share them: on the command line, in a script, and in
//! variables of the environment.

use std::ffi::OsString;

use crate::container_options::ContainerOptions;
pub use crate::job_keys::Key;
pub use crate::job_tables::{
    JOB_OPTIONS, SALLOC_OPTIONS, SALLOC_VARIABLES, SBATCH_OPTIONS, SBATCH_VARIABLES, SRUN_JOB_VARIABLES, SRUN_OPTIONS,
    SRUN_VARIABLES,
};
pub use crate::job_values::{BadValue, LOGIN_SECONDS, MISTAKE, number};
use crate::job_values::{count, distribution, gpu_model, gpus, invalid, login_time, mebibytes, nodes, propagated};
use crate::step_variables::Dealing;
use crate::time::{Limit, parse_limit};

/// What the options of a job say. Absent values were not given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the options")]
pub struct JobOptions {
    pub account: Option<String>,
    pub array: Option<String>,
    pub begin: Option<String>,
    /// When the job must have ended at the latest.
    pub deadline: Option<String>,
    /// The job shall wait on although its dependencies cannot be satisfied any more.
    pub keeps_invalid_dependency: bool,
    pub chdir: Option<String>,
    pub clusters: Option<String>,
    pub comment: Option<String>,
    pub constraint: Option<String>,
    pub container: ContainerOptions,
    pub cpus_per_task: Option<u32>,
    pub dependency: Option<String>,
    /// How tasks are dealt out to nodes, in lower case.
    pub distribution: Option<String>,
    pub error: Option<String>,
    pub exclude: Option<String>,
    pub exclusive: bool,
    pub export: Option<String>,
    /// A file with variables, or the number of an open one.
    pub export_file: Option<String>,
    /// The job gets the variables of a login on its node, which may take this many seconds.
    pub get_user_env: Option<u32>,
    pub gid: Option<String>,
    pub gpus: Option<u32>,
    pub gpus_per_node: Option<u32>,
    pub gpus_per_task: Option<u32>,
    /// The model of the GPUs, such as `a100`.
    pub gpu_model: Option<String>,
    /// Counted resources on each node, by name.
    pub gres: Vec<(String, u64)>,
    pub hold: bool,
    pub input: Option<String>,
    pub job_name: Option<String>,
    pub licenses: Option<String>,
    /// Memory on each node in mebibytes; zero means all memory of a node.
    pub mem_mib: Option<u64>,
    pub mem_per_cpu_mib: Option<u64>,
    pub mem_per_gpu_mib: Option<u64>,
    pub min_cpus: Option<u32>,
    pub nice: i32,
    pub nodelist: Option<String>,
    /// Smallest and largest number of nodes.
    pub nodes: Option<(u32, u32)>,
    pub ntasks: Option<u32>,
    pub ntasks_per_node: Option<u32>,
    pub append: Option<bool>,
    pub output: Option<String>,
    /// Whether all tasks on a node share the CPUs of one.
    pub overcommit: bool,
    pub partition: Option<String>,
    pub priority: Option<i32>,
    /// Names of the resource limits that the caller hands on; all if absent.
    pub propagate: Option<String>,
    pub qos: Option<String>,
    pub quiet: bool,
    pub requeue: Option<bool>,
    pub reservation: Option<String>,
    pub signal: Option<String>,
    pub time: Option<Limit>,
    pub uid: Option<String>,
    pub verbose: u32,
    pub wckey: Option<String>,
}

impl JobOptions {
    /// Applies an option. Later options replace earlier ones. Only checks the values of options that describe no job.
    ///
    /// # Errors
    /// If the value is not valid.
    pub fn apply(&mut self, key: Key, value: Option<&OsString>) -> Result<(), BadValue> {
        let text = match value.map(|value| value.to_str()) {
            Some(None) => return Err(BadValue::new("The value of an option is not UTF-8 text".to_owned())),
            Some(Some(text)) => text,
            None => "",
        };
        let some = || Some(text.to_owned());
        match key {
            Key::Account => self.account = some(),
            Key::Array => self.array = some(),
            Key::Begin => self.begin = some(),
            Key::Deadline => self.deadline = some(),
            Key::Chdir => self.chdir = some(),
            Key::Clusters => self.clusters = some(),
            Key::Comment => self.comment = some(),
            Key::Constraint => self.constraint = some(),
            Key::CpusPerTask => self.cpus_per_task = Some(count(text, "cpus-per-task")?),
            Key::Dependency => self.dependency = some(),
            Key::Distribution => self.distribution = Some(distribution(text)?),
            Key::Error => self.error = some(),
            Key::Exclude => self.exclude = some(),
            Key::Exclusive => {
                self.exclusive = match text.to_ascii_lowercase().as_str() {
                    // Some of these share nodes with jobs of the same user; alone is stricter.
                    "" | "exclusive" | "user" | "mcs" | "topo" => true,
                    "oversubscribe" => false,
                    _ => return Err(invalid("exclusive")),
                }
            }
            Key::Export => self.export = some(),
            Key::ExportFile => self.export_file = some(),
            Key::GetUserEnv => self.get_user_env = Some(login_time(text)?),
            Key::Gid => self.gid = some(),
            Key::Gpus => {
                self.gpus = Some(gpus(text, "gpus")?);
                self.gpu_model = gpu_model(text);
            }
            Key::GpusPerNode => {
                self.gpus_per_node = Some(gpus(text, "gpus-per-node")?);
                self.gpu_model = gpu_model(text);
            }
            Key::GpusPerTask => {
                self.gpus_per_task = Some(gpus(text, "gpus-per-task")?);
                self.gpu_model = gpu_model(text);
            }
            Key::Gres => self.set_gres(text)?,
            Key::Hold => self.hold = true,
            Key::Input => self.input = some(),
            Key::JobName => self.job_name = some(),
            Key::Licenses => self.licenses = some(),
            Key::Mem => self.mem_mib = Some(mebibytes(text, "mem")?),
            Key::MemPerCpu => self.mem_per_cpu_mib = self.unless_all(mebibytes(text, "mem-per-cpu")?),
            Key::MemPerGpu => self.mem_per_gpu_mib = self.unless_all(mebibytes(text, "mem-per-gpu")?),
            Key::MinCpus => self.min_cpus = Some(count(text, "mincpus")?),
            Key::Nice => self.nice = if value.is_none() { 100 } else { number(text, "nice")? },
            // The command has read the file.
            Key::Nodelist | Key::Nodefile => self.nodelist = some(),
            Key::Nodes => self.nodes = Some(nodes(text)?),
            Key::NoRequeue => self.requeue = Some(false),
            Key::Ntasks => self.ntasks = Some(count(text, "ntasks")?),
            Key::NtasksPerNode => self.ntasks_per_node = Some(count(text, "ntasks-per-node")?),
            Key::OpenMode => {
                self.append = Some(match text.chars().next() {
                    Some('a' | 'A') => true,
                    Some('t' | 'T') => false,
                    _ => return Err(invalid("open-mode")),
                });
            }
            Key::Output => self.output = some(),
            Key::Overcommit => self.overcommit = true,
            Key::Partition => self.partition = some(),
            Key::Priority if text.eq_ignore_ascii_case("TOP") => self.priority = Some(i32::MAX),
            Key::Priority => match number(text, "priority")? {
                negative if negative < 0 => return Err(BadValue::new("Priority must be >= 0".to_owned())),
                priority => self.priority = Some(priority),
            },
            Key::Propagate => self.propagate = Some(propagated(text)?),
            Key::Qos => self.qos = some(),
            Key::Quiet => self.quiet = true,
            Key::Requeue => self.requeue = Some(true),
            Key::Reservation => self.reservation = some(),
            Key::Signal => self.signal = some(),
            Key::Time => {
                self.time = Some(parse_limit(text).ok_or_else(|| invalid("time"))?);
            }
            Key::Uid => self.uid = some(),
            Key::Verbose => self.verbose += 1,
            Key::Wckey => self.wckey = some(),
            Key::Container(name) => self.container.apply(name, text),
            Key::Accepted(name, reads) | Key::Own(name, reads) => {
                reads.check(name, text)?;
                if name == "kill-on-invalid-dep" {
                    self.keeps_invalid_dependency = text.eq_ignore_ascii_case("no");
                }
            }
        }
        Ok(())
    }

    /// Zero for each CPU or GPU means all memory of a node, as `--mem=0` does. A later amount replaces that.
    fn unless_all(&mut self, each: u64) -> Option<u64> {
        match each {
            0 => self.mem_mib = Some(0),
            _ if self.mem_mib == Some(0) => self.mem_mib = None,
            _ => {}
        }
        Some(each).filter(|each| *each > 0)
    }

    /// Returns whether the caller hands on the limit of a resource.
    #[must_use]
    pub fn propagates(&self, resource: &str) -> bool {
        let Some(list) = &self.propagate else { return true };
        list.split(',').any(|name| name == "ALL" || name == resource)
    }

    /// Returns how the tasks are dealt out to nodes, if the options say it.
    #[must_use]
    pub fn dealing(&self) -> Option<Dealing> {
        let (kind, size) = self.distribution.as_deref()?.split_once('=').unwrap_or((self.distribution.as_deref()?, ""));
        match kind.split([':', ',']).next()? {
            "block" => Some(Dealing::Block),
            "cyclic" => Some(Dealing::Cyclic),
            "plane" => size.parse().ok().map(Dealing::Plane),
            _ => None,
        }
    }

    /// Returns whether the tasks run on the listed nodes in the order of the list, one for each name.
    #[must_use]
    pub fn is_arbitrary(&self) -> bool {
        self.distribution.as_deref().is_some_and(|kind| kind.starts_with("arbitrary"))
    }

    /// Sets GPUs and counted resources from `gpu:2`, `gpu:a100:1,license:3` and the like.
    fn set_gres(&mut self, text: &str) -> Result<(), BadValue> {
        self.gres.clear();
        let bad = || BadValue::new(format!("Invalid --gres specification: {text}"));
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "none") {
            let part = part.strip_prefix("gres/").unwrap_or(part);
            let (name, rest) = part.split_once([':', '=']).unwrap_or((part, "1"));
            let amount = rest.rsplit([':', '=']).next().unwrap_or(rest);
            // `gpu:a100` asks for one of that type.
            let amount = match amount.parse::<u64>() {
                Ok(amount) => amount,
                Err(_) if amount.starts_with(|c: char| c.is_ascii_alphabetic()) => 1,
                Err(_) => return Err(bad()),
            };
            match name {
                "" => return Err(bad()),
                "gpu" => {
                    self.gpus_per_node = Some(u32::try_from(amount).map_err(|_| bad())?);
                    self.gpu_model = gpu_model(rest);
                }
                name => self.gres.push((name.to_owned(), amount)),
            }
        }
        Ok(())
    }

    /// Returns the number of nodes and the lower number of tasks, if the options ask for nodes that no task would use.
    /// The job gets as many nodes as tasks.
    #[must_use]
    pub fn nodes_without_tasks(&self) -> Option<(u32, u32)> {
        let ((least, _), tasks) = self.nodes.zip(self.ntasks)?;
        // The job gets each node of a list.
        (tasks < least && self.nodelist.is_none()).then_some((least, tasks))
    }

    /// Returns the number of tasks on each node, and the number of nodes if the options say it. Tasks without a number of
    /// nodes go to as few nodes as possible.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let per_task = self.cpus_per_task.unwrap_or(1).max(1);
        let ntasks = self.ntasks;
        let nodes = match (self.nodes, ntasks, self.ntasks_per_node) {
            (Some((least, _)), ..) => Some(self.nodes_without_tasks().map_or(least, |(_, tasks)| tasks)),
            (None, Some(tasks), Some(each)) => Some(tasks.div_ceil(each.max(1)).max(1)),
            (None, None, Some(_)) | (None, None, None) => Some(1),
            (None, Some(1), None) => Some(1),
            (None, Some(_), None) => None,
        };
        let of = nodes.unwrap_or(1);
        let tasks_per_node = self.ntasks_per_node.unwrap_or_else(|| ntasks.unwrap_or(of).div_ceil(of)).max(1);
        Layout { nodes, tasks_per_node, cpus_per_task: per_task, ntasks: ntasks.unwrap_or(of * tasks_per_node) }
    }
}

/// How the tasks of a job spread over its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of nodes; `None` if the options leave it open, so that one node is best if it is large enough.
    pub nodes: Option<u32>,
    /// Largest number of tasks on a node, with this number of nodes or with one.
    pub tasks_per_node: u32,
    /// CPUs for each task.
    pub cpus_per_task: u32,
    /// Number of tasks on all nodes.
    pub ntasks: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::getopt::{Order, parse};

    fn options(line: &str) -> Result<JobOptions, String> {
        let all: Vec<_> = JOB_OPTIONS.iter().chain(SBATCH_OPTIONS).copied().collect();
        let words = line.split_whitespace().map(OsString::from);
        let parsed = parse(&all, Order::StopAtOperand, words).map_err(|mistake| mistake.to_string())?;
        let mut options = JobOptions::default();
        for (key, value) in &parsed.options {
            options.apply(*key, value.as_ref()).map_err(|bad| bad.text)?;
        }
        Ok(options)
    }

    #[test]
    fn names_are_unique() {
        let all: Vec<_> = JOB_OPTIONS.iter().chain(SBATCH_OPTIONS).collect();
        for (at, one) in all.iter().enumerate() {
            for other in &all[at + 1..] {
                assert_ne!(one.long, other.long);
                assert!(one.short.is_none() || one.short != other.short, "{} and {}", one.long, other.long);
            }
        }
    }

    #[test]
    fn prefixes_values_and_clusters_are_understood() {
        let some =
            options("-N2-4 -n8 --cpus-per-t=2 --mem 7GB -t 0:10:0 --gres=gpu:a100:2,license:3 -QvH --exclus --nice")
                .expect("valid");
        assert_eq!((some.nodes, some.ntasks, some.cpus_per_task), (Some((2, 4)), Some(8), Some(2)));
        assert_eq!((some.mem_mib, some.time), (Some(7168), Some(Limit::Seconds(600))));
        assert_eq!(some.gpu_model.as_deref(), Some("a100"));
        assert_eq!((some.gpus_per_node, some.gres.as_slice()), (Some(2), &[("license".to_owned(), 3)][..]));
        assert!(some.quiet && some.hold && some.exclusive && some.verbose == 1 && some.nice == 100);
        assert_eq!(options("--no-requeue --requeue=1").expect("valid").requeue, Some(true));
    }

    #[test]
    fn no_memory_per_cpu_or_gpu_means_all_memory() {
        let memory = |line: &str| {
            let options = options(line).expect(line);
            (options.mem_mib, options.mem_per_cpu_mib, options.mem_per_gpu_mib)
        };
        for line in ["--mem=0", "--mem-per-cpu=0", "--mem-per-gpu=0", "--mem-per-cpu=5 --mem-per-cpu=0M"] {
            assert_eq!(memory(line).0, Some(0), "{line}");
        }
        assert_eq!(memory("--mem-per-cpu=0 --mem-per-cpu=5"), (None, Some(5), None));
    }

    #[test]
    fn limits_to_propagate_are_named() {
        let stack = |line: &str| options(line).expect(line).propagates("STACK");
        assert!(["", "--propagate", "--propagate=all", "--propagate=CORE,rlimit_stack"].into_iter().all(stack));
        assert!(!stack("--propagate=NONE") && !stack("--propagate=CORE"));
    }

    #[test]
    fn mistakes_have_the_texts_of_slurm() {
        for (line, text) in [
            ("-t soon", "Invalid --time specification"),
            ("-n x", "Invalid numeric value \"x\" for --ntasks."),
            ("-N 3-2", "Maximum node count 2 is less than minimum node count 3"),
            ("-N 1-x", "\"x\" is not a valid node count"),
            ("-N 0", "Batch job submission failed: Node count specification invalid"),
            ("--priority=-1", "Priority must be >= 0"),
            ("-m bogus", "Invalid --distribution specification"),
            ("--mail-type=END,bogus", "Invalid --mail-type specification"),
            ("--kill-on-invalid-dep=x", "Invalid --kill-on-invalid-dep specification"),
            ("--hint=bogus", "unrecognized --hint argument \"bogus\", see --hint=help"),
            ("--mem=lots", "Invalid --mem specification"),
            ("--invalid", "unrecognized option '--invalid'"),
            ("--open-mode=x", "Invalid --open-mode specification"),
            ("--propagate=STACK,x", "Bad rlimit name: X\n--propagate=STACK,x is not valid."),
        ] {
            assert_eq!(options(line).expect_err(line), text, "{line}");
        }
    }

    #[test]
    fn highest_priority_and_empty_numbers_of_gpus_are_understood() {
        let some = options("--priority=top --gpus= --gpus-per-node=").expect("valid");
        assert_eq!((some.priority, some.gpus, some.gpus_per_node), (Some(i32::MAX), Some(0), Some(0)));
    }

    #[test]
    fn values_without_an_effect_are_accepted() {
        let line = "--mail-type=BEGIN,end --hint=nomultithread --kill-on-invalid-dep=no";
        assert!(options(line).is_ok_and(|it| it.keeps_invalid_dependency));
    }

    #[test]
    fn tasks_spread_over_nodes() {
        let layout = |line: &str| {
            let Layout { nodes, tasks_per_node, cpus_per_task, ntasks } = options(line).expect(line).layout();
            (nodes, tasks_per_node, cpus_per_task, ntasks)
        };
        for (line, expected) in [
            ("", (Some(1), 1, 1, 1)),
            ("-n4", (None, 4, 1, 4)),
            ("-N2", (Some(2), 1, 1, 2)),
            ("-N2 -n3 -c2", (Some(2), 2, 2, 3)),
            ("-n8 --ntasks-per-node=3", (Some(3), 3, 1, 8)),
            ("-N2 --ntasks-per-node=4", (Some(2), 4, 1, 8)),
            ("--ntasks-per-node=4", (Some(1), 4, 1, 4)),
        ] {
            assert_eq!(layout(line), expected, "{line}");
        }
    }
}

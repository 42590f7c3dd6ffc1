//! What a command line of `srun` and its environment ask for.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::AsFd;
use std::time::Duration;

use hostler_remote::step::COMMANDS_IN_IMAGE;
use hostler_slurm::getopt::{Opt, Parsed};
use hostler_slurm::job_options::{JobOptions, Key, SRUN_JOB_VARIABLES, SRUN_OPTIONS, SRUN_VARIABLES, number};
use hostler_slurm::multi_prog::{self, Wrong};
use hostler_slurm::pmi;

use super::super::allocating::{Speech, parse};
use super::super::node_files::{apply, place_by_file};
use super::super::request::{check_identity, export_items};
use super::super::{Ended, VERSION, bad_value, heterogeneous, job_options};

pub(crate) const NAME: &str = "srun";

/// How this command speaks about the job that it holds.
pub(super) const SPEECH: Speech = Speech { name: NAME, failed: "Unable to allocate resources", is_chatty: false };

const USAGE: &str = "Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]] [ : [OPTIONS(N)...]] executable(N) [args(N)...]\n\
    \n\
    Runs a step in the current job, or a job that consists of one step. The options are those of Slurm's srun; `hostler\n\
    step` and `hostler run` have Hostler's own options.\n";

/// A step, as asked for.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) options: JobOptions,
    pub(super) program: Program,
    /// The number of the job in which the step runs; `None` to make one.
    pub(super) job: Option<u64>,
    /// A text to print instead of running a step.
    pub(super) says: Option<String>,
    pub(super) immediate: bool,
    /// With an image, the command line of `srun` inside.
    pub(super) inside: Vec<OsString>,
    pub(super) kill_on_bad_exit: bool,
    pub(super) label: bool,
    /// Whether the tasks are the processes of an MPI program that this command manages.
    pub(super) mpi: bool,
    multi_prog: bool,
    /// Whether the step takes no CPUs of its own.
    pub(super) overlap: bool,
    pub(super) pty: bool,
    pub(super) quit_on_interrupt: bool,
    /// Number of the first node that may be used.
    pub(super) relative: u32,
    /// Whether only to say when and where a job would start.
    pub(super) test_only: bool,
    /// Ends the step this long after its first task.
    pub(super) wait: Option<Duration>,
}

/// What the tasks run.
#[derive(Debug)]
pub(super) enum Program {
    Same(Vec<OsString>),
    /// A file of `--multi-prog`, and its content.
    Different(OsString, String),
}

impl Default for Program {
    fn default() -> Self {
        Self::Same(Vec::new())
    }
}

/// Which tasks read standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    All,
    One(usize),
    None,
}

impl Asked {
    pub(super) fn parse(args: Vec<OsString>) -> Result<Self, Ended> {
        let all = job_options(SRUN_OPTIONS);
        let given = parse(NAME, &all, args)?;
        let mut asked = Self::default();
        let is_job_id = |key: &Key| matches!(key, Key::Own("jobid", _));
        let named = given.options.iter().rev().find(|(key, _)| is_job_id(key)).and_then(|(_, value)| value.clone());
        let of_environment = || std::env::var_os("SLURM_JOB_ID").or_else(|| std::env::var_os("SLURM_JOBID"));
        if let Some(id) = named.or_else(of_environment).filter(|id| !id.is_empty()) {
            asked.job = Some(number(&id.to_string_lossy(), "jobid").map_err(bad_value)?);
        }
        for (key, value) in variables(asked.job.is_some()) {
            asked.apply(key, Some(&value), true)?;
        }
        for (key, value) in &given.options {
            asked.apply(*key, value.as_ref(), false)?;
        }
        if asked.says.is_some() {
            return Ok(asked);
        }
        place_by_file(&mut asked.options)?;
        if given.operands.is_empty() {
            return Err(Ended::fatal("No command given to execute."));
        }
        if given.operands.iter().any(|word| word == ":") {
            return Err(heterogeneous().and("hint: start one srun for each component"));
        }
        check_identity(&asked.options)?;
        if asked.options.container.image.is_some() {
            asked.inside = words_inside(&all, &given, &asked);
        }
        asked.program = if asked.multi_prog {
            let path = &given.operands[0];
            let cannot = |_| Ended::error(format!("Could not open multi_prog config file {}", path.display()));
            // Once, since it may be a pipe.
            Program::Different(path.clone(), fs::read_to_string(path).map_err(cannot)?)
        } else {
            Program::Same(given.operands)
        };
        Ok(asked)
    }

    /// Applies an option; one of the environment, whose flags have values, if `is_variable`.
    fn apply(&mut self, key: Key, value: Option<&OsString>, is_variable: bool) -> Result<(), Ended> {
        let text = || value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
        let is_on = || !is_variable || !["0", "no", "NO", "false"].contains(&text().as_str());
        let number = |option| number::<u32>(&text(), option).map_err(bad_value);
        if matches!(key, Key::Own(..)) {
            apply(&mut self.options, key, value)?;
        }
        match key {
            Key::Own("help" | "usage", _) => self.says = Some(USAGE.to_owned()),
            Key::Own("version", _) => self.says = Some(format!("{VERSION}\n")),
            Key::Own("mpi", _) => self.set_mpi(&text())?,
            Key::Own("immediate", _) => self.immediate = true,
            Key::Own("kill-on-bad-exit", _) => self.kill_on_bad_exit = text() != "0",
            Key::Own("label", _) => self.label = is_on(),
            Key::Own("multi-prog", _) => self.multi_prog = true,
            Key::Own("overlap" | "external-launcher", _) => self.overlap = self.overlap || is_on(),
            Key::Own("pty", _) => self.pty = true,
            Key::Own("quit-on-interrupt", _) => self.quit_on_interrupt = true,
            Key::Own("relative", _) => self.relative = number("relative")?,
            Key::Own("wait", _) => {
                self.wait = Some(number("wait")?).filter(|wait| *wait > 0).map(|wait| Duration::from_secs(wait.into()));
            }
            Key::Own("het-group", _) => return Err(heterogeneous()),
            Key::Own("test-only", _) => self.test_only = true,
            Key::Own("no-allocate", _) => {
                return Err(Ended::error("Slurm job operation not permitted without an allocation"));
            }
            Key::Overcommit => self.options.overcommit = is_on(),
            Key::Distribution if is_variable && text() == "plane" => {
                let size = std::env::var("SLURM_DIST_PLANESIZE").unwrap_or_default();
                apply(&mut self.options, key, Some(&format!("plane={size}").into()))?;
            }
            key => apply(&mut self.options, key, value)?,
        }
        Ok(())
    }

    fn set_mpi(&mut self, kind: &str) -> Result<(), Ended> {
        match kind {
            "list" => self.says = Some("MPI plugin types are...\n\tnone\n\tpmi2\n".to_owned()),
            "none" | "" => self.mpi = false,
            "pmi2" => self.mpi = true,
            other => {
                return Err(Ended::error(format!("invalid MPI type '{other}', --mpi=list for acceptable types"))
                    .and("hint: `mpirun` of Open MPI starts the processes of its programs in a job"));
            }
        }
        Ok(())
    }

    /// Refuses the number of a node outside of a job.
    pub(super) fn check_relative(&self) -> Result<(), Ended> {
        if self.relative > 0 {
            return Err(Ended::fatal("--relative option invalid for job allocation request"));
        }
        Ok(())
    }

    /// What describes the job: the command line, or the file with those of all tasks.
    pub(super) fn argv(&self) -> &[OsString] {
        match &self.program {
            Program::Same(argv) => argv,
            Program::Different(path, _) => std::slice::from_ref(path),
        }
    }

    /// Name of the step: the one that was given, or the program's.
    pub(super) fn name(&self) -> String {
        let program =
            self.argv().first().map(|word| std::path::Path::new(word).file_name().unwrap_or(word).to_string_lossy());
        self.options.job_name.clone().unwrap_or_else(|| program.unwrap_or_default().into_owned())
    }

    /// The command line of each task.
    pub(super) fn programs(&self, tasks: usize) -> Result<Vec<Vec<OsString>>, Ended> {
        let (path, text) = match &self.program {
            Program::Same(argv) => return Ok(vec![argv.clone(); tasks]),
            Program::Different(path, text) => (path.display(), text),
        };
        let all = multi_prog::commands(text, tasks).map_err(|wrong| match wrong {
            Wrong::Missing(task) => {
                Ended::error(format!("Configuration file {path} invalid, no record for task id {task}"))
            }
            Wrong::Line(number, why) => {
                Ended::error(why).and(format!("error: Line {number} of configuration file {path} invalid"))
            }
        })?;
        Ok(all.into_iter().map(|words| words.into_iter().map(OsString::from).collect()).collect())
    }

    /// Which tasks read standard input. If a file is the input, opens it as standard input.
    pub(super) fn input(&self) -> Result<Input, Ended> {
        match self.options.input.as_deref() {
            None | Some("all") => Ok(Input::All),
            Some("none") => Ok(Input::None),
            Some(text) => {
                if let Ok(task) = text.parse() {
                    return Ok(Input::One(task));
                }
                let open = |path: &str| {
                    let file = fs::File::open(path)?;
                    nix::unistd::dup2_stdin(file.as_fd()).map_err(std::io::Error::from)
                };
                open(text).map_err(|error| {
                    // Only the reason, without the number of the error.
                    let why = error.raw_os_error().map(nix::errno::Errno::from_raw);
                    let why = why.map_or_else(|| error.to_string(), |errno| errno.desc().to_owned());
                    Ended::error(format!("Could not open stdin file: {why}"))
                })?;
                Ok(Input::All)
            }
        }
    }

    /// The variables of this process that the tasks get.
    pub(super) fn environment(&self) -> Result<Vec<(OsString, OsString)>, Ended> {
        // A step within a step has another manager, or none.
        let of_manager = |name: &OsStr| pmi::VARIABLES.iter().any(|variable| name == *variable);
        let own = || std::env::vars_os().filter(|(name, _)| !of_manager(name));
        let Some(export) = &self.options.export else { return Ok(own().collect()) };
        let items = export_items(export);
        let is = |word: &str| items.iter().any(|item| item == word);
        let is_kept = |name: &OsStr| {
            let name = name.to_string_lossy();
            is("ALL") || ["HOSTLER_", "SLURM_"].iter().any(|start| name.starts_with(start)) || is(&name)
                // Without these, hardly any program runs.
                || ["PATH", "HOME", "USER", "LOGNAME", "SHELL"].contains(&&*name)
        };
        let mut all: Vec<(OsString, OsString)> = own().filter(|(name, _)| is_kept(name)).collect();
        for item in &items {
            if let Some((name, value)) = item.split_once('=') {
                if name.is_empty() {
                    return Err(Ended::error(format!("Invalid --export specification: {item}")));
                }
                all.retain(|(known, _)| known != name);
                all.push((name.into(), value.into()));
            }
        }
        Ok(all)
    }
}

/// The options that variables of the environment give.
fn variables(is_inside: bool) -> Vec<(Key, OsString)> {
    let mut all: Vec<(Key, OsString)> = Vec::new();
    for (name, key) in SRUN_VARIABLES {
        // The name of the job is not the one of a step.
        if !(is_inside && *key == Key::JobName) {
            all.extend(std::env::var_os(name).map(|value| (*key, value)));
        }
    }
    let of_job: &[(&str, Key)] =
        if is_inside { &[("NTASKS", Key::Ntasks), ("NNODES", Key::Nodes)] } else { SRUN_JOB_VARIABLES };
    for (name, key) in of_job {
        all.extend(std::env::var_os(format!("SLURM_{name}")).map(|value| (*key, value)));
    }
    all
}

/// The command line of `srun` inside: without what describes the job only, or is done already. Everybody who may see the job sees it,
/// so it has no values of variables.
fn words_inside(all: &[Opt<Key>], given: &Parsed<Key>, asked: &Asked) -> Vec<OsString> {
    let has_fewer_nodes = asked.options.nodes_without_tasks().is_some();
    let is_needed = |key: &Key| match key {
        // The job starts in the directory, and with the variables.
        Key::Container(_) | Key::Chdir | Key::Export | Key::Uid | Key::Gid | Key::Clusters => false,
        Key::Nodes => !has_fewer_nodes,
        _ => true,
    };
    // The image may have another `srun`.
    let mut words = vec![OsString::from(format!("{COMMANDS_IN_IMAGE}/{NAME}"))];
    for (key, value) in given.options.iter().filter(|(key, _)| is_needed(key)) {
        let Some(option) = all.iter().find(|option| option.key == *key) else { continue };
        let mut word = OsString::from(format!("--{}", option.long));
        if let Some(value) = value {
            word.push(OsStr::new("="));
            word.push(value);
        }
        words.push(word);
    }
    words.push("--".into());
    words.extend(given.operands.iter().cloned());
    words
}

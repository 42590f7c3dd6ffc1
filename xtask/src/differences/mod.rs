//! `cargo xtask slurm-differences`: runs command lines on a real Slurm and on Hostler, and compares what they do.
//!
//! Both clusters have nodes of the same names and sizes and are brought into the same states. Differences that
//! `xtask/differences/known.toml` does not defend make the task fail. See docs/internals/slurm-differences.md.

mod alike;
mod clusters;
mod generated;
mod known;
mod lines;
mod report;
mod side;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::alike::{Part, differences, redact};
use self::clusters::{Hostler, Slurm, check_programs};
use self::known::Known;
use self::lines::Step;
use self::report::{Difference, Report, Status};
use self::side::Side;
use crate::workspace::{cargo, root, run as run_command, target_directory};

/// Jobs submitted first, so that ids of all later jobs have three digits on both clusters.
const FIRST_JOBS: u64 = 99;
/// Most jobs that one set-up line submits, because each line has a time limit.
const JOBS_PER_LINE: u64 = 20;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Compare only lines that contain this text; set-ups always run
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,

    /// Compare only this state, and no generated lines
    #[arg(long, value_name = "NAME")]
    state: Option<String>,

    /// Number of generated command lines
    #[arg(long, value_name = "NUMBER", default_value_t = 2500)]
    generated: usize,

    /// Seed of the generated command lines
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Also print the known differences
    #[arg(long)]
    all: bool,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    /// Program to compare [default: a debug build of this checkout]
    #[arg(long, value_name = "FILE")]
    hostler: Option<PathBuf>,
}

/// Both clusters, and what to compare on them.
struct Comparison<'a> {
    slurm: Side,
    hostler: &'a mut Side,
    known: Vec<Known>,
    report: Report,
}

/// Starts both clusters, compares, and fails if there is a new difference.
pub(crate) fn run(options: &Options) -> Result<()> {
    check_programs()?;
    let data = root().join("xtask/differences");
    let read = |name: &str| fs::read_to_string(data.join(name)).with_context(|| format!("cannot read {name}"));
    let states = lines::parse(&read("lines.txt")?)?;
    let known = known::parse(&read("known.toml")?)?;
    let program = program(options)?;

    // Short, for the sake of socket paths.
    let private = fs::Permissions::from_mode(0o700);
    let place = tempfile::Builder::new().prefix("hd").rand_bytes(4).permissions(private).tempdir()?;
    let directory = |name: &str| -> Result<PathBuf> {
        let path = place.path().join(name);
        fs::create_dir(&path)?;
        Ok(path)
    };
    // Homes have names of the same length, so that columns have the same widths.
    let (hostler_home, slurm_home) = (directory("ours")?, directory("real")?);
    let mut hostler = Hostler::up(&program, &directory("hostler")?, &hostler_home)?;
    let features = hostler.side().set_up("sinfo -h -N -o %f | head -1")?;
    let slurm = Slurm::up(&directory("slurm")?, &features)?;

    let mut comparison = Comparison {
        slurm: slurm.side(&slurm_home)?,
        hostler: hostler.side(),
        known,
        report: Report::new(options.json, options.all),
    };
    comparison.first_jobs()?;
    let takes = |line: &str| options.filter.as_ref().is_none_or(|text| line.contains(text.as_str()));
    for state in states.iter().filter(|state| options.state.as_ref().is_none_or(|name| *name == state.name)) {
        comparison.compare_state(state, takes)?;
    }
    if options.state.is_none() {
        for line in generated::lines(options.seed, options.generated) {
            if takes(&line) {
                comparison.compare("generated", &line, &[Part::Stderr, Part::Code])?;
            }
        }
    }
    let Comparison { report, known, .. } = comparison;
    let is_whole = options.state.is_none() && options.filter.is_none();
    report.finish(if is_whole { &known } else { &[] })
}

/// The program to compare: the one given with `--hostler`, or a debug build.
fn program(options: &Options) -> Result<PathBuf> {
    if let Some(named) = &options.hostler {
        let program = std::path::absolute(named)?;
        ensure!(program.is_file(), "there is no program {}", program.display());
        return Ok(program);
    }
    run_command(cargo().args(["build", "--quiet", "--package", "hostler"]))?;
    Ok(target_directory()?.join("debug/hostler"))
}

/// Submits held jobs.
fn submit_held(side: &Side, mut missing: u64) -> Result<()> {
    while missing > 0 {
        let jobs = missing.min(JOBS_PER_LINE);
        missing -= jobs;
        side.set_up(&format!("for i in $(seq {jobs}); do sbatch -Q -H --wrap true; done"))?;
    }
    Ok(())
}

impl Comparison<'_> {
    /// Runs the same step on both clusters at the same time.
    fn both<T: Send>(&self, step: impl Fn(&Side) -> Result<T> + Sync) -> Result<(T, T)> {
        std::thread::scope(|scope| {
            let slurm = scope.spawn(|| step(&self.slurm));
            let hostler = step(self.hostler);
            Ok((slurm.join().expect("the step does not panic")?, hostler?))
        })
    }

    fn first_jobs(&self) -> Result<()> {
        self.both(|side| submit_held(side, FIRST_JOBS))?;
        self.empty_the_queue()
    }

    /// Cancels all jobs and waits until they have ended.
    fn empty_the_queue(&self) -> Result<()> {
        self.both(|side| side.set_up("scancel --me; true"))?;
        self.both(|side| side.wait_for("test -z \"$(squeue -h)\" && test \"$(sinfo -h -t idle -o %D)\" = 2"))?;
        Ok(())
    }

    /// Submits and cancels jobs on the cluster with fewer of them, so that both give the same ids to the next jobs.
    fn align_ids(&self) -> Result<()> {
        let (slurm, hostler) = self.both(|side| side.set_up("sbatch -H --parsable --wrap true"))?;
        let (slurm, hostler): (u64, u64) = (slurm.parse()?, hostler.parse()?);
        let behind = if slurm < hostler { &self.slurm } else { &*self.hostler };
        submit_held(behind, slurm.abs_diff(hostler))?;
        self.empty_the_queue()
    }

    fn compare_state(&mut self, state: &lines::State, takes: impl Fn(&str) -> bool) -> Result<()> {
        self.align_ids()?;
        for step in &state.steps {
            match step {
                Step::SetUp(name, line) => {
                    let (slurm, hostler) = self.both(|side| side.set_up(line))?;
                    if let Some(name) = name {
                        self.slurm.variables.retain(|(known, _)| known != name);
                        self.hostler.variables.retain(|(known, _)| known != name);
                        self.slurm.variables.push((name.clone(), slurm));
                        self.hostler.variables.push((name.clone(), hostler));
                    }
                }
                Step::Wait(line) => drop(self.both(|side| side.wait_for(line))?),
                Step::Compare(line) if takes(line) => self.compare(&state.name, line, &Part::ALL)?,
                Step::Compare(_) => {}
            }
        }
        self.empty_the_queue().with_context(|| format!("after the state {}", state.name))
    }

    /// Compares some parts of what a line does.
    fn compare(&mut self, state: &str, line: &str, parts: &[Part]) -> Result<()> {
        let (slurm, hostler) = self.both(|side| side.run(line))?;
        // Ids of the real Slurm stand for both.
        let (slurm, hostler) = (redact(&slurm, &self.slurm, &self.slurm), redact(&hostler, self.hostler, &self.slurm));
        let differing: Vec<Part> =
            differences(&slurm, &hostler).into_iter().filter(|part| parts.contains(part)).collect();
        let command = lines::command(line).context("a compared line has a command")?;
        let status = if differing.is_empty() {
            Status::Same
        } else {
            match self.known.iter().position(|entry| entry.covers(line, &differing, &slurm, &hostler)) {
                Some(at) => Status::Known(at),
                None => Status::New,
            }
        };
        let difference =
            Difference { state: state.to_owned(), line: line.to_owned(), parts: differing, slurm, hostler };
        self.report.add(command, status, &difference, &self.known);
        Ok(())
    }
}

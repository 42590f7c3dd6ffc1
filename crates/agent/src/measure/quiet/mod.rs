//! Quiet machines: settings of the machine that are changed while a job with `--quiet-machine` runs.
//!
//! - [`knobs`]: which files and values; [`units`]: services and timers of systemd; [`transaction`]: changes that are undone after any crash.
//! - This module says whether the node offers it, and ties the changes to runs.
//!
//! The run begins after the settings are changed, and its end is reported after they are restored, so that the next run finds
//! the machine as it was. If the agent stops meanwhile, the settings stay until its next start finds that the run has ended.

mod knobs;
mod transaction;
mod units;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use hostler_core::agent::RunLaunch;
use hostler_model::{CpuSet, NodeName, RunId};
use hostler_proto::certificate::{Certificate, KnobProblem, MachineChange, QuietMachine};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

pub use self::knobs::Knob;
use self::knobs::Wish;
use self::transaction::{Machine, Problem, Record, Undone};
pub use self::units::Unit;
use crate::mutex::lock;
use crate::runs::directory::Runs;
use crate::runs::outcome::RunOutcome;
use crate::runs::surroundings::Surrounding;

/// How many units may be stopped. Certificates list them all.
const MOST_UNITS: usize = 16;
/// Pauses before what could not be restored is tried again, in seconds. After the last, the next run or agent does it.
const RETRIES: [u64; 5] = [10, 20, 40, 80, 160];

/// The table `quiet_machine` of `agent.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuietSettings {
    /// The knobs that jobs may ask for.
    pub knobs: BTreeSet<Knob>,
    /// Units of systemd that are stopped while such jobs run.
    pub stop_units: BTreeSet<Unit>,
    /// For tests: directory with the files of the machine, of root [default: /].
    pub root: Option<PathBuf>,
}

/// Changes of the machine's settings for runs.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// Whether jobs may ask for a quiet machine, or why not.
    pub(crate) offered: Result<(), String>,
    knobs: Vec<Knob>,
    units: Vec<Unit>,
    root: PathBuf,
    record: PathBuf,
    boot: String,
    /// CPUs that the node offers.
    cpus: CpuSet,
    /// Locked while this process may change settings, so that no other agent of the machine does.
    only: Option<Flock<File>>,
    /// Locked during each change. While the file is open, the kernel keeps the CPUs out of idle states.
    latency: Mutex<Option<File>>,
}

impl Quiet {
    /// `directory` is the agent's, and `cpus` are those that the node offers.
    pub(crate) fn new(
        mut settings: QuietSettings,
        directory: &Path,
        boot: String,
        cpus: CpuSet,
        has_whole_machine: bool,
    ) -> Self {
        settings.knobs.remove(&Knob::Units);
        if !settings.stop_units.is_empty() {
            settings.knobs.insert(Knob::Units);
        }
        let why_not = if settings.knobs.is_empty() {
            Some(
                "it lists nothing that jobs may ask for; an admin of the node adds `[quiet_machine]` with `knobs` to its \
                 agent.toml, and restarts the agent",
            )
        } else if settings.stop_units.len() > MOST_UNITS {
            Some("it lists more than 16 units in `stop_units` of agent.toml")
        } else if !nix::unistd::geteuid().is_root() {
            Some("its agent does not run as root; start it as root")
        } else if !has_whole_machine {
            Some("its machine has other uses besides the node (`hostler up`, or `shared_machine` in agent.toml)")
        } else {
            None
        };
        let mut quiet = Self {
            offered: why_not.map_or(Ok(()), |why| Err(why.to_owned())),
            knobs: settings.knobs.into_iter().collect(),
            units: settings.stop_units.into_iter().collect(),
            root: settings.root.unwrap_or_else(|| PathBuf::from("/")),
            record: directory.join("quiet.json"),
            boot,
            cpus,
            only: None,
            latency: Mutex::default(),
        };
        quiet.offered = quiet.offered.clone().and_then(|()| quiet.prepare());
        quiet
    }

    /// Checks what the settings of the agent do not tell.
    fn prepare(&mut self) -> Result<(), String> {
        let is_of_root = fs::metadata(&self.root).is_ok_and(|it| it.uid() == 0);
        if !self.root.is_absolute() || !is_of_root {
            return Err("`root` of `[quiet_machine]` is for tests, and needs an absolute path of root".to_owned());
        }
        self.only = Some(self.lock_machine()?);
        transaction::stored(&Machine, &self.record).map_err(|error| {
            let path = self.record.display();
            tracing::error!(%error, %path, "cannot read the old settings of the machine");
            format!(
                "{path} is damaged, so the old settings are unknown; restore them or restart the machine, then delete the file \
                 and restart the agent"
            )
        })?;
        Ok(())
    }

    /// Locks a directory that all agents of the machine share. Without it, an agent could save the changed values of another one as
    /// the original ones.
    fn lock_machine(&self) -> Result<Flock<File>, String> {
        let path = ["sys/devices/system/cpu", "proc"].map(|name| self.root.join(name));
        let path = path.iter().find(|path| path.exists()).unwrap_or(&self.root);
        let failed = |error: &dyn Display| format!("cannot lock {}: {error}", path.display());
        let file = File::open(path).map_err(|error| failed(&error))?;
        Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
            Errno::EWOULDBLOCK => "another agent on this machine already changes its settings".to_owned(),
            error => failed(&error),
        })
    }

    /// The stored record. A damaged one is logged.
    fn stored(&self) -> Option<Record> {
        let stored = transaction::stored(&Machine, &self.record);
        if let Err(error) = &stored {
            tracing::error!(%error, record = %self.record.display(), "cannot read which settings of the machine were changed");
        }
        stored.ok().flatten()
    }

    fn begin(&self, run: RunId) -> io::Result<()> {
        let mut latency = lock(&self.latency);
        *latency = None;
        // Logs what an earlier run left. `set` tries again what could not be written.
        self.undo();
        let online = fs::read_to_string(self.root.join("sys/devices/system/cpu/online")).unwrap_or_default();
        let mut spare: CpuSet = online.trim().parse().unwrap_or_default();
        spare.remove_all(&self.cpus);
        let run = run.to_string();
        let wish = Wish {
            run: &run,
            boot: &self.boot,
            knobs: &self.knobs,
            units: &self.units,
            root: &self.root,
            spare: &spare,
        };
        let record = transaction::set(&Machine, &self.record, &wish)?;
        if record.holds_latency {
            *latency = self.hold_latency();
        }
        tracing::info!(%run, files = record.entries.len(), not_offered = record.not_offered.len(), "made the machine quiet");
        Ok(())
    }

    /// Opens the file that keeps the CPUs out of idle states. If that fails, the certificate shows that it is not held.
    fn hold_latency(&self) -> Option<File> {
        let open = || {
            let mut file = File::options().write(true).open(self.root.join(knobs::LATENCY))?;
            // A number in the machine's own byte order: no delay is allowed.
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok::<_, io::Error>(file)
        };
        let held = open();
        if let Err(error) = &held {
            tracing::warn!(%error, "cannot keep the CPUs out of idle states");
        }
        held.ok()
    }

    /// Restores the settings if they were changed for this run. Returns what was changed, and whether to [`retry`].
    fn end(&self, run: RunId) -> Option<(QuietMachine, bool)> {
        let mut latency = lock(&self.latency);
        let is_of_run = |record: &Record| record.run == run.to_string();
        self.stored().filter(is_of_run)?;
        let held = latency.take().is_some();
        let undone = self.undo()?;
        let record = undone.record.as_ref()?;
        Some((in_words(&self.root, record, held, &undone), !undone.left.is_empty()))
    }

    /// Restores all settings that a record says were changed.
    fn undo(&self) -> Option<Undone> {
        match transaction::undo(&Machine, &self.record, &self.boot) {
            Ok(undone) => {
                for Problem { knob, path, why } in &undone.not_restored {
                    tracing::warn!(knob = knob.name(), ?path, why, "did not restore a setting of the machine");
                }
                if let Some(record) = &undone.record {
                    tracing::info!(run = record.run, files = record.entries.len(), "restored the machine's settings");
                }
                Some(undone)
            }
            Err(error) => {
                tracing::error!(%error, record = %self.record.display(), "cannot restore the machine's settings");
                None
            }
        }
    }

    /// Restores what an earlier agent has changed, unless the run still goes on. Returns whether to [`retry`].
    fn recover(&self, going_on: &HashSet<RunId>) -> bool {
        let mut latency = lock(&self.latency);
        let Some(mut record) = self.stored() else { return false };
        if record.boot == self.boot && going_on.iter().any(|run| run.to_string() == record.run) {
            if record.holds_latency {
                *latency = self.hold_latency();
                record.latency_interrupted = true;
                if let Err(error) = transaction::store(&Machine, &self.record, &record) {
                    tracing::warn!(%error, "cannot store that the CPUs entered idle states");
                }
            }
            return false;
        }
        self.undo_alone()
    }

    /// Restores settings while no other agent changes them. Returns whether to try again.
    fn undo_alone(&self) -> bool {
        // Another agent would take what it finds for the old settings.
        match self.only.is_none().then(|| self.lock_machine()).transpose() {
            Ok(_only) => self.undo().is_some_and(|undone| !undone.left.is_empty()),
            Err(why) => {
                tracing::error!(why, record = %self.record.display(), "cannot restore the machine's settings");
                false
            }
        }
    }

    /// Tries again to restore what earlier runs left. Returns whether to try once more.
    fn restore_left(&self) -> bool {
        let _latency = lock(&self.latency);
        self.stored().is_some_and(|record| record.run.is_empty()) && self.undo_alone()
    }
}

/// Tries a few times to restore what is left of earlier runs, unless another run begins. A unit that stops slowly, for example,
/// can soon be started.
async fn retry(quiet: Arc<Quiet>) {
    for pause in RETRIES {
        sleep(Duration::from_secs(pause)).await;
        let quiet = Arc::clone(&quiet);
        if !spawn_blocking(move || quiet.restore_left()).await.unwrap_or(false) {
            return;
        }
    }
}

/// The quiet machine of runs that ask for one.
pub(crate) struct QuietRuns {
    pub(crate) node: NodeName,
    pub(crate) quiet: Arc<Quiet>,
    pub(crate) runs: Arc<Runs>,
}

impl Surrounding for QuietRuns {
    fn begin<'a>(&'a self, launch: &'a RunLaunch) -> BoxFuture<'a, anyhow::Result<()>> {
        if !launch.spec().surroundings.quiet_machine {
            return ready(Ok(())).boxed();
        }
        self.make_quiet(launch.run()).boxed()
    }

    fn end<'a>(&'a self, launch: &'a RunLaunch, _outcome: &'a RunOutcome) -> BoxFuture<'a, ()> {
        if !launch.spec().surroundings.quiet_machine {
            return ready(()).boxed();
        }
        self.restore(launch.run()).boxed()
    }

    fn recover<'a>(&'a self, going_on: &'a [Arc<RunLaunch>]) -> BoxFuture<'a, ()> {
        let (quiet, runs) = (Arc::clone(&self.quiet), going_on.iter().map(|launch| launch.run()).collect());
        async move {
            if spawn_blocking(move || quiet.recover(&runs)).await.unwrap_or(false) {
                tokio::spawn(retry(Arc::clone(&self.quiet)));
            }
        }
        .boxed()
    }
}

impl QuietRuns {
    /// Makes the machine quiet. After an error, nothing is changed.
    async fn make_quiet(&self, run: RunId) -> anyhow::Result<()> {
        let name = &self.node;
        if let Err(why) = &self.quiet.offered {
            anyhow::bail!("node {name} cannot make its machine quiet: {why}");
        }
        let quiet = Arc::clone(&self.quiet);
        let set = spawn_blocking(move || quiet.begin(run)).await.map_err(io::Error::other).flatten();
        set.with_context(|| format!("node {name} cannot make its machine quiet"))
    }

    /// Restores the machine after the run, and adds what was changed to its measurement certificate. Has no effect the second
    /// time.
    async fn restore(&self, run: RunId) {
        let (quiet, directory) = (Arc::clone(&self.quiet), self.runs.of(run));
        let work = move || {
            let Some((changed, is_left)) = quiet.end(run) else { return false };
            let mut certificate = directory.stored_certificate().unwrap_or_else(Certificate::of_restarted_agent);
            certificate.quiet_machine = Some(Box::new(changed));
            directory.store_certificate(&certificate);
            is_left
        };
        if spawn_blocking(work).await.unwrap_or(false) {
            tokio::spawn(retry(Arc::clone(&self.quiet)));
        }
    }
}

/// What a run changed, for its certificate.
fn in_words(root: &Path, record: &Record, held_latency: bool, undone: &Undone) -> QuietMachine {
    let mut not_offered = problems(root, &record.not_offered);
    not_offered.extend(problems(root, &undone.started_again));
    let mut changes = changes(root, record);
    if record.holds_latency {
        let knob = Knob::IdleStates.name();
        let path = format!("/{}", knobs::LATENCY);
        let why = match (held_latency, record.latency_interrupted) {
            (true, false) => None,
            (true, true) => Some("not held while the agent was stopped"),
            (false, _) => Some("the CPUs could not be kept out of idle states"),
        };
        if let Some(why) = why {
            let (knob, path) = (knob.clone(), Some(path.clone()));
            not_offered.push(KnobProblem { knob, path, files: 1, why: why.to_owned() });
        }
        if held_latency {
            changes.push(MachineChange { knob, path, files: 1, before: "any".to_owned(), during: "none".to_owned() });
        }
    }
    QuietMachine { changes, not_offered, not_restored: problems(root, &undone.not_restored) }
}

/// The changed files, those with the same pattern together, so that a machine with many interrupts has a short certificate.
fn changes(root: &Path, record: &Record) -> Vec<MachineChange> {
    let mut changes: Vec<(MachineChange, String)> = Vec::new();
    for entry in &record.entries {
        let (path, pattern) = shown(root, &entry.path);
        match changes.iter_mut().find(|(it, other)| *other == pattern && it.during == entry.new) {
            Some((it, _)) => {
                it.files += 1;
                it.path.clone_from(&pattern);
                if it.before != entry.old {
                    "various".clone_into(&mut it.before);
                }
            }
            None => {
                let (knob, before, during) = (entry.knob.name(), entry.old.clone(), entry.new.clone());
                changes.push((MachineChange { knob, path, files: 1, before, during }, pattern));
            }
        }
    }
    changes.into_iter().map(|(change, _)| change).collect()
}

/// The problems, those of files with the same pattern and reason together.
fn problems(root: &Path, problems: &[Problem]) -> Vec<KnobProblem> {
    let mut listed: Vec<(KnobProblem, Option<String>)> = Vec::new();
    for Problem { knob, path, why } in problems {
        let (path, pattern) = path.as_ref().map(|path| shown(root, path)).unzip();
        let same = |(it, other): &&mut (KnobProblem, Option<String>)| *other == pattern && it.why == *why;
        match listed.iter_mut().find(same).filter(|_| pattern.is_some()) {
            Some((it, _)) => {
                it.files += 1;
                it.path.clone_from(&pattern);
            }
            None => {
                let files = u32::from(path.is_some());
                listed.push((KnobProblem { knob: knob.name(), path, files, why: why.clone() }, pattern));
            }
        }
    }
    listed.into_iter().map(|(problem, _)| problem).collect()
}

/// A file or unit as certificates show it: its path or name, and its pattern.
fn shown(root: &Path, path: &Path) -> (String, String) {
    if path.is_relative() {
        let unit = path.display().to_string();
        return (unit.clone(), unit);
    }
    let path = path.strip_prefix(root).unwrap_or(path).display().to_string();
    (format!("/{path}"), format!("/{}", without_numbers(&path)))
}

/// A path with `*` in place of each number.
fn without_numbers(path: &str) -> String {
    let mut text = String::new();
    for c in path.chars() {
        match c.is_ascii_digit() {
            true if text.ends_with('*') => {}
            true => text.push('*'),
            false => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::transaction::Entry;
    use super::*;

    #[test]
    fn certificate_lists_equal_changes_together() {
        let entry = |path: &str, old: &str| Entry {
            knob: Knob::Interrupts,
            path: PathBuf::from("/").join(path),
            form: knobs::Form::CpuList,
            old: old.to_owned(),
            new: "3".to_owned(),
        };
        let mut entries = vec![entry("proc/irq/7/smp_affinity_list", "0-3")];
        let of =
            |entries: &[Entry]| changes(Path::new("/"), &Record { entries: entries.to_vec(), ..Record::default() });
        assert_eq!(of(&entries)[0].path, "/proc/irq/7/smp_affinity_list", "one file has its own path");
        entries.extend((8..28).map(|irq| entry(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3")));
        entries.extend((28..60).map(|irq| entry(&format!("proc/irq/{irq}/smp_affinity_list"), &irq.to_string())));
        let listed = of(&entries);
        let [it] = listed.as_slice() else { panic!("{listed:?}") };
        assert_eq!((it.path.as_str(), it.files), ("/proc/irq/*/smp_affinity_list", 53));
        assert_eq!(it.before, "various");

        let refuses = |irq: u32| Problem {
            knob: Knob::Interrupts,
            path: Some(PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list"))),
            why: "Input/output error (os error 5)".to_owned(),
        };
        let listed = problems(Path::new("/"), &(0..400).map(refuses).collect::<Vec<_>>());
        let [it] = listed.as_slice() else { panic!("{listed:?}") };
        assert_eq!((it.path.as_deref(), it.files), (Some("/proc/irq/*/smp_affinity_list"), 400));
    }

    /// A machine with one setting, and an agent of root on it with this directory.
    fn agent(top: &Path, name: &str) -> Quiet {
        let file = top.join(knobs::LATENCY);
        fs::create_dir_all(file.parent().expect("a parent")).expect("ours");
        fs::write(file, "").expect("ours");
        fs::create_dir_all(top.join("sys/devices/system/cpu")).expect("ours");
        fs::create_dir_all(top.join(name)).expect("ours");
        let settings = QuietSettings {
            knobs: BTreeSet::from([Knob::IdleStates]),
            root: Some(top.to_owned()),
            ..QuietSettings::default()
        };
        Quiet::new(settings, &top.join(name), "now".to_owned(), CpuSet::first(1), true)
    }

    #[test]
    fn only_one_agent_of_a_machine_changes_its_settings() {
        assert!(nix::unistd::geteuid().is_root(), "only agents of root change settings of their machine");
        let top = tempfile::tempdir().expect("a temporary directory");
        let first = agent(top.path(), "a");
        assert_eq!(first.offered, Ok(()));
        let second = agent(top.path(), "b").offered.expect_err("the first one does");
        assert_eq!(second, "another agent on this machine already changes its settings");
        drop(first);
        assert_eq!(agent(top.path(), "b").offered, Ok(()));
        let settings = QuietSettings {
            knobs: BTreeSet::from([Knob::Boost]),
            root: Some("sys".into()),
            ..QuietSettings::default()
        };
        let refused = Quiet::new(settings, top.path(), String::new(), CpuSet::first(1), true).offered;
        assert!(refused.is_err_and(|why| why.contains("for tests")), "a relative root");
    }

    #[test]
    fn damaged_record_stops_the_offer_and_stays() {
        let top = tempfile::tempdir().expect("a temporary directory");
        for damaged in [&b"{"[..], b"\xff"] {
            fs::create_dir_all(top.path().join("a")).expect("ours");
            let record = top.path().join("a/quiet.json");
            fs::write(&record, damaged).expect("ours");
            let quiet = agent(top.path(), "a");
            let why = quiet.offered.clone().expect_err("the old settings are unknown");
            assert!(why.contains("quiet.json is damaged, so the old settings are unknown"), "{why}");
            quiet.recover(&HashSet::new());
            assert_eq!(fs::read(&record).expect("it stays"), damaged);
        }
    }

    #[test]
    fn certificate_says_that_idle_states_were_not_held_meanwhile() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let run: RunId = "7_0.1.1".parse().expect("a run");
        agent(top.path(), "a").begin(run).expect("made quiet");
        let next = agent(top.path(), "a");
        next.recover(&HashSet::from([run]));
        let (made, is_left) = next.end(run).expect("it was changed");
        assert!(!is_left);
        assert_eq!(made.not_offered[0].why, "not held while the agent was stopped");
        assert_eq!(made.in_words(), "partly: idle-states");
    }

    #[test]
    fn reason_says_what_an_admin_must_write() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let new = |settings, whole| Quiet::new(settings, top.path(), String::new(), CpuSet::first(1), whole).offered;
        let nothing = new(QuietSettings::default(), true).expect_err("nothing is listed");
        assert!(nothing.contains("`[quiet_machine]` with `knobs`"), "{nothing}");
        let some = QuietSettings { knobs: BTreeSet::from([Knob::Boost]), ..QuietSettings::default() };
        assert!(new(some, false).is_err(), "other nodes use the machine, or the agent is not root");
    }
}

//! Quiet machines: settings of the kernel that are changed while a job with `--quiet-machine` runs.
//!
//! - [`knobs`]: which files and values; [`transaction`]: changes that are undone after any crash.
//! - This module says whether the node offers it, and ties the changes to runs.
//!
//! The run begins after the settings are changed, and its end is reported after they are restored, so that the next run finds
//! the machine as it was. If the agent stops meanwhile, the settings stay until its next start finds that the run has ended.

mod knobs;
mod transaction;

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use hostler_core::agent::RunLaunch;
use hostler_model::{CpuSet, RunId};
use hostler_proto::certificate::{Certificate, KnobProblem, MachineChange, QuietMachine};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

pub use self::knobs::Knob;
use self::transaction::{Machine, Record, Undone, Wish};
use crate::mutex::lock;
use crate::node::Node;

/// The most different old values of a knob that a certificate lists, so that a machine with many interrupts has a short one.
const MOST_VALUES: usize = 8;

/// The table `quiet_machine` of `agent.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuietSettings {
    /// The knobs that jobs may ask for.
    pub knobs: BTreeSet<Knob>,
    /// Directory with the files of the machine, for tests [default: /].
    pub root: Option<PathBuf>,
}

/// Changes of the machine's settings for runs.
#[derive(Debug)]
pub(crate) struct Quiet {
    /// Whether jobs may ask for a quiet machine, or why not.
    pub(crate) offered: Result<(), String>,
    knobs: Vec<Knob>,
    root: PathBuf,
    record: PathBuf,
    boot: String,
    /// CPUs that the node offers.
    cpus: CpuSet,
    /// Locked during each change. While the file is open, the kernel keeps the CPUs out of idle states.
    latency: Mutex<Option<File>>,
}

impl Quiet {
    /// `directory` is the agent's, and `cpus` are those that the node offers.
    pub(crate) fn new(
        settings: QuietSettings,
        directory: &Path,
        boot: String,
        cpus: CpuSet,
        has_whole_machine: bool,
    ) -> Self {
        let why_not = if settings.knobs.is_empty() {
            Some(
                "it lists no knobs that jobs may ask for; an admin of the node adds `[quiet_machine]` with `knobs` to its \
                 agent.toml, and restarts the agent",
            )
        } else if !nix::unistd::geteuid().is_root() {
            Some("its agent does not run as root; start it as root")
        } else if !has_whole_machine {
            Some("its machine has other uses besides the node (`hostler up`, or `shared_machine` in agent.toml)")
        } else {
            None
        };
        Self {
            offered: why_not.map_or(Ok(()), |why| Err(why.to_owned())),
            knobs: settings.knobs.into_iter().collect(),
            root: settings.root.unwrap_or_else(|| PathBuf::from("/")),
            record: directory.join("quiet.json"),
            boot,
            cpus,
            latency: Mutex::default(),
        }
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
        let wish = Wish { run: &run, boot: &self.boot, knobs: &self.knobs, root: &self.root, spare: &spare };
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

    /// Restores the settings if they were changed for this run. Returns what was changed.
    fn end(&self, run: RunId) -> Option<QuietMachine> {
        let mut latency = lock(&self.latency);
        let is_of_run = |record: &Record| record.run == run.to_string();
        transaction::stored(&Machine, &self.record).ok().flatten().filter(is_of_run)?;
        let held = latency.take().is_some();
        let undone = self.undo()?;
        let record = undone.record.as_ref()?;
        Some(in_words(&self.root, record, held, &undone))
    }

    /// Restores all settings that a record says were changed.
    fn undo(&self) -> Option<Undone> {
        match transaction::undo(&Machine, &self.record, &self.boot) {
            Ok(undone) => {
                for (knob, why) in &undone.not_restored {
                    tracing::warn!(knob = knob.name(), why, "did not restore a setting of the machine");
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

    /// Restores what an earlier agent has changed, unless the run still goes on.
    pub(crate) fn recover(&self, going_on: &HashSet<RunId>) {
        let mut latency = lock(&self.latency);
        let Some(record) = transaction::stored(&Machine, &self.record).ok().flatten() else { return };
        if record.boot == self.boot && going_on.iter().any(|run| run.to_string() == record.run) {
            if record.holds_latency {
                *latency = self.hold_latency();
            }
            return;
        }
        self.undo();
    }
}

/// Makes the machine quiet if the run asks for it.
///
/// # Errors
/// With a message for the user, if the run must not start. Nothing is changed then.
pub(crate) async fn begin(node: &Arc<Node>, launch: &RunLaunch) -> anyhow::Result<()> {
    if !launch.spec().quiet_machine {
        return Ok(());
    }
    let name = &node.name;
    if let Err(why) = &node.quiet.offered {
        anyhow::bail!("node {name} cannot make its machine quiet: {why}");
    }
    let (quiet, run) = (Arc::clone(&node.quiet), launch.run());
    let set = spawn_blocking(move || quiet.begin(run)).await.map_err(io::Error::other).flatten();
    set.with_context(|| format!("node {name} cannot make its machine quiet"))
}

/// Restores the machine after the run, and adds what was changed to its measurement certificate. Has no effect for runs
/// that did not ask for a quiet machine, and the second time.
pub(crate) async fn end(node: &Node, launch: &RunLaunch) {
    if !launch.spec().quiet_machine {
        return;
    }
    let (quiet, run) = (Arc::clone(&node.quiet), launch.run());
    let directory = node.runs.of(run);
    let work = move || {
        let Some(changed) = quiet.end(run) else { return };
        let mut certificate = directory.stored_certificate().unwrap_or_else(Certificate::of_restarted_agent);
        certificate.quiet_machine = Some(Box::new(changed));
        directory.store_certificate(&certificate);
    };
    let _ = spawn_blocking(work).await;
}

/// What a run changed, for its certificate.
fn in_words(root: &Path, record: &Record, held_latency: bool, undone: &Undone) -> QuietMachine {
    let problem = |(knob, why): &(Knob, String)| KnobProblem { knob: knob.name(), why: why.clone() };
    let mut not_offered: Vec<KnobProblem> = record.not_offered.iter().map(problem).collect();
    let mut changes = changes(root, record);
    if record.holds_latency {
        let knob = Knob::IdleStates.name();
        if held_latency {
            let path = format!("/{}", knobs::LATENCY);
            changes.push(MachineChange { knob, path, files: 1, before: "any".to_owned(), during: "none".to_owned() });
        } else {
            not_offered.push(KnobProblem { knob, why: "the CPUs could not be kept out of idle states".to_owned() });
        }
    }
    QuietMachine { changes, not_offered, not_restored: undone.not_restored.iter().map(problem).collect() }
}

/// The changed files, those with the same pattern, old and new value together.
fn changes(root: &Path, record: &Record) -> Vec<MachineChange> {
    let mut changes: Vec<(MachineChange, String)> = Vec::new();
    for entry in &record.entries {
        let path = entry.path.strip_prefix(root).unwrap_or(&entry.path).display().to_string();
        let pattern = format!("/{}", without_numbers(&path));
        let (knob, path) = (entry.knob.name(), format!("/{path}"));
        let values_of_pattern = changes.iter().filter(|(_, other)| *other == pattern).count();
        let before = if values_of_pattern < MOST_VALUES { entry.old.as_str() } else { "various" };
        let same = |(it, other): &&mut (MachineChange, String)| {
            *other == pattern && it.during == entry.new && (it.before == entry.old || it.before == before)
        };
        match changes.iter_mut().find(same) {
            Some((it, _)) => {
                it.files += 1;
                it.path.clone_from(&pattern);
            }
            None => {
                let (before, during) = (before.to_owned(), entry.new.clone());
                changes.push((MachineChange { knob, path, files: 1, before, during }, pattern));
            }
        }
    }
    changes.into_iter().map(|(change, _)| change).collect()
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
        assert_eq!(listed.len(), MOST_VALUES + 1, "{listed:?}");
        assert_eq!((listed[0].path.as_str(), listed[0].files), ("/proc/irq/*/smp_affinity_list", 21));
        let last = listed.last().expect("there are some");
        assert_eq!((last.before.as_str(), last.files), ("various", 25));
        assert_eq!(listed.iter().map(|it| it.files).sum::<u32>() as usize, entries.len());
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

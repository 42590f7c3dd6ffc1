//! The transaction: settings of the machine (files, and units of systemd) are changed for a run, and are back as they were
//! after it or after any crash.
//!
//! Before the first write, a record with all old and new values is on the disk. Undoing goes through it backwards and
//! restores each file that still has the value that was written; what somebody else has changed meanwhile stays and is
//! reported. Units are started in any case. After a restart of the machine all settings are new, so the record is discarded.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::knobs::{Form, Knob, LATENCY, Target, Wish};
use super::units::{self, Unit};

/// The settings that a transaction works on, and its record. Tests let it fail and crash at any operation.
pub(super) trait Settings {
    fn read(&self, form: Form, path: &Path) -> io::Result<String>;

    /// Changes an existing setting.
    fn write(&self, form: Form, path: &Path, value: &str) -> io::Result<()>;

    /// The units that stop when this one stops.
    fn stopped_with(&self, unit: &str) -> io::Result<Vec<String>>;

    fn load(&self, record: &Path) -> io::Result<String>;

    /// Replaces the record, so that it survives a power failure.
    fn store(&self, record: &Path, bytes: &[u8]) -> io::Result<()>;

    fn remove(&self, record: &Path) -> io::Result<()>;
}

/// The settings of the machine.
pub(super) struct Machine;

impl Settings for Machine {
    fn read(&self, form: Form, path: &Path) -> io::Result<String> {
        if form == Form::Unit { units::state(&path.to_string_lossy()) } else { fs::read_to_string(path) }
    }

    fn write(&self, form: Form, path: &Path, value: &str) -> io::Result<()> {
        if form == Form::Unit {
            return units::set(&path.to_string_lossy(), value);
        }
        // The kernel wants the whole value in one write.
        let mut file = fs::File::options().write(true).truncate(true).open(path)?;
        file.write_all(format!("{value}\n").as_bytes())
    }

    fn stopped_with(&self, unit: &str) -> io::Result<Vec<String>> {
        units::stopped_with(unit)
    }

    fn load(&self, record: &Path) -> io::Result<String> {
        fs::read_to_string(record)
    }

    fn store(&self, record: &Path, bytes: &[u8]) -> io::Result<()> {
        hostler_sys::replace_file(record, bytes, 0o600)
    }

    fn remove(&self, record: &Path) -> io::Result<()> {
        fs::remove_file(record)
    }
}

/// What a run has changed: the content of `quiet.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Boot id of the machine.
    pub(super) boot: String,
    /// The run; empty if only settings of earlier runs are left, which could not be restored.
    pub(super) run: String,
    pub(super) entries: Vec<Entry>,
    /// What the machine does not offer.
    pub(super) not_offered: Vec<Problem>,
    /// Whether the agent keeps the CPUs out of idle states. The kernel ends that together with the agent.
    pub(super) holds_latency: bool,
    /// Whether an agent was stopped meanwhile.
    #[serde(default)]
    pub(super) latency_interrupted: bool,
}

/// Why a setting could not be changed or restored. The reasons have no values, so that a certificate can list those of many
/// files together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Problem {
    pub(super) knob: Knob,
    /// The setting's file, or unit; absent if all files of the knob are meant.
    pub(super) path: Option<PathBuf>,
    pub(super) why: String,
}

impl Problem {
    fn of_knob(knob: Knob, why: impl Into<String>) -> Self {
        Self { knob, path: None, why: why.into() }
    }

    fn of_file(knob: Knob, path: &Path, why: impl Into<String>) -> Self {
        Self { knob, path: Some(path.to_owned()), why: why.into() }
    }
}

/// A changed setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) knob: Knob,
    /// A file, or the name of a unit.
    pub(super) path: PathBuf,
    pub(super) form: Form,
    pub(super) old: String,
    pub(super) new: String,
}

/// Changes the machine for a run, after undoing what an earlier run left. Returns what it changed, and which settings the
/// machine refused. A refusal is not an error.
///
/// # Errors
/// If the record cannot be stored. Everything is then as before.
pub(super) fn set(settings: &dyn Settings, record_at: &Path, wish: &Wish<'_>) -> io::Result<Record> {
    let left = undo(settings, record_at, wish.boot)?.left;
    let carried = left.len();
    let mut record = Record {
        boot: wish.boot.to_owned(),
        run: wish.run.to_owned(),
        entries: left,
        holds_latency: wish.knobs.contains(&Knob::IdleStates) && wish.root.join(LATENCY).exists(),
        ..Record::default()
    };
    for &knob in wish.knobs {
        plan(settings, knob, wish, &mut record);
    }
    store(settings, record_at, &record)?;
    let planned = record.entries.split_off(carried);
    for mut entry in planned {
        let changed = change(settings, &mut entry);
        if let Err(Refused { why, .. }) = &changed {
            record.not_offered.push(Problem::of_file(entry.knob, &entry.path, why));
        }
        if !changed.is_err_and(|refused| refused.is_as_before) {
            record.entries.push(entry);
        }
    }
    if let Err(error) = store(settings, record_at, &record) {
        // The record on the disk still has all entries.
        undo(settings, record_at, wish.boot)?;
        return Err(error);
    }
    Ok(record)
}

/// Adds the settings of a knob that have another value.
fn plan(settings: &dyn Settings, knob: Knob, wish: &Wish<'_>, record: &mut Record) {
    if knob == Knob::IdleStates {
        if !record.holds_latency {
            record.not_offered.push(Problem::of_knob(knob, "this machine has no such setting"));
        }
        return;
    }
    let targets = match knob.targets(wish) {
        Ok(targets) => targets,
        Err(why) => return record.not_offered.push(Problem::of_knob(knob, why)),
    };
    for target in targets {
        match settings.read(target.form, &target.path) {
            Ok(content) => {
                let old = target.form.value_in(&content);
                let new = target.form.value_in(&target.value);
                let why_not =
                    (target.form == Form::Unit && old != new).then(|| why_not_stop(settings, &target, &old, wish));
                if let Some(why) = why_not.flatten() {
                    record.not_offered.push(Problem::of_file(knob, &target.path, why));
                } else if old != new {
                    let Target { knob, path, form, .. } = target;
                    record.entries.push(Entry { knob, path, form, old, new });
                }
            }
            Err(error) => record.not_offered.push(Problem::of_file(knob, &target.path, error.to_string())),
        }
    }
}

/// Why a unit must not be stopped: it is between two states, or others would stop with it and stay stopped.
fn why_not_stop(settings: &dyn Settings, target: &Target, state: &str, wish: &Wish<'_>) -> Option<String> {
    if state != units::STARTED {
        // A service of the type oneshot, such as an update of packages, would be interrupted in the middle.
        return Some(format!("the unit is {state}"));
    }
    let first = target.path.to_string_lossy().into_owned();
    let (mut seen, mut rest) = (BTreeSet::from([first.clone()]), vec![first]);
    while let Some(unit) = rest.pop() {
        let others = match settings.stopped_with(&unit) {
            Ok(others) => others,
            Err(error) => return Some(error.to_string()),
        };
        for other in others {
            let state = match settings.read(Form::Unit, Path::new(&other)) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Some(error.to_string()),
                Ok(state) => Form::Unit.value_in(&state),
            };
            if state == units::STOPPED || !seen.insert(other.clone()) {
                continue;
            }
            if !wish.units.iter().any(|unit| unit.name() == other) {
                let hint = Unit::try_from(other.clone()).map_or("", |_| "; list it, too");
                return Some(format!("stopping it would also stop {other}{hint}"));
            }
            if state != units::STARTED {
                return Some(format!("stopping it would also stop {other}, which is {state}"));
            }
            rest.push(other);
        }
    }
    None
}

/// A setting that did not take its new value.
struct Refused {
    why: String,
    /// Whether it certainly has its old value. If not, it must stay in the record.
    is_as_before: bool,
}

/// Writes the new value and reads it back. If it is another one, writes the old one again. A unit may also have stopped although
/// stopping it failed.
fn change(settings: &dyn Settings, entry: &mut Entry) -> Result<(), Refused> {
    let written = settings.write(entry.form, &entry.path, &entry.new);
    let now = value(settings, entry);
    let why = match (&now, written) {
        (Ok(now), _) if *now == entry.new => return Ok(()),
        (_, Err(error)) => error.to_string(),
        (Ok(_), Ok(())) if entry.form == Form::Unit => "it started again".to_owned(),
        (Ok(_), Ok(())) => format!("the kernel made another value of {}", entry.new),
        (Err(error), Ok(())) => format!("cannot read it: {error}"),
    };
    if now.as_ref().is_ok_and(|now| *now == entry.old) {
        return Err(Refused { why, is_as_before: true });
    }
    let Err(error) = put_back(settings, entry) else { return Err(Refused { why, is_as_before: true }) };
    if let (Ok(now), true) = (now, entry.form != Form::Unit) {
        // Else it would later look like the work of somebody else.
        entry.new = now;
    }
    Err(Refused { why: format!("{why}, and the old value is not back: {error}"), is_as_before: false })
}

/// The present value of a setting.
fn value(settings: &dyn Settings, entry: &Entry) -> io::Result<String> {
    settings.read(entry.form, &entry.path).map(|content| entry.form.value_in(&content))
}

/// Writes the old value.
///
/// # Errors
/// If the setting does not have the old value then.
fn put_back(settings: &dyn Settings, entry: &Entry) -> io::Result<()> {
    settings.write(entry.form, &entry.path, &entry.old)?;
    match value(settings, entry)? {
        now if now == entry.old => Ok(()),
        _ if entry.form == Form::Unit => Err(io::Error::other("the unit stopped again after it was started")),
        _ => Err(io::Error::other("the kernel changed the restored value")),
    }
}

/// Result of undoing.
#[derive(Debug, Default)]
pub(super) struct Undone {
    /// The record, if there was one of this boot.
    pub(super) record: Option<Record>,
    /// Settings that are not as they were, with the reasons.
    pub(super) not_restored: Vec<Problem>,
    /// Changed settings that could not be written. The record on the disk still has them.
    pub(super) left: Vec<Entry>,
    /// Units that were started by others meanwhile.
    pub(super) started_again: Vec<Problem>,
}

/// Restores the settings of the machine, if a record says that they were changed.
///
/// # Errors
/// If the record cannot be read or removed.
pub(super) fn undo(settings: &dyn Settings, record_at: &Path, boot: &str) -> io::Result<Undone> {
    let Some(record) = stored(settings, record_at)? else { return Ok(Undone::default()) };
    if record.boot != boot {
        settings.remove(record_at)?;
        return Ok(Undone::default());
    }
    let mut undone = Undone::default();
    // Units come last, in the order in which they stopped.
    let (units, files): (Vec<&Entry>, Vec<&Entry>) = record.entries.iter().partition(|it| it.form == Form::Unit);
    // Before any starts: it can start others.
    for entry in &units {
        if value(settings, entry).is_ok_and(|now| now == entry.old) {
            let why = "it started again during the job";
            undone.started_again.push(Problem::of_file(entry.knob, &entry.path, why));
        }
    }
    for entry in files.into_iter().rev().chain(units) {
        match restore(settings, entry) {
            Ok(()) => {}
            Err(NotRestored::Failed(why)) => {
                undone.not_restored.push(Problem::of_file(entry.knob, &entry.path, why.to_string()));
                undone.left.push(entry.clone());
            }
            Err(NotRestored::Foreign(now)) => {
                tracing::warn!(path = %entry.path.display(), old = entry.old, now, "somebody else has changed a setting");
                let why = "somebody else has changed it meanwhile";
                undone.not_restored.push(Problem::of_file(entry.knob, &entry.path, why));
            }
        }
    }
    undone.left.sort_by_key(|left| record.entries.iter().position(|it| it == left));
    if undone.left.is_empty() {
        settings.remove(record_at)?;
    } else {
        let rest = Record { boot: boot.to_owned(), entries: undone.left.clone(), ..Record::default() };
        store(settings, record_at, &rest)?;
    }
    undone.record = Some(record);
    Ok(undone)
}

/// The stored record.
///
/// # Errors
/// If it cannot be read or decoded. The old settings are then unknown.
pub(super) fn stored(settings: &dyn Settings, record_at: &Path) -> io::Result<Option<Record>> {
    let text = match settings.load(record_at) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    serde_json::from_str(&text).map(Some).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
}

/// Why a setting is not as it was.
enum NotRestored {
    Failed(io::Error),
    /// It has a value that was not written here.
    Foreign(String),
}

fn restore(settings: &dyn Settings, entry: &Entry) -> Result<(), NotRestored> {
    let before = match value(settings, entry) {
        // For example, the device of an interrupt has gone.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        value => value.map_err(NotRestored::Failed)?,
    };
    if before == entry.old {
        return Ok(());
    }
    // A unit that is not active may still be stopping, for example if the agent ended meanwhile.
    if before != entry.new && entry.form != Form::Unit {
        return Err(NotRestored::Foreign(before));
    }
    put_back(settings, entry).map_err(NotRestored::Failed)
}

pub(super) fn store(settings: &dyn Settings, record_at: &Path, record: &Record) -> io::Result<()> {
    settings.store(record_at, &serde_json::to_vec_pretty(record).expect("a record is valid JSON"))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

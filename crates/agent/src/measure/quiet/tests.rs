//! The transaction on a made-up tree, with refusals and crashes at each operation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// The files of a machine of two policies, and what each holds.
const TREE: [(&str, &str); 10] = [
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "schedutil\n"),
    ("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "ondemand\n"),
    ("sys/devices/system/cpu/cpufreq/boost", "1\n"),
    ("proc/irq/9/smp_affinity_list", "0-3\n"),
    ("sys/devices/virtual/workqueue/cpumask", "0000000f\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("proc/sys/vm/stat_interval", "1\n"),
    ("dev/cpu_dma_latency", "\n"),
    ("units/irqbalance.service", "active\n"),
    ("units/cron.service", "inactive\n"),
];

/// Units that a run stops, the last of which the machine does not have.
const UNITS: [&str; 3] = ["irqbalance.service", "cron.service", "tuned.service"];

const KNOBS: [Knob; 9] = [
    Knob::Units,
    Knob::Governor,
    Knob::Boost,
    Knob::IdleStates,
    Knob::Interrupts,
    Knob::Workqueues,
    Knob::HugePages,
    Knob::VmStat,
    Knob::NumaBalancing,
];

/// What the files of [`TREE`] hold during a run.
const QUIET: [&str; 10] = ["performance", "performance", "0", "3", "8", "never", "10", "", "inactive", "inactive"];

/// A machine below a temporary directory.
struct Fake {
    top: TempDir,
    /// Operations that change something until the agent is gone; all later ones fail.
    left: Cell<Option<usize>>,
    /// Whether the operation at which the agent goes still takes place.
    last_counts: bool,
    /// Paths that refuse to be written, with the error of the system.
    refused: BTreeMap<PathBuf, i32>,
    /// Paths of which the kernel makes something else.
    bent: BTreeMap<PathBuf, &'static str>,
    /// Paths that get this value whatever is written.
    stubborn: BTreeMap<PathBuf, &'static str>,
    /// Units that runs stop.
    units: Vec<&'static str>,
    /// Units, each with one that stops with it.
    stops: BTreeMap<&'static str, &'static str>,
    /// What was done to units.
    done: RefCell<Vec<String>>,
}

impl Fake {
    fn new() -> Self {
        let top = tempfile::tempdir().expect("a temporary directory");
        for (path, content) in TREE {
            let path = top.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("ours");
            fs::write(path, content).expect("ours");
        }
        Self {
            top,
            left: Cell::new(None),
            last_counts: false,
            refused: BTreeMap::new(),
            bent: BTreeMap::new(),
            stubborn: BTreeMap::new(),
            units: UNITS.to_vec(),
            stops: BTreeMap::new(),
            done: RefCell::default(),
        }
    }

    /// Gives a unit this state.
    fn put(&self, unit: &str, state: &str) {
        fs::write(self.place(Path::new(unit)), format!("{state}\n")).expect("ours");
    }

    fn state(&self, unit: &str) -> String {
        self.read(Form::Unit, Path::new(unit)).expect("it exists").trim().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    /// The file that stands for a setting.
    fn place(&self, path: &Path) -> PathBuf {
        if path.is_relative() { self.path("units").join(path) } else { path.to_owned() }
    }

    fn record(&self) -> PathBuf {
        self.path("quiet.json")
    }

    /// The values of all files.
    fn values(&self) -> Vec<String> {
        TREE.map(|(path, _)| {
            let form = if path.ends_with("enabled") { Form::Choice } else { Form::Plain };
            form.value_in(&fs::read_to_string(self.path(path)).expect("it exists"))
        })
        .to_vec()
    }

    fn set(&self, run: &str) -> io::Result<Record> {
        let spare = "3".parse().expect("a CPU");
        let units: Vec<Unit> = self.units.iter().map(|&it| it.to_owned().try_into().expect("a unit")).collect();
        let wish = Wish { run, boot: "now", knobs: &KNOBS, units: &units, root: self.top.path(), spare: &spare };
        set(self, &self.record(), &wish)
    }

    fn undo(&self) -> io::Result<Undone> {
        undo(self, &self.record(), "now")
    }

    /// Lets the agent go at this operation, counted from 1.
    fn go_after(&mut self, operations: usize, last_counts: bool) {
        self.left.set(Some(operations));
        self.last_counts = last_counts;
    }

    /// Starts the agent again. Returns whether it was gone.
    fn restart(&self) -> bool {
        self.left.replace(None) == Some(0)
    }

    /// Does an operation, or goes.
    fn operate(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let gone = || Err(io::Error::other("the agent is gone"));
        match self.left.get() {
            None => work(),
            Some(0) => gone(),
            Some(1) => {
                self.left.set(Some(0));
                if self.last_counts {
                    work()?;
                }
                gone()
            }
            Some(left) => {
                self.left.set(Some(left - 1));
                work()
            }
        }
    }
}

impl Settings for Fake {
    fn read(&self, _: Form, path: &Path) -> io::Result<String> {
        if self.left.get() == Some(0) {
            return Err(io::Error::other("the agent is gone"));
        }
        Machine.read(Form::Plain, &self.place(path))
    }

    fn write(&self, form: Form, path: &Path, value: &str) -> io::Result<()> {
        self.operate(|| {
            if let Some(value) = self.stubborn.get(path) {
                return Machine.write(Form::Plain, &self.place(path), value);
            }
            if form == Form::Unit {
                self.done.borrow_mut().push(format!("{} {value}", path.display()));
                Machine.write(Form::Plain, &self.place(path), value)?;
                let fails = value == "inactive" && self.refused.contains_key(path);
                return if fails { Err(io::Error::other("Job for it timed out.")) } else { Ok(()) };
            }
            if let Some(&error) = self.refused.get(path) {
                return Err(io::Error::from_raw_os_error(error));
            }
            let old = TREE.iter().find(|(name, _)| self.path(name) == path).map(|(_, content)| content.trim());
            let value = self.bent.get(path).filter(|_| old != Some(value)).copied().unwrap_or(value);
            match path.ends_with("enabled") {
                true => Machine.write(form, path, &"always madvise never".replace(value, &format!("[{value}]"))),
                false => Machine.write(form, path, value),
            }
        })
    }

    fn stopped_with(&self, unit: &str) -> io::Result<Vec<String>> {
        Ok(self.stops.get(unit).map(|&it| it.to_owned()).into_iter().collect())
    }

    fn load(&self, record: &Path) -> io::Result<String> {
        Machine.load(record)
    }

    fn store(&self, record: &Path, bytes: &[u8]) -> io::Result<()> {
        self.operate(|| Machine.store(record, bytes))
    }

    fn remove(&self, record: &Path) -> io::Result<()> {
        self.operate(|| Machine.remove(record))
    }
}

#[test]
fn settings_are_changed_for_a_run_and_back_after_it() {
    let fake = Fake::new();
    let before = fake.values();
    let record = fake.set("7.0.1").expect("set");
    let during: Vec<String> = fake.values().into_iter().map(|value| value.trim_start_matches('0').to_owned()).collect();
    assert_eq!(during, QUIET.map(|value| value.trim_start_matches('0')), "each has its new value");
    assert_eq!((record.run.as_str(), record.entries.len(), record.holds_latency), ("7.0.1", 8, true));
    assert_eq!(record.entries[0].path, Path::new("irqbalance.service"), "it stops first, and starts last");
    let tuned = Problem::of_file(Knob::Units, Path::new("tuned.service"), "No such file or directory (os error 2)");
    let numa = Problem::of_knob(Knob::NumaBalancing, "this machine has no such setting");
    assert_eq!(record.not_offered, [tuned, numa]);

    let undone = fake.undo().expect("undone");
    assert_eq!(undone.record, Some(record));
    assert!(undone.not_restored.is_empty() && !fake.record().exists(), "{undone:?}");
    let masks = |values: Vec<String>| values.into_iter().map(|value| value.trim_start_matches('0').to_owned());
    assert!(masks(fake.values()).eq(masks(before)), "{:?}", fake.values());
    assert!(fake.undo().expect("nothing to do").record.is_none());
}

#[test]
fn what_the_machine_refuses_is_listed_and_untouched() {
    let mut fake = Fake::new();
    let [governor, boost, thp, interval] = [1, 2, 5, 6].map(|at| fake.path(TREE[at].0));
    fake.refused = BTreeMap::from([(governor.clone(), 5), (boost.clone(), 1), (thp.clone(), 22)]);
    fake.bent.insert(interval.clone(), "60");
    let before = fake.values();
    fake.refused.insert(UNITS[0].into(), 0);
    let record = fake.set("7.0.1").expect("set");
    let why = |path: &Path| {
        let problem = record.not_offered.iter().find(|it| it.path.as_deref() == Some(path));
        problem.map(|it| it.why.clone())
    };
    assert_eq!(why(&governor).as_deref(), Some("Input/output error (os error 5)"));
    assert_eq!(why(&boost).as_deref(), Some("Operation not permitted (os error 1)"));
    assert_eq!(why(&thp).as_deref(), Some("Invalid argument (os error 22)"));
    assert_eq!(why(&interval).as_deref(), Some("the kernel made another value of 10"));
    for at in [1, 2, 5, 6] {
        assert_eq!(fake.values()[at], before[at]);
    }
    assert_eq!(
        (record.entries.len(), why(Path::new(UNITS[0]))),
        (4, None),
        "the rest is set, and the unit has stopped"
    );
}

#[test]
fn setting_that_somebody_else_changed_stays_and_is_reported() {
    let fake = Fake::new();
    fake.set("7.0.1").expect("set");
    let boost = fake.path(TREE[2].0);
    fs::remove_file(fake.path(TREE[3].0)).expect("the device of an interrupt goes");
    fs::write(fake.path(TREE[1].0), "powersave\n").expect("ours");
    fs::write(&boost, "1\n").expect("ours");
    let undone = fake.undo().expect("undone");
    let path = fake.path(TREE[1].0);
    let expected = Problem::of_file(Knob::Governor, &path, "somebody else has changed it meanwhile");
    assert_eq!(undone.not_restored, [expected]);
    assert!(!fake.record().exists(), "a later run does not touch it either");
}

#[test]
fn setting_that_cannot_be_restored_is_tried_again() {
    let mut fake = Fake::new();
    fake.set("7.0.1").expect("set");
    let interval = fake.path(TREE[6].0);
    fake.refused.insert(interval.clone(), 5);
    let undone = fake.undo().expect("undone");
    assert_eq!((undone.not_restored.len(), undone.left.len()), (1, 1), "{undone:?}");
    let again = fake.set("8.0.1").expect("the rest is set");
    assert_eq!(again.entries[0].path, interval, "the next run carries it");
    fake.refused.clear();
    assert!(fake.undo().expect("undone").not_restored.is_empty());
    assert_eq!(fs::read_to_string(interval).expect("it exists"), "1\n");
}

#[test]
fn setting_whose_old_value_is_not_back_stays_in_the_record() {
    let mut fake = Fake::new();
    let before = fake.values();
    let interval = fake.path(TREE[6].0);
    fake.stubborn = BTreeMap::from([(interval.clone(), "60"), (UNITS[0].into(), "deactivating")]);
    let record = fake.set("7.0.1").expect("set");
    for path in [interval.as_path(), Path::new(UNITS[0])] {
        assert!(record.entries.iter().any(|it| it.path == path), "{path:?} is changed");
        let problem = record.not_offered.iter().find(|it| it.path.as_deref() == Some(path)).expect("it is refused");
        assert!(problem.why.contains(", and the old value is not back: "), "{}", problem.why);
    }
    fake.stubborn.clear();
    let undone = fake.undo().expect("undone");
    assert!(undone.not_restored.is_empty() && undone.left.is_empty(), "{undone:?}");
    assert_eq!([fake.values()[6].clone(), fake.state(UNITS[0])], [before[6].as_str(), "active"]);
}

#[test]
fn unit_is_started_unless_it_is_active() {
    let fake = Fake::new();
    for state in ["inactive", "deactivating", "activating"] {
        fake.set("7.0.1").expect("set");
        fake.put(UNITS[0], state);
        let undone = fake.undo().expect("undone");
        assert!(undone.not_restored.is_empty() && undone.started_again.is_empty(), "{undone:?}");
        assert_eq!(fake.state(UNITS[0]), "active", "it was {state}");
    }
    fake.set("8.0.1").expect("set");
    fake.put(UNITS[0], "active");
    let undone = fake.undo().expect("undone");
    let again = Problem::of_file(Knob::Units, Path::new(UNITS[0]), "it started again during the job");
    assert_eq!((undone.started_again, undone.not_restored), (vec![again], Vec::new()));
}

#[test]
fn what_starts_services_stops_and_starts_before_them() {
    let mut fake = Fake::new();
    fake.units = vec!["a.service", "a.socket", "b.timer"];
    for unit in &fake.units {
        fake.put(unit, "active");
    }
    fake.set("7.0.1").expect("set");
    fake.undo().expect("undone");
    let expected = ["inactive", "active"].map(|to| ["a.socket", "b.timer", "a.service"].map(|it| format!("{it} {to}")));
    assert_eq!(*fake.done.borrow(), expected.concat());
}

#[test]
fn unit_that_would_stop_others_is_not_stopped() {
    let mut fake = Fake::new();
    fake.units = vec!["a.socket", "a.service"];
    fake.stops = BTreeMap::from([("a.socket", "a.service"), ("a.service", "b.service")]);
    ["a.socket", "a.service", "b.service"].iter().for_each(|unit| fake.put(unit, "active"));
    let refused = |fake: &Fake| {
        let record = fake.set("7.0.1").expect("set");
        fake.undo().expect("undone");
        let units = record.not_offered.into_iter().filter(|it| it.knob == Knob::Units);
        units.map(|it| it.why).collect::<Vec<_>>()
    };
    assert_eq!(refused(&fake), ["stopping it would also stop b.service; list it, too"; 2]);
    assert!(fake.done.borrow().is_empty());
    fake.stops.insert("a.service", "b.target");
    fake.put("b.target", "active");
    assert_eq!(refused(&fake), ["stopping it would also stop b.target"; 2]);
    fake.put("b.target", "inactive");
    fake.put("a.service", "activating");
    let expected = ["stopping it would also stop a.service, which is activating", "the unit is activating"];
    assert_eq!(refused(&fake), expected);
    fake.put("a.service", "active");
    assert!(refused(&fake).is_empty());
    assert_eq!(fake.done.borrow().len(), 4, "both stop and start");
}

#[test]
fn record_of_another_boot_is_discarded_and_one_without_meaning_stays() {
    let fake = Fake::new();
    fake.set("7.0.1").expect("set");
    let during = fake.values();
    let undone = undo(&fake, &fake.record(), "the next").expect("discarded");
    assert!(undone.record.is_none() && !fake.record().exists());
    assert_eq!(fake.values(), during);
    for damaged in [&b"{"[..], b"\xff"] {
        fs::write(fake.record(), damaged).expect("ours");
        let errors = [fake.undo().map(drop), fake.set("8.0.1").map(drop)].map(|it| it.expect_err("damaged").kind());
        assert_eq!(errors, [ErrorKind::InvalidData; 2]);
        assert_eq!(fs::read(fake.record()).expect("it stays"), damaged);
    }
    assert_eq!(fake.values(), during);
}

#[test]
fn run_whose_record_cannot_be_stored_changes_nothing() {
    let mut fake = Fake::new();
    let before = fake.values();
    fake.go_after(1, false);
    fake.set("7.0.1").expect_err("the disk is full");
    fake.restart();
    assert_eq!(fake.values(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The agent goes at any operation of setting, undoing or recovering, several times, and the last recovery ends.
    #[test]
    fn settings_are_back_after_any_crashes(
        crashes in prop::collection::vec((1_usize..16, any::<bool>(), any::<bool>()), 1..4),
    ) {
        let mut fake = Fake::new();
        let masks = |values: Vec<String>| -> Vec<String> {
            values.into_iter().map(|value| value.trim_start_matches('0').to_owned()).collect()
        };
        let before = masks(fake.values());
        for (run, (operations, last_counts, sets)) in crashes.into_iter().enumerate() {
            fake.go_after(operations, last_counts);
            // A crash in one of them leaves the rest to the next start of the agent.
            let _ = if sets { fake.set(&run.to_string()).map(drop) } else { fake.undo().map(drop) };
            let _ = fake.undo();
            fake.restart();
        }
        let undone = fake.undo().expect("nothing fails any more");
        prop_assert!(undone.not_restored.is_empty(), "{:?}", undone);
        prop_assert_eq!(masks(fake.values()), before);
        prop_assert!(!fake.record().exists());
    }
}

#[test]
fn settings_are_back_after_a_crash_at_each_operation() {
    for last_counts in [false, true] {
        let mut operations = 1;
        loop {
            let mut fake = Fake::new();
            fake.go_after(operations, last_counts);
            let _ = fake.set("7.0.1").and_then(|_| fake.undo());
            let was_gone = fake.restart();
            assert!(fake.undo().expect("no operation fails now").not_restored.is_empty());
            let values = fake.values().into_iter().map(|value| value.trim_start_matches('0').to_owned());
            let original = TREE.map(|(path, content)| match path.ends_with("enabled") {
                true => "madvise",
                false => content.trim().trim_start_matches('0'),
            });
            assert!(values.eq(original), "after {operations} operations: {:?}", fake.values());
            if !was_gone {
                // Two records, seven files and a unit forth and back, and the removal of the record.
                assert_eq!(operations, 20);
                break;
            }
            operations += 1;
        }
    }
}

//! A room of machines. With power, they boot and run an agent; without power, all their processes are killed.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hostler_client::{Client, ClientError, Endpoint, RetryLimits};
use hostler_model::{JobId, JobState};
use hostler_proto::api::JobSummary;
use hostler_testkit::{Daemon, Host, Network, wait_until};
use tokio::runtime::Runtime;

use crate::bmcs::{Bmcs, Fault};
use crate::timeline::Timeline;

const BOOT: Duration = Duration::from_millis(700);

/// Poll interval for the controllers' power states. An emulator in Python answers each machine.
const FOLLOW: Duration = Duration::from_millis(400);

/// Poll interval for the head's answers.
const ASK: Duration = Duration::from_millis(200);

/// Short times, so that the test takes minutes. A boot takes about five seconds, and longer on a busy machine.
const POLICY: &str = "idle = '1500ms'\nmin_up = '0s'\nwatch = '700ms'\npoll = '2s'\nboot_timeout = '25s'\nstop_timeout = '20s'\n\
                      again = '6s'\ntries = 2\nretry = '2s'\n";

/// The job: logs its start and end on its machine, waits for its gate, and writes a result.
const WORK: &str = "set -e\nme=$HOSTLER_JOB_ID.$HOSTLER_ATTEMPT\necho begin $me >> /home/op/ran\n\
                    until [ -e /home/op/$(cat gate) ]; do sleep 0.2; done\n\
                    echo $me > result\necho end $me >> /home/op/ran\n";

pub(crate) struct Room {
    pub(crate) timeline: Arc<Timeline>,
    head: Arc<Head>,
    bmcs: Arc<dyn Bmcs>,
    machines: BTreeMap<String, Arc<Machine>>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    // Last: the daemons must end before their hosts.
    _network: Network,
}

struct Head {
    host: Arc<Host>,
    daemon: Mutex<Option<Daemon>>,
    /// Asks the head directly, since processes for all these questions would take most of the machine's time.
    client: Client,
    runtime: Runtime,
}

/// The power supply of a machine.
struct Machine {
    host: Mutex<Host>,
    starts: AtomicU32,
    /// Whether the agent fails to start.
    is_stuck: AtomicBool,
    /// Whether the power button was pressed, possibly while jobs ran.
    was_pressed: AtomicBool,
}

impl Room {
    /// Starts six machines that are on, and a head without `power.toml`.
    pub(crate) fn new(name: &'static str, start: impl FnOnce(Host, Arc<Host>, &[String]) -> Arc<dyn Bmcs>) -> Self {
        let network = Network::new(env!("CARGO_BIN_EXE_hostler"));
        let (host, daemon) = network.head();
        let host = Arc::new(host);
        let names: Vec<String> = (1..=6).map(|number| format!("r{number}")).collect();
        let bmcs = start(network.host("bmcs"), Arc::clone(&host), &names);
        let join = |name: &String| {
            let mut machine = network.host(name);
            machine.join(&host);
            machine.power_off();
            let [is_stuck, was_pressed] = [(); 2].map(|()| AtomicBool::new(false));
            (
                name.clone(),
                Arc::new(Machine { host: Mutex::new(machine), starts: AtomicU32::new(0), is_stuck, was_pressed }),
            )
        };
        let machines = names.iter().map(join).collect();
        let socket = Endpoint::Unix(host.path("/run/hostler/head.sock"));
        let client = Client::new(socket).with_retry_limits(RetryLimits::WATCH);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let head = Arc::new(Head { host, daemon: Mutex::new(Some(daemon)), client, runtime });
        let (timeline, is_over) = (Arc::new(Timeline::new(name)), Arc::default());
        let mut room = Self { timeline, head, bmcs, machines, is_over, threads: Vec::new(), _network: network };
        room.follow();
        names.iter().for_each(|name| room.bmcs.press(name, true));
        room.wait("all machines are up", 90, || are_all(&room.nodes(), "up", room.machines.len()));
        room
    }

    /// Lets the head switch the machines. The first machine is the cheapest.
    pub(crate) fn hand_over(&mut self) {
        let mut text = POLICY.to_owned();
        for (name, busy) in self.machines.keys().zip(1_u32..) {
            let table = self.bmcs.table(name);
            text += &format!(
                "[nodes.{name}]\ncontroller = {table}\nwatts = {{ off = 5, idle = 50, busy = {} }}\nboot = '10s'\n",
                100 + 10 * busy
            );
        }
        self.head.host.write("/etc/hostler/power.toml", text);
        self.timeline.tell("the head is given power.toml");
        self.watch();
    }

    /// Submits a folder with a script that uses one CPU until its gate opens.
    pub(crate) fn submit(&self, gate: &str, more: &[&str]) -> String {
        let host = &self.head.host;
        host.write("/home/op/p/main.sh", WORK);
        host.write("/home/op/p/gate", gate);
        let job = self.ok(&[&["submit", "/home/op/p", "main.sh", "-c", "1", "-m", "16M"], more].concat());
        self.timeline.tell(format!("job {job} is submitted: one CPU until gate {gate} is opened"));
        job
    }

    /// Waits until the jobs have completed, each once, and their results are fetched.
    pub(crate) fn all_done(&self, jobs: &[String]) {
        for job in jobs {
            self.wait(&format!("job {job} to end"), 150, || {
                let state = self.job(job).state;
                let is_well = matches!(state, JobState::Completed) || !state.is_ended();
                assert!(is_well, "job {job} {state}");
                state == JobState::Completed
            });
            let JobSummary { nodes, attempt, .. } = self.job(job);
            let node = &nodes[0];
            self.timeline.tell(format!("job {job} has ended on {node}"));
            self.ok(&["fetch", job, "--to", "/home/op/home"]);
            let result = self.head.host.read(&format!("/home/op/home/{job}/result"));
            assert_eq!(result.trim(), format!("{job}.{attempt}"));
            let ends = |machine: &Machine| {
                machine.ran().lines().filter(|line| line.starts_with(&format!("end {job}."))).count()
            };
            assert_eq!(self.machines.values().map(|machine| ends(machine)).sum::<usize>(), 1, "job {job} ran once");
        }
    }

    /// Opens a gate for all present and later jobs.
    pub(crate) fn open(&self, gate: &str) {
        self.timeline.tell(format!("gate {gate} is opened"));
        self.machines.values().for_each(|machine| lock(&machine.host).write(&format!("/home/op/{gate}"), ""));
    }

    /// Waits until all jobs run; returns their nodes.
    pub(crate) fn all_run(&self, jobs: &[String]) -> Vec<String> {
        let mut nodes = Vec::new();
        for job in jobs {
            self.wait(&format!("job {job} to run"), 200, || {
                let job = self.job(job);
                let runs = job.state == JobState::Running;
                nodes.extend(job.nodes.iter().filter(|_| runs).map(ToString::to_string));
                runs
            });
        }
        nodes
    }

    pub(crate) fn job(&self, job: &str) -> JobSummary {
        let id: JobId = job.parse().expect("a job id");
        self.head.ask(|client| client.job(id, 0)).summary
    }

    /// Waits until all machines are off, both for the head and in fact. Returns how often each was switched on since
    /// the last call.
    pub(crate) fn all_go_off(&self) -> BTreeMap<&str, u32> {
        self.wait("all machines to go off", 150, || {
            are_all(&self.power(), "off", self.machines.len())
                && self.machines.values().all(|it| !lock(&it.host).is_on())
        });
        let starts =
            self.machines.iter().map(|(name, it)| (name.as_str(), it.starts.swap(0, Ordering::Relaxed))).collect();
        self.timeline.tell(format!("all machines are off; they were switched on so often: {starts:?}"));
        starts
    }

    /// The power states according to the head.
    pub(crate) fn power(&self) -> BTreeMap<String, String> {
        self.head.power().into_iter().map(|(name, (state, _))| (name, state)).collect()
    }

    pub(crate) fn spoil(&self, machine: &str, fault: Fault) -> bool {
        let is_possible = self.bmcs.spoil(machine, fault);
        if is_possible {
            self.timeline.tell(format!("the controller of {machine} is spoilt: {fault:?}"));
        }
        is_possible
    }

    pub(crate) fn mend(&self, machine: &str) {
        self.bmcs.mend(machine);
        self.timeline.tell(format!("the controller of {machine} is mended"));
    }

    /// Presses the power button of a machine.
    pub(crate) fn press(&self, machine: &str, on: bool) {
        self.timeline
            .tell(format!("somebody presses the button of {machine}: it is to be {}", if on { "on" } else { "off" }));
        let was_pressed = &self.machines[machine].was_pressed;
        was_pressed.store(!on, Ordering::Relaxed);
        self.bmcs.press(machine, on);
        // An order of the head that was still to be executed can undo it at once; then press again.
        self.wait("the machine to follow its button", 60, || {
            let follows = !was_pressed.load(Ordering::Relaxed);
            if !follows {
                self.bmcs.press(machine, on);
            }
            follows
        });
    }

    /// Sets whether a machine's agent fails to start.
    pub(crate) fn stick(&self, machine: &str, is_stuck: bool) {
        let how = if is_stuck { "does not start any more" } else { "can start again" };
        self.timeline.tell(format!("the agent of {machine} {how}"));
        self.machines[machine].is_stuck.store(is_stuck, Ordering::Relaxed);
    }

    /// Kills and restarts the head `times` times, at random moments some seconds apart, while the test continues.
    pub(crate) fn kill_the_head(&self, times: u32) -> JoinHandle<()> {
        let (head, timeline) = (Arc::clone(&self.head), Arc::clone(&self.timeline));
        std::thread::spawn(move || {
            for time in 1..=times {
                let random = RandomState::new().hash_one(time) % 5_000;
                std::thread::sleep(Duration::from_millis(1_500 + random));
                let mut daemon = lock(&head.daemon);
                if let Some(daemon) = daemon.take() {
                    daemon.kill_9();
                }
                timeline.tell("the head is killed and started again");
                *daemon = Some(head.host.daemon("head", &["hostler", "head", "run"]));
            }
        })
    }

    /// Waits for a condition; a timeout names `what`.
    pub(crate) fn wait(&self, what: &str, seconds: u64, mut is_so: impl FnMut() -> bool) {
        wait_until(what, seconds, || {
            std::thread::sleep(ASK);
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a machine is out of order");
            is_so().then_some(())
        });
    }

    fn ok(&self, arguments: &[&str]) -> String {
        self.head.host.ok(&[&["hostler"], arguments].concat())
    }

    fn nodes(&self) -> BTreeMap<String, String> {
        let nodes = self.head.ask(Client::nodes);
        nodes.into_iter().map(|node| (node.name.to_string(), node.state.as_str().to_owned())).collect()
    }

    /// Powers the machines on and off as their controllers say.
    fn follow(&mut self) {
        for (name, machine) in self.machines.clone() {
            let (bmcs, timeline, is_over) =
                (Arc::clone(&self.bmcs), Arc::clone(&self.timeline), Arc::clone(&self.is_over));
            self.threads.push(std::thread::spawn(move || {
                let mut mains = Mains { name, machine, timeline, booting: None };
                while !is_over.load(Ordering::Relaxed) {
                    mains.follow(bmcs.is_on(&mains.name));
                    std::thread::sleep(FOLLOW);
                }
            }));
        }
    }

    /// Logs the head's view to the timeline.
    fn watch(&mut self) {
        let (head, timeline, is_over) = (Arc::clone(&self.head), Arc::clone(&self.timeline), Arc::clone(&self.is_over));
        self.threads.push(std::thread::spawn(move || {
            let mut known = BTreeMap::new();
            while !is_over.load(Ordering::Relaxed) {
                for (name, (state, why)) in head.power() {
                    let is_new = known.get(&name) != Some(&(state.clone(), why.clone()));
                    if is_new {
                        timeline.tell(format!("  the head: {name} is {state}: {why}"));
                        known.insert(name, (state, why));
                    }
                }
                std::thread::sleep(ASK);
            }
        }));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.timeline.show();
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let outcome = thread.join();
            assert!(outcome.is_ok() || std::thread::panicking(), "the room itself is out of order");
        }
    }
}

impl Head {
    /// The answer to a question. While the head restarts, it is asked again.
    fn ask<'a, T, F: Future<Output = Result<T, ClientError>> + 'a>(
        &'a self,
        question: impl FnOnce(&'a Client) -> F,
    ) -> T {
        self.runtime
            .block_on(question(&self.client))
            .unwrap_or_else(|error| panic!("the head does not answer: {error}"))
    }

    /// Power state and reason of each node.
    fn power(&self) -> BTreeMap<String, (String, String)> {
        let nodes = self.ask(Client::energy).nodes;
        nodes
            .into_iter()
            .map(|(name, power)| (name.to_string(), (power.state.as_str().to_owned(), power.why)))
            .collect()
    }
}

impl Machine {
    /// The log of the jobs on the machine.
    fn ran(&self) -> String {
        lock(&self.host).read("/home/op/ran")
    }
}

/// Makes a machine follow its controller.
struct Mains {
    name: String,
    machine: Arc<Machine>,
    timeline: Arc<Timeline>,
    /// When it got power, while its agent is not running.
    booting: Option<Instant>,
}

impl Mains {
    fn follow(&mut self, has_power: bool) {
        let mut host = lock(&self.machine.host);
        if has_power && !host.is_on() {
            self.timeline.tell(format!("{} has power", self.name));
            self.machine.starts.fetch_add(1, Ordering::Relaxed);
            host.power_on();
            self.booting = Some(Instant::now());
        }
        if !has_power && host.is_on() {
            let ran = host.read("/home/op/ran");
            let count = |word: &str| ran.lines().filter(|line| line.starts_with(word)).count();
            // Jobs that were interrupted earlier have no end in the log.
            let cut_off = ran.lines().filter(|line| line.starts_with("cut")).count();
            let running = count("begin").saturating_sub(count("end") + cut_off);
            let was_pressed = self.machine.was_pressed.swap(false, Ordering::Relaxed);
            self.timeline.tell(format!("{} has no power any more; {running} jobs ran there", self.name));
            assert!(running == 0 || was_pressed, "{} was switched off while a job ran there: {ran}", self.name);
            host.power_off();
            host.write("/home/op/ran", format!("{ran}{}", "cut\n".repeat(running)));
            self.booting = None;
        }
        let has_booted = self.booting.is_some_and(|since| since.elapsed() >= BOOT);
        if has_booted && !self.machine.is_stuck.load(Ordering::Relaxed) {
            self.booting = None;
            self.timeline.tell(format!("{} has booted; its agent starts", self.name));
            let _: Daemon =
                host.daemon("agent", &["hostler", "agent", "run", "--root-jobs", "--shared-machine", "--cpus", "0-1"]);
        }
    }
}

/// Whether all `count` machines are known and in this state.
fn are_all(states: &BTreeMap<String, String>, state: &str, count: usize) -> bool {
    states.len() == count && states.values().all(|it| it == state)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

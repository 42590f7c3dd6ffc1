//! The process manager's side of PMI, with which the processes of an MPI program find each other.
//!
//! Each process has a connection with the manager. It stores the addresses at which it can be reached, waits until all others
//! have done the same, and reads theirs. MPICH and its descendants speak version 1, Slurm's `libpmi2` and what loads it
//! version 2; both begin in the same way. Starting further processes (`MPI_Comm_spawn`) is not supported.

mod wire;

use std::collections::BTreeMap;

use self::wire::{Message, Version};

/// The variable with the number of the descriptor on which a process reaches its manager.
pub const DESCRIPTOR: &str = "PMI_FD";

/// All variables that belong to a manager.
pub const VARIABLES: [&str; 5] = [DESCRIPTOR, "PMI_JOBID", "PMI_RANK", "PMI_SIZE", "PMI_SPAWNED"];

/// Most bytes of keys and values that the processes of a program store: over a kilobyte for each of 50,000.
const MOST_STORED: usize = 64 << 20;

/// Most threads of a process that wait at the same time.
const MOST_WAITS: usize = 64;

/// The key under which every process finds which ranks share a node.
const MAPPING: &str = "PMI_process_mapping";

/// The manager of the processes of one program.
#[derive(Debug)]
pub struct Server {
    /// Name of the program's key space.
    name: String,
    /// The node of each rank, as a number.
    places: Vec<usize>,
    values: BTreeMap<String, String>,
    /// Bytes of all values that processes have stored.
    stored: usize,
    /// Values that belong to a node.
    node_values: BTreeMap<(usize, String), String>,
    processes: Vec<Process>,
}

#[derive(Debug, Clone, Default)]
struct Process {
    version: Version,
    received: Vec<u8>,
    /// The process has joined the program and has not left it.
    takes_part: bool,
    /// The process has ended, or said that it needs the others no more.
    has_left: bool,
    /// One wait for each thread that has asked.
    waits: Vec<Wait>,
}

/// What a process waits for, and the thread of the process that does.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wait {
    on: On,
    thread: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum On {
    /// That all processes have come as far.
    All,
    /// A value of the node.
    NodeValue(String),
}

/// What follows from a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Send these bytes to this rank.
    Send(usize, Vec<u8>),
    /// End the program, for this reason.
    Abort(String),
}

impl Server {
    /// A manager of processes at these nodes, by rank. `name` is unique among programs that may connect with each other.
    #[must_use]
    pub fn new(name: String, places: Vec<usize>) -> Self {
        let values = BTreeMap::from([(MAPPING.to_owned(), mapping(&places))]);
        let processes = vec![Process::default(); places.len()];
        Self { name, places, values, stored: 0, node_values: BTreeMap::new(), processes }
    }

    /// The variables with which the process of this rank finds its place, besides [`DESCRIPTOR`].
    #[must_use]
    pub fn variables(&self, rank: usize) -> [(&'static str, String); 4] {
        let [_, job, own_rank, size, spawned] = VARIABLES;
        [
            (job, self.name.clone()),
            (own_rank, rank.to_string()),
            (size, self.places.len().to_string()),
            (spawned, "0".to_owned()),
        ]
    }

    /// Receives bytes of a process.
    ///
    /// # Panics
    /// Panics if `rank` is not smaller than the number of processes.
    pub fn receive(&mut self, rank: usize, bytes: &[u8]) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.processes[rank].received.extend_from_slice(bytes);
        loop {
            let Process { received, version, .. } = &mut self.processes[rank];
            match Message::take(received, *version) {
                Ok(Some(message)) => self.follow(rank, &message, &mut effects),
                Ok(None) => return effects,
                Err(why) => {
                    received.clear();
                    effects.push(Effect::Abort(format!("task {rank} does not speak PMI: {why}")));
                    return effects;
                }
            }
        }
    }

    /// A process has ended. Returns why the program cannot go on, if others would wait for the process without end.
    pub fn ended(&mut self, rank: usize) -> Option<String> {
        let was_needed = std::mem::take(&mut self.processes[rank].takes_part);
        self.processes[rank].has_left = true;
        let is_missed = was_needed && self.processes.iter().any(|other| other.takes_part) || self.is_awaited();
        is_missed.then(|| format!("task {rank} ended without MPI_Finalize, and others would wait for it"))
    }

    /// Whether a process waits for all others.
    fn is_awaited(&self) -> bool {
        self.processes.iter().any(|process| process.waits.iter().any(|wait| wait.on == On::All))
    }

    fn follow(&mut self, rank: usize, message: &Message, effects: &mut Vec<Effect>) {
        let field = |name: &str| message.get(name).unwrap_or_default();
        if matches!(&*message.command, "put" | "kvs-put" | "info-putnodeattr") {
            self.stored += field("key").len() + field("value").len();
            if self.stored > MOST_STORED {
                return effects.push(Effect::Abort(format!("the tasks store more than {MOST_STORED} bytes")));
            }
        }
        let reply = match message.command.as_str() {
            "init" => {
                let version = if field("pmi_version") == "2" { Version::Two } else { Version::One };
                let (number, minor) = if version == Version::Two { ("2", "0") } else { ("1", "1") };
                self.processes[rank].takes_part = true;
                let reply = Message::new("response_to_init").with("pmi_version", number).with("pmi_subversion", minor);
                // Always a line; the messages after it have the form of the version.
                effects.push(Effect::Send(rank, reply.with("rc", "0").to_bytes(Version::One)));
                self.processes[rank].version = version;
                return;
            }
            "finalize" => {
                self.processes[rank].takes_part = false;
                self.processes[rank].has_left = true;
                if self.is_awaited() {
                    effects.push(Effect::Abort(format!("task {rank} called MPI_Finalize, and others wait for it")));
                }
                match self.processes[rank].version {
                    Version::One => Message::new("finalize_ack"),
                    Version::Two => done(message),
                }
            }
            "abort" => {
                let said = [message.get("msg"), message.get("error_str")].into_iter().flatten().next();
                let said = said.map(|said| format!(": {said}")).unwrap_or_default();
                return effects.push(Effect::Abort(format!("task {rank} aborted the program{said}")));
            }
            "barrier_in" | "kvs-fence" => return self.wait(rank, message, On::All, effects),

            "get_maxes" => {
                let reply = Message::new("maxes").with("kvsname_max", "256").with("keylen_max", "64");
                reply.with("vallen_max", "1024").with("rc", "0")
            }
            "get_appnum" => Message::new("appnum").with("appnum", "0").with("rc", "0"),
            "get_my_kvsname" => Message::new("my_kvsname").with("kvsname", &self.name).with("rc", "0"),
            "get_universe_size" => Message::new("universe_size").with("size", self.size()).with("rc", "0"),
            "put" => {
                self.values.insert(field("key").to_owned(), field("value").to_owned());
                Message::new("put_result").with("rc", "0").with("msg", "success")
            }
            "get" => match self.values.get(field("key")) {
                Some(value) => Message::new("get_result").with("rc", "0").with("value", value),
                None => Message::new("get_result").with("rc", "-1").with("value", "unknown"),
            },

            "fullinit" => response(message)
                .with("pmi-version", "2")
                .with("pmi-subversion", "0")
                .with("rank", rank.to_string())
                .with("size", self.size())
                .with("appnum", "0")
                .with("debugged", "FALSE")
                .with("pmiverbose", "FALSE")
                .with("rc", "0"),
            "job-getid" => response(message).with("jobid", &self.name).with("rc", "0"),
            "info-getjobattr" => {
                let size = self.size();
                let value = if field("key") == "universeSize" { Some(&size) } else { self.values.get(field("key")) };
                found(message, value.filter(|_| matches!(field("key"), MAPPING | "universeSize")))
            }
            "kvs-put" => {
                self.values.insert(field("key").to_owned(), field("value").to_owned());
                done(message)
            }
            "kvs-get" => found(message, self.values.get(field("key"))),
            "info-putnodeattr" => {
                let node = self.places[rank];
                let key = field("key").to_owned();
                self.node_values.insert((node, key.clone()), field("value").to_owned());
                self.answer(&On::NodeValue(key), |other| other == node, effects);
                done(message)
            }
            "info-getnodeattr" => match self.node_values.get(&(self.places[rank], field("key").to_owned())) {
                None if field("wait") == "TRUE" => {
                    return self.wait(rank, message, On::NodeValue(field("key").to_owned()), effects);
                }
                value => found(message, value),
            },
            _ => unsupported(message, self.processes[rank].version),
        };
        effects.push(self.send(rank, &reply));
    }

    /// Answers a process later.
    fn wait(&mut self, rank: usize, message: &Message, on: On, effects: &mut Vec<Effect>) {
        let is_for_all = on == On::All;
        let thread = message.get(THREAD).map(str::to_owned);
        self.processes[rank].waits.push(Wait { on, thread });
        if self.processes[rank].waits.len() > MOST_WAITS {
            return effects.push(Effect::Abort(format!("task {rank} waits in more than {MOST_WAITS} threads")));
        }
        if is_for_all && let Some(gone) = self.processes.iter().position(|process| process.has_left) {
            return effects.push(Effect::Abort(format!("task {rank} waits for task {gone}, which has ended")));
        }
        let all_wait = || self.processes.iter().all(|process| process.waits.iter().any(|wait| wait.on == On::All));
        if is_for_all && all_wait() {
            self.answer(&On::All, |_| true, effects);
        }
    }

    /// Answers the processes at these nodes that have waited for this.
    fn answer(&mut self, what: &On, is_at: impl Fn(usize) -> bool, effects: &mut Vec<Effect>) {
        for rank in 0..self.processes.len() {
            if !is_at(self.places[rank]) {
                continue;
            }
            let Process { waits, version, .. } = &mut self.processes[rank];
            let version = *version;
            let (over, rest): (Vec<Wait>, Vec<Wait>) =
                std::mem::take(waits).into_iter().partition(|wait| wait.on == *what);
            *waits = rest;
            for Wait { thread, .. } in over {
                let reply = match (what, version) {
                    (On::All, Version::One) => Message::new("barrier_out").with("rc", "0"),
                    (On::All, Version::Two) => to_thread("kvs-fence", thread.as_deref()).with("rc", "0"),
                    (On::NodeValue(key), _) => {
                        let value = self.node_values.get(&(self.places[rank], key.clone()));
                        with_value(to_thread("info-getnodeattr", thread.as_deref()), value)
                    }
                };
                effects.push(self.send(rank, &reply));
            }
        }
    }

    fn send(&self, rank: usize, message: &Message) -> Effect {
        Effect::Send(rank, message.to_bytes(self.processes[rank].version))
    }

    fn size(&self) -> String {
        self.places.len().to_string()
    }
}

/// The field of a request of version 2 that its response repeats: which thread of the process has asked.
const THREAD: &str = "thrid";

fn response(to: &Message) -> Message {
    to_thread(&to.command, to.get(THREAD))
}

fn to_thread(command: &str, thread: Option<&str>) -> Message {
    let reply = Message::new(format!("{command}-response"));
    thread.into_iter().fold(reply, |reply, thread| reply.with(THREAD, thread))
}

fn done(request: &Message) -> Message {
    response(request).with("rc", "0")
}

fn found(request: &Message, value: Option<&String>) -> Message {
    with_value(response(request), value)
}

fn with_value(reply: Message, value: Option<&String>) -> Message {
    match value {
        Some(value) => reply.with("found", "TRUE").with("value", value).with("rc", "0"),
        None => reply.with("found", "FALSE").with("rc", "0"),
    }
}

/// The response to a request that this manager does not fulfil.
fn unsupported(request: &Message, version: Version) -> Message {
    let why = "not supported by this process manager";
    match version {
        Version::One => {
            let command = request.command.split_once('_').map_or(&*request.command, |(verb, _name)| verb);
            Message::new(format!("{command}_result")).with("rc", "-1").with("msg", why.replace(' ', "_"))
        }
        Version::Two => response(request).with("rc", "1").with("errmsg", why),
    }
}

/// Which ranks share a node, as MPI libraries read it: blocks of the first node, the number of nodes, and ranks on each.
fn mapping(places: &[usize]) -> String {
    let mut blocks: Vec<(usize, usize, usize)> = Vec::new();
    for run in places.chunk_by(|a, b| a == b) {
        match blocks.last_mut() {
            Some((first, nodes, ranks)) if *first + *nodes == run[0] && *ranks == run.len() => *nodes += 1,
            _ => blocks.push((run[0], 1, run.len())),
        }
    }
    let blocks: String = blocks.iter().map(|(first, nodes, ranks)| format!(",({first},{nodes},{ranks})")).collect();
    format!("(vector{blocks})")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a line, and returns what the ranks get.
    fn line(server: &mut Server, rank: usize, text: &str) -> Vec<(usize, String)> {
        texts(server.receive(rank, format!("{text}\n").as_bytes()))
    }

    /// Sends a message of version 2, and returns what the ranks get, without lengths.
    fn fields(server: &mut Server, rank: usize, text: &str) -> Vec<(usize, String)> {
        let sent = texts(server.receive(rank, format!("{:6}{text}", text.len()).as_bytes()));
        sent.into_iter().map(|(rank, text)| (rank, text[6..].to_owned())).collect()
    }

    fn texts(effects: Vec<Effect>) -> Vec<(usize, String)> {
        let text = |effect| match effect {
            Effect::Send(rank, bytes) => (rank, String::from_utf8(bytes).expect("text").trim_end().to_owned()),
            Effect::Abort(why) => panic!("aborted: {why}"),
        };
        effects.into_iter().map(text).collect()
    }

    fn to(rank: usize, text: &str) -> Vec<(usize, String)> {
        vec![(rank, text.to_owned())]
    }

    #[test]
    fn processes_of_version_1_exchange_values() {
        let mut server = Server::new("7.0".into(), vec![0, 0]);
        for rank in 0..2 {
            let hello = to(rank, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
            assert_eq!(line(&mut server, rank, "cmd=init pmi_version=1 pmi_subversion=1"), hello);
        }
        assert_eq!(
            line(&mut server, 0, "cmd=get_maxes"),
            to(0, "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0")
        );
        assert_eq!(line(&mut server, 0, "cmd=get_my_kvsname"), to(0, "cmd=my_kvsname kvsname=7.0 rc=0"));
        let stored = to(1, "cmd=put_result rc=0 msg=success");
        assert_eq!(line(&mut server, 1, "cmd=put kvsname=7.0 key=P1 value=tcp://10.0.0.2:99 $b"), stored);
        assert_eq!(line(&mut server, 1, "cmd=barrier_in"), []);
        let out = "cmd=barrier_out rc=0".to_owned();
        assert_eq!(line(&mut server, 0, "cmd=barrier_in"), [(0, out.clone()), (1, out)]);
        assert_eq!(
            line(&mut server, 0, "cmd=get kvsname=7.0 key=P1"),
            to(0, "cmd=get_result rc=0 value=tcp://10.0.0.2:99 $b")
        );
        assert_eq!(line(&mut server, 0, "cmd=get kvsname=7.0 key=P2"), to(0, "cmd=get_result rc=-1 value=unknown"));
        let mapping = to(0, "cmd=get_result rc=0 value=(vector,(0,1,2))");
        assert_eq!(line(&mut server, 0, "cmd=get kvsname=7.0 key=PMI_process_mapping"), mapping);
        let refused = to(0, "cmd=spawn_result rc=-1 msg=not_supported_by_this_process_manager");
        assert_eq!(line(&mut server, 0, "mcmd=spawn\nnprocs=2\nendcmd"), refused);
        assert_eq!(line(&mut server, 0, "cmd=finalize"), to(0, "cmd=finalize_ack"));
        assert_eq!(server.ended(0), None, "it has left the program");
    }

    #[test]
    fn processes_of_version_2_exchange_values() {
        let mut server = Server::new("7.0".into(), vec![0, 1, 1]);
        for rank in 0..3 {
            let hello = to(rank, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0");
            assert_eq!(line(&mut server, rank, "cmd=init pmi_version=2 pmi_subversion=0"), hello);
        }
        let joined = "cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=2;size=3;appnum=0;debugged=FALSE;\
            pmiverbose=FALSE;rc=0;";
        assert_eq!(fields(&mut server, 2, "cmd=fullinit;pmijobid=7.0;pmirank=2;threaded=FALSE;"), to(2, joined));
        let size = to(0, "cmd=info-getjobattr-response;found=TRUE;value=3;rc=0;");
        assert_eq!(fields(&mut server, 0, "cmd=info-getjobattr;key=universeSize;"), size);
        let unknown = to(0, "cmd=info-getjobattr-response;found=FALSE;rc=0;");
        assert_eq!(fields(&mut server, 0, "cmd=info-getjobattr;key=other;"), unknown);
        assert_eq!(fields(&mut server, 0, "cmd=kvs-put;key=a;value=x;;y;"), to(0, "cmd=kvs-put-response;rc=0;"));
        assert_eq!(fields(&mut server, 0, "cmd=kvs-fence;thrid=5;"), []);
        // A thread of a process that waits goes on.
        let value = to(0, "cmd=kvs-get-response;thrid=6;found=TRUE;value=x;;y;rc=0;");
        assert_eq!(fields(&mut server, 0, "cmd=kvs-get;jobid=7.0;srcid=0;key=a;thrid=6;"), value);
        assert_eq!(fields(&mut server, 1, "cmd=kvs-fence;"), []);
        let out = |rank, thread: &str| (rank, format!("cmd=kvs-fence-response;{thread}rc=0;"));
        assert_eq!(fields(&mut server, 2, "cmd=kvs-fence;"), [out(0, "thrid=5;"), out(1, ""), out(2, "")]);
        let refused = to(0, "cmd=spawn-response;rc=1;errmsg=not supported by this process manager;");
        assert_eq!(fields(&mut server, 0, "cmd=spawn;ncmds=1;"), refused);
        assert_eq!(fields(&mut server, 0, "cmd=finalize;"), to(0, "cmd=finalize-response;rc=0;"));
    }

    #[test]
    fn value_of_a_node_is_awaited_on_this_node_only() {
        let mut server = Server::new("7.0".into(), vec![0, 1, 1]);
        for rank in 0..3 {
            line(&mut server, rank, "cmd=init pmi_version=2 pmi_subversion=0");
        }
        assert_eq!(fields(&mut server, 0, "cmd=info-getnodeattr;key=shm;wait=TRUE;"), []);
        assert_eq!(fields(&mut server, 1, "cmd=info-getnodeattr;key=shm;wait=TRUE;thrid=1;"), []);
        let none = to(2, "cmd=info-getnodeattr-response;found=FALSE;rc=0;");
        assert_eq!(fields(&mut server, 2, "cmd=info-getnodeattr;key=shm;wait=FALSE;"), none);
        let value = (1, "cmd=info-getnodeattr-response;thrid=1;found=TRUE;value=/dev/shm/a;rc=0;".to_owned());
        let done = (2, "cmd=info-putnodeattr-response;rc=0;".to_owned());
        assert_eq!(fields(&mut server, 2, "cmd=info-putnodeattr;key=shm;value=/dev/shm/a;"), [value, done]);
    }

    #[test]
    fn program_that_cannot_go_on_is_aborted() {
        let mut server = Server::new("7.0".into(), vec![0, 0]);
        line(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1");
        line(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(
            server.receive(1, b"cmd=abort exitcode=3\n"),
            [Effect::Abort("task 1 aborted the program".to_owned())]
        );
        let garbled = Effect::Abort("task 0 does not speak PMI: a message has no command".to_owned());
        assert_eq!(server.receive(0, b"hello\n"), [garbled]);
        assert!(server.ended(1).is_some(), "rank 0 would wait for it");
        assert_eq!(server.ended(0), None, "nobody is left to wait");
    }

    #[test]
    fn program_is_aborted_if_a_process_waits_for_one_that_has_ended() {
        let abort = |effects: Vec<Effect>| matches!(effects[..], [Effect::Abort(_), ..]);
        for waits_first in [true, false] {
            let mut server = Server::new("7.0".into(), vec![0, 0]);
            line(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1");
            if waits_first {
                assert_eq!(line(&mut server, 0, "cmd=barrier_in"), []);
                // The other one ends before it has joined.
                assert!(server.ended(1).is_some());
            } else {
                assert_eq!(server.ended(1), None, "nobody waits yet");
                assert!(abort(server.receive(0, b"cmd=barrier_in\n")));
            }
        }
        let mut server = Server::new("7.0".into(), vec![0, 0]);
        line(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1");
        line(&mut server, 1, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(line(&mut server, 0, "cmd=barrier_in"), []);
        assert!(abort(server.receive(1, b"cmd=finalize\n")));
    }

    #[test]
    fn what_processes_store_and_await_is_bounded() {
        let mut server = Server::new("7.0".into(), vec![0, 0]);
        line(&mut server, 0, "cmd=init pmi_version=2 pmi_subversion=0");
        let put = format!("cmd=kvs-put;key=a;value={};", "x".repeat(60_000));
        let put = format!("{:6}{put}", put.len());
        let last = (0..2_000)
            .map(|_| server.receive(0, put.as_bytes()))
            .find(|effects| matches!(effects[..], [Effect::Abort(_)]));
        assert!(last.is_some(), "120 MB are too many");
        let get = "cmd=info-getnodeattr;key=shm;wait=TRUE;";
        let get = format!("{:6}{get}", get.len()).repeat(MOST_WAITS + 1);
        assert!(matches!(server.receive(0, get.as_bytes())[..], [Effect::Abort(_)]));
    }

    #[test]
    fn mapping_names_the_ranks_of_each_node() {
        for (places, text) in [
            (&[0, 0, 1, 1][..], "(vector,(0,2,2))"),
            (&[0, 0, 1], "(vector,(0,1,2),(1,1,1))"),
            (&[0, 1, 0, 1], "(vector,(0,2,1),(0,2,1))"),
            (&[2], "(vector,(2,1,1))"),
        ] {
            assert_eq!(mapping(places), text);
        }
    }
}

//! The plain-text load ports: one returns the table of all nodes, the other the best node.
//!
//! The ports ignore all input, so there is nothing to parse. A separate thread serves them, with a limited number of
//! connections and a short timeout for each. Clients therefore cannot delay the agent, or other clients for long.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Error};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use hostler_gossip::{Calls, Load, Needs, Node, Policy, Presence, choose, explain};
use hostler_listen::{Admission, Limits};
use hostler_model::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Addresses of the load ports; absent ports are not opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusPorts {
    pub table: Option<SocketAddr>,
    pub best: Option<SocketAddr>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    Table,
    Best,
}

/// Provider of the load data that the ports serve.
pub(crate) trait Source: Send + Sync + 'static {
    fn answer(&self, question: Question) -> impl Future<Output = String> + Send;
}

/// The connections of a port. A further one replaces the oldest.
const LIMITS: Limits = Limits { strangers: 128, time: ANSWER_TIME.saturating_add(LINGER_TIME), total: 0 };

/// Timeout for a client to read the answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Timeout for a client to close the connection after the answer.
const LINGER_TIME: Duration = Duration::from_secs(1);

/// Ports that are open but not served yet.
pub(crate) struct Ports {
    listeners: Vec<(StdListener, Question)>,
}

impl Ports {
    /// Opens the configured ports.
    ///
    /// # Errors
    /// If a port cannot be opened.
    pub(crate) fn open(at: StatusPorts) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for (address, question) in [(at.table, Question::Table), (at.best, Question::Best)] {
            let Some(address) = address else { continue };
            let what = if question == Question::Table { "for the table of loads" } else { "for the best node" };
            let listener = StdListener::bind(address).map_err(|error| {
                let hint = "choose another port, or stop the process that uses it (find it with `ss -ltnp`)";
                Error::new(error.kind(), format!("cannot listen on {address} {what}: {error}; {hint}"))
            })?;
            listener.set_nonblocking(true)?;
            tracing::info!(at = %listener.local_addr()?, "serving plain text {what}");
            listeners.push((listener, question));
        }
        Ok(Self { listeners })
    }

    pub(crate) fn are_none(&self) -> bool {
        self.listeners.is_empty()
    }

    /// Serves the ports on a thread until the process ends.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(self, source: Arc<impl Source>) -> io::Result<()> {
        if self.are_none() {
            return Ok(());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listen = move || {
            runtime.block_on(async {
                for (listener, question) in self.listeners {
                    match TcpListener::from_std(listener) {
                        Ok(listener) => drop(tokio::spawn(serve(listener, question, Arc::clone(&source)))),
                        Err(error) => tracing::warn!(%error, "cannot serve a load port"),
                    }
                }
                std::future::pending::<()>().await;
            });
        };
        std::thread::Builder::new().name("ports".to_owned()).spawn(listen)?;
        Ok(())
    }
}

async fn serve(mut listener: TcpListener, question: Question, source: Arc<impl Source>) {
    let admission = Admission::<()>::new(LIMITS);
    loop {
        let (stream, place) = admission.accept(&mut listener).await;
        let source = Arc::clone(&source);
        tokio::spawn(async move { place.hold(tell(stream, question, source)).await });
    }
}

/// Answers one connection and closes it.
async fn tell(mut stream: TcpStream, question: Question, source: Arc<impl Source>) {
    let answer = async {
        let text = source.answer(question).await;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await
    };
    if !matches!(tokio::time::timeout(ANSWER_TIME, answer).await, Ok(Ok(()))) {
        return;
    }
    // Closing a socket with unread input could discard the answer.
    let mut rest = stream.take(64 << 10);
    let _ = tokio::time::timeout(LINGER_TIME, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// The table: one line per live node with known load, sorted by name.
pub(super) fn table(nodes: &[Node<'_>], policy: &Policy, calls: &Calls, now: Timestamp) -> String {
    let judged = explain(nodes.iter().copied(), &Needs::default(), policy, calls, now, 0);
    let scores: HashMap<_, _> = judged.candidates.into_iter().map(|judged| (judged.id, judged.score.total)).collect();
    let is_live = |node: &&Node<'_>| node.presence == Presence::Live;
    let mut live: Vec<_> = nodes.iter().filter(is_live).filter_map(|node| Some((node, node.load?))).collect();
    live.sort_by(|(a, _), (b, _)| a.member.name.cmp(&b.member.name));
    live.iter().map(|(node, load)| line(node, load, scores.get(&node.member.id).copied())).collect()
}

/// Returns the text for the port of the best node: one line, or an empty string if no node is suitable.
/// Counts one more command for the returned node.
pub(super) fn best(nodes: &[Node<'_>], policy: &Policy, calls: &mut Calls, now: Timestamp, random: u64) -> String {
    let first = choose(nodes.iter().copied(), &Needs::default(), policy, calls, now, random).into_iter().next();
    let Some(first) = first else { return String::new() };
    calls.send(first.id, now);
    let node = nodes.iter().find(|node| node.member.id == first.id);
    node.map_or_else(String::new, |node| line(node, &first.load, Some(first.score.total)))
}

/// Formats a line. New columns are only added at the end. Columns: name, load average, free memory in MiB, score, CPUs,
/// busy CPUs, memory in MiB, load weight, memory weight, and age of the data in seconds. The score of a node that is no
/// candidate is `-`.
fn line(node: &Node<'_>, load: &Load, score: Option<u64>) -> String {
    let hundredths = |count: u64| format!("{}.{:02}", count / 100, count % 100);
    let columns = [
        node.member.name.to_string(),
        hundredths(load.average.into()),
        load.available_memory_mib().to_string(),
        score.map_or_else(|| "-".to_owned(), |score| score.to_string()),
        load.cpus.to_string(),
        hundredths(load.busy()),
        load.memory_mib.to_string(),
        hundredths(load.load_weight.into()),
        hundredths(load.memory_weight.into()),
    ];
    let mut line = columns.join(" ");
    let age_ms = node.load_age_ms;
    writeln!(line, " {}.{}", age_ms / 1000, age_ms % 1000 / 100).expect("writing to a string never fails");
    line
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream as StdStream};
    use std::time::Instant;

    use hostler_gossip::{Member, MemberId, Version};

    use super::*;

    const NOW: Timestamp = Timestamp(5000);

    fn nowhere() -> SocketAddr {
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))
    }

    fn members(names: &[&str]) -> Vec<Member> {
        let member = |(id, name): (usize, &&str)| Member {
            id: MemberId(id as u32),
            name: name.parse().expect("a name"),
            address: nowhere(),
            features: Default::default(),
        };
        names.iter().enumerate().map(member).collect()
    }

    fn node<'a>(member: &'a Member, presence: Presence, load: Option<&'a Load>) -> Node<'a> {
        Node {
            member,
            presence,
            is_local: false,
            version: Version::default(),
            load,
            load_version: Version::default(),
            silent_ms: 0,
            load_age_ms: 1290,
        }
    }

    #[test]
    fn table_lists_live_nodes_with_known_load() {
        let members = members(&["zuse", "noether", "gone", "new", "full"]);
        let idle = Load { load_weight: 250, ..Load::idle(4, 4096, nowhere()) };
        let busy = Load { average: 175, recent: 203, free_memory_mib: 1024, ..Load::idle(2, 2048, nowhere()) };
        let closed = Load { accepts: false, ..idle };
        let nodes = [
            node(&members[0], Presence::Live, Some(&busy)),
            node(&members[1], Presence::Live, Some(&idle)),
            node(&members[2], Presence::Silent, Some(&idle)),
            node(&members[3], Presence::Live, None),
            node(&members[4], Presence::Live, Some(&closed)),
        ];
        let expected = "\
full 0.00 4096 - 4 0.00 4096 2.50 1.00 1.2
noether 0.00 4096 2655 4 0.00 4096 2.50 1.00 1.2
zuse 1.75 1024 1815 2 2.03 2048 1.00 1.00 1.2
";
        assert_eq!(table(&nodes, &Policy::default(), &Calls::default(), NOW), expected);
        let mut calls = Calls::default();
        let expected = "zuse 1.75 1024 1815 2 2.03 2048 1.00 1.00 1.2\n";
        assert_eq!(best(&nodes, &Policy::default(), &mut calls, NOW, 7), expected);
        assert_eq!(best(&nodes[2..], &Policy::default(), &mut calls, NOW, 7), "");
    }

    #[test]
    fn repeated_requests_for_the_best_node_are_spread() {
        let members = members(&["a", "b", "c", "d"]);
        let load = Load::idle(2, 2048, nowhere());
        let nodes: Vec<_> = members.iter().map(|member| node(member, Presence::Live, Some(&load))).collect();
        let mut calls = Calls::default();
        let mut named: BTreeMap<String, u32> = BTreeMap::new();
        for random in 0..20 {
            let line = best(&nodes, &Policy::default(), &mut calls, NOW, random);
            *named.entry(line.split(' ').next().expect("a name").to_owned()).or_default() += 1;
        }
        assert!(named.len() == 4 && named.values().all(|count| (4..=6).contains(count)), "{named:?}");
        let later = NOW.plus_ms(Policy::default().call_ms.into());
        let first = best(&nodes, &Policy::default(), &mut calls, later, 1);
        assert!(first.contains(" 1125 "), "not all nodes are idle: {first}");
    }

    /// A source with a fixed answer.
    struct Says(String);

    impl Source for Says {
        async fn answer(&self, _: Question) -> String {
            self.0.clone()
        }
    }

    /// Opens two ports that answer with `text`.
    fn serving(text: &str) -> [SocketAddr; 2] {
        let any = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let ports = Ports::open(StatusPorts { table: any, best: any }).expect("two ports are free");
        let addresses = [0, 1].map(|at: usize| ports.listeners[at].0.local_addr().expect("the socket listens"));
        ports.start(Arc::new(Says(text.to_owned()))).expect("the system has free threads");
        addresses
    }

    fn connect(address: SocketAddr) -> StdStream {
        let stream = StdStream::connect(address).expect("the socket listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        stream
    }

    fn read(mut stream: StdStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    #[test]
    fn ports_answer_and_close_each_connection() {
        for address in serving("n1 0.00\n") {
            assert_eq!(read(connect(address)), "n1 0.00\n");
            let mut talks = connect(address);
            talks.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("the socket is open");
            assert_eq!(read(talks), "n1 0.00\n");
        }
    }

    #[test]
    fn slow_and_idle_clients_do_not_block_others() {
        // Larger than the socket buffers, so that slow readers block the writer.
        let text = "n1 0.00\n".repeat(2 << 20);
        let [idle, _] = serving("n1 0.00\n");
        let [slow, _] = serving(&text);
        let waiting: Vec<_> = (0..100).map(|_| connect(slow)).collect();
        let silent: Vec<_> = (0..300).map(|_| connect(idle)).collect();
        let began = Instant::now();
        assert_eq!(read(connect(idle)), "n1 0.00\n");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        assert_eq!(read(connect(slow)).len(), text.len());
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        drop((waiting, silent));
    }

    #[test]
    fn port_in_use_is_an_error_with_a_hint() {
        let taken = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let at = StatusPorts { table: None, best: taken.local_addr().ok() };
        let error = Ports::open(at).err().expect("the port is in use").to_string();
        assert!(error.contains("for the best node") && error.contains("choose another port"), "{error}");
        assert!(Ports::open(StatusPorts::default()).expect("no port is configured").are_none());
    }
}

//! The audit log: who did what, and what happened to the cluster, as JSON lines in append-only files that only the head can read.
//!
//! Responses do not wait for the log. Entries go through a queue to a thread, which writes them in batches and syncs at
//! most once per second.
//!
//! A crash of the head loses only the entries in the queue, and a power failure the entries of the last second. The
//! event log still contains all changes. When the queue is full, requests wait, so that no entry is lost.
//!
//! A file that reaches its maximum size is rotated, and the oldest file is deleted. What users do to their own jobs has files
//! of its own, and the number of refused requests per minute in the log is limited: a flood of either would otherwise displace
//! what operators and admins did.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hostler_core::head::Now;
use hostler_model::{NodeName, WallTime};
use hostler_proto::users::{AuditEntry, AuditPage, FROM_CLUSTER};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Maximum number of entries that wait for the writing thread.
const QUEUE_LEN: usize = 8192;

/// Maximum number of entries per write.
const BATCH_LEN: usize = 1024;

/// Size at which a file is rotated. With [`OLD_FILES`], each of the two logs takes at most 256 MiB.
const FILE_BYTES: u64 = 64 << 20;
/// Number of rotated files that are kept.
const OLD_FILES: usize = 3;

/// Minimum time between two syncs of the audit log to disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Maximum number of refused requests that are logged per minute.
const REFUSALS_A_MINUTE: u32 = 600;

/// Outcome of an operation for the audit log. Handlers put it in the response's extensions.
#[derive(Debug, Clone)]
pub(crate) struct About(pub(crate) String);

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A refused request.
    Refused,
    /// An action of a user without a role.
    OfUser,
    /// An action of an operator, an admin or a node, or a login.
    Other,
}

/// Handle for writing to the log.
pub(crate) struct Audit {
    path: PathBuf,
    entries: mpsc::Sender<AuditEntry>,
    of_users: mpsc::Sender<AuditEntry>,
    refusals: Mutex<Refusals>,
}

/// Refused requests in the current minute.
struct Refusals {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Audit {
    /// Opens the log at `path`. Needs a tokio runtime.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let refusals = Mutex::new(Refusals { since: Instant::now(), written: 0, left_out: 0 });
        let (entries, of_users) = (keep(path.clone())?, keep(of_users(&path))?);
        Ok(Self { path, entries, of_users, refusals })
    }

    /// Where events of the cluster go.
    pub(crate) fn events(&self) -> Events {
        Events(Some(self.entries.clone()))
    }

    /// Logs a request. Refused ones are subject to a rate limit.
    pub(crate) async fn write(&self, mut entry: AuditEntry, kind: Kind) {
        if kind == Kind::Refused && !self.may_write(&mut entry) {
            return;
        }
        let log = if kind == Kind::OfUser { &self.of_users } else { &self.entries };
        // The thread runs as long as the process, so sending cannot fail.
        let _ = log.send(entry).await;
    }

    /// Returns whether one more refused request may be logged. The first entry after a gap states how many were
    /// omitted.
    fn may_write(&self, entry: &mut AuditEntry) -> bool {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.since.elapsed() >= Duration::from_secs(60) {
            let left_out = std::mem::take(&mut refusals.left_out);
            *refusals = Refusals { since: Instant::now(), written: 0, left_out: 0 };
            if left_out > 0 {
                entry.about = Some(format!("{left_out} refused requests before this one were not logged"));
            }
        }
        if refusals.written >= REFUSALS_A_MINUTE {
            refusals.left_out += 1;
            return false;
        }
        refusals.written += 1;
        true
    }

    /// The newest `limit` entries from `since` on, oldest first. Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn read(&self, since: Option<WallTime>, limit: usize) -> io::Result<AuditPage> {
        read(&self.path, since, limit)
    }
}

/// Writes events of the cluster to the log, from threads that must not wait.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<mpsc::Sender<AuditEntry>>);

impl Events {
    /// Logs what happened, to a node or to the whole cluster. If the queue is full, the head's own log says so.
    pub(crate) fn write(&self, now: Now, node: Option<NodeName>, what: String, about: Option<String>) {
        let entry = AuditEntry {
            at: now.wall,
            clock_ms: now.at.0,
            user: None,
            from: FROM_CLUSTER.to_owned(),
            uid: None,
            node,
            address: None,
            action: what,
            about,
            status: 0,
            error: None,
        };
        if let Some(entries) = &self.0
            && let Err(error) = entries.try_send(entry)
        {
            tracing::warn!(%error, "an event is missing in the audit log");
        }
    }
}

/// Starts the thread that writes to `path` and the files that it is rotated to.
fn keep(path: PathBuf) -> io::Result<mpsc::Sender<AuditEntry>> {
    let (entries, queue) = mpsc::channel(QUEUE_LEN);
    let log = Log::open(path, FILE_BYTES)?;
    let timers = Handle::current();
    std::thread::Builder::new().name("audit".into()).spawn(move || log.keep(queue, &timers))?;
    Ok(entries)
}

/// The log with the actions of users without a role.
fn of_users(path: &Path) -> PathBuf {
    path.with_added_extension("users")
}

/// The newest entries of both logs.
fn read(path: &Path, since: Option<WallTime>, limit: usize) -> io::Result<AuditPage> {
    let (others, users) = (read_one(path, since, limit)?, read_one(&of_users(path), since, limit)?);
    let mut entries = [others.entries, users.entries].concat();
    entries.sort_by_key(|entry| entry.at);
    let cut = others.cut || users.cut || entries.len() > limit;
    entries.drain(..entries.len().saturating_sub(limit));
    Ok(AuditPage { entries, cut })
}

fn read_one(path: &Path, since: Option<WallTime>, limit: usize) -> io::Result<AuditPage> {
    let mut entries = VecDeque::new();
    let mut cut = false;
    for file in (1..=OLD_FILES).rev().map(|number| old(path, number)).chain([path.to_owned()]) {
        let file = match File::open(file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in BufReader::new(file).split(b'\n') {
            // The last line may be incomplete, during a write or after a crash.
            let Ok(entry) = serde_json::from_slice::<AuditEntry>(&line?) else { continue };
            if since.is_some_and(|since| entry.at < since) {
                continue;
            }
            if entries.len() >= limit {
                entries.pop_front();
                cut = true;
            }
            entries.push_back(entry);
        }
    }
    Ok(AuditPage { entries: entries.into(), cut })
}

/// Path of a rotated file. A higher number means an older file.
fn old(path: &Path, number: usize) -> PathBuf {
    path.with_added_extension(number.to_string())
}

/// The writing thread's state.
struct Log {
    path: PathBuf,
    file: File,
    bytes: u64,
    most_bytes: u64,
    synced: Instant,
    /// Whether some written data is not synced yet.
    is_behind: bool,
    complained: bool,
}

impl Log {
    fn open(path: PathBuf, most_bytes: u64) -> io::Result<Self> {
        let file = open(&path)?;
        let bytes = file.metadata()?.len();
        let mut log =
            Self { path, file, bytes, most_bytes, synced: Instant::now(), is_behind: false, complained: false };
        // If a crash left an incomplete line, ends this line, so that the next entry gets its own line.
        if bytes > 0 {
            log.append(b"\n")?;
        }
        Ok(log)
    }

    /// Writes entries until all senders are dropped.
    fn keep(mut self, mut queue: mpsc::Receiver<AuditEntry>, timers: &Handle) {
        let mut batch = Vec::with_capacity(BATCH_LEN);
        loop {
            let next = queue.recv_many(&mut batch, BATCH_LEN);
            let came = if self.is_behind {
                let due = SYNC_EVERY.saturating_sub(self.synced.elapsed());
                timers.block_on(async { tokio::time::timeout(due, next).await.ok() })
            } else {
                Some(timers.block_on(next))
            };
            let mut text = Vec::new();
            for entry in batch.drain(..) {
                serde_json::to_writer(&mut text, &entry).expect("API types are valid JSON");
                text.push(b'\n');
            }
            match self.write(&text) {
                Ok(()) if came == Some(0) => return,
                Ok(()) => self.complained = false,
                Err(error) if self.complained => tracing::debug!(%error, "cannot write the audit log"),
                Err(error) => {
                    self.complained = true;
                    tracing::error!(%error, path = %self.path.display(), "cannot write the audit log; new entries are lost");
                }
            }
        }
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.bytes > self.most_bytes {
            self.rotate()?;
        }
        self.append(text)?;
        if self.is_behind && self.synced.elapsed() >= SYNC_EVERY {
            self.file.sync_data()?;
            self.synced = Instant::now();
            self.is_behind = false;
        }
        Ok(())
    }

    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        if !text.is_empty() {
            self.file.write_all(text)?;
            self.bytes += text.len() as u64;
            self.is_behind = true;
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        for number in (1..=OLD_FILES).rev() {
            let newer = if number == 1 { self.path.clone() } else { old(&self.path, number - 1) };
            match fs::rename(newer, old(&self.path, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = open(&self.path)?;
        self.bytes = 0;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(at: i64) -> AuditEntry {
        AuditEntry {
            at: WallTime(at),
            clock_ms: 0,
            user: Some("ada".to_owned()),
            from: "socket".to_owned(),
            uid: Some(1000),
            node: None,
            address: None,
            action: "POST /jobs".to_owned(),
            about: None,
            status: 200,
            error: None,
        }
    }

    fn line(at: i64) -> Vec<u8> {
        let mut line = serde_json::to_vec(&entry(at)).expect("plain data");
        line.push(b'\n');
        line
    }

    #[test]
    fn full_file_is_rotated_and_the_oldest_deleted() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("audit.log");
        let mut log = Log::open(path.clone(), 1000).expect("writable");
        for at in 0..100 {
            log.write(&line(at)).expect("enough space");
        }
        let page = read(&path, None, 1000).expect("readable");
        assert!(page.entries.len() < 60 && page.entries.len() > 10, "{}", page.entries.len());
        assert_eq!(page.entries.last(), Some(&entry(99)));
        assert!(page.entries.is_sorted_by_key(|entry| entry.at));
        let page = read(&path, Some(WallTime(90)), 5).expect("readable");
        assert_eq!(page.entries.iter().map(|entry| entry.at.0).collect::<Vec<_>>(), [95, 96, 97, 98, 99]);
        assert!(page.cut);
        let files = fs::read_dir(directory.path()).expect("readable").count();
        assert_eq!(files, 1 + OLD_FILES);
    }

    #[test]
    fn incomplete_line_does_not_damage_other_lines() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("audit.log");
        let torn = &line(2)[..20];
        fs::write(&path, [&line(1), torn].concat()).expect("writable");
        let mut log = Log::open(path.clone(), 1000).expect("writable");
        log.write(&line(3)).expect("enough space");
        let page = read(&path, None, 10).expect("readable");
        assert_eq!(page.entries, [entry(1), entry(3)]);
    }

    #[tokio::test]
    async fn flood_of_refusals_does_not_displace_entries() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("audit.log");
        let audit = Audit::open(path.clone()).expect("writable");
        for at in 0..2_000 {
            audit.write(entry(at), Kind::Refused).await;
        }
        audit.write(entry(9_998), Kind::OfUser).await;
        audit.write(entry(9_999), Kind::Other).await;
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_there = || read(&path, Some(WallTime(9_998)), 2).is_ok_and(|page| page.entries.len() == 2);
        while !is_there() {
            assert!(Instant::now() < deadline, "successful requests are always logged");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let all = read(&path, None, 5_000).expect("readable").entries;
        assert!(all.len() == 602 && all.is_sorted_by_key(|entry| entry.at));
        let others = read_one(&path, None, 5_000).expect("readable").entries;
        assert!(others.len() == 601 && !others.contains(&entry(9_998)), "users have a log of their own");
        assert_eq!(fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o600);
    }
}

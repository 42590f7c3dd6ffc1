//! Journal of a run: one file with one JSON value per line. Each step appends a line.
//!
//! ```text
//! {"launch":{"identity":"12_3.1.4","note":…}}   by the agent, before anything else; the note is the agent's
//! {"taken":{"shepherd":…,"socket":…}}           by the shepherd that claims the run; instead "void" by an agent
//! {"started":4711}                              by the shepherd: pid of the main process
//! {"ended":{…}}                                 by the shepherd, when no process of the run is left; by an agent that
//!                                               has killed the shepherd of a program that did not start
//! ```
//!
//! There is only one file, because creating a file costs more than all other operations on it. A process that claims
//! or voids a run holds the file's lock while it reads and writes, so exactly one process succeeds.
//!
//! Space for all lines is reserved before the job can fill the disk: the file is filled with empty lines, which later
//! lines overwrite. A truncated line is being written, or will never be finished. Readers see a complete line or
//! nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::record::{ExitRecord, RunningRecord};
use crate::wire;

/// Name of the journal in the run's directory.
pub(crate) const JOURNAL: &str = "journal";

/// Minimum size of a journal in bytes: one block, which the file system allocates anyway.
const BLOCK_BYTES: usize = 4096;

/// Space reserved after the launch for the shepherd's lines, in bytes. The lines need much less.
const ROOM_BYTES: usize = 2560;

/// Writes the journal of a new run into its directory, and overwrites an earlier run's journal.
///
/// `identity` must equal [`crate::Options::identity`]; [`JournalContent::note`] returns `note`.
///
/// # Errors
/// If the file cannot be written.
pub fn begin(directory: &Path, identity: &str, note: &impl Serialize) -> io::Result<()> {
    let note = serde_json::value::to_raw_value(note)?;
    let mut text = line(&Entry::Launch { identity: identity.to_owned(), note });
    text.resize((text.len() + ROOM_BYTES).next_multiple_of(BLOCK_BYTES), b'\n');
    let file = open(&directory.join(JOURNAL), true)?;
    // Shepherds with an old launch must not see an incomplete launch.
    file.lock()?;
    if file.metadata()?.len() > text.len() as u64 {
        file.set_len(0)?;
    }
    file.write_all_at(&text, 0)
}

/// Voids the run in this directory, so that no shepherd can claim the run later. Has no effect on a run that is already
/// claimed.
pub(crate) fn void(directory: &Path) -> io::Result<()> {
    let file = open(&directory.join(JOURNAL), true)?;
    let (story, _) = locked(&file)?;
    if story.taken.is_none() && !story.is_void && !story.is_torn {
        file.write_all_at(&line(&Entry::Void), story.length as u64)?;
    }
    Ok(())
}

/// The lock of a run's journal. An agent that ends a run holds it until it has written the exit record.
pub(crate) struct JournalLock(File);

impl JournalLock {
    /// Waits for the lock of the journal in `directory`.
    pub(crate) fn take(directory: &Path) -> io::Result<JournalLock> {
        let file = open(&directory.join(JOURNAL), false)?;
        file.lock()?;
        Ok(JournalLock(file))
    }

    /// Reads the journal. Its shepherd may write further lines.
    pub(crate) fn read(&self) -> io::Result<JournalContent> {
        Ok(locked(&self.0)?.0)
    }

    /// Writes the exit record of a run whose shepherd has been killed. Has no effect on a run that has ended.
    pub(crate) fn end(&self, record: ExitRecord) -> io::Result<()> {
        let content = self.read()?;
        if content.ended.is_some() {
            return Ok(());
        }
        self.0.write_all_at(&line(&Entry::Ended(Box::new(record))), content.length as u64)
    }
}

/// A line of the journal. Readers skip lines of kinds that they do not know, which newer versions may write.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Launch { identity: String, note: Box<RawValue> },
    Taken(RunningRecord),
    Void,
    Started(u32),
    Ended(Box<ExitRecord>),
}

/// The journal of a run that this shepherd has claimed, in the current directory.
pub(crate) struct Journal {
    file: File,
    /// Offset of the next line.
    end: u64,
}

/// Why a shepherd cannot claim a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    #[error("another shepherd has already claimed the run")]
    Taken,
    #[error("the agent has voided the run")]
    Void,
    #[error("the directory belongs to another run")]
    Other,
    #[error("the run's journal is damaged")]
    Damaged,
    #[error("{}", crate::sys::explain(.0))]
    Io(#[from] io::Error),
}

impl Journal {
    /// Claims the run for this shepherd and writes the claim to the journal. With `must_exist`, fails unless the
    /// journal was created for this run.
    pub(crate) fn take(record: &RunningRecord, must_exist: bool) -> Result<Journal, ClaimError> {
        let file = open(Path::new(JOURNAL), !must_exist)?;
        let (story, size) = locked(&file)?;
        match &story {
            JournalContent { is_torn: true, .. } => return Err(ClaimError::Damaged),
            JournalContent { is_void: true, .. } => return Err(ClaimError::Void),
            JournalContent { taken: Some(_), .. } => return Err(ClaimError::Taken),
            JournalContent { identity: Some(identity), .. } if *identity != record.identity => {
                return Err(ClaimError::Other);
            }
            JournalContent { identity: None, .. } if must_exist => return Err(ClaimError::Other),
            _ => {}
        }
        let mut text = line(&Entry::Taken(record.clone()));
        let end = story.length + text.len();
        if size < end + ROOM_BYTES / 2 {
            text.resize(text.len() + ROOM_BYTES, b'\n');
        }
        file.write_all_at(&text, story.length as u64)?;
        file.unlock()?;
        Ok(Journal { file, end: end as u64 })
    }

    /// Records the pid of the main process, for people who read the journal. Ignores errors, because a full disk must
    /// not stop a run that has started.
    pub(crate) fn started(&mut self, pid: u32) {
        let text = line(&Entry::Started(pid));
        if self.file.write_all_at(&text, self.end).is_ok() {
            self.end += text.len() as u64;
        }
    }

    /// Writes the exit record, given as JSON. After an error, the caller must retry.
    pub(crate) fn ended(&self, record: &[u8], is_durable: bool) -> io::Result<()> {
        let text = [b"{\"ended\":", record, b"}\n"].concat();
        self.file.write_all_at(&text, self.end)?;
        if is_durable { self.file.sync_data() } else { Ok(()) }
    }
}

/// Content of a journal.
#[derive(Debug, Default)]
pub struct JournalContent {
    identity: Option<String>,
    note: Option<Box<RawValue>>,
    /// The record of the shepherd that took the run.
    pub taken: Option<RunningRecord>,
    pub(crate) is_void: bool,
    /// How the run ended, if it has.
    pub ended: Option<Box<ExitRecord>>,
    /// Whether the last line is truncated or invalid.
    pub(crate) is_torn: bool,
    /// Length of all complete lines in bytes.
    length: usize,
}

impl JournalContent {
    /// Reads the journal in the run's directory; returns the empty default if no journal exists.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(directory: &Path) -> io::Result<JournalContent> {
        match std::fs::read(directory.join(JOURNAL)) {
            Ok(bytes) => Ok(JournalContent::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(JournalContent::default()),
            Err(error) => Err(error),
        }
    }

    /// The note that the agent passed to [`begin`].
    ///
    /// # Errors
    /// If the note is missing or has another type.
    pub fn note<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.note.as_ref().map_or("null", |note| note.get()))
    }

    /// Whether the journal belongs to `run`: its identity is `run`, or starts with `run` and a `#`.
    pub fn is_of(&self, run: &str) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.split('#').next() == Some(run))
    }

    /// Length of the parsed part of the journal in bytes.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn parse(bytes: &[u8]) -> JournalContent {
        let mut story = JournalContent::default();
        let mut start = 0;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let end = start + piece.len();
            // A power failure may leave zeroes in place of a line.
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            let text = &text[text.iter().position(|&byte| byte != 0).unwrap_or(text.len())..];
            if !text.is_empty() {
                match serde_json::from_slice(text) {
                    Ok(entry) if story.belongs(&entry) => story.take_in(entry),
                    Err(error) if error.is_data() && is_of_unknown_kind(text) => {}
                    Ok(_) | Err(_) => {
                        story.is_torn = true;
                        return story;
                    }
                }
                story.length = end;
            }
            start = end;
        }
        story
    }

    /// Whether the line has the same identity as the first line. After a power failure, old lines may follow a new
    /// first line.
    fn belongs(&self, entry: &Entry) -> bool {
        let identity = match entry {
            Entry::Taken(record) => &record.identity,
            Entry::Ended(record) => &record.identity,
            Entry::Launch { .. } | Entry::Void | Entry::Started(_) => return true,
        };
        self.identity.as_ref().is_none_or(|own| own == identity)
    }

    fn take_in(&mut self, entry: Entry) {
        match entry {
            Entry::Launch { identity, note } => (self.identity, self.note) = (Some(identity), Some(note)),
            Entry::Taken(record) => self.taken = Some(record),
            Entry::Void => self.is_void = true,
            Entry::Started(pid) => {
                if let Some(taken) = &mut self.taken {
                    taken.child = Some(pid);
                }
            }
            Entry::Ended(record) => self.ended = Some(record),
        }
    }
}

/// Whether a complete line has a kind that this version does not know. Readers skip such lines. They must not skip an
/// invalid line of a known kind, which may record that the run has begun.
fn is_of_unknown_kind(line: &[u8]) -> bool {
    const KNOWN: [&str; 5] = ["launch", "taken", "void", "started", "ended"];
    match serde_json::from_slice::<serde_json::Value>(line) {
        Ok(serde_json::Value::Object(entry)) => !entry.keys().any(|kind| KNOWN.contains(&kind.as_str())),
        Ok(serde_json::Value::String(kind)) => !KNOWN.contains(&kind.as_str()),
        _ => false,
    }
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Locks the journal, so that no other process can claim or void the run until `file` is closed or unlocked. Returns
/// content and size.
fn locked(file: &File) -> io::Result<(JournalContent, usize)> {
    file.lock()?;
    let mut bytes = vec![0; 2 * BLOCK_BYTES];
    let mut size = 0;
    loop {
        match file.read_at(&mut bytes[size..], size as u64)? {
            0 => break,
            length => size += length,
        }
        if size == bytes.len() {
            bytes.resize(2 * size, 0);
        }
    }
    Ok((JournalContent::parse(&bytes[..size]), size))
}

fn line(entry: &Entry) -> Vec<u8> {
    let mut text = wire::json(entry);
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessId;
    use crate::record::Moment;

    fn record(identity: &str) -> RunningRecord {
        RunningRecord {
            shepherd: ProcessId { pid: 1, start_time: 2 },
            boot_id: "boot".into(),
            socket: "socket".into(),
            identity: identity.into(),
            taken: Moment { boottime_ns: 3, unix_ms: 4 },
            leaf: None,
            child: None,
        }
    }

    #[test]
    fn truncated_journal_is_read_up_to_the_last_complete_line() {
        let entries = [
            line(&Entry::Launch { identity: "7.1".into(), note: RawValue::from_string("[1]".into()).expect("JSON") }),
            line(&Entry::Taken(record("7.1"))),
            line(&Entry::Started(9)),
        ];
        let whole = entries.concat();
        let first_two = entries[0].len() + entries[1].len();
        for cut in 0..=whole.len() {
            let mut bytes = whole[..cut].to_vec();
            bytes.resize(BLOCK_BYTES, b'\n');
            let story = JournalContent::parse(&bytes);
            assert_eq!(story.taken.is_some(), cut >= first_two - 1, "cut at {cut}");
            let child = story.taken.and_then(|taken| taken.child);
            assert_eq!(child, (cut >= whole.len() - 1).then_some(9), "cut at {cut}");
        }
    }

    #[test]
    fn lines_of_a_newer_version_are_skipped() {
        let text = b"{\"launch\":{\"identity\":\"7.1\",\"note\":5}}\n{\"paused\":{\"by\":\"x\"}}\n\"void\"\n\n";
        let story = JournalContent::parse(text);
        assert_eq!((story.note::<u32>().expect("a number"), story.is_void, story.is_torn), (5, true, false));
        assert_eq!(story.length, text.len() - 1);
    }

    #[test]
    fn invalid_lines_of_known_kinds_are_damage() {
        assert!(JournalContent::parse(b"{\"taken\":{\"shepherd\":7}}\n").is_torn);
        let begun =
            line(&Entry::Launch { identity: "8.1".into(), note: RawValue::from_string("1".into()).expect("JSON") });
        assert!(
            JournalContent::parse(&[begun, line(&Entry::Taken(record("7.1")))].concat()).is_torn,
            "belongs to another run"
        );
    }

    #[test]
    fn zeroes_in_a_journal_are_ignored() {
        let story = JournalContent::parse(&[0; 100]);
        assert!(!story.is_torn && story.length == 0);
        assert!(JournalContent::parse(b"\0\0\"void\"\n").is_void);
    }

    #[test]
    fn begin_overwrites_a_longer_earlier_journal() {
        let directory = tempfile::tempdir().expect("a directory");
        begin(directory.path(), "1.1", &"x".repeat(10_000)).expect("the file can be written");
        begin(directory.path(), "2.1", &"y").expect("the file can be written");
        let story = JournalContent::read(directory.path()).expect("the file can be read");
        assert_eq!(story.note::<String>().expect("text"), "y");
        assert!(!story.is_torn);
        assert_eq!(
            std::fs::metadata(directory.path().join(JOURNAL)).expect("the journal exists").len(),
            BLOCK_BYTES as u64
        );
    }
}

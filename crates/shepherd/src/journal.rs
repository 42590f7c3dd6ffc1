//! A run's journal: one file that tells its story, one JSON value a line, each appended when it happened.
//!
//! ```text
//! {"launch":{"identity":"12_3.1.4","note":…}}   by the agent, before anything else; the note is its own
//! {"taken":{"shepherd":…,"socket":…}}           by the shepherd that looks after the run, or "void" by an agent: none may
//! {"started":4711}                              by the shepherd: the pid of the main process
//! {"ended":{…}}                                 by the shepherd, when nothing of the run is left
//! ```
//!
//! One file, because creating one costs more than everything else that is done to it. Who takes or voids a run holds
//! the file's lock while looking and writing, so exactly one of them is first.
//!
//! Room for the whole story is set aside before the job can fill the disk: empty lines fill the file, and later lines
//! are written over them. A line that is cut short is one that is just being written, or never will be finished:
//! a reader sees all of it or nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::record::{ExitRecord, RunningRecord};
use crate::wire;

/// The journal's name in the directory of its run.
pub(crate) const JOURNAL: &str = "journal";

/// The least length, in bytes: a block, which the disk gives out in any case.
const BLOCK_BYTES: usize = 4096;

/// Room behind the launch for what the shepherd writes, in bytes: far more than that takes.
const ROOM_BYTES: usize = 2560;

/// Writes the journal of a new run into its directory, over whatever an earlier run there has left.
///
/// `identity` is that of the run's [`crate::Options`]; `note` is for [`Story::note`].
///
/// # Errors
/// When the file cannot be written.
pub fn begin(directory: &Path, identity: &str, note: &impl Serialize) -> io::Result<()> {
    let note = serde_json::value::to_raw_value(note)?;
    let mut text = line(&Entry::Launch { identity: identity.to_owned(), note });
    text.resize((text.len() + ROOM_BYTES).next_multiple_of(BLOCK_BYTES), b'\n');
    let file = open(&directory.join(JOURNAL), true)?;
    // A shepherd with an old launch must not see it half written.
    file.lock()?;
    if file.metadata()?.len() > text.len() as u64 {
        file.set_len(0)?;
    }
    file.write_all_at(&text, 0)
}

/// Declares that no shepherd may take the run in this directory, unless one has.
pub(crate) fn void(directory: &Path) -> io::Result<()> {
    let file = open(&directory.join(JOURNAL), true)?;
    let (story, _) = locked(&file)?;
    if story.taken.is_none() && !story.is_void && !story.is_torn {
        file.write_all_at(&line(&Entry::Void), story.length as u64)?;
    }
    Ok(())
}

/// A line of the journal. Lines of a newer version are skipped.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Launch { identity: String, note: Box<RawValue> },
    Taken(RunningRecord),
    Void,
    Started(u32),
    Ended(Box<ExitRecord>),
}

/// The journal in the hands of the shepherd that has taken the run, in the current directory.
pub(crate) struct Journal {
    file: File,
    /// Where the next line goes.
    end: u64,
}

/// A run cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeError {
    #[error("it is taken already")]
    Taken,
    #[error("it was given up")]
    Void,
    #[error("its directory belongs to another run")]
    Other,
    #[error("its journal is damaged")]
    Damaged,
    #[error("{}", crate::sys::explain(.0))]
    Io(#[from] io::Error),
}

impl Journal {
    /// Makes the run ours, exclusively and visibly. `must_exist`: only in a journal that was begun for it.
    pub(crate) fn take(record: &RunningRecord, must_exist: bool) -> Result<Journal, TakeError> {
        let file = open(Path::new(JOURNAL), !must_exist)?;
        let (story, size) = locked(&file)?;
        match &story {
            Story { is_torn: true, .. } => return Err(TakeError::Damaged),
            Story { is_void: true, .. } => return Err(TakeError::Void),
            Story { taken: Some(_), .. } => return Err(TakeError::Taken),
            Story { identity: Some(identity), .. } if *identity != record.identity => return Err(TakeError::Other),
            Story { identity: None, .. } if must_exist => return Err(TakeError::Other),
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

    /// Notes the pid of the main process, for people. A full disk must not stop a run that has started.
    pub(crate) fn started(&mut self, pid: u32) {
        let text = line(&Entry::Started(pid));
        if self.file.write_all_at(&text, self.end).is_ok() {
            self.end += text.len() as u64;
        }
    }

    /// Ends the story with the record, given as JSON. To be tried again when it fails.
    pub(crate) fn ended(&self, record: &[u8], is_durable: bool) -> io::Result<()> {
        let text = [b"{\"ended\":", record, b"}\n"].concat();
        self.file.write_all_at(&text, self.end)?;
        if is_durable { self.file.sync_data() } else { Ok(()) }
    }
}

/// What a journal tells.
#[derive(Debug, Default)]
pub struct Story {
    identity: Option<String>,
    note: Option<Box<RawValue>>,
    pub(crate) taken: Option<RunningRecord>,
    pub(crate) is_void: bool,
    pub(crate) ended: Option<Box<ExitRecord>>,
    /// The last line is cut short.
    pub(crate) is_torn: bool,
    /// Of all whole lines, in bytes.
    length: usize,
}

impl Story {
    /// Reads the journal in the run's directory; the default, an empty story, when there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(directory: &Path) -> io::Result<Story> {
        match std::fs::read(directory.join(JOURNAL)) {
            Ok(bytes) => Ok(Story::parse(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Story::default()),
            Err(error) => Err(error),
        }
    }

    /// What the agent noted in [`begin`].
    ///
    /// # Errors
    /// When there is no note, or it is not a `T`.
    pub fn note<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.note.as_ref().map_or("null", |note| note.get()))
    }

    /// Whether the journal was begun for `run`: its identity is that, or begins with that and a `#`.
    pub fn is_of(&self, run: &str) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.split('#').next() == Some(run))
    }

    /// How much of the journal was understood, in bytes.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Whether a shepherd has written how the run ended.
    pub fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Story {
        let mut story = Story::default();
        let mut start = 0;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let end = start + piece.len();
            // A power cut may leave zeroes where something was about to be written.
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

    /// Whether the line belongs to the run of the first one. A power cut may leave old lines behind a new beginning.
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

/// Whether a whole line is of a kind that this version does not know. One of a known kind that cannot be understood must not be
/// overlooked: what it says may be that the run has begun.
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

/// What the journal tells, and its size in bytes, while nobody else can take or void the run: until `file` is closed or
/// unlocked.
fn locked(file: &File) -> io::Result<(Story, usize)> {
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
    Ok((Story::parse(&bytes[..size]), size))
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
    fn a_story_is_told_up_to_where_it_was_cut() {
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
            let story = Story::parse(&bytes);
            assert_eq!(story.taken.is_some(), cut >= first_two - 1, "cut at {cut}");
            let child = story.taken.and_then(|taken| taken.child);
            assert_eq!(child, (cut >= whole.len() - 1).then_some(9), "cut at {cut}");
        }
    }

    #[test]
    fn lines_of_a_newer_version_are_skipped() {
        let text = b"{\"launch\":{\"identity\":\"7.1\",\"note\":5}}\n{\"paused\":{\"by\":\"x\"}}\n\"void\"\n\n";
        let story = Story::parse(text);
        assert_eq!((story.note::<u32>().expect("a number"), story.is_void, story.is_torn), (5, true, false));
        assert_eq!(story.length, text.len() - 1);
    }

    #[test]
    fn what_is_known_but_not_understood_is_damage() {
        assert!(Story::parse(b"{\"taken\":{\"shepherd\":7}}\n").is_torn);
        let begun =
            line(&Entry::Launch { identity: "8.1".into(), note: RawValue::from_string("1".into()).expect("JSON") });
        assert!(Story::parse(&[begun, line(&Entry::Taken(record("7.1")))].concat()).is_torn, "of another run");
    }

    #[test]
    fn zeroes_are_nothing() {
        let story = Story::parse(&[0; 100]);
        assert!(!story.is_torn && story.length == 0);
        assert!(Story::parse(b"\0\0\"void\"\n").is_void);
    }

    #[test]
    fn an_earlier_and_longer_journal_leaves_no_trace() {
        let directory = tempfile::tempdir().expect("a directory");
        begin(directory.path(), "1.1", &"x".repeat(10_000)).expect("writes");
        begin(directory.path(), "2.1", &"y").expect("writes");
        let story = Story::read(directory.path()).expect("reads");
        assert_eq!(story.note::<String>().expect("text"), "y");
        assert!(!story.is_torn);
        assert_eq!(std::fs::metadata(directory.path().join(JOURNAL)).expect("there").len(), BLOCK_BYTES as u64);
    }
}

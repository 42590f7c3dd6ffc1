//! The caller's side after a command has ended: receives the files that the command wrote and puts them in place.

use std::collections::VecDeque;
use std::sync::Arc;

use hostler_proto::manifest::{Chunk, Content, Entry, EntryKind};
use hostler_snapshot::chunk::MAX_BYTES;
use hostler_snapshot::mirror::{Filling, Named, PlaceError, Placing, Stamp};
use hostler_snapshot::{fault, show, wire};
use nix::errno::Errno;

use super::Message;
use super::talk::Assembler;

/// Tolerance in nanoseconds when comparing file times with the command's start and end, because file times are coarser
/// than the clock.
const COARSE_NS: i64 = 20_000_000;

/// Statistics of the received changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceivedStats {
    /// Bytes received.
    pub bytes: u64,
    pub entries: u64,
    /// Number of removed entries.
    pub removed: u64,
}

/// Receives the files that a command wrote, and puts the files in place once all have arrived.
#[derive(Debug)]
pub struct ResultReceiver {
    placing: Placing,
    /// Time of the tree's survey, by this machine's clock, in nanoseconds since the epoch.
    as_of_ns: i64,
    /// Start and end of the command, by the other node's clock.
    ran: Option<(i64, i64)>,
    incoming: Assembler,
    waiting: VecDeque<Entry>,
    filling: Option<Opened>,
    is_done: bool,
    came: ReceivedStats,
    failure: Option<String>,
}

/// A partly received file.
#[derive(Debug)]
struct Opened {
    filling: Filling,
    missing: VecDeque<Chunk>,
    mode: u32,
    stamp: Stamp,
}

impl ResultReceiver {
    /// Prepares to receive the files of a command. `as_of_ns` is the time at which the tree was surveyed, in
    /// nanoseconds since the epoch.
    #[must_use]
    pub fn new(placing: Placing, as_of_ns: i64) -> Self {
        Self {
            placing,
            as_of_ns,
            ran: None,
            incoming: Assembler::default(),
            waiting: VecDeque::new(),
            filling: None,
            is_done: false,
            came: ReceivedStats::default(),
            failure: None,
        }
    }

    /// Processes a received piece. [`Self::finish`] reports errors.
    pub fn take(&mut self, piece: &[u8]) {
        self.came.bytes += piece.len() as u64;
        if self.failure.is_some() {
            return;
        }
        self.incoming.add(piece);
        loop {
            let taken = match self.incoming.next() {
                Ok(None) => return,
                Ok(Some(message)) => self.hear(message),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = taken {
                self.failure = Some(why);
                return;
            }
        }
    }

    /// Moves the received files to their places in the tree. Removes only entries that were mirrored.
    ///
    /// # Errors
    /// Returns a sentence about the error. The tree is unchanged unless the error occurs while files are moved.
    pub fn finish(self, mirrored: &[Arc<Named>]) -> Result<ReceivedStats, String> {
        if let Some(why) = self.failure {
            return Err(why);
        }
        if !self.is_done {
            // The command could not be followed to its end, so its files are discarded.
            return Err("the connection ended before all files had arrived".to_owned());
        }
        self.placing.commit(mirrored).map_err(|error| said(&error))?;
        Ok(self.came)
    }

    fn hear(&mut self, message: Message) -> Result<(), String> {
        let strange = || Err("the node sent an unexpected message".to_owned());
        if self.is_done {
            return strange();
        }
        match message {
            Message::Ran { began_ns, ended_ns } => self.ran = Some((began_ns, ended_ns)),
            Message::Gone { removed, emptied } => {
                for path in removed.iter().chain(&emptied) {
                    check(path)?;
                }
                self.came.removed += removed.len() as u64;
                removed.into_iter().for_each(|path| self.placing.remove(path.into_vec()));
                emptied.into_iter().for_each(|path| self.placing.empty(path.into_vec()));
            }
            Message::Entries { entries, .. } if self.filling.is_none() => {
                self.waiting.extend(entries);
                self.process_entries()?;
            }
            Message::Chunk(bytes) => self.fill(&bytes)?,
            Message::Done if self.filling.is_none() => self.is_done = true,
            _ => return strange(),
        }
        Ok(())
    }

    /// Processes the received entries in order, up to a file whose content is incomplete.
    fn process_entries(&mut self) -> Result<(), String> {
        while self.filling.is_none()
            && let Some(Entry { path, mode, modified_ns, kind }) = self.waiting.pop_front()
        {
            check(&path)?;
            self.came.entries += 1;
            let stamp = self.stamp(modified_ns);
            match kind {
                EntryKind::Directory => self.placing.directory(&path, mode),
                EntryKind::Symlink { target } => {
                    self.placing.link(&path, &target, stamp).map_err(|error| said(&error))?;
                }
                EntryKind::File(Content { chunks, .. }) => {
                    let filling = self.placing.file(&path).map_err(|error| said(&error))?;
                    self.filling = Some(Opened { filling, missing: chunks.into(), mode, stamp });
                    self.close_if_whole()?;
                }
            }
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &[u8]) -> Result<(), String> {
        let opened = self.filling.as_mut().ok_or("the node sent file content without a file")?;
        let chunk = opened.missing.pop_front().ok_or("the node sent more file content than announced")?;
        if chunk.len as usize > MAX_BYTES {
            return Err("the node announced a chunk above the maximum size".to_owned());
        }
        let bytes = wire::decode(&chunk.digest, bytes)
            .map_err(|error| format!("the node sent damaged file content: {error}"))?;
        opened.filling.write(&bytes).map_err(|error| said(&error))?;
        self.close_if_whole()?;
        self.process_entries()
    }

    fn close_if_whole(&mut self) -> Result<(), String> {
        if let Some(Opened { filling, mode, stamp, .. }) = self.filling.take_if(|opened| opened.missing.is_empty()) {
            self.placing.filled(filling, mode, stamp).map_err(|error| said(&error))?;
        }
        Ok(())
    }

    /// Returns the modification time for a written file, by this machine's clock: the survey time plus the time from
    /// the command's start to the write. The file is thus newer than its sources. If the command itself has set the
    /// file's time, returns that time.
    fn stamp(&self, modified_ns: i64) -> Stamp {
        match self.ran {
            Some((began, ended))
                if modified_ns >= began.saturating_sub(COARSE_NS) && modified_ns <= ended.saturating_add(COARSE_NS) =>
            {
                let into = modified_ns.saturating_sub(began).max(0);
                Stamp::Now(self.as_of_ns.saturating_add(into))
            }
            _ => Stamp::Set(modified_ns),
        }
    }
}

fn check(path: &[u8]) -> Result<(), String> {
    match fault(path) {
        None => Ok(()),
        Some(why) => Err(format!("the node sent an invalid path: {why}")),
    }
}

fn said(error: &PlaceError) -> String {
    let why = match error.source.raw_os_error() {
        Some(code) => Errno::from_raw(code).desc().to_owned(),
        None => error.source.to_string(),
    };
    format!("cannot place {}: {why}", show(&error.path))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use hostler_snapshot::chunk::digest_of;
    use proptest::prelude::*;

    use super::super::talk::Outgoing;
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn file(path: &str, parts: &[&[u8]], modified_ns: i64) -> Entry {
        let chunks = parts.iter().map(|part| Chunk { digest: digest_of(part), len: part.len() as u32 }).collect();
        let size = parts.iter().map(|part| part.len() as u64).sum();
        Entry { path: path.into(), mode: 0o644, modified_ns, kind: EntryKind::File(Content { size, chunks }) }
    }

    fn chunk(bytes: &[u8]) -> Message {
        Message::Chunk(wire::encode(bytes).into())
    }

    fn entries(entries: Vec<Entry>) -> Message {
        Message::Entries { entries, is_last: true }
    }

    /// Applies messages to a directory with a file `old`.
    fn come(messages: &[Message]) -> (tempfile::TempDir, Result<ReceivedStats, String>) {
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        fs::create_dir(folder.path().join("tree")).expect("writable");
        fs::write(folder.path().join("tree/old"), "old").expect("writable");
        let placing = Placing::begin(&folder.path().join("tree"), 1).expect("the directory exists");
        let mut home = ResultReceiver::new(placing, 100 * SECOND);
        let mut outgoing = Outgoing::default();
        messages.iter().for_each(|message| outgoing.add(message).expect("the message is short"));
        while let Some(piece) = outgoing.piece(true) {
            home.take(&piece);
        }
        let came = home.finish(&[Arc::new(Named::new(file("old", &[b"old"], 0)))]);
        (folder, came)
    }

    #[test]
    fn received_files_have_times_of_the_local_clock() {
        let ran = Message::Ran { began_ns: 5000 * SECOND, ended_ns: 5009 * SECOND };
        let written = vec![
            file("a.o", &[b"one", b"two"], 5003 * SECOND),
            file("early.o", &[], 5000 * SECOND - 1_000_000),
            file("set.o", &[b"one"], 7 * SECOND),
        ];
        let gone = Message::Gone { removed: vec![b"old".to_vec().into()], emptied: Vec::new() };
        let told = [ran, gone, entries(written), chunk(b"one"), chunk(b"two"), chunk(b"one"), Message::Done];
        let (folder, came) = come(&told);
        let came = came.expect("all messages arrived");
        assert_eq!((came.entries, came.removed), (3, 1));
        let at = |name: &str| folder.path().join("tree").join(name);
        assert_eq!(fs::read(at("a.o")).expect("the file exists"), b"onetwo");
        let seconds = |name: &str| fs::metadata(at(name)).expect("the file exists").mtime();
        assert_eq!([seconds("a.o"), seconds("early.o"), seconds("set.o")], [103, 100, 7]);
        assert!(!at("old").exists());
    }

    #[test]
    fn incomplete_or_invalid_transfer_changes_nothing() {
        let whole = file("a.o", &[b"one"], 0);
        let bad: [&[Message]; 7] = [
            &[entries(vec![whole.clone()]), chunk(b"one")],
            &[entries(vec![whole.clone()]), Message::Done],
            &[entries(vec![whole.clone()]), chunk(b"two"), Message::Done],
            &[entries(vec![file("../a", &[], 0)]), Message::Done],
            &[Message::Gone { removed: vec![b"../tree/old".to_vec().into()], emptied: Vec::new() }, Message::Done],
            &[chunk(b"one"), Message::Done],
            &[Message::Describe, Message::Done],
        ];
        for messages in bad {
            let (folder, came) = come(messages);
            came.expect_err("the transfer is incomplete");
            let left: Vec<_> = fs::read_dir(folder.path().join("tree"))
                .expect("the directory exists")
                .flatten()
                .map(|it| it.file_name())
                .collect();
            assert_eq!(left, ["old"], "{messages:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_node_cannot_write_outside_the_tree(
            paths in prop::collection::vec("(\\.\\./|/|a/|\\./){0,3}[a-c]?", 1..8),
            kinds in prop::collection::vec(0_u8..4, 8),
        ) {
            let mut told = Vec::new();
            for (path, kind) in paths.iter().zip(kinds) {
                let kind = match kind {
                    0 => EntryKind::Directory,
                    1 => EntryKind::Symlink { target: b"../..".into() },
                    2 => EntryKind::File(Content::default()),
                    _ => {
                        told.push(Message::Gone { removed: vec![path.clone().into_bytes().into()], emptied: Vec::new() });
                        continue;
                    }
                };
                told.push(entries(vec![Entry { path: path.clone().into(), mode: 0o777, modified_ns: 0, kind }]));
            }
            told.push(Message::Done);
            let (folder, _) = come(&told);
            let outside: Vec<_> = fs::read_dir(folder.path()).expect("the directory exists").flatten().map(|it| it.file_name()).collect();
            prop_assert_eq!(outside, ["tree"]);
        }
    }
}

//! The file `.hostler-results`, which marks a directory with results of a job and notes what was delivered there.
//!
//! The file begins with a text for people. A NUL and an encoded note follow: which result the files came from, and
//! their metadata right after the delivery. A later delivery of the same result, for example after a requeue, may
//! replace the files that have not changed since. Without a readable note, no file may be replaced.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::baseline::Baseline;
use crate::beneath::Root;

/// The name of the file that marks a directory with results written by Hostler.
pub const RESULTS_MARKER: &str = ".hostler-results";

const TEXT: &str = "\
Hostler wrote the results of a job into this directory.
`hostler submit` leaves such directories out of the folder that it captures.
To include this one, add a line such as !12/ to the folder's .hostlerignore, or delete this file.
";

/// More than the note of a million files.
const LIMIT_BYTES: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
struct Note {
    version: u16,
    source: String,
    files: Baseline,
}

const VERSION: u16 = 1;

/// Marks `directory` as one that Hostler writes results into, so captures leave it out. Keeps an existing mark.
///
/// # Errors
/// The file cannot be written.
pub fn mark_results(directory: &Path) -> io::Result<()> {
    // `create_new` neither follows a link nor replaces a file.
    match File::options().write(true).create_new(true).open(directory.join(RESULTS_MARKER)) {
        // An interrupted text counts as a marker, see `may_replace`.
        Ok(mut file) => file.write_all(TEXT.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// What an earlier delivery of the same result left in a directory.
#[derive(Debug)]
pub(crate) struct Earlier {
    /// Name of the result; without it, nothing is known and nothing is noted.
    source: Option<String>,
    files: Baseline,
}

impl Earlier {
    /// Reads the marker in `root`. The answer is empty if the marker notes nothing of `source`, is damaged or belongs to
    /// another user.
    pub(crate) fn read(root: &Root, source: Option<&str>) -> Self {
        let note =
            source.and_then(|_| read_note(root)).filter(|it| it.version == VERSION && Some(&*it.source) == source);
        Self { source: source.map(str::to_owned), files: note.map(|it| it.files).unwrap_or_default() }
    }

    /// Returns whether the entry at `path` is as the delivery left it.
    pub(crate) fn is_untouched(&self, root: &Root, path: &[u8]) -> bool {
        self.files.mode(path).is_some() && root.stat(path).is_ok_and(|stat| self.files.is_untouched(path, &stat))
    }

    /// Returns the content of the new marker, with the entries at `delivered` added. There is none without a source.
    ///
    /// A change right after the delivery can go unnoticed, if it keeps the size and the kernel's clock for timestamps has not
    /// advanced. A user cannot make such a change, because the command has not yet said that the files are there.
    pub(crate) fn note(&self, root: &Root, delivered: &[Vec<u8>]) -> io::Result<Option<Vec<u8>>> {
        let Some(source) = self.source.clone() else { return Ok(None) };
        let mut files = self.files.clone();
        for path in delivered {
            files.record(path, &root.stat(path)?);
        }
        let note = hostler_proto::encode(&Note { version: VERSION, source, files });
        Ok(Some([TEXT.as_bytes(), &[0], &note].concat()))
    }
}

/// Returns whether the name of the marker is free in `root`, or a marker of this user has it.
pub(crate) fn may_replace(root: &Root) -> bool {
    match root.stat(RESULTS_MARKER.as_bytes()) {
        Err(error) => error.kind() == io::ErrorKind::NotFound,
        Ok(_) => read_own(root).is_some_and(|bytes| {
            // A full disk cuts the text off.
            bytes.starts_with(TEXT.as_bytes()) || TEXT.as_bytes().starts_with(&bytes)
        }),
    }
}

fn read_note(root: &Root) -> Option<Note> {
    let bytes = read_own(root)?;
    let end_of_text = bytes.iter().position(|&byte| byte == 0)?;
    hostler_proto::decode(&bytes[end_of_text + 1..]).ok()
}

/// Reads the file in the marker's place if it belongs to this user.
fn read_own(root: &Root) -> Option<Vec<u8>> {
    let file = root.open_file(RESULTS_MARKER.as_bytes()).ok()?;
    let is_own = file.metadata().is_ok_and(|it| it.uid() == geteuid().as_raw());
    let mut bytes = Vec::new();
    file.take(LIMIT_BYTES).read_to_end(&mut bytes).ok().filter(|_| is_own)?;
    Some(bytes)
}

//! The files that discovery reads: of this machine, below another root directory, or recorded.
//!
//! Files may be missing, huge, invalid or special. A source returns text of limited size, or nothing.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Fixture, NvmlAnswer};

/// Maximum size of a file in bytes. The largest file that discovery reads is `mountinfo`, with about a hundred bytes
/// per mount.
const MAX_FILE_BYTES: u64 = 4 << 20;

const MAX_ENTRIES: usize = 1 << 16;

/// Locations of NVIDIA's library: in the linker's search path, and on NixOS and WSL. The name without a version is not
/// used, because only development packages contain it.
const NVML_LIBRARIES: [&str; 3] =
    ["libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// The files that discovery reads. Clones read the same files and share the recording.
#[derive(Debug, Clone)]
pub struct Source {
    place: Place,
    nvml: Nvml,
    /// The recording of this source, if enabled.
    record: Option<Arc<Mutex<Fixture>>>,
}

#[derive(Debug, Clone)]
enum Place {
    /// Files below a directory.
    Directory(PathBuf),
    Recorded(Arc<Fixture>),
}

/// How to query NVIDIA's library.
#[derive(Debug, Clone)]
pub(crate) enum Nvml {
    Absent,
    /// Load the first of these names that exists.
    Libraries(Vec<String>),
    /// The recorded response.
    Recorded(Result<NvmlAnswer, String>),
}

impl Source {
    #[must_use]
    pub fn this_machine() -> Self {
        Self { nvml: Nvml::Libraries(NVML_LIBRARIES.map(str::to_owned).to_vec()), ..Self::directory("/") }
    }

    /// A machine with `/sys`, `/proc` and `/dev` below `root`. NVIDIA's library is not queried.
    pub fn directory(root: impl Into<PathBuf>) -> Self {
        Self { place: Place::Directory(root.into()), nvml: Nvml::Absent, record: None }
    }

    /// A recorded machine.
    #[must_use]
    pub fn fixture(mut fixture: Fixture) -> Self {
        let nvml = fixture.nvml.take().map_or(Nvml::Absent, Nvml::Recorded);
        Self { place: Place::Recorded(Arc::new(fixture)), nvml, record: None }
    }

    /// Uses the file `library` as NVIDIA's library.
    #[must_use]
    pub fn with_nvml(self, library: &Path) -> Self {
        Self { nvml: Nvml::Libraries(vec![library.to_string_lossy().into_owned()]), ..self }
    }

    /// Enables recording for [`recorded`](Self::recorded).
    pub(crate) fn recording(self) -> Self {
        Self { record: Some(Arc::default()), ..self }
    }

    /// Everything that was read since the start of the recording.
    pub(crate) fn recorded(&self) -> Fixture {
        let record = self.record.as_ref();
        record.map(|record| record.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    fn keep(&self, keep: impl FnOnce(&mut Fixture)) {
        if let Some(record) = &self.record {
            keep(&mut record.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// The trimmed content of a file; `None` if the file cannot be read.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        self.lines(path, &[""])
    }

    /// The lines of a file that contain one of `words`. Other lines may be private, and are not recorded.
    pub(crate) fn lines(&self, path: &str, words: &[&str]) -> Option<String> {
        let text = match &self.place {
            Place::Directory(root) => read_file(&below(root, path)),
            Place::Recorded(fixture) => fixture.read(path),
        }?;
        let lines: Vec<_> = text.trim().lines().filter(|line| words.iter().any(|word| line.contains(word))).collect();
        let text = lines.join("\n");
        self.keep(|record| record.insert(path, &text));
        Some(text)
    }

    /// The number in a file; `None` if the file cannot be read or contains no number.
    pub(crate) fn number(&self, path: &str) -> Option<i64> {
        self.read(path)?.parse().ok()
    }

    /// The entries of a directory, sorted by name; empty if the directory does not exist.
    pub(crate) fn list(&self, directory: &str) -> BTreeSet<String> {
        match &self.place {
            Place::Directory(root) => {
                let entries = fs::read_dir(below(root, directory)).into_iter().flatten().take(MAX_ENTRIES);
                entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
            }
            Place::Recorded(fixture) => fixture.list(directory),
        }
    }

    /// The numbers `n` of directory entries named `prefix` + `n`, ascending.
    pub(crate) fn numbered(&self, directory: &str, prefix: &str) -> BTreeSet<u32> {
        let names = self.list(directory);
        names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect()
    }

    /// Major and minor number of a character device; `None` if the device does not exist.
    pub(crate) fn device(&self, path: &str) -> Option<(u32, u32)> {
        let (major, minor) = match &self.place {
            Place::Directory(root) => {
                let metadata = fs::metadata(below(root, path)).ok()?;
                let number = metadata.file_type().is_char_device().then(|| metadata.rdev())?;
                (libc::major(number), libc::minor(number))
            }
            Place::Recorded(fixture) => fixture.device(path)?,
        };
        self.keep(|record| record.insert_device(path, major, minor));
        Some((major, minor))
    }

    pub(crate) fn nvml(&self) -> &Nvml {
        &self.nvml
    }

    /// Records NVML's response, if recording is enabled.
    pub(crate) fn keep_nvml(&self, answer: &Result<NvmlAnswer, String>) {
        self.keep(|record| record.nvml = Some(answer.clone()));
    }
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn read_file(path: &Path) -> Option<String> {
    // O_NONBLOCK prevents waiting for a writer if the path is a pipe.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_FILE_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_files_are_not_read() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        std::os::unix::fs::symlink("loop", at("loop")).expect("a link");
        let pipe = std::ffi::CString::new(at("pipe").to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: the path is a C string that lives until the call returns.
        assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
        fs::File::create(at("huge")).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("a sparse file");
        fs::create_dir(at("directory")).expect("a directory");
        fs::write(at("fine"), " 7\n\n").expect("a file");
        let source = Source::directory(root.path());
        for trap in ["/loop", "/pipe", "/huge", "/directory", "/absent"] {
            assert_eq!(source.read(trap), None, "{trap}");
            assert_eq!(source.device(trap), None, "{trap}");
        }
        assert_eq!(source.number("/fine"), Some(7));
        assert_eq!(Source::this_machine().device("/dev/null"), Some((1, 3)));
    }
}

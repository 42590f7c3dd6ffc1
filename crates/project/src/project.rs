//! A project folder and the files in it.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use hostler_model::VersionFile;

use crate::error::{Bound, GoesOn, IoContext, ProjectError, Stopped};
use crate::files;

/// Size limit for `pyproject.toml`, for a version file, and for a script up to the end of its metadata, in bytes.
pub const PROJECT_BYTES: u64 = 4 << 20;

/// Size limit for a `uv.lock`, in bytes.
pub const LOCK_BYTES: u64 = 16 << 20;

/// Maximum total size of the files whose content is part of a fingerprint, in bytes.
const HASHED_BYTES: u64 = 4 << 30;

/// A project folder. Reads nothing outside of it.
pub(crate) struct Project<'a> {
    pub(crate) root: PathBuf,
    purpose: Purpose<'a>,
    /// Number of bytes hashed so far from all files, as [`files::hash_tree`] counts them.
    hashed_bytes: Cell<u64>,
    /// The files of the project that its requirements refer to, as real paths.
    pub(crate) referred: RefCell<Vec<PathBuf>>,
}

/// Why a project is read.
pub(crate) enum Purpose<'a> {
    /// To build or find an environment for a job, with a fingerprint of all that the environment depends on.
    Build(GoesOn<'a>),
    /// To check the files before a submission. Local packages are not read, so that the fingerprint is incomplete.
    Check,
}

impl<'a> Project<'a> {
    pub(crate) fn open(project_dir: &Path, purpose: Purpose<'a>) -> Result<Self, ProjectError> {
        let root = project_dir.canonicalize().context("open", project_dir)?;
        Ok(Self { root, purpose, hashed_bytes: Cell::default(), referred: RefCell::default() })
    }

    /// Adds the content of everything below `path` to a fingerprint.
    ///
    /// The agent does this outside the limits of the job, so it ends with the job and its amount is limited.
    pub(crate) fn hash_path(&self, hasher: &mut blake3::Hasher, path: &Path) -> Result<(), ProjectError> {
        let Purpose::Build(goes_on) = &self.purpose else { return Ok(()) };
        let mut tree = blake3::Hasher::new();
        let room = HASHED_BYTES - self.hashed_bytes.get();
        let hashed = files::hash_tree(path, &mut tree, room, *goes_on).map_err(|stopped| match stopped {
            Stopped::System(source) => ProjectError::Io { action: "read", path: path.to_owned(), source },
            stopped => stopped.into(),
        })?;
        let Some(bytes) = hashed else {
            let below = path.strip_prefix(&self.root).unwrap_or(path);
            let file = if below.as_os_str().is_empty() { "the project".into() } else { below.to_string_lossy() };
            return Err(ProjectError::TooLong { file: file.into_owned(), bound: Bound::LocalBytes(HASHED_BYTES) });
        };
        self.hashed_bytes.set(self.hashed_bytes.get() + bytes);
        hash_field(hasher, tree.finalize().as_bytes());
        Ok(())
    }

    /// Real path of an optional file.
    pub(crate) fn find(&self, name: &str) -> Result<Option<PathBuf>, ProjectError> {
        let path = self.root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(_) => self.inside(&path, name, name).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("read", &path),
        }
    }

    /// The content of `.python-version`.
    pub(crate) fn version_file(&self) -> Result<VersionFile, ProjectError> {
        let text = self.read_optional(".python-version", PROJECT_BYTES)?;
        Ok(VersionFile::parse(&text.unwrap_or_default()))
    }

    pub(crate) fn pyproject(&self) -> Result<Option<toml::Table>, ProjectError> {
        let text = self.read_optional("pyproject.toml", PROJECT_BYTES)?;
        text.map(|text| parse_toml("pyproject.toml", &text)).transpose()
    }

    /// As [`Project::inside`], and remembers the path.
    pub(crate) fn refer(&self, path: &Path, file: &str, target: &str) -> Result<PathBuf, ProjectError> {
        let real = self.inside(path, file, target)?;
        self.referred.borrow_mut().push(real.clone());
        Ok(real)
    }

    /// Text of an optional file.
    pub(crate) fn read_optional(&self, name: &str, most: u64) -> Result<Option<String>, ProjectError> {
        self.find(name)?.map(|path| read(&path, name, most, Bound::Bytes(most))).transpose()
    }

    /// Real path of `path`, which `file` refers to as `target`. Fails if it is outside the folder.
    fn inside(&self, path: &Path, file: &str, target: &str) -> Result<PathBuf, ProjectError> {
        let real = path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => problem(file, format!("refers to {target}, which does not exist")),
            _ => ProjectError::Io { action: "read", path: path.to_owned(), source: error },
        })?;
        if real.starts_with(&self.root) {
            Ok(real)
        } else {
            Err(ProjectError::OutsideProject { file: file.to_owned(), target: target.to_owned() })
        }
    }
}

/// Content of a file with at most `most` bytes. A larger file is an error that reports `bound`.
pub(crate) fn read_bytes(path: &Path, shown: &str, most: u64, bound: Bound) -> Result<Vec<u8>, ProjectError> {
    files::read_regular(path, most).map_err(|source| match source.kind() {
        io::ErrorKind::FileTooLarge => ProjectError::TooLong { file: shown.to_owned(), bound },
        _ => ProjectError::Io { action: "read", path: path.to_owned(), source },
    })
}

pub(crate) fn read(path: &Path, shown: &str, most: u64, bound: Bound) -> Result<String, ProjectError> {
    String::from_utf8(read_bytes(path, shown, most, bound)?).map_err(|_| problem(shown, "is not UTF-8 text"))
}

/// Lock that serializes the parsing of lock files. Parsing needs many times the file's size in memory, and many
/// jobs may start at once.
pub(crate) static LOCK_TURN: Mutex<()> = Mutex::new(());

pub(crate) fn hash_field(hasher: &mut blake3::Hasher, field: &[u8]) {
    hasher.update(&(field.len() as u64).to_le_bytes());
    hasher.update(field);
}

pub(crate) fn parse_toml(file: &str, text: &str) -> Result<toml::Table, ProjectError> {
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        // The error's own text has several lines.
        problem(file, format!("line {}: {}", before.matches('\n').count() + 1, error.message().replace('\n', "; ")))
    })
}

pub(crate) fn string_list(file: &str, field: &str, value: Option<&toml::Value>) -> Result<Vec<String>, ProjectError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let strings = value.as_array().and_then(|list| list.iter().map(|item| item.as_str().map(str::to_owned)).collect());
    strings.ok_or_else(|| problem(file, format!("{field} is not a list of strings")))
}

/// The value at a path of keys.
pub(crate) fn value_at<'a>(table: &'a toml::Table, path: &[&str]) -> Option<&'a toml::Value> {
    path[1..].iter().try_fold(table.get(path[0])?, |value, key| value.get(*key))
}

pub(crate) fn problem(file: &str, problem: impl Into<String>) -> ProjectError {
    ProjectError::Invalid { file: file.to_owned(), problem: problem.into() }
}

pub(crate) fn uv_settings(pyproject: &toml::Table) -> Option<&toml::Value> {
    pyproject.get("tool")?.get("uv")
}

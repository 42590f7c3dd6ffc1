//! Reads requirements files as pip does, and resolves their includes and local references.
//!
//! The result is a list of lines without includes that pip and uv understand in the same way. pip reads more than uv,
//! e.g. UTF-16 and relative `file:` URLs, and the content of local packages belongs to the fingerprint, so this reader
//! is needed with both. A test compares it with pip.

mod options;
pub(crate) mod text;

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use options::Options;

use crate::error::{Bound, ProjectError};
use crate::plan::{Kind, Line, List, Local, Plan, Requirements, fingerprint_of};
use crate::project::{Project, hash_field, problem, read_bytes};

/// Maximum total size of requirements files and their includes, in bytes.
const REQUIREMENTS_BYTES: u64 = 4 << 20;

/// Maximum total number of lines in requirements files and their includes.
const REQUIREMENTS_LINES: usize = 100_000;

/// Maximum nesting depth of includes, which limits stack use.
const MOST_INCLUDES: usize = 64;

/// Endings of archives that pip installs.
const ARCHIVES: [&str; 12] =
    [".zip", ".whl", ".tar.bz2", ".tbz", ".tar.gz", ".tgz", ".tar", ".tar.xz", ".txz", ".tlz", ".tar.lz", ".tar.lzma"];

/// Collects requirement lines from files and their includes.
pub(super) struct RequirementsReader<'a> {
    project: &'a Project<'a>,
    list: List,
    hasher: blake3::Hasher,
    /// Variables that lines name as `${NAME}`.
    named: BTreeSet<String>,
    /// Files that were already read, each with whether it was read as constraints. They are not read again, so cycles
    /// end.
    seen: HashSet<(PathBuf, bool)>,
    /// Nesting depth of the current include.
    depth: usize,
    /// Number of bytes read so far from all files.
    bytes: u64,
    /// Number of lines read so far from all files.
    lines: usize,
}

/// The file of a line, for messages and relative paths.
#[derive(Clone, Copy)]
struct Source<'a> {
    /// The file, relative to the project.
    shown: &'a str,
    directory: &'a Path,
}

impl<'a> RequirementsReader<'a> {
    pub(super) fn new(project: &'a Project<'a>) -> Self {
        let (list, hasher, seen) = (List::default(), blake3::Hasher::new(), HashSet::new());
        Self { project, list, hasher, named: BTreeSet::new(), seen, depth: 0, bytes: 0, lines: 0 }
    }

    /// Returns the collected requirements; `None` if there are only constraints, or no lines at all.
    pub(super) fn finish(self, kind: Kind) -> Result<Option<Requirements>, ProjectError> {
        if self.list.requirements.is_empty() {
            return Ok(None);
        }
        let mut hasher = fingerprint_of(Kind::RequirementsTxt);
        hash_field(&mut hasher, self.hasher.finalize().as_bytes());
        for (tag, lines) in [("requirement", &self.list.requirements), ("constraint", &self.list.constraints)] {
            for line in lines {
                hash_field(&mut hasher, tag.as_bytes());
                self.hash_line(&mut hasher, line)?;
            }
        }
        let mut found = Requirements::new(kind, self.project, Plan::List(self.list), &hasher);
        found.named = self.named;
        Ok(Some(found))
    }

    pub(super) fn read_file(&mut self, path: &Path, shown: &str, constraint: bool) -> Result<(), ProjectError> {
        let bound = Bound::RequirementsBytes(REQUIREMENTS_BYTES);
        let bytes = read_bytes(path, shown, REQUIREMENTS_BYTES - self.bytes, bound)?;
        self.bytes += bytes.len() as u64;
        let text = text::decoded(&bytes).map_err(|reason| problem(shown, reason))?;
        self.lines += text.lines().count();
        if self.lines > REQUIREMENTS_LINES {
            let bound = Bound::RequirementsLines(REQUIREMENTS_LINES);
            return Err(ProjectError::TooLong { file: shown.to_owned(), bound });
        }
        let directory =
            self.project.root.join(shown).parent().map_or_else(|| self.project.root.clone(), Path::to_owned);
        for line in text::logical_lines(&text) {
            self.file_line(&line, Source { shown, directory: &directory }, constraint)?;
        }
        Ok(())
    }

    /// Adds a line with options only.
    pub(super) fn option(&mut self, line: String) {
        self.list.requirements.push(Line::Text(line));
    }

    /// Adds a dependency named in `shown`, a file that is not a requirements file, with options such as hashes.
    pub(super) fn dependency(&mut self, dependency: &str, options: &str, shown: &str) -> Result<(), ProjectError> {
        let root = self.project.root.clone();
        let line = self.requirement(dependency, options, Source { shown, directory: &root })?;
        self.list.requirements.push(line);
        Ok(())
    }

    /// Processes one line of a requirements file.
    fn file_line(&mut self, line: &str, source: Source<'_>, constraint: bool) -> Result<(), ProjectError> {
        self.note_variables(line);
        let (requirement, rest) = options::split(line);
        if !requirement.is_empty() {
            let line = self.requirement(requirement, rest, source)?;
            self.push(line, constraint);
            return Ok(());
        }
        let options = Options::parse(rest).ok_or_else(|| problem(source.shown, format!("unclosed quote in {line}")))?;
        // As in pip, these options exclude each other and all others, and only the first one counts.
        if let Some(target) = options.first("--editable") {
            let line = self.editable(target, source)?;
            self.push(line, constraint);
        } else if let Some(target) = options.first("--requirement") {
            self.include("-r", target, source, false)?;
        } else if let Some(target) = options.first("--constraint") {
            self.include("-c", target, source, true)?;
        } else {
            self.settings(line, &options, source, constraint)?;
        }
        Ok(())
    }

    fn push(&mut self, line: Line, constraint: bool) {
        if constraint { &mut self.list.constraints } else { &mut self.list.requirements }.push(line);
    }

    fn include(
        &mut self,
        option: &str,
        target: &str,
        source: Source<'_>,
        constraint: bool,
    ) -> Result<(), ProjectError> {
        if target.contains("://") && !text::is_file_url(target) {
            self.list.requirements.push(Line::Text(format!("{option} {target}")));
            return Ok(());
        }
        let path = if text::is_file_url(target) { text::FileUrl::parse(target).path } else { target.to_owned() };
        if Path::new(&path).is_absolute() {
            return Err(ProjectError::OutsideProject { file: source.shown.to_owned(), target: target.to_owned() });
        }
        let path = self.project.refer(&source.directory.join(path), source.shown, target)?;
        if !self.seen.insert((path.clone(), constraint)) {
            return Ok(());
        }
        let name = path.strip_prefix(&self.project.root).unwrap_or(&path).to_string_lossy().into_owned();
        if self.depth >= MOST_INCLUDES {
            return Err(problem(source.shown, format!("files include each other more than {MOST_INCLUDES} deep")));
        }
        self.depth += 1;
        self.read_file(&path, &name, constraint)?;
        self.depth -= 1;
        Ok(())
    }

    /// Processes a line of other options, such as package indexes.
    fn settings(
        &mut self,
        line: &str,
        options: &Options,
        source: Source<'_>,
        constraint: bool,
    ) -> Result<(), ProjectError> {
        let mut local = Vec::new();
        for (name, value) in options.all() {
            let Some(value) = value.filter(|_| ["--find-links", "--index-url", "--extra-index-url"].contains(&name))
            else {
                continue;
            };
            let path = if text::is_file_url(value) { text::FileUrl::parse(value).path } else { value.to_owned() };
            if value.contains("://") && !text::is_file_url(value) {
                continue;
            }
            if path.starts_with('/') {
                self.note_outside_file(&path);
                continue;
            }
            // pip prefers a directory beside the file.
            let beside = source.directory.join(&path);
            let path = if beside.exists() { beside } else { self.project.root.join(&path) };
            let path = self.project.refer(&path, source.shown, value)?;
            local.push((
                name,
                value,
                Line::Local(Local { before: format!("{name} file://"), path, after: String::new() }),
            ));
        }
        if local.is_empty() {
            self.push(Line::Text(line.to_owned()), constraint);
            return Ok(());
        }
        for (name, value) in options.all() {
            let at = local.iter().position(|(other, path, _)| *other == name && Some(*path) == value);
            let line = match (at, value) {
                (Some(at), _) => local.swap_remove(at).2,
                (None, Some(value)) => Line::Text(format!("{name} {value}")),
                (None, None) => Line::Text(name.to_owned()),
            };
            self.push(line, constraint);
        }
        Ok(())
    }

    /// Processes a requirement with its options, such as hashes.
    fn requirement(&mut self, requirement: &str, options: &str, source: Source<'_>) -> Result<Line, ProjectError> {
        let whole = [requirement, options].join(" ").trim_end().to_owned();
        let separator = if text::is_url(requirement) { "; " } else { ";" };
        let (name, marker) = match requirement.split_once(separator) {
            Some((name, marker)) => (name.trim(), format!(" ; {}", marker.trim())),
            None => (requirement.trim(), String::new()),
        };
        let after = if options.is_empty() { marker } else { format!("{marker} {options}") };
        if text::is_file_url(name) {
            return self.file_url("", name, "", &after, source).map(|line| line.unwrap_or(Line::Text(whole)));
        }
        if text::is_url(name) {
            self.note_outside_file(name);
            return Ok(Line::Text(whole));
        }
        if let Some((package, target)) = text::direct_reference(name) {
            let found = if text::is_file_url(target) {
                self.file_url(&format!("{package} @ "), target, "", &after, source)?
            } else if target.starts_with('.') {
                Some(self.local(&format!("{package} @ file://"), target, &after, true, source)?)
            } else {
                None
            };
            return Ok(found.unwrap_or(Line::Text(whole)));
        }
        let (path, extras) = text::split_extras(name);
        let is_archive = ARCHIVES.iter().any(|ending| path.to_ascii_lowercase().ends_with(ending));
        if !name.contains('/') && !name.starts_with('.') && !is_archive {
            return Ok(Line::Text(whole));
        }
        if path.starts_with('/') {
            self.note_outside_file(path);
            return Ok(Line::Text(whole));
        }
        self.local("", path, &format!("{extras}{after}"), true, source)
    }

    /// Processes the value of `-e`.
    fn editable(&mut self, target: &str, source: Source<'_>) -> Result<Line, ProjectError> {
        let whole = Line::Text(format!("-e {target}"));
        let (path, extras) = text::split_extras(target);
        if text::is_file_url(path) {
            let line = self.file_url("", path, extras, "", source)?;
            return self.folder(line.unwrap_or(whole), target, source);
        }
        if path.starts_with('/') {
            self.note_outside_file(path);
            return Ok(whole);
        }
        let is_there = |directory: &Path| directory.join(path).is_dir();
        if text::is_url(target) && !is_there(&self.project.root) && !is_there(source.directory) {
            self.note_outside_file(target);
            return Ok(whole);
        }
        let line = self.local("", path, extras, true, source)?;
        self.folder(line, target, source)
    }

    /// Checks that an editable requirement is a folder.
    fn folder(&self, line: Line, target: &str, source: Source<'_>) -> Result<Line, ProjectError> {
        match &line {
            Line::Local(local) if !local.path.is_dir() => {
                Err(problem(source.shown, format!("refers to {target} with -e, but it is not a folder")))
            }
            _ => Ok(line),
        }
    }

    /// Processes a `file:` URL with the text before it, extras and the text after it; `None` if its path is absolute.
    fn file_url(
        &mut self,
        before: &str,
        target: &str,
        extras: &str,
        after: &str,
        source: Source<'_>,
    ) -> Result<Option<Line>, ProjectError> {
        let url = text::FileUrl::parse(target);
        if url.path.starts_with('/') || !url.is_of_this_machine {
            self.note_outside_file(&url.path);
            return Ok(None);
        }
        let (before, extras) = match &url.package {
            Some(package) if before.is_empty() => (format!("{package}{extras} @ file://"), ""),
            _ if before.is_empty() && url.fragment.is_empty() => (String::new(), extras),
            _ => (format!("{before}file://"), extras),
        };
        let fragment = if url.fragment.is_empty() { String::new() } else { format!("#{}", url.fragment) };
        // The package may be in a subdirectory.
        let is_package = url.fragment.is_empty();
        self.local(&before, &url.path, &format!("{fragment}{extras}{after}"), is_package, source).map(Some)
    }

    /// Resolves a local path. pip resolves it from the project folder; as a fallback, the file's own folder is used.
    fn local(
        &self,
        before: &str,
        target: &str,
        after: &str,
        is_package: bool,
        source: Source<'_>,
    ) -> Result<Line, ProjectError> {
        let from_root = self.project.root.join(target);
        let path = if from_root.exists() { from_root } else { source.directory.join(target) };
        let path = self.project.refer(&path, source.shown, target)?;
        if is_package && path.is_dir() && !["pyproject.toml", "setup.py"].iter().any(|name| path.join(name).exists()) {
            let reason = format!("refers to {target}, which has neither pyproject.toml nor setup.py");
            return Err(problem(source.shown, reason));
        }
        Ok(Line::Local(Local { before: before.to_owned(), path, after: after.to_owned() }))
    }

    /// Notes environment variables, because pip replaces `${NAME}` with their values.
    fn note_variables(&mut self, line: &str) {
        let names = line.split("${").skip(1).filter_map(|part| part.split_once('}'));
        self.named.extend(names.map(|(name, _)| name.to_owned()));
    }

    /// Adds size and time of a file outside the project (e.g. a wheel on a shared disk), which may be replaced in
    /// place.
    fn note_outside_file(&mut self, line: &str) {
        let path = line.split_once("file://").map_or(line, |(_, path)| path);
        if path.starts_with('/')
            && let Ok(metadata) = fs::metadata(path)
        {
            let stamp = format!("{}:{}:{}", metadata.len(), metadata.mtime(), metadata.mtime_nsec());
            hash_field(&mut self.hasher, stamp.as_bytes());
        }
    }

    fn hash_line(&self, hasher: &mut blake3::Hasher, line: &Line) -> Result<(), ProjectError> {
        match line {
            Line::Text(text) => hash_field(hasher, text.as_bytes()),
            Line::Local(Local { before, path, after }) => {
                hash_field(hasher, before.as_bytes());
                // The name of a wheel matters; the name of a folder does not.
                hash_field(hasher, path.file_name().filter(|_| path.is_file()).unwrap_or_default().as_encoded_bytes());
                hash_field(hasher, after.as_bytes());
                self.project.hash_path(hasher, path)?;
            }
        }
        Ok(())
    }
}
